"""Contact points of a sphere or a capsule with a box.

Source: MuJoCo's documentation, "Computation", collision detection; the points are those of MuJoCo's
primitive colliders.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...spatial import so3
from .ground import FAR, LEAST_SQUARE, ContactPoints

EDGES = [(axis, corner) for axis in range(3) for corner in range(8) if not corner >> axis & 1]
"""The axis of each edge of a box and the corner at its lower end, bit by bit: MuJoCo's order."""
TURNS = np.array([[(axis + k) % 3 for k in range(3)] for axis, _ in EDGES], dtype=np.int32)
"""The coordinates in an order that begins with the axis of the edge."""
CORNERS = np.array(
    [
        [2.0 * (corner >> k & 1) - 1 for k in turn]
        for (_, corner), turn in zip(EDGES, TURNS, strict=True)
    ]
)
TINY = 1e-15


def sphere_box(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """A sphere and the nearest point of a box; out of the nearest face if its center is inside."""
    x = so3.rotate_inverse(R2, p1 - p2)
    nearest = jnp.clip(x, -s2, s2)
    away = x - nearest
    n2 = so3.dot(away, away)
    outside = n2 > LEAST_SQUARE[str(n2.dtype)]
    length = jnp.where(outside, jnp.sqrt(jnp.where(outside, n2, 1)), 0)
    depths = jnp.stack([s2 + x, s2 - x], axis=1).reshape(-1)  # below −x, +x, −y, …
    k = jnp.argmin(depths)
    sides = jnp.stack([-jnp.eye(3, dtype=x.dtype), jnp.eye(3, dtype=x.dtype)], axis=1)
    face = jnp.sum(jnp.where(jnp.arange(6)[:, None] == k, sides.reshape(6, 3), 0), axis=0)
    out = jnp.where(outside, away / jnp.where(outside, length, 1), face)
    depth = jnp.sum(jnp.where(jnp.arange(6) == k, depths, 0))
    distance = jnp.where(outside, length, -depth) - s1[0]
    normal = -so3.rotate(R2, out)
    point = p1 + normal * (s1[0] + 0.5 * distance)
    return ContactPoints(distance[None], point[None], normal[None], jnp.zeros((1, 3), p1.dtype))


def least(x: Float[Array, " n"]) -> Float[Array, ""]:
    """The smallest entry.

    The derivative of ``jnp.min`` is NaN where the compiler computes an entry twice and not alike.
    """
    return functools.reduce(jnp.minimum, [x[k] for k in range(x.shape[0])])


class _Line(NamedTuple):
    """The segment of a capsule in the frame of the box, and the box."""

    center: Float[Array, "3"]
    axis: Float[Array, "3"]
    half: Float[Array, "3"]
    """``axis`` times half the length."""
    size: Float[Array, "3"]
    """Half lengths of the box."""


class _Nearest(NamedTuple):
    """Candidates for the nearest points: squared distance, parameter, parameter of the second."""

    distance2: Array
    at: Array
    """Where on the segment, −1 to 1."""
    more: Array
    """How much farther on the segment the second point lies."""
    two: Array
    """Whether there is a second point."""


def capsule_box(R1, p1, s1, R2, p2, s2) -> ContactPoints:
    """A capsule and a box: the nearest point of the segment, and a second one if it lies flat.

    Source: MuJoCo's capsule–box collider. The nearest point is an end of the segment over a face,
    or the point nearest to one of the twelve edges. The second point is where the segment, followed
    over the box, leaves it or ends. Both are spheres against the box.
    """
    axis = so3.rotate_inverse(R2, R1[:, 2])
    line = _Line(so3.rotate_inverse(R2, p1 - p2), axis, s1[1] * axis, s2)
    ends = [_over_face(line, end) for end in (-1, 1)]
    turned = _Line(*(x[TURNS] for x in line))
    edges = jax.vmap(_at_edge)(turned, jnp.asarray(CORNERS, p1.dtype))
    faces = (jnp.stack(x) for x in zip(*ends, strict=True))
    every = _Nearest(*(jnp.concatenate(x) for x in zip(faces, edges, strict=True)))
    # the tolerance is lost in the rounding of float32, where the nearest still has to be found
    first = jnp.argmax(every.distance2 <= jnp.min(every.distance2) + TINY)
    chosen = jnp.arange(every.at.shape[0]) == first
    pick = lambda x: jnp.sum(jnp.where(chosen, x, 0))  # noqa: E731
    at, more, two = pick(every.at), pick(every.more), (chosen & every.two).any()
    segment = s1[1] * R1[:, 2]
    one, other = (sphere_box(R1, p1 + x * segment, s1, R2, p2, s2) for x in (at, at + more))
    distance = jnp.concatenate([one.distance, jnp.where(two, other.distance, FAR)])
    rest = [jnp.concatenate(x) for x in zip(one[1:], other[1:], strict=True)]
    return ContactPoints(distance, *rest)


def _reach(length, speed):
    """The parameter at which a coordinate of this rate has moved by a length, or a large number."""
    moves = jnp.abs(speed) > 0
    return jnp.where(moves, length / jnp.where(moves, jnp.abs(speed), 1), FAR)


def _over_face(line: _Line, end: int) -> _Nearest:
    """An end of the segment that is over a face or inside; the second is where it leaves."""
    x = line.center + end * line.half
    beyond = jnp.abs(x) > line.size
    away = x - jnp.clip(x, -line.size, line.size)
    count = jnp.sum(beyond)
    limits = []
    for side in (-1.0, 1.0):
        moves = line.half != 0
        t = (side * line.size - x) / jnp.where(moves, line.half, 1) * -end
        limits.append(jnp.where(moves & ~beyond & (t > 0), t, 2))
    more = -end * least(jnp.concatenate(limits))
    distance2 = jnp.where(count > 1, jnp.inf, so3.dot(away, away))
    return _Nearest(distance2, jnp.full_like(more, end), more, count == 1)


def _at_edge(line: _Line, corner: Float[Array, "3"]) -> _Nearest:
    """The nearest points of the segment and of an edge along the first axis.

    ``corner`` has the signs of the coordinates of the edge's lower end. Source: MuJoCo's nearest
    points of two segments: unconstrained, then clipped one after the other; an edge parallel to
    the segment does not count.
    """
    _, _, half, size = line
    middle = corner * jnp.array([0.0, 1.0, 1.0], corner.dtype)
    e = middle * size - line.center
    ma, mb, mc = size[0] * size[0], -size[0] * half[0], so3.dot(half, half)
    u, v = -size[0] * e[0], so3.dot(half, e)
    det = ma * mc - mb * mb
    skew = jnp.abs(det) >= jnp.maximum(TINY, jnp.finfo(det.dtype).eps * ma * mc)
    safe = jnp.where(skew, det, 1)
    x, y = (mc * u - mb * v) / safe, (ma * v - mb * u) / safe
    top, bottom = x > 1, x < -1
    long = jnp.where(mc > 0, mc, 1)
    y = jnp.where(top, (v - mb) / long, jnp.where(bottom, (v + mb) / long, y))
    x = jnp.clip(x, -1, 1)
    over = jnp.abs(y) > 1
    y = jnp.clip(y, -1, 1)
    again = (u - mb * y) / jnp.where(ma > 0, ma, 1)
    x = jnp.where(over, jnp.clip(again, -1, 1), x)
    top, bottom = (  # a corner stays the nearest for MuJoCo if the last clipping leaves it
        jnp.where(over & (again > 1), True, jnp.where(over & (again < -1), False, top)),
        jnp.where(over & (again < -1), True, jnp.where(over & (again > 1), False, bottom)),
    )
    gap = e - y * half + (corner - middle) * -x * size
    up = jnp.stack([top, corner[1] > 0, corner[2] > 0])  # of the nearest corner
    apart = up != (half > 0)
    past_corner, past_edge = _past_corner(line, apart, y), _past_edge(line, apart, x, y)
    more, two = (jnp.where(top | bottom, a, b) for a, b in zip(past_corner, past_edge, strict=True))
    distance2 = jnp.where(skew, so3.dot(gap, gap), jnp.inf)
    return _Nearest(distance2, y, more, two)


def _past_corner(line: _Line, apart: Bool[Array, "3"], at: Array) -> tuple[Array, Array]:
    """The second point if the nearest is a corner: along an edge or over a face, or none.

    ``apart`` tells in which coordinates the segment and the corner point to different sides.
    """
    count = jnp.sum(apart)
    one = count == 1
    main = apart == one  # the axis that differs from the two others
    m = jnp.where(one, 1, -1).astype(at.dtype)
    reach = _reach(2 * line.size, line.half)
    along = jnp.sum(jnp.where(main, line.axis * line.axis, 0)) > 0.5
    edge = jnp.minimum(1 - m * at, least(jnp.where(main, reach, FAR)))
    face = jnp.minimum(1 + m * at, least(jnp.where(main, FAR, reach)))
    return m * jnp.where(along, edge, -face), one | (count == 2)


def _past_edge(line: _Line, apart: Bool[Array, "3"], x, at) -> tuple[Array, Array]:
    """The second point if the nearest is inside an edge: over the face that lies flatter, or none.

    ``x`` is the parameter on the edge, which is along the first axis.
    """
    steep = jnp.abs(line.axis[1]) > jnp.abs(line.axis[2])
    reach = _reach(2 * line.size, line.half)
    through, onward = (jnp.where(steep, y[1], y[2]) for y in (reach, apart))
    m = jnp.where(onward, 1, -1).astype(at.dtype)
    left = jnp.where((line.half[0] > 0) == onward, 1 - x, 1 + x)
    beside = 0.5 * left * reach[0]
    return m * least(jnp.stack([1 - m * at, through, beside])), apart[1] != apart[2]
