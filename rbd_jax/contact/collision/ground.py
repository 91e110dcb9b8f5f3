"""Contact points of shapes with a plane or a height function.

A contact point has a signed distance, a position halfway between the two surfaces, a normal from
the first shape to the second, and a hint for the first tangent. Source: MuJoCo's documentation,
"Computation", collision detection. The points are those of MuJoCo's primitive colliders, as a list
of fixed length. ``size`` is MuJoCo's: the radius of a sphere, the radius and the half length of
capsules and cylinders, the half lengths of a box, the semi-axes of an ellipsoid (m).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3

Vector = Float[Array, "3"]


class ContactPoints(NamedTuple):
    """Contact points of one pair of shapes; the normal points from the first to the second."""

    distance: Float[Array, " k"]
    point: Float[Array, "k 3"]
    normal: Float[Array, "k 3"]
    tangent: Float[Array, "k 3"]
    """A hint for the first tangent; zero for none."""


FAR = 1e3
"""The distance of entries of the list that are no contact points (m)."""
LEAST_SQUARE = {"float64": 1e-30, "float32": 1e-24}
"""The least square of a vector that has a direction. The derivative of the direction divides by the
third power of the length, which must be a number of the precision."""


def first_of(
    t: ContactPoints, acts: Bool[Array, " n"], most: int
) -> tuple[ContactPoints, Int[Array, " most"], Bool[Array, ""]]:
    """The first points that act, their places in the list, and whether there are more."""
    place, count = acting_first(acts, most)
    kept = jax.tree.map(lambda x: x[place], t)
    real = jnp.arange(most, dtype=jnp.int32) < count
    return kept._replace(distance=jnp.where(real, kept.distance, FAR)), place, count > most


def acting_first(acts: Bool[Array, " n"], most: int) -> tuple[Int[Array, " most"], Int[Array, ""]]:
    """The numbers of the first points that act, then zeros; and how many act."""
    rank = jnp.where(acts, jnp.cumsum(acts, dtype=jnp.int32) - 1, most)
    every = jnp.arange(acts.shape[0], dtype=jnp.int32)
    place = jnp.zeros((most,), jnp.int32).at[rank].set(every, mode="drop")
    return place, jnp.sum(acts, dtype=jnp.int32)


class Ground(NamedTuple):
    """A tangent plane of the ground: a point in it and its normal."""

    point: Vector
    normal: Vector


def unit(x: Vector, otherwise: Vector) -> Vector:
    """``x / |x|``, or ``otherwise`` where x vanishes. The derivative is finite everywhere."""
    n2 = so3.dot(x, x)
    some = n2 > LEAST_SQUARE[str(n2.dtype)]
    return jnp.where(some, x, otherwise) / jnp.sqrt(jnp.where(some, n2, 1))


# --- shapes as points with a radius, the lowest ones over a ground with normal n ------------------


def _sphere(R, p, size, n):
    return p[None], size[:1], jnp.zeros((1, 3), p.dtype)


def _capsule(R, p, size, n):
    axis = R[:, 2]
    ends = jnp.stack([p + size[1] * axis, p - size[1] * axis])
    return ends, jnp.stack([size[0], size[0]]), jnp.stack([axis, axis])


def _box(R, p, size, n):
    """The four lowest corners, one of every pair of opposite corners.

    Edges are sorted by how much they climb: c0 ≤ c1 ≤ c2 in absolute value. The lowest corner goes
    down along all of them, the next two up along c0 or c1, the fourth up along c2 or along both.
    """
    climb = so3.rotate_inverse(R, n) * size
    down = jnp.where(climb > 0, -1.0, 1.0).astype(p.dtype)
    x, y, z = jnp.abs(climb)
    # one flag for each edge: is it the least, the middle or the greatest climb (ties by order)
    least = jnp.stack([(x <= y) & (x <= z), (y < x) & (y <= z), (z < x) & (z < y)])
    most = jnp.stack([(x > y) & (x > z), (y >= x) & (y > z), (z >= x) & (z >= y)])
    middle = ~least & ~most
    both_up = x + y + z - 2 * jnp.maximum(jnp.maximum(x, y), z) <= 0
    flips = jnp.stack([least & False, least, middle, jnp.where(both_up, least | middle, most)])
    up = jnp.where(flips, down[None] < 0, down[None] > 0)
    bit = np.array([1, 2, 4], dtype=np.int32)
    corner = jnp.sum(jnp.where(up, bit[None], 0), axis=1, dtype=jnp.int32)
    place = jnp.sum(corner[None] < corner[:, None], axis=1, dtype=jnp.int32)
    here = place[None] == np.arange(4, dtype=np.int32)[:, None]  # in MuJoCo's order
    corner = jnp.sum(jnp.where(here, corner[None], 0), axis=1, dtype=jnp.int32)
    signs = jnp.where((corner[:, None] & bit[None]) > 0, 1.0, -1.0).astype(p.dtype)
    corners = p[None] + jnp.sum(R[None] * (signs * size[None])[:, None, :], axis=-1)
    return corners, jnp.zeros((4,), p.dtype), jnp.zeros((4, 3), p.dtype)


def _cylinder(R, p, size, n):
    """Both ends of the lowest line, and two more points on the rim of the lower disk."""
    slope = so3.dot(n, R[:, 2])
    axis = jnp.where(slope > 0, -R[:, 2], R[:, 2])
    slope = -jnp.abs(slope)
    across = so3.rotate_inverse(R, n) * np.array([-1.0, -1.0, 0.0]).astype(n.dtype)
    rim = size[0] * so3.rotate(R, unit(across, jnp.asarray([1.0, 0.0, 0.0], n.dtype)))
    half = size[1] * axis
    side = 0.5 * 3.0**0.5 * size[0] * unit(so3.cross(rim, half), R[:, 1])
    disk = p + half - 0.5 * rim
    points = jnp.stack([p + rim + half, p + rim - half, disk + side, disk - side])
    return points, jnp.zeros((4,), p.dtype), jnp.zeros((4, 3), p.dtype)


def _ellipsoid(R, p, size, n):
    m = so3.rotate_inverse(R, n) * size
    point = p - so3.rotate(R, size * unit(m, m))
    return point[None], jnp.zeros((1,), p.dtype), jnp.zeros((1, 3), p.dtype)


def _mesh(R, p, hull, n):
    """The corners of one face: of the faces at the lowest corner, the one that is most level.

    Corners above the shape's center count only if they are the lowest. ``hull`` is a pair: corners
    in the shape's frame and, for each of them, the faces that begin there, each by the numbers of
    four corners.
    """
    corners, faces = hull
    down = so3.rotate_inverse(R, n)
    height = jnp.sum(corners * down[None], axis=-1)
    lowest = jnp.argmin(height).astype(faces.dtype)
    here = faces[lowest]
    a, b, c, d = (corners[here[:, k]] for k in range(4))
    across = so3.cross(c - a, d - b)
    slope = jnp.sum(across * down[None], axis=-1) / jnp.sqrt(so3.dot(across, across))
    face = here[jnp.argmin(slope)]
    twice = jnp.arange(face.shape[0]) > 0
    twice = twice & (face == face[0])
    counts = ((height[face] < 0) | (face == lowest)) & ~twice
    points = p[None] + jnp.sum(R[None] * corners[face][:, None, :], axis=-1)
    none = jnp.zeros((face.shape[0], 3), p.dtype)
    return points, jnp.where(counts, 0, -FAR).astype(p.dtype), none


POINTS: dict[str, tuple[int, Callable]] = {
    "sphere": (1, _sphere),
    "capsule": (2, _capsule),
    "box": (4, _box),
    "cylinder": (4, _cylinder),
    "ellipsoid": (1, _ellipsoid),
    "mesh": (4, _mesh),
}
"""How many points a shape has over the ground, and the function that finds them."""


def tangent_plane(height: Callable[[Array], Array], x: Vector) -> Ground:
    """The tangent plane of a height function ``(x, y) -> z`` below or above the point x."""
    z, slope = jax.value_and_grad(height)(x[:2])
    up = jnp.concatenate([-slope, jnp.ones_like(z)[None]])
    foot = jnp.concatenate([x[:2], z[None]])
    return Ground(foot, up / jnp.sqrt(so3.dot(up, up)))


def on_ground(shape: str, ground: Callable[[Vector], Ground], R, p, size) -> ContactPoints:
    """Contact points of a shape with the ground; ``ground(x)`` is the tangent plane below x."""
    points, radii, tangents = POINTS[shape][1](R, p, size, ground(p).normal)
    found = [ground(x) for x in points]
    n = jnp.stack([g.normal for g in found])
    height = jnp.stack([so3.dot(x - g.point, g.normal) for x, g in zip(points, found, strict=True)])
    distance = height - radii
    place = points - n * (radii + 0.5 * distance)[:, None]
    return ContactPoints(distance, place, n, tangents)


def contact_frame(normal: Float[Array, "k 3"], tangent: Float[Array, "k 3"]):
    """The frame of each contact: its rows are the normal, the first and the second tangent.

    Source: MuJoCo's convention: without a hint the first tangent is the world's y axis made
    orthogonal to the normal, or its z axis where the normal is near y.
    """
    y = jnp.array([0.0, 1.0, 0.0], normal.dtype)
    z = jnp.array([0.0, 0.0, 1.0], normal.dtype)
    near_y = jnp.abs(normal[:, 1:2]) >= 0.5
    hint = jnp.where(near_y, z[None], y[None])
    plain = _across(normal, hint)
    given = jnp.sum(tangent * tangent, axis=-1, keepdims=True) >= 0.25
    t = _across(normal, jnp.where(given, tangent, plain))
    n2 = jnp.sum(t * t, axis=-1, keepdims=True)
    some = n2 > 1e-20
    t = jnp.where(some, t, plain) / jnp.sqrt(jnp.where(some, n2, jnp.sum(plain**2, -1)[:, None]))
    return jnp.stack([normal, t, so3.cross(normal, t)], axis=1)


def _across(normal, t):
    return t - normal * jnp.sum(t * normal, axis=-1, keepdims=True)
