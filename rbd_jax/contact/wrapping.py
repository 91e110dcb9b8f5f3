"""The shortest path of a string around a sphere or a cylinder, in closed form.

Source: MuJoCo's documentation, "Modeling", spatial tendons, and the function ``mju_wrap``, whose
cases without wrapping this module follows; the choice of the side is that of MuJoCo 4. The path
lies in a plane: that of both ends and the center of a sphere, or the cross section of a cylinder,
along whose axis the unrolled path is a straight line. Square roots have derivative zero where they
vanish, so that derivatives are finite everywhere.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..spatial import so3

TINY = 1e-15
"""MuJoCo's smallest length."""
ROUNDS = 20
"""The most Newton steps for a string on the inside of a circle, as in MuJoCo."""


class Arc(NamedTuple):
    """The path around a circle of n strings in their planes."""

    wraps: Bool[Array, " n"]
    """Whether the string touches the circle; the rest has no meaning if it does not."""
    first: Float[Array, "n 2"]
    last: Float[Array, "n 2"]
    """Where the string meets and leaves the circle (m)."""
    arrives: Float[Array, "n 2"]
    leaves: Float[Array, "n 2"]
    """The unit directions of the straight parts before and after the circle."""
    before: Float[Array, " n"]
    curved: Float[Array, " n"]
    after: Float[Array, " n"]
    """The lengths of the three parts (m)."""


class Wrap(NamedTuple):
    """The path of n strings around their bodies, in world axes."""

    wraps: Bool[Array, " n"]
    length: Float[Array, " n"]
    """The whole length (m)."""
    first: Float[Array, "n 3"]
    last: Float[Array, "n 3"]
    """Where the string meets and leaves the body, in the world (m)."""
    arrives: Float[Array, "n 3"]
    leaves: Float[Array, "n 3"]
    """The unit directions of the straight parts."""


def root(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The square root, zero below zero, with the derivative zero there."""
    some = x > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, x, 1)), 0)


def directed(x: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
    """Unit vectors; the first axis for a vector without length, as in MuJoCo."""
    n2 = so3.dot(x, x)[..., None]
    some = n2 > TINY * TINY
    axis = np.eye(1, x.shape[-1])[0].astype(x.dtype)
    axis = jnp.broadcast_to(jnp.asarray(axis), x.shape)
    return jnp.where(some, x / jnp.sqrt(jnp.where(some, n2, 1)), axis)


def wrap(
    ends: tuple[Float[Array, "n 3"], Float[Array, "n 3"]],
    R: Float[Array, "n 3 3"],
    p: Float[Array, "n 3"],
    radius: Float[Array, " n"],
    side: Float[Array, "n 3"],
    round_: np.ndarray,
    sided: np.ndarray,
) -> Wrap:
    """The paths of strings between two points each, around a sphere or a cylinder.

    Args:
        ends: both points of each string, in the world (m).
        R: the orientation of the body; the axis of a cylinder is its z. p: its center (m).
        radius: (m).
        side: a point on the side of the body where the string is to pass; inside the body, the
            string runs on the inside.
        round_: whether the body is a sphere. sided: whether there is a point on a side; ``(n,)``.
    """
    one, two = (so3.rotate_inverse(R, x - p) for x in ends)
    axes = _axes(one, two, round_)
    first, last = _project(axes, one), _project(axes, two)
    place = so3.rotate_inverse(R, side - p)
    there = directed(_project(axes, place)) * radius[:, None]
    arc = _around(first, last, there, sided, radius)
    if sided.any():
        inside = sided & (root(so3.dot(place, place)) < radius)
        arc = jax.tree.map(
            lambda x, y: jnp.where(inside.reshape(-1, *(1,) * (x.ndim - 1)), x, y),
            _within(first, last, radius), arc,
        )  # fmt: skip
    away = [so3.dot(x, x) >= TINY * TINY for x in (one, two)]
    flat = arc.before + arc.curved + arc.after
    z0, rise = one[:, 2], two[:, 2] - one[:, 2]
    z0, rise = (jnp.where(round_, 0, x) for x in (z0, rise))
    some = jnp.where(flat > 0, flat, 1)
    slope = rise / some
    length = root(flat * flat + rise * rise)

    def placed(x: Array, z: Array) -> Array:
        """A point or direction of the plane and its height along the axis, in world axes."""
        plane = axes[0] * x[:, :1] + axes[1] * x[:, 1:]
        height = jnp.stack([jnp.zeros_like(z), jnp.zeros_like(z), z], axis=-1)
        return so3.rotate(R, plane + height)

    steep = jnp.sqrt(1 + slope * slope)[:, None]
    return Wrap(
        arc.wraps & away[0] & away[1],
        length,
        p + placed(arc.first, z0 + slope * arc.before),
        p + placed(arc.last, z0 + slope * (arc.before + arc.curved)),
        placed(arc.arrives, slope) / steep,
        placed(arc.leaves, slope) / steep,
    )


def _axes(one: Array, two: Array, round_: np.ndarray) -> tuple[Array, Array]:
    """The axes of the plane of each path, in the frame of the body."""
    x = directed(one)
    normal = so3.cross(one, two)
    apart = so3.dot(normal, normal) >= TINY * TINY
    size = jnp.abs(x)
    largest = (size == jnp.max(size, axis=-1, keepdims=True)).astype(x.dtype)
    other = so3.cross(x, 1 - largest)  # for a string that points at the center
    normal = directed(jnp.where(apart[:, None], normal, other))
    y = directed(so3.cross(normal, x))
    kind = round_[:, None]
    fixed = [jnp.broadcast_to(jnp.asarray(np.eye(3)[k], x.dtype), x.shape) for k in (0, 1)]
    return jnp.where(kind, x, fixed[0]), jnp.where(kind, y, fixed[1])


def _project(axes: tuple[Array, Array], x: Array) -> Float[Array, "n 2"]:
    return jnp.stack([so3.dot(x, axis) for axis in axes], axis=-1)


def _cross(a: Array, b: Array) -> Float[Array, " n"]:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _left(a: Array) -> Float[Array, "n 2"]:
    """Vectors turned by a right angle to the left."""
    return jnp.stack([-a[:, 1], a[:, 0]], axis=-1)


def _crossing(a: Array, b: Array, c: Array, d: Array) -> Bool[Array, " n"]:
    """Whether the segment from a to b and the segment from c to d have a point in common."""
    det = _cross(b - a, d - c)
    some = jnp.abs(det) >= TINY
    safe = jnp.where(some, det, 1)
    s, t = _cross(c - a, d - c) / safe, _cross(c - a, b - a) / safe
    return some & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)


def _nearest(one: Array, two: Array) -> tuple[Array, Array]:
    """The share of the segment at which it is nearest to the center, and its length squared."""
    along = two - one
    n2 = so3.dot(along, along)
    return -so3.dot(along, one) / jnp.where(n2 < TINY, 1, n2), n2


def _around(one: Array, two: Array, side: Array, sided: np.ndarray, radius: Array) -> Arc:
    """The path on the outside of the circle.

    Without a side it takes the shorter way if the straight line meets the circle. With a side, the
    string never crosses the ray that points from the center away from the side. So it takes the
    longer way, also far from the circle, exactly if the straight line crosses that ray.
    """
    r2 = radius * radius
    n1, n2 = so3.dot(one, one), so3.dot(two, two)
    share, apart = _nearest(one, two)
    near = one + jnp.clip(share, 0, 1)[:, None] * (two - one)
    meets = so3.dot(near, near) <= r2
    outside = (n1 >= r2) & (n2 >= r2) & (radius >= TINY) & (apart >= TINY)
    clockwise = _cross(one, two) < 0
    if sided.any():
        c1, c2 = _cross(side, one), _cross(side, two)
        height = c1 * so3.dot(side, two) - c2 * so3.dot(side, one)
        crosses = sided & (c1 * c2 < 0) & (height * (c1 - c2) < 0)
        meets, clockwise = meets | crosses, clockwise ^ crosses
    before, after = root(n1 - r2), root(n2 - r2)
    d1, d2 = (jnp.where(n > 0, n, 1)[:, None] for n in (n1, n2))
    sign = jnp.where(clockwise, 1.0, -1.0).astype(one.dtype)
    turn = (sign * radius)[:, None]
    first = (one * r2[:, None] - turn * before[:, None] * _left(one)) / d1
    last = (two * r2[:, None] + turn * after[:, None] * _left(two)) / d2
    y, x = -sign * _cross(first, last), so3.dot(first, last)
    some = (x != 0) | (y != 0)
    angle = jnp.arctan2(jnp.where(some, y, 0), jnp.where(some, x, 1))
    few = 8 * float(jnp.finfo(one.dtype).eps)
    angle = jnp.where(angle < -few, angle + 2 * np.pi, jnp.maximum(angle, 0))
    over = -sign[:, None] / jnp.where(radius > 0, radius, 1)[:, None]
    wraps = outside & meets & ~_crossing(one, first, two, last)
    return Arc(
        wraps, first, last, over * _left(first), over * _left(last),
        before, radius * angle, after,
    )  # fmt: skip


def _within(one: Array, two: Array, radius: Array) -> Arc:
    """The path that touches the circle from inside in one point.

    A sine z of the angle at which the string meets the circle solves ``asin(A z) + asin(B z) − 2
    asin(z) + G = 0``, G the angle between the ends. Newton's method starts at one and stops as
    MuJoCo's does. Its derivative is that of the root.
    """
    n1, n2 = root(so3.dot(one, one)), root(so3.dot(two, two))
    share, apart = _nearest(one, two)
    near = one + share[:, None] * (two - one)
    meets = (apart > TINY) & (share > 0) & (share < 1)
    meets = meets & (root(so3.dot(near, near)) <= radius)
    outside = (n1 > radius) & (n2 > radius) & (radius >= TINY)
    d1, d2 = (jnp.where(outside, n, 2.0) for n in (n1, n2))
    r = jnp.where(outside, radius, 1.0)
    A, B = r / d1, r / d2
    y, x = _cross(one, two), so3.dot(one, two)
    cosine = x / (d1 * d2)
    opposite, aligned = cosine <= -1 + TINY, cosine >= 1 - TINY
    bent = outside & ~opposite & ~aligned & (y != 0)
    G = jnp.arctan2(jnp.where(bent, jnp.abs(y), 1), jnp.where(bent, x, 0))
    z, found = _sine(A, B, G)
    solved = bent & found
    A, B, G = (jnp.where(solved, x, c) for x, c in ((A, 0.5), (B, 0.5), (G, 0.5)))
    z = jnp.where(solved, z, 0.5)
    f, slope = _sine_equation(z, A, B, G)
    fixed = jax.lax.stop_gradient
    z = z - (f - fixed(f)) / fixed(slope)
    left = y > 0
    start = jnp.where(left[:, None], one, two)
    turn = jnp.arcsin(z) - jnp.where(left, jnp.arcsin(A * z), jnp.arcsin(B * z))
    c, s = jnp.cos(turn)[:, None], jnp.sin(turn)[:, None]
    unit = directed(start)
    touch = c * unit + s * _left(unit)
    middle = directed(one + two)  # where Newton's method fails
    touch = radius[:, None] * jnp.where(solved[:, None], touch, middle)
    go, on = touch - one, two - touch
    return Arc(
        outside & ~meets & ~opposite, touch, touch, directed(go), directed(on),
        root(so3.dot(go, go)), jnp.zeros_like(radius), root(so3.dot(on, on)),
    )  # fmt: skip


def _sine_equation(z: Array, A: Array, B: Array, G: Array) -> tuple[Array, Array]:
    """The left side of the equation of :func:`_within`, and its derivative with respect to z."""
    f = jnp.arcsin(A * z) + jnp.arcsin(B * z) - 2 * jnp.arcsin(z) + G
    over = lambda x: 1 / jnp.maximum(TINY, root(1 - x * x))  # noqa: E731
    return f, A * over(A * z) + B * over(B * z) - 2 * over(z)


def _sine(A: Array, B: Array, G: Array) -> tuple[Array, Bool[Array, " n"]]:
    """The root of :func:`_sine_equation` to MuJoCo's 1e-6, and whether it was found."""
    A, B, G = (jax.lax.stop_gradient(x) for x in (A, B, G))
    start = 1 - max(1e-7, 4 * float(jnp.finfo(A.dtype).eps))
    rounding = 4 * jnp.finfo(A.dtype).eps
    z = jnp.full_like(A, start)
    f, slope = _sine_equation(z, A, B, G)

    def few(slope: Array) -> Array:
        """MuJoCo's tolerance, or what the rounding of z makes of it where the slope is steep."""
        return jnp.maximum(1e-6, rounding * jnp.abs(slope))

    def newton(_, state):
        z, f, slope, good = state
        going = good & (jnp.abs(f) > few(slope))
        new = jnp.where(going, z - f / jnp.where(slope > -TINY, -1, slope), z)
        g, steep = _sine_equation(new, A, B, G)
        wrong = (slope > -TINY) | (new > z) | (g > few(steep))
        f, slope = jnp.where(going, g, f), jnp.where(going, steep, slope)
        return new, f, slope, good & ~(going & wrong)

    z, f, slope, good = jax.lax.fori_loop(0, ROUNDS, newton, (z, f, slope, f <= 0))
    return z, good & (jnp.abs(f) <= few(slope))
