"""The mirror image of a robot, left for right."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..model import Model, neutral
from ..screw import spatial_screws

VECTOR = np.array([1.0, -1.0, 1.0])
"""Signs of a vector in the mirror y → −y."""
AXIS = -VECTOR
"""Signs of an axial vector, such as a turning rate: the mirror also changes its sense."""
_CLOSE = 0.05
"""Greatest distance from the mirror image (m, and of the logarithm of masses). HyQ's trunk has its
center of mass 4 cm away from its image."""


class Reflection(NamedTuple):
    """The mirror image of a vector: a permutation of its entries, some with a minus sign.

    The image of the image is the vector itself. A reflection is static and hashable.
    """

    order: tuple[int, ...]
    """Entry k of the image is entry ``order[k]`` of the vector, times ``sign[k]``."""
    sign: tuple[float, ...]
    """1 or -1 for each entry of the image."""

    @classmethod
    def of(cls, *parts: "np.ndarray | Reflection") -> "Reflection":
        """The reflection of concatenated vectors. A part is a reflection, or an array of signs."""
        order: list[int] = []
        sign: list[float] = []
        for part in parts:
            same = not isinstance(part, Reflection)
            order += [len(sign) + k for k in (range(len(part)) if same else part.order)]
            sign += map(float, part if same else part.sign)
        return cls(tuple(order), tuple(sign))

    @classmethod
    def vector(cls) -> "Reflection":
        """The reflection of a vector, such as a velocity: the mirror turns y to −y."""
        return cls.of(VECTOR)

    @classmethod
    def axis(cls) -> "Reflection":
        """The reflection of an axial vector, such as a turning rate, whose sense changes too."""
        return cls.of(AXIS)

    def __call__(self, x: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        """The image of a vector, or of the rows of a batch, in JAX or in NumPy."""
        return x[..., np.array(self.order)] * np.asarray(self.sign, x.dtype)


class Mirror(NamedTuple):
    """The reflections of the observation and of the action of a symmetric task."""

    observation: Reflection
    action: Reflection


@jax.jit
def _at_zero(model: Model) -> tuple[Array, Array, Array]:
    """Joint screws and poses of the bodies."""
    return spatial_screws(model)[0], *forward_kinematics(model, neutral(model))


def joint_reflection(model: Model) -> Reflection:
    """The velocities of a mirrored robot, for a floating robot whose right side mirrors its left.

    Each degree of freedom is matched with one that has the mirrored screw, up to its sign, and
    moves a body with the mirrored mass and center of mass, all at q = 0.

    Source: Ordoñez-Apraez et al., "On discrete symmetries of robotics systems" (2023), for
    morphological symmetries of robots; the matching is of this library.

    Raises:
        ValueError: if a degree of freedom has no mirror image.
    """
    m, body = np.asarray(model.inertia, float)[:, :4], np.asarray(model.topology.dof_bodies)
    Y, R, p = (np.asarray(x, float) for x in _at_zero(model))
    center = np.einsum("bij,bj->bi", R, m[:, 1:] / np.maximum(m[:, :1], 1e-9)) + p
    about = np.concatenate([center, np.log(np.maximum(m[:, :1], 1e-9))], axis=1)[body]
    image, about_image = Y * [*AXIS, *VECTOR], about * [*VECTOR, 1.0]
    order, sign = [], []
    for k in range(model.nv):
        apart = np.abs(about_image[k] - about).max(axis=1)
        gaps = [np.maximum(apart, np.abs(image[k] - s * Y).max(axis=1)) for s in (1.0, -1.0)]
        s, other = np.unravel_index(np.argmin(gaps), np.shape(gaps))
        if gaps[s][other] > _CLOSE or other in order:
            name = model.topology.joint_names[body[k]]
            raise ValueError(
                f"joint_reflection: the joint {name!r} has no mirror image in the plane of x and "
                "z. A task of such a robot has no mirror; a stander takes mirrored=False"
            )
        order.append(int(other))
        sign.append((1.0, -1.0)[s])
    return Reflection(tuple(order), tuple(sign))
