"""Contact points of pairs of primitive shapes.

Source: MuJoCo's documentation, "Computation", collision detection; the points are those of MuJoCo's
primitive colliders. Each function gets orientation, place and size of the first and of the second
shape. The normal points from the first to the second.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...spatial import so3
from .box_box import box_box
from .boxes import capsule_box, sphere_box
from .ground import FAR, LEAST_SQUARE, ContactPoints, unit


def _balls(c1, r1, c2, r2, otherwise) -> ContactPoints:
    """Contact of two spheres; if they are concentric the normal is ``otherwise``."""
    n2 = so3.dot(c2 - c1, c2 - c1)
    apart = n2 > LEAST_SQUARE[str(n2.dtype)]
    length = jnp.where(apart, jnp.sqrt(jnp.where(apart, n2, 1)), 0)
    normal = unit(c2 - c1, otherwise)
    distance = length - r1 - r2
    point = c1 + normal * (r1 + 0.5 * distance)
    return ContactPoints(distance[None], point[None], normal[None], jnp.zeros((1, 3), c1.dtype))


def _apart(R1, R2) -> Array:
    """The normal of shapes whose nearest points are one: across both axes, or the world's x axis.

    Source: MuJoCo's sphere collider.
    """
    across = so3.cross(R1[:, 2], R2[:, 2])
    return unit(across, jnp.array([1.0, 0.0, 0.0], across.dtype))


def sphere_sphere(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """Contact of two spheres."""
    return _balls(p1, s1[0], p2, s2[0], _apart(R1, R2))


def sphere_capsule(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """Contact of a sphere with the nearest point of a capsule's segment."""
    axis = R2[:, 2]
    x = jnp.clip(so3.dot(axis, p1 - p2), -s2[1], s2[1])
    return _balls(p1, s1[0], p2 + x * axis, s2[0], _apart(R1, R2))


PARALLEL = 1e-8
"""MuJoCo's bound for parallel axes: the square of the sine of their angle."""


def capsule_capsule(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """The nearest points of two segments; of parallel ones the ends of where they overlap.

    Source: MuJoCo 4's capsule collider. Axes that are not parallel have one point: unconstrained
    closest points, then clipped one after the other; the second point is far away. Parallel ones
    have two, which are one place where the segments lie behind each other.
    """
    a1, a2, d = R1[:, 2] * s1[1], R2[:, 2] * s2[1], p1 - p2
    mb, u, v = -so3.dot(a1, a2), -so3.dot(a1, d), so3.dot(a2, d)
    ma, mc = (jnp.where(m > 0, m, 1) for m in (so3.dot(a1, a1), so3.dot(a2, a2)))
    across = so3.cross(a1, a2)
    det = so3.dot(across, across)
    skew = det > PARALLEL * ma * mc
    crossing = jnp.clip((mc * u - mb * v) / jnp.where(skew, det, 1), -1, 1)
    on2 = jnp.clip((v - mb * crossing) / mc, -1, 1)
    places = jnp.clip((u - mb * on2) / ma, -1, 1), on2
    ends = []
    for side in (-1.0, 1.0):  # an end of the first, or the end of the second before it
        there = (v - mb * side) / mc
        on2 = jnp.clip(there, -1, 1)
        ends.append((jnp.where(there == on2, side, jnp.clip((u - mb * on2) / ma, -1, 1)), on2))
    other = _apart(R1, R2)

    def touch(x1, x2):
        return _balls(p1 + x1 * a1, s1[0], p2 + x2 * a2, s2[0], other)

    first = touch(*(jnp.where(skew, x, y) for x, y in zip(places, ends[0], strict=True)))
    second = touch(*ends[1])
    second = second._replace(distance=jnp.where(skew, FAR, second.distance))
    return jax.tree.map(lambda *x: jnp.concatenate(x), first, second)


def sphere_cylinder(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """Contact of a sphere with the side, a cap or the rim of a cylinder, whichever is nearest."""
    axis, d = R2[:, 2], so3.rotate_inverse(R2, p1 - p2)
    x, across = d[2], d * np.array([1.0, 1.0, 0.0]).astype(d.dtype)
    n2 = so3.dot(across, across)
    some = n2 > LEAST_SQUARE[str(n2.dtype)]
    radius = jnp.where(some, jnp.sqrt(jnp.where(some, n2, 1)), 0)
    up = jnp.where(x > 0, axis, -axis)
    to_cap, to_side = jnp.abs(x) - s2[1], radius - s2[0]
    out = so3.rotate(R2, unit(across, jnp.array([1.0, 0.0, 0.0], d.dtype)))
    cap = (to_side < 0) & (to_cap >= jnp.where(to_cap < 0, to_side, to_cap))
    side = ~cap & (to_cap < 0)
    rim = p2 + s2[1] * up + s2[0] * out
    corner = unit(rim - p1, R1[:, 0])
    gap2 = so3.dot(rim - p1, rim - p1)
    gap = jnp.sqrt(jnp.where(gap2 > 0, gap2, 1))
    normal = jnp.where(cap, -up, jnp.where(side, -out, corner))
    distance = jnp.where(cap, to_cap, jnp.where(side, to_side, gap)) - s1[0]
    point = p1 + normal * (s1[0] + 0.5 * distance)
    return ContactPoints(distance[None], point[None], normal[None], jnp.zeros((1, 3), p1.dtype))


PAIRS: dict[tuple[str, str], Callable] = {
    ("sphere", "sphere"): sphere_sphere,
    ("sphere", "capsule"): sphere_capsule,
    ("sphere", "cylinder"): sphere_cylinder,
    ("sphere", "box"): sphere_box,
    ("capsule", "capsule"): capsule_capsule,
    ("capsule", "box"): capsule_box,
    ("box", "box"): box_box,
}
"""The supported pairs of shapes, and the function that finds their contact points."""
