"""Two shapes that may touch each other: their nearest points.

Source: MuJoCo's documentation, "Computation", collision detection; the points are those of MuJoCo's
primitive colliders. Each function gets orientation, place and size of the first and of the second
shape. The normal points from the first to the second.
"""

from collections.abc import Callable

import jax.numpy as jnp

from ..spatial import so3
from .box_box import box_box
from .boxes import capsule_box, sphere_box
from .geometry import Touch, unit


def _balls(c1, r1, c2, r2, otherwise) -> Touch:
    """Two spheres; the normal of concentric ones is ``otherwise``."""
    n2 = so3.dot(c2 - c1, c2 - c1)
    apart = n2 > 1e-30
    length = jnp.where(apart, jnp.sqrt(jnp.where(apart, n2, 1)), 0)
    normal = unit(c2 - c1, otherwise)
    distance = length - r1 - r2
    point = c1 + normal * (r1 + 0.5 * distance)
    return Touch(distance[None], point[None], normal[None], jnp.zeros((1, 3), c1.dtype))


def sphere_sphere(R1, p1, s1, R2, p2, s2) -> Touch:
    """Two spheres."""
    return _balls(p1, s1[0], p2, s2[0], R1[:, 0])


def sphere_capsule(R1, p1, s1, R2, p2, s2) -> Touch:
    """A sphere and the nearest point of a capsule's segment."""
    axis = R2[:, 2]
    x = jnp.clip(so3.dot(axis, p1 - p2), -s2[1], s2[1])
    return _balls(p1, s1[0], p2 + x * axis, s2[0], R1[:, 0])


def capsule_capsule(R1, p1, s1, R2, p2, s2) -> Touch:
    """The nearest points of two segments; of parallel ones some nearest pair, where MuJoCo has two.

    Source: MuJoCo's capsule collider: unconstrained closest points, then clipped one after the
    other.
    """
    a1, a2, d = R1[:, 2] * s1[1], R2[:, 2] * s2[1], p1 - p2
    ma, mb, mc = so3.dot(a1, a1), -so3.dot(a1, a2), so3.dot(a2, a2)
    u, v = -so3.dot(a1, d), so3.dot(a2, d)
    det = ma * mc - mb * mb
    skew = jnp.abs(det) >= 1e-12 * ma * mc
    x1 = jnp.where(skew, (mc * u - mb * v) / jnp.where(skew, det, 1), 0)
    x1 = jnp.clip(x1, -1, 1)
    x2 = jnp.clip((v - mb * x1) / mc, -1, 1)
    x1 = jnp.clip((u - mb * x2) / ma, -1, 1)
    return _balls(p1 + x1 * a1, s1[0], p2 + x2 * a2, s2[0], R1[:, 0])


def sphere_cylinder(R1, p1, s1, R2, p2, s2) -> Touch:
    """A sphere and the side, a cap or the rim of a cylinder, whichever is nearest."""
    axis, d = R2[:, 2], p1 - p2
    x = so3.dot(axis, d)
    across = d - x * axis
    n2 = so3.dot(across, across)
    some = n2 > 1e-30
    radius = jnp.where(some, jnp.sqrt(jnp.where(some, n2, 1)), 0)
    up = jnp.where(x > 0, axis, -axis)
    to_cap, to_side = jnp.abs(x) - s2[1], radius - s2[0]
    out = unit(across, R2[:, 0])
    cap = (to_side < 0) & (to_cap >= jnp.where(to_cap < 0, to_side, to_cap))
    side = ~cap & (to_cap < 0)
    rim = p2 + s2[1] * up + s2[0] * out
    corner = unit(rim - p1, R1[:, 0])
    gap2 = so3.dot(rim - p1, rim - p1)
    gap = jnp.sqrt(jnp.where(gap2 > 0, gap2, 1))
    normal = jnp.where(cap, -up, jnp.where(side, -out, corner))
    distance = jnp.where(cap, to_cap, jnp.where(side, to_side, gap)) - s1[0]
    point = p1 + normal * (s1[0] + 0.5 * distance)
    return Touch(distance[None], point[None], normal[None], jnp.zeros((1, 3), p1.dtype))


PAIRS: dict[tuple[str, str], Callable] = {
    ("sphere", "sphere"): sphere_sphere,
    ("sphere", "capsule"): sphere_capsule,
    ("sphere", "cylinder"): sphere_cylinder,
    ("sphere", "box"): sphere_box,
    ("capsule", "capsule"): capsule_capsule,
    ("capsule", "box"): capsule_box,
    ("box", "box"): box_box,
}
"""Pairs of shapes that meet, and the function that finds their points."""
