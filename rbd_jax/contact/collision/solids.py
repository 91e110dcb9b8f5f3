"""Contact shapes at frames of a robot, by hand or from the ``<collision>`` of a URDF."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...io.visuals import read_collisions

SIZES = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3}
"""How many numbers the size of a shape has, see :mod:`rbd_jax.contact.collision.ground`."""


class Solid(NamedTuple):
    """A shape at a frame of a robot. ``size`` is MuJoCo's (m), see :data:`SIZES`."""

    frame: str
    kind: str
    size: tuple[float, ...]
    R: np.ndarray = np.eye(3)
    p: np.ndarray = np.zeros(3)
    name: str = ""
    """The name of the shape; if it is empty, the frame's name."""


def points(frames: Sequence[str], radius: float = 0.0) -> list[Solid]:
    """Contact points at the origins of frames, as spheres of a radius (m), zero by default."""
    return [Solid(frame, "sphere", (radius,)) for frame in frames]


def corners(frame: str, vertices: Float[np.ndarray, "n 3"], name: str = "") -> list[Solid]:
    """A convex body by its corners in a frame (m), each of which is a contact point."""
    name, at = name or frame, np.asarray(vertices, float).reshape(-1, 3)
    return [Solid(frame, "sphere", (0.0,), p=x, name=f"{name}:{k}") for k, x in enumerate(at)]


def solids_of(urdf) -> list[Solid]:
    """The shapes of the ``<collision>`` elements of a URDF: spheres, boxes, cylinders, capsules.

    Meshes are left out with a warning that names their links; give their :func:`corners` by hand.

    Args:
        urdf: a path, an XML string, bytes or an open file.

    Raises:
        RobotDescriptionError: for XML that is not well formed, or numbers that are not numbers.
    """
    found, count = [], {}
    for x in read_collisions(urdf):
        k = count[x.frame] = count.get(x.frame, -1) + 1
        half = {"box": tuple(0.5 * s for s in x.size), "sphere": x.size}
        size = half.get(x.shape) or (x.size[0], 0.5 * x.size[1])
        found.append(Solid(x.frame, x.shape, size, x.R, x.p, f"{x.frame}:{k}" if k else x.frame))
    return found
