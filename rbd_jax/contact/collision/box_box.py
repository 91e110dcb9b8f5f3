"""Contact points of two boxes: a separating axis, then the corners of the area of contact.

Source: MuJoCo 4's documentation and its box–box collider: the separating-axis test with fifteen
axes (Gottschalk, Lin and Manocha, "OBBTree", 1996), and clipping of one face by the other.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3
from .ground import FAR, ContactPoints

POINTS = 8
"""The most corners of the area that two rectangles share."""
EDGE_BIAS = 1e-6
"""An edge must separate the boxes better than the best face by so much of its distance."""
NEARLY_FACE, WORSE = 0.99, 0.05
"""An edge axis this close to the best face's, and at most so much better, gives way to it."""
SIGNS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
"""The corners of a rectangle in order."""
AXES = np.arange(3, dtype=np.int32)
UNCLEAR = {"float64": 1e-9, "float32": 1e-5}
"""An axis with a smaller component along a side does not say which of two edges supports it."""
SAME = {"float64": 1e-14, "float32": 1e-10}
"""Squared distance of points that count as one, over that of a corner from the center."""


def box_box(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """Two boxes: at most eight points of a face, or one of two edges that cross.

    MuJoCo first asks whether any axis separates the boxes by more than the margin. That needs no
    question here: a point's distance is at least the distance of the boxes, and so at least what
    any axis separates.

    Args:
        R1: orientation, p1: place (m), s1: half lengths (m) of the first box.
        R2, p2, s2: those of the second.
    """
    code = _axis(R1, p1, s1, R2, p2, s2)
    of_face = _face(code, R1, p1, s1, R2, p2, s2)
    of_edge = _edge(code, R1, p1, s1, R2, p2, s2)
    distance, point, normal = (
        jnp.where(code >= 6, e, f) for e, f in zip(of_edge, of_face, strict=True)
    )
    return ContactPoints(distance, point, normal, jnp.zeros((POINTS, 3), p1.dtype))


def _axis(R1, p1, s1, R2, p2, s2) -> Int[Array, ""]:
    """The axis of least overlap, or of largest distance.

    The axis is 0 to 2 for a face of the first box, 3 to 5 for one of the second, and 6 + 3 i + j
    for an edge i of the first and j of the second.
    """
    d = p2 - p1
    rot = jnp.sum(R1[:, :, None] * R2[:, None, :], axis=0)
    size = jnp.abs(rot)
    first = jnp.abs(so3.rotate_inverse(R1, d)) - s1 - jnp.sum(size * s2[None], axis=1)
    second = jnp.abs(so3.rotate_inverse(R2, d)) - s2 - jnp.sum(size * s1[:, None], axis=0)
    faces = jnp.concatenate([first, second])
    code_face = jnp.argmax(faces).astype(jnp.int32)
    best_face = best = jnp.max(faces)
    normals = jnp.concatenate([R1, R2], axis=1)
    normal = jnp.sum(jnp.where(np.arange(6, dtype=np.int32)[None] == code_face, normals, 0), axis=1)
    axes, apart = _cross(jnp.repeat(R1.T, 3, axis=0), jnp.tile(R2.T, (3, 1)))
    along = lambda R: jnp.abs(jnp.sum(axes[:, :, None] * R[None], axis=1))  # noqa: E731
    radius = jnp.sum(along(R1) * s1[None] + along(R2) * s2[None], axis=1)
    gaps = jnp.where(apart, jnp.abs(jnp.sum(axes * d[None], axis=1)) - radius, -jnp.inf)
    code = code_face
    for k in range(9):  # in MuJoCo's order: a later edge must be better by the bias too
        gap = gaps[k]
        better = (gap - EDGE_BIAS * jnp.abs(gap) > best) & (gap > best_face)
        best, code = jnp.where(better, gap, best), jnp.where(better, 6 + k, code)
    chosen = np.arange(9, dtype=np.int32) == code - 6
    like = jnp.abs(so3.dot(jnp.sum(jnp.where(chosen[:, None], axes, 0), axis=0), normal))
    give = (like > NEARLY_FACE) & (best < best_face + WORSE * jnp.abs(best_face) + 1e-15)
    return jnp.where(give, code_face, code)


def _cross(u: Float[Array, "*n 3"], w: Float[Array, "*n 3"]):
    """The directions across two edges, and whether they are not parallel."""
    axis = so3.cross(u, w)
    n2 = so3.dot(axis, axis)
    apart = n2 > 0.5 * jnp.finfo(u.dtype).eps
    return axis / jnp.sqrt(jnp.where(apart, n2, 1))[..., None], apart


def _column(R: Float[Array, "3 3"], at: Bool[Array, "3"]) -> Float[Array, "3"]:
    return jnp.sum(jnp.where(at[None], R, 0), axis=1)


def _entry(x: Float[Array, "3"], at: Bool[Array, "3"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(at, x, 0))


def _edge(code, R1, p1, s1, R2, p2, s2):
    """The nearest points of the two edges that support the axis.

    Where an edge axis has no component along a side of a box, two of its edges support it; of all
    such pairs the nearest counts.
    """
    at = jnp.maximum(code - 6, 0)
    one, two = at // 3 == AXES, at % 3 == AXES
    d, u, w = p2 - p1, _column(R1, one), _column(R2, two)
    axis, apart = _cross(u, w)
    axis = jnp.where(so3.dot(axis, d) < 0, -axis, axis)
    b = so3.dot(u, w)
    c1 = jnp.repeat(_middles(R1, s1, one, axis, jnp.zeros_like(d)), 2, axis=0)
    c2 = jnp.tile(_middles(R2, s2, two, -axis, d), (2, 1))
    h1, h2 = _entry(s1, one), _entry(s2, two)
    ue, we = (jnp.sum((c2 - c1) * k[None], axis=1) for k in (u, w))
    s = jnp.clip((ue - b * we) / jnp.where(apart, 1 - b * b, 1), -h1, h1)
    t = jnp.clip(b * s - we, -h2, h2)
    s = jnp.clip(ue + b * t, -h1, h1)
    x, y = c1 + s[:, None] * u[None], c2 + t[:, None] * w[None]
    nearest = jnp.argmin(so3.dot(y - x, y - x)).astype(jnp.int32)
    at = nearest == np.arange(4, dtype=np.int32)
    x, y = (jnp.sum(jnp.where(at[:, None], z, 0), axis=0) for z in (x, y))
    distance = jnp.where(np.arange(POINTS) == 0, so3.dot(y - x, axis), FAR)
    every = lambda v: jnp.broadcast_to(v[None], (POINTS, 3))  # noqa: E731
    return distance, every(p1 + 0.5 * (x + y)), every(axis)


def _middles(R, size, along: Bool[Array, "3"], axis, center) -> Float[Array, "2 3"]:
    """The middles of the edges that lie farthest along the axis: two, or one of them twice."""
    component = so3.rotate_inverse(R, axis)
    unclear = jnp.abs(component) < UNCLEAR[str(axis.dtype)]
    next_, last = (jnp.roll(along, k) for k in (1, 2))
    twin = unclear & (next_ | (last & ~(unclear & next_).any()))
    sign = jnp.where(component >= 0, 1, -1).astype(size.dtype)
    side = jnp.where(along, 0, size * sign)
    both = jnp.stack([side, jnp.where(twin, -side, side)])
    return center[None] + jnp.sum(R[None] * both[:, None, :], axis=2)


def _face(code, R1, p1, s1, R2, p2, s2):
    """The corners of the part of one box's face that lies over the face of the other."""
    first = code < 3
    Ra, pa, sa, Rb, pb, sb = (
        jnp.where(first, x, y)
        for x, y in zip((R1, p1, s1, R2, p2, s2), (R2, p2, s2, R1, p1, s1), strict=True)
    )
    up = code % 3 == AXES
    across, beside = jnp.roll(up, 1), jnp.roll(up, 2)
    n, ex, ey = (_column(Ra, x) for x in (up, across, beside))
    height, wide, deep = (_entry(sa, x) for x in (up, across, beside))
    d = pb - pa
    sign = jnp.where(so3.dot(n, d) >= 0, 1, -1).astype(d.dtype)
    n = sign * n
    slope = so3.rotate_inverse(Rb, n)
    face = jnp.argmax(jnp.abs(slope)).astype(jnp.int32) == AXES
    to = jnp.where(_entry(slope, face) > 0, -1, 1).astype(d.dtype) * _entry(sb, face)
    seen = jnp.stack([ex, ey, n])
    sides = [jnp.roll(face, k) for k in (1, 2)]
    du, dv = (so3.rotate(seen, _entry(sb, x) * _column(Rb, x)) for x in sides)
    c = so3.rotate(seen, d + to * _column(Rb, face)) - jnp.where(AXES == 2, height, 0)
    xyz, counts = _shared(c, du, dv, jnp.stack([wide, deep]))
    x, y, z = xyz[:, 0], xyz[:, 1], xyz[:, 2]
    point = (
        pa[None] + x[:, None] * ex[None] + y[:, None] * ey[None]
        + (height + 0.5 * z)[:, None] * n[None]
    )  # fmt: skip
    normal = jnp.broadcast_to(jnp.where(first, n, -n)[None], (POINTS, 3))
    return jnp.where(counts, z, FAR), point, normal


def _shared(c, du, dv, half: Float[Array, "2"]):
    """The corners of the part of a parallelogram whose projection lies in a rectangle.

    Args:
        c: the center of the parallelogram. du, dv: its half sides, all three ``(x, y, z)``.
        half: the half lengths of the rectangle along x and y.

    Returns:
        ``(8, 3)`` corners and whether each of them is one. They are the ends of the sides of the
        parallelogram after clipping, and the rectangle's corners that lie inside.
    """
    signs = SIGNS.astype(c.dtype)
    start = c[None] + signs[:, :1] * du[None] + signs[:, 1:] * dv[None]
    along = jnp.roll(start, -1, axis=0) - start
    noise = 100 * jnp.finfo(c.dtype).eps  # sides that coincide count as inside
    enter, leave = jnp.zeros((4,), c.dtype), jnp.ones((4,), c.dtype)
    for k in range(2):
        for side in (1.0, -1.0):
            rate = side * along[:, k]
            room = (1 + noise) * half[k] - side * start[:, k]
            moves = rate != 0
            t = room / jnp.where(moves, rate, 1)
            leave = jnp.where(rate > 0, jnp.minimum(leave, t), leave)
            enter = jnp.where(rate < 0, jnp.maximum(enter, t), enter)
            leave = jnp.where(~moves & (room < 0), -1, leave)
    crosses = enter <= leave
    ends = [start + t[:, None] * along for t in (enter, leave)]
    det = du[0] * dv[1] - du[1] * dv[0]
    safe = jnp.where(det == 0, 1, det)
    corner = signs * half[None]
    x, y = corner[:, 0] - c[0], corner[:, 1] - c[1]
    a, b = (dv[1] * x - dv[0] * y) / safe, (du[0] * y - du[1] * x) / safe
    z = c[2] + a * du[2] + b * dv[2]
    inside = (jnp.abs(a) <= 1 + noise) & (jnp.abs(b) <= 1 + noise) & (det != 0)
    every = jnp.concatenate([*ends, jnp.concatenate([corner, z[:, None]], axis=1)])
    counts = jnp.concatenate([crosses, crosses, inside])
    return _distinct(every, counts, SAME[str(c.dtype)] * jnp.sum(half * half))


def _distinct(points: Float[Array, "n 3"], counts: Bool[Array, " n"], near2):
    """The points that count, each place once, moved to the front of a list of eight."""
    apart = points[:, None, :2] - points[None, :, :2]
    same = jnp.sum(apart * apart, axis=-1) < near2
    earlier = np.tri(points.shape[0], k=-1, dtype=bool)
    kept = counts & ~(same & earlier & counts[None]).any(axis=1)
    rank = jnp.sum(earlier & kept[None], axis=1, dtype=jnp.int32)
    place = kept[:, None] & (rank[:, None] == np.arange(POINTS, dtype=np.int32)[None])
    found = jnp.sum(jnp.where(place[:, :, None], points[:, None], 0), axis=0)
    return found, place.any(axis=0)
