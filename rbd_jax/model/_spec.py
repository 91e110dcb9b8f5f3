"""A robot before it becomes arrays: links and joints by name, float64 NumPy on the host.

Readers of files and the built-in samples make a :class:`RobotSpec`. :func:`rbd_jax.build_model`
turns it into a :class:`rbd_jax.Model`. Nothing here knows JAX.
"""

from dataclasses import dataclass, field

import numpy as np

ELEMENTARY = ("revolute", "prismatic", "helical", "spherical", "translation", "free")
COMPOSITE = ("cylindrical", "universal", "planar")
KINDS = (*ELEMENTARY, *COMPOSITE, "continuous", "fixed")


class RobotDescriptionError(ValueError):
    """A robot description that cannot become a model; says what is wrong, where, what to do."""


class RobotDescriptionWarning(UserWarning):
    """A robot description that was read but holds something that its author should look at."""


def _zeros3() -> np.ndarray:
    return np.zeros(3)


def _eye3() -> np.ndarray:
    return np.eye(3)


def _x_axis() -> np.ndarray:
    return np.array([1.0, 0.0, 0.0])


@dataclass(frozen=True)
class LinkSpec:
    """A link: mass (kg), center of mass (m, link frame), inertia about it (kg m², link axes)."""

    name: str
    mass: float = 0.0
    com: np.ndarray = field(default_factory=_zeros3)
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))


@dataclass(frozen=True)
class MimicSpec:
    """This joint's position is ``multiplier · position(target) + offset``."""

    target: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class JointSpec:
    """A joint between two links.

    ``(R, p)`` is the joint frame in the parent link's frame at ``q = 0`` (p in m). ``axis`` is in
    the joint frame and is the normal of a planar joint, the first axis of a universal one, whose
    second is ``axis2``. ``pitch`` is in m/rad and matters for helical joints only. Limits are in
    rad or m, rad/s or m/s, N m or N; ``None`` means that there is none. ``rest`` is where the
    joint's spring is at rest, as many numbers as the joint has in q; ``None`` is the neutral place.
    """

    name: str
    kind: str
    parent: str
    child: str
    R: np.ndarray = field(default_factory=_eye3)
    p: np.ndarray = field(default_factory=_zeros3)
    axis: np.ndarray = field(default_factory=_x_axis)
    axis2: np.ndarray | None = None
    pitch: float = 0.0
    lower: float | None = None
    upper: float | None = None
    velocity: float | None = None
    effort: float | None = None
    damping: float = 0.0
    friction: float = 0.0
    armature: float = 0.0
    stiffness: float = 0.0
    rest: tuple[float, ...] | None = None
    mimic: MimicSpec | None = None


@dataclass(frozen=True)
class RobotSpec:
    """A tree of links and joints. The root is the one link that is no joint's child."""

    name: str
    links: tuple[LinkSpec, ...]
    joints: tuple[JointSpec, ...]
