"""The nearest points of any two convex shapes, or the deepest ones if they overlap.

With the Minkowski difference ``D = A − B`` and its support function h, the signed distance is

    max over unit vectors n of −h(n)

where n points from the first shape to the second. A polytope that grows inside D finds the basin of
the maximum, see :mod:`rbd_jax.contact.collision.polytope`. D is a polytope of pairs of corners plus
the smooth parts of both shapes. So at the maximum at most three pairs of corners act, and their
weights and n solve a small system, by Newton's method to rounding. Its last steps start from a
constant, and they are the only part that is differentiated. This gives the derivatives of the
optimality conditions, also the second ones, and they are exact while the same corners act.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3
from .polytope import nearest_facet
from .support import Body, Vector, corner_towards, placed, smooth, turned

ROUNDS = 28
"""The most points by which a polytope grows."""
REACH = 0.4
"""The longest Newton step across an edge or from a corner (rad)."""
STEPS = 12
"""The most Newton steps that follow for smooth shapes."""
ROUGH = {"float64": 1e-6, "float32": 1e-4}
"""How far, as a fraction of the shapes, the polytope of smooth shapes may be from them."""
MOST = 8
"""The longest of the last steps in units of the square root of the rounding, which is where the
support function is flat. A longer one comes from a singular system, and only its derivative counts.
"""
LEAST = {"float64": 1e-8, "float32": 3e-4}
"""The least radius of curvature, as a fraction of the shapes, by which a derivative divides."""
SUBSETS = np.array(
    [[i, i, i] for i in range(4)]
    + [[i, j, i] for i in range(4) for j in range(i)]
    + [[i, j, k] for i in range(4) for j in range(i) for k in range(j)],
    dtype=np.int32,
)
"""All sets of one, two and three of four cuts."""
SIZES = np.array([1] * 4 + [2] * 6 + [3] * 4, dtype=np.int32)


class Feature(NamedTuple):
    """What touches: the pairs of corners that act, and the normal."""

    normal: Vector
    corners: Int[Array, "3 2"]
    """Pairs of corners of both shapes; after the last that acts, copies of the first."""
    count: Int[Array, ""]
    """How many of them act."""
    cap: Int[Array, ""]
    """1 or 2 if the normal is that of an end of this cylinder, else 0."""
    apart: Bool[Array, ""]
    """Whether the shapes are farther apart than was asked for; then the rest is anything."""


class Nearest(NamedTuple):
    """Signed distance (m), the nearest points of both surfaces, and the normal, in world axes."""

    distance: Float[Array, ""]
    first: Vector
    second: Vector
    normal: Vector


class Couple(NamedTuple):
    """Two shapes, relative to the origin of the first."""

    a: Body
    b: Body
    size: Float[Array, ""]
    """The sum of their bounding radii (m). It has no derivative: it only measures rounding."""

    def corners(self, numbers: Int[Array, "*n 2"]) -> tuple[Array, Array]:
        """Corners of the first and of the second shape."""
        a = turned(self.a.R, self.a.corners[numbers[..., 0]])
        return a, placed(self.b, self.b.corners[numbers[..., 1]])

    def smooth(self, n: Vector) -> tuple[Vector, Vector]:
        """The smooth parts of both shapes in the direction n of the first."""
        (x, y) = (self.a, self.b)
        a = so3.rotate(x.R, smooth(x, so3.rotate_inverse(x.R, n)))
        return a, so3.rotate(y.R, smooth(y, so3.rotate_inverse(y.R, -n)))

    def rounding(self, n: Vector) -> Vector:
        """The smooth part of the Minkowski difference."""
        a, b = self.smooth(n)
        return a - b

    def towards(self, n: Vector) -> tuple[Vector, Int[Array, "2"]]:
        """The support point of the Minkowski difference and its pair of corners."""
        i = corner_towards(self.a, so3.rotate_inverse(self.a.R, n))
        j = corner_towards(self.b, so3.rotate_inverse(self.b.R, -n))
        numbers = jnp.stack([i, j])
        a, b = self.corners(numbers)
        return a - b + self.rounding(n), numbers

    @property
    def is_smooth(self) -> Bool[Array, ""]:
        """Whether one of the shapes has a smooth part."""
        return self.a.disk + self.b.disk + jnp.sum(self.a.axes + self.b.axes) > 0


def couple(a: Body, b: Body) -> Couple:
    """Two shapes. At least one must have a volume without its ball."""
    size = jax.lax.stop_gradient(a.bound + b.bound)
    return Couple(a._replace(p=0 * a.p), b._replace(p=b.p - a.p), size)


def find(x: Couple, reach: Float[Array, ""]) -> Feature:
    """What touches, without a derivative, of shapes that are not farther apart than ``reach``."""
    x, reach = jax.lax.stop_gradient((x, reach))
    d2 = so3.dot(x.b.p, x.b.p)
    far = d2 > 1e-20
    start = jnp.where(far, x.b.p, x.a.R[:, 2]) / jnp.sqrt(jnp.where(far, d2, 1))
    tolerance = jnp.where(x.is_smooth, ROUGH[str(d2.dtype)], 0).astype(d2.dtype)
    far = reach + x.a.ball + x.b.ball
    facet = nearest_facet(x.towards, start, x.size, ROUNDS, tolerance, far)
    cuts = jnp.concatenate([facet.names, facet.names[:1]])

    def polished():
        n, near = _polished(x, facet.normal, cuts, facet.exact & ~x.is_smooth)
        return _on_caps(x, _settled(x, n, near))

    def none():
        zero = jnp.zeros((), jnp.int32)
        return Feature(facet.normal, facet.names, zero + 1, zero, facet.apart)

    return jax.lax.cond(facet.apart, none, polished)


class _Step(NamedTuple):
    turn: Float[Array, "2"]
    """The step along both tangents."""
    subset: Int[Array, ""]
    """Which of SUBSETS acts after it."""


def _tangents(n: Vector) -> Float[Array, "3 2"]:
    """Two vectors of length one across n and each other."""
    z = jnp.where(n[2] < 0, -1.0, 1.0).astype(n.dtype)
    a = -1 / (z + n[2])
    b = n[0] * n[1] * a
    u = jnp.stack([1 + z * n[0] * n[0] * a, z * b, -z * n[0]])
    return jnp.stack([u, jnp.stack([b, z + n[1] * n[1] * a, -n[1]])], axis=1)


def _curvature(x: Couple, n: Vector, T: Float[Array, "3 2"], h) -> Float[Array, "2 2"]:
    """The second derivative of the support function of one pair of corners on the sphere."""
    columns = [jax.jvp(x.rounding, (n,), (T[:, k],))[1] for k in range(2)]
    both = jnp.sum(T[:, :, None] * jnp.stack(columns, axis=1)[:, None, :], axis=0)
    return both - h * jnp.eye(2, dtype=n.dtype)


def _dot2(a, b):
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def _cross2(a, b):
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _step(x: Couple, n: Vector, cuts: Int[Array, "4 2"]) -> _Step:
    """The least of ``max_i (h_i + g_i·δ) + δ·H δ / 2`` over four cuts: the best of all subsets."""
    T, rounding = _tangents(n), x.rounding(n)
    a, b = x.corners(cuts)
    w = a - b + rounding[None]
    h = jnp.sum(w * n[None], axis=1)
    top = jnp.max(h)
    g = jnp.sum(w[:, :, None] * T[None], axis=1)
    floor = LEAST[str(n.dtype)] * x.size
    H = _curvature(x, n, T, top)
    det, trace = H[0, 0] * H[1, 1] - H[0, 1] * H[1, 0], H[0, 0] + H[1, 1]
    convex = (det > floor * floor) & (trace > 0)  # where shapes overlap it need not be
    extra = jnp.where(convex, 0, jnp.maximum(top, 0) + floor)
    times = lambda M, y: jnp.sum(M[None] * y[:, None, :], axis=2)  # noqa: E731
    g1, g2, g3 = (g[SUBSETS[:, k]] for k in range(3))
    h1, h2, h3 = (h[SUBSETS[:, k]] for k in range(3))
    e, c = g2 - g1, h2 - h1
    e2 = jnp.where(SIZES == 1, 1, _dot2(e, e))
    u = e / jnp.sqrt(jnp.where(e2 > 0, e2, 1))[:, None]
    v = jnp.stack([-u[:, 1], u[:, 0]], axis=1)
    Hv = times(H, v)  # along an edge the curvature across it does not matter
    bent, along = _dot2(v, Hv), -c / jnp.sqrt(jnp.where(e2 > 0, e2, 1))
    more = jnp.where(bent > floor, 0, jnp.maximum(top, 0) + floor - bent)
    beside = -(_dot2(v, g1) + along * _dot2(u, Hv)) / (bent + more)
    beside = jnp.clip(beside, -REACH, REACH)
    two = along[:, None] * u + beside[:, None] * v
    K = H + extra * jnp.eye(2, dtype=n.dtype)
    det = K[0, 0] * K[1, 1] - K[0, 1] * K[1, 0]
    inverse = jnp.stack([K[1, 1], -K[0, 1], -K[1, 0], K[0, 0]]).reshape(2, 2) / det
    one = -times(inverse, g1)
    long = _dot2(one, one) > REACH * REACH
    one = jnp.where(long, REACH / jnp.sqrt(jnp.where(long, _dot2(one, one), 1)), 1)[:, None] * one
    f, d = g3 - g1, h3 - h1
    area = _cross2(e, f)
    safe = jnp.where(area == 0, 1, area)
    three = jnp.stack([-c * f[:, 1] + d * e[:, 1], -d * e[:, 0] + c * f[:, 0]], 1) / safe[:, None]
    k = SIZES[:, None]
    turn = jnp.where(k == 1, one, jnp.where(k == 2, two, three))
    eps = jnp.finfo(n.dtype).eps
    far = lambda y: _dot2(y, y) > eps * x.size * x.size  # noqa: E731  # no corner twice
    apart = area * area > eps * _dot2(e, e) * _dot2(f, f)
    sound = (SIZES == 1) | far(e)
    sound = sound & ((SIZES < 3) | (far(f) & far(f - e) & apart))
    sound = sound & (_dot2(turn, turn) < 0.25)
    turn = jnp.where(sound[:, None], turn, 0)
    heights = h[None] + jnp.sum(turn[:, None] * g[None], axis=2)
    model = jnp.max(heights, axis=1)
    own = h1 + _dot2(turn, g1)
    sound = sound & (model - own <= 64 * eps * x.size)  # no other cut is higher there
    added = jnp.where(k[:, 0] == 1, extra * _dot2(turn, turn), more * beside * beside)
    model = model + 0.5 * (_dot2(turn, times(H, turn)) + jnp.where(k[:, 0] == 3, 0, added))
    best = jnp.argmin(jnp.where(sound, model, jnp.inf)).astype(jnp.int32)
    chosen = jnp.where(sound.any(), best, jnp.argmax(h).astype(jnp.int32))
    return _Step(jnp.where(sound.any(), turn[chosen], 0), chosen)


def _polished(
    x: Couple, n: Vector, cuts: Int[Array, "4 2"], ended: Bool[Array, ""]
) -> tuple[Vector, Int[Array, "4 2"]]:
    """The minimum of the support function near n, by Newton's method with four cuts."""
    eps = jnp.finfo(n.dtype).eps

    def turned(state):
        n, cuts, height, share, count, _ = state
        step = _step(x, n, cuts)
        y = n + share * jnp.sum(_tangents(n) * step.turn[None], axis=1)
        y = y / jnp.sqrt(so3.dot(y, y))
        w, new = x.towards(y)
        better = so3.dot(w, y) <= height
        acts = (
            np.arange(4, dtype=np.int32)[:, None] == jnp.asarray(SUBSETS)[step.subset][None]
        ).any(axis=1)
        known = (cuts == new[None]).all(axis=1).any()
        spare = jnp.argmin(acts).astype(jnp.int32) == np.arange(4, dtype=np.int32)
        cuts = jnp.where((spare & ~known)[:, None], new[None], cuts)
        ended = known & (share * share * _dot2(step.turn, step.turn) < (4 * eps) ** 2)
        height = jnp.where(better, so3.dot(w, y), height)
        share = jnp.where(better | ~known, 1, 0.5 * share)
        return jnp.where(better, y, n), cuts, height, share, count + 1, ended

    height = so3.dot(x.towards(n)[0], n)
    start = n, cuts, height, jnp.ones_like(height), jnp.zeros((), jnp.int32), ended
    going = lambda s: (s[4] < STEPS) & ~s[5]  # noqa: E731
    n, cuts, *_ = jax.lax.while_loop(going, turned, start)
    return n, cuts


def _settled(x: Couple, n: Vector, cuts: Int[Array, "4 2"]) -> Feature:
    """The feature at a normal: the cuts that act."""
    subset = _step(x, n, cuts).subset
    acting = cuts[jnp.asarray(SUBSETS)[subset]]
    zero = jnp.zeros((), jnp.int32)
    return Feature(n, acting, jnp.asarray(SIZES)[subset], zero, zero > 0)


def _on_caps(x: Couple, found: Feature) -> Feature:
    """The feature, or an end of a cylinder if its normal separates the shapes better.

    The support function has a kink in the direction of the axis, where Newton's method cannot end.
    """
    best = so3.dot(x.towards(found.normal)[0], found.normal)
    noise = 64 * jnp.finfo(best.dtype).eps * x.size
    for k, body in enumerate((x.a, x.b)):
        axis = body.R[:, 2]
        n = jnp.where(so3.dot(found.normal, axis) < 0, -axis, axis)
        w, new = x.towards(n)
        height = so3.dot(w, n)
        better = (body.disk > 0) & (height <= best + noise)
        one = jnp.ones((), jnp.int32)
        cap = Feature(n, jnp.tile(new[None], (3, 1)), one, (k + 1) * one, one < 1)
        found = jax.tree.map(lambda p, q: jnp.where(better, p, q), cap, found)  # noqa: B023
        best = jnp.where(better, jnp.minimum(height, best), best)
    return found


def _newton(x: Couple, f: Feature, n: Vector) -> tuple[Vector, Array]:
    """One Newton step of the optimality conditions, and the weights of the pairs before it."""
    T, rounding = _tangents(n), x.rounding(n)
    a, b = x.corners(f.corners)
    w = a - b
    height = so3.dot(w[0] + rounding, n)
    across = lambda y: jnp.sum(T * y[:, None], axis=0)  # noqa: E731
    g, e, d = across(w[0] + rounding), across(w[1] - w[0]), across(w[2] - w[0])
    ce, cd = so3.dot(w[1] - w[0], n), so3.dot(w[2] - w[0], n)
    H = _curvature(x, n, T, height)
    floor = LEAST[str(n.dtype)] * x.size

    def away(y, least):
        return jnp.where(jnp.abs(y) < least, jnp.where(y < 0, -least, least), y)

    det = away(H[0, 0] * H[1, 1] - H[0, 1] * H[1, 0], floor * floor)
    free = jnp.stack([H[0, 1] * g[1] - H[1, 1] * g[0], H[1, 0] * g[0] - H[0, 0] * g[1]]) / det
    e2 = away(_dot2(e, e), floor * floor)
    u = e / jnp.sqrt(e2)
    v = jnp.stack([-u[1], u[0]])
    Hv = jnp.sum(H * v[None], axis=1)
    along = -ce / jnp.sqrt(e2)
    beside = -(_dot2(v, g) + along * _dot2(u, Hv)) / away(_dot2(v, Hv), floor)
    held = along * u + beside * v
    area = away(_cross2(e, d), floor * floor)
    fixed = jnp.stack([-ce * d[1] + cd * e[1], -cd * e[0] + ce * d[0]]) / area
    turn = jnp.where(f.count == 1, free, jnp.where(f.count == 2, held, fixed))
    long = _dot2(turn, turn) > (MOST * MOST) * jnp.finfo(n.dtype).eps
    turn = turn - jnp.where(long, jax.lax.stop_gradient(turn), 0)
    one, zero = jnp.ones_like(ce), jnp.zeros_like(ce)
    share = -_dot2(e, g) / e2
    s, t = -_cross2(g, d) / area, -_cross2(e, g) / area
    pair, three = jnp.stack([1 - share, share, zero]), jnp.stack([1 - s - t, s, t])
    single = jnp.stack([one, zero, zero])
    weights = jnp.where(f.count == 1, single, jnp.where(f.count == 2, pair, three))
    y = n + jnp.sum(T * turn[None], axis=1)
    return y / jnp.sqrt(so3.dot(y, y)), weights


def nearest(x: Couple, f: Feature, origin: Vector) -> Nearest:
    """The nearest points for a feature, with derivatives of the optimality conditions.

    Two Newton steps from a constant have the first three derivatives of the solution.
    """
    n = f.normal
    for _ in range(2):
        n = _newton(x, f, n)[0]
    for k, body in enumerate((x.a, x.b)):
        axis = body.R[:, 2]
        up = jnp.where(so3.dot(f.normal, axis) < 0, -axis, axis)
        n = jnp.where(f.cap == k + 1, up, n)
    weights = jnp.where(f.cap > 0, np.array([1.0, 0.0, 0.0]).astype(n.dtype), _newton(x, f, n)[1])
    a, b = (jnp.sum(weights[:, None] * y, axis=0) for y in x.corners(f.corners))
    a, b = (y + z for y, z in zip((a, b), x.smooth(n), strict=True))
    height = so3.dot(n, a - b)
    first = jnp.where(f.cap == 1, b + height * n, a)
    second = jnp.where(f.cap == 2, a - height * n, b)
    ra, rb = x.a.ball, x.b.ball
    return Nearest(-height - ra - rb, first + ra * n + origin, second - rb * n + origin, n)
