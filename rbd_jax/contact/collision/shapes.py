"""The shapes of a scene."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ...spatial import so3


class HeightField(eqx.Module):
    """Heights over a grid, as MuJoCo's ``hfield``."""

    heights: Float[Array, "rows columns"]
    """The height at each point of the grid (m). Rows follow each other along y, columns along x."""
    half: Float[Array, "2"]
    """Half of its lengths along x and y (m)."""
    base: Float[Array, ""]
    """How far it reaches below zero height (m)."""


class Shapes(eqx.Module):
    """Shapes fixed to bodies; body −1 is the world."""

    R: Float[Array, "ng 3 3"]
    """Orientation in the body's frame."""
    p: Float[Array, "ng 3"]
    """Position in the body's frame (m)."""
    size: Float[Array, "ng 3"]
    """MuJoCo's sizes, see :mod:`rbd_jax.contact.collision.ground` (m)."""
    corners: Float[Array, "nm k 3"]
    """The corners of the convex hull of each mesh, in the frame of the shape (m)."""
    kinds: tuple[str, ...] = eqx.field(static=True)
    bodies: tuple[int, ...] = eqx.field(static=True)
    parts: tuple[int, ...] = eqx.field(static=True)
    """Which of the scene's :class:`Parts` each shape belongs to; −1 is the world."""
    names: tuple[str, ...] = eqx.field(static=True)
    faces: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...] = eqx.field(static=True)
    """For each corner of each convex hull its faces, each by the numbers of four corners."""
    hulls: tuple[int, ...] = eqx.field(static=True)
    """The number of the convex hull of each shape; −1 for shapes that are no meshes."""
    polygons: tuple[tuple[tuple[int, ...], ...], ...] = eqx.field(static=True, default=())
    """For each convex hull its faces, each by the numbers of all corners, counterclockwise."""
    bend: Float[Array, "nm f 3"] | None = None
    """What is added to the normals of these faces, which are those of their first three corners.
    MuJoCo's normals have more digits than its corners."""
    surface: Float[Array, "ng 6"] | None = None
    """How the surface of each shape moves although the shape does not, such as a belt: velocity
    (m/s) and angular velocity about the origin of the shape (rad/s), in its frame. None if all
    surfaces stand still on their shapes."""

    fields: tuple[HeightField, ...] = ()
    """The heights of each shape of the kind ``hfield``, in the order of the shapes."""

    def placed(
        self, R: Float[Array, "frames 3 3"], p: Float[Array, "frames 3"]
    ) -> tuple[Float[Array, "ng 3 3"], Float[Array, "ng 3"]]:
        """Orientations and places of the shapes in the world, for poses of the bodies.

        The last pose is the world's.
        """
        body = np.array(self.bodies, dtype=np.int32)
        return so3.matmul(R[body], so3.orthonormalize(self.R)), p[body] + so3.rotate(
            R[body], self.p
        )
