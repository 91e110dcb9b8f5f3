"""Convex shapes as support functions: a polytope of corners plus a smooth body plus a radius.

A sphere is a point with a radius, a capsule a segment with a radius, a cylinder a segment plus a
disk, an ellipsoid a point plus a smooth body. Boxes and meshes are polytopes. The support function
of a sum is the sum of the support functions, so that one search serves all pairs of shapes.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...spatial import so3

Vector = Float[Array, "3"]
ROUND = ("sphere", "capsule")
"""Shapes with a radius."""
CONVEX = (*ROUND, "ellipsoid", "cylinder", "box", "mesh")
"""All convex shapes, in MuJoCo's order."""
CORNERS = 8
"""The corners of the polytope of a shape that is no mesh, some of them several times."""
BOX = np.array([[1.0 if k & b else -1.0 for b in (1, 2, 4)] for k in range(CORNERS)])
"""The signs of the corners of a box; bit k of a corner's number is its sign along axis k."""
LINE = np.array([[0.0, 0.0, -1.0 if k == 1 else 1.0] for k in range(CORNERS)])
"""The signs of the ends of a segment: the upper one, and then the lower one."""
AXIAL = {"float64": 1e-30, "float32": 3e-13}
"""The least square of the sine between a direction and the axis of a disk. Second derivatives of
the point of its rim divide by the fifth power of the sine, which must be a number."""
SIGNS = {"box": BOX, "capsule": LINE, "cylinder": LINE}


class Body(NamedTuple):
    """A convex shape at a pose: corners plus a disk across its z axis, an ellipsoid and a ball."""

    R: Float[Array, "*n 3 3"]
    p: Float[Array, "*n 3"]
    corners: Float[Array, "*n k 3"]
    """The corners of its polytope in its frame (m)."""
    disk: Float[Array, "*n"]
    """The radius of the disk (m)."""
    axes: Float[Array, "*n 3"]
    """The semi-axes of the ellipsoid (m)."""
    ball: Float[Array, "*n"]
    """The radius of the ball (m)."""

    @property
    def bound(self) -> Float[Array, ""]:
        """The radius of a sphere around the shape, at its origin (m)."""
        reach = jnp.sqrt(jnp.max(so3.dot(self.corners, self.corners)) + self.disk * self.disk)
        return reach + self.ball + jnp.max(self.axes)

    @property
    def box(self) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        """The center and the half sides of a box around the shape, in its frame (m)."""
        low, high = jnp.min(self.corners, axis=0), jnp.max(self.corners, axis=0)
        round_ = self.axes + self.ball + self.disk * np.array([1.0, 1.0, 0.0]).astype(low.dtype)
        return 0.5 * (low + high), 0.5 * (high - low) + round_


def bodies(
    kinds: list[str],
    R: Float[Array, "n 3 3"],
    p: Float[Array, "n 3"],
    size: Float[Array, "n 3"],
    meshes: Float[Array, "n k 3"] | None,
) -> Body:
    """Shapes of several kinds as one batch: all are meshes, or none.

    Args:
        kinds: the kind of each shape. R: orientations. p: places (m).
        size: MuJoCo's sizes, see :mod:`rbd_jax.contact.collision.ground` (m).
        meshes: the corners of the meshes; None if there are none.
    """
    kind = size.dtype
    flag = lambda *names: jnp.array([[k in names] for k in kinds], kind)  # noqa: E731
    corners = meshes
    if corners is None:
        signs = jnp.asarray(np.stack([SIGNS.get(k, 0 * BOX) for k in kinds]), kind)
        box = flag("box") * size
        line = flag("capsule", "cylinder") * size[:, 1:2]
        corners = signs * (box + line * np.array([[0.0, 0.0, 1.0]]).astype(kind))[:, None]
    disk, ball = flag("cylinder") * size[:, :1], flag(*ROUND) * size[:, :1]
    return Body(R, p, corners, disk[:, 0], flag("ellipsoid") * size, ball[:, 0])


def turned(R: Float[Array, "3 3"], x: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Vectors of one frame in another one."""
    return jnp.sum(R.reshape(*[1] * (x.ndim - 1), 3, 3) * x[..., None, :], axis=-1)


def placed(body: Body, x: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Points of the shape's frame in the world."""
    return turned(body.R, x) + body.p.reshape(*[1] * (x.ndim - 1), 3)


def corner_towards(body: Body, d: Vector) -> Int[Array, ""]:
    """The number of the corner of the shape's polytope that lies farthest along d in its frame."""
    return jnp.argmax(jnp.sum(body.corners * d[None], axis=1)).astype(jnp.int32)


def smooth(body: Body, d: Vector) -> Vector:
    """The point of the shape's smooth part that lies farthest along d, in its frame.

    Of the disk of a cylinder that is looked at along its axis it is the center.
    """
    flat = d * np.array([1.0, 1.0, 0.0]).astype(d.dtype)
    s = body.axes * d
    n2, m2 = so3.dot(flat, flat), so3.dot(s, s)
    some, any_ = n2 > AXIAL[str(n2.dtype)], m2 > 1e-30
    disk = jnp.where(some, body.disk * flat / jnp.sqrt(jnp.where(some, n2, 1)), 0)
    return disk + jnp.where(any_, body.axes * s / jnp.sqrt(jnp.where(any_, m2, 1)), 0)
