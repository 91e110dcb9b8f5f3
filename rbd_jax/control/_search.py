"""The search for a configuration: Levenberg and Marquardt's method from one start after the other.

Joints stay within their limits: a step is cut off there, and a joint that is at a limit and is
pushed further does not move. Once the targets are reached, a preferred posture may be approached
without leaving them.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..lanes import lanes
from ..model import Model, difference, integrate
from ..spatial import linear
from ._rows import Aim, Rows, rows

DAMPING = 0.3  # at the start of a search, in m²; with 0.1 and 1 searches are as short
LOWER, RAISE = 0.2, 10.0  # factors of the damping after a good step and after a bad one
PATIENCE = 4  # steps in a row that hardly make the error smaller end a start …
HARDLY = 0.9  # … where hardly is this ratio of squared errors
NEAR = 0.05  # the farthest from a limit that a joint may be held by it (rad, m)
SLOWLY = 1.3  # by which steps toward a posture grow again after they were shortened
STEPS_A_START = 40  # most starts that succeed take fewer than 15


class Settings(eqx.Module):
    """Numbers of the search."""

    position_tolerance: Float[Array, ""]
    angle_tolerance: Float[Array, ""]
    starts: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)


class Found(NamedTuple):
    """Where the search ended."""

    q: Float[Array, " nq"]
    multipliers: Float[Array, " m"]
    """Of the rows, where a posture is preferred; zero otherwise."""
    fixed: Bool[Array, " n"]
    """Which of the moving degrees of freedom are held by a limit."""
    reached: Bool[Array, ""]
    settled: Bool[Array, ""]
    """Whether the posture is as near to the preferred one as the targets allow."""
    steps: Int[Array, ""]
    start: Int[Array, ""]
    """How many starts were tried."""


class _Point(NamedTuple):
    """A configuration with its rows."""

    q: Array
    error: Array
    rates: Array
    reached: Array


class _State(NamedTuple):
    at: _Point
    best: _Point
    damping: Array
    length: Array
    """Of the last step toward the preferred posture, as a share of the whole step."""
    multipliers: Array
    fixed: Array
    rests: Array
    """Whether the last step toward the preferred posture was negligible."""
    stride: Array
    """How far the next step toward the preferred posture may move a joint."""
    step: Array
    """In this start."""
    idle: Array
    """Steps in a row without much progress."""
    start: Array
    steps: Array
    settled: Array
    over: Array


def spread(count: int, n: int) -> np.ndarray:
    """Points that fill the unit cube evenly, (count, n).

    Source: Roberts, "The unreasonable effectiveness of quasirandom sequences" (2018): multiples of
    the powers of the inverse of the root of ``x^(n+1) = x + 1``, modulo one.
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (n + 1))
    return (0.5 + np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, n + 1)[None]) % 1


def limits_of_dofs(model: Model, q: Array) -> tuple[Array, Array, Array]:
    """Position and limits of each degree of freedom whose joint has one; 0 and ±inf for others."""
    space = model.space
    single = (np.diff(space.v_starts) == 1)[space.dof_bodies]
    at = space.q_starts[space.dof_bodies]
    inf = jnp.full((model.nv,), jnp.inf, model.dtype)
    pick = lambda x, other: jnp.where(single, x[at], other)  # noqa: E731
    lower, upper = pick(model.position_lower, -inf), pick(model.position_upper, inf)
    return pick(q, jnp.zeros_like(inf)), lower, upper


def _reach_of_dofs(model: Model) -> np.ndarray:
    """How far starts are from q0 where a joint has no limits: half a turn, or a metre."""
    turn = {"prismatic": [0], "translation": [0] * 3, "free": [1] * 3 + [0] * 3}
    turns: list[int] = []
    for kind, size in zip(model.space.kinds, np.diff(model.space.v_starts), strict=True):
        turns += turn.get(kind, [1] * int(size))
    return np.where(np.array(turns, dtype=bool), np.pi, 1.0)


@lanes
def search(aim: Aim, q0: Array, posture: Array | None, settings: Settings) -> Found:
    """Try one start after the other, the first of them q0, until the targets are reached."""
    model, moving, o = aim.model, aim.moving, settings
    kind, n = model.dtype, len(aim.columns)
    eps = float(jnp.finfo(kind).eps)
    lower_q, upper_q = model.position_lower, model.position_upper

    def full(d):
        return d if n == model.nv else jnp.zeros((model.nv,), kind).at[moving].set(d)

    def moved(q, d):
        return jnp.clip(integrate(model, q, full(d)), lower_q, upper_q)

    def point(q) -> _Point:
        r = rows(aim, q)
        return _Point(q, r.error, r.rates, within(r, o))

    _, lower, upper = (x[moving] for x in limits_of_dofs(model, q0))
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    wide = jnp.asarray(_reach_of_dofs(model)[moving], kind)
    low, high = jnp.where(bounded, lower, -wide), jnp.where(bounded, upper, wide)
    table = jnp.asarray(spread(max(o.starts, 1), n), kind)

    def start(k):
        """Joints with two limits are spread between them, others around where they were."""
        here = jnp.where(bounded, limits_of_dofs(model, q0)[0][moving], 0)
        return moved(q0, low + table[k] * (high - low) - here)

    def step(s: _State) -> _State:
        at, damping = s.at, s.damping
        x, _, _ = (y[moving] for y in limits_of_dofs(model, at.q))
        slope = _times(at.rates, at.error)

        # near a limit is what the next step may bring there (Bertsekas, 1982)
        near = 0 if posture is None else jnp.where(at.reached, s.stride, 0)
        low_end, high_end = x <= lower + near, x >= upper - near

        def pushed(slope):  # how hard a joint at a limit is pushed further; negative: away from it
            return jnp.where(low_end, slope, jnp.where(high_end, -slope, 0))

        pull = jnp.zeros((n,), kind)
        if posture is not None:
            pull = jnp.where(at.reached, difference(model, at.q, posture)[moving], 0)
            slope = jnp.where(at.reached, _times(at.rates, s.multipliers) - pull, slope)
            damping = jnp.where(at.reached, 10 * eps, damping)
        fixed = pushed(slope) > 0
        if posture is not None:  # one joint at a time leaves its limit, when all else is at rest
            push = pushed(slope)
            leaves = s.rests & (jnp.arange(n) == jnp.argmin(jnp.where(s.fixed, push, 0)))
            kept = s.fixed & (low_end | high_end) & ~leaves
            fixed = jnp.where(at.reached, kept | (fixed & ~leaves), fixed)
        free = jnp.where(fixed[:, None], 0, at.rates)
        solve = _damped_step(free, damping)
        error, onto = at.error, jnp.zeros((n,), kind)
        if posture is not None:  # onto the limit exactly
            onto = jnp.where(fixed, jnp.where(low_end, lower, upper) - x, 0)
            error = error + _times(at.rates.T, onto)
        d, multipliers = solve(error, jnp.where(fixed, 0, pull))
        d = d + onto
        new = point(moved(at.q, jnp.where(at.reached, s.length, 1) * d))
        before, after = _square(at.error), _square(new.error)
        better = after < before
        if posture is not None:  # what the step has lost of the targets is corrected
            back, _ = solve(new.error, jnp.zeros((n,), kind))
            new = point(moved(new.q, jnp.where(at.reached, back, 0)))
            # an exact penalty, with a weight that exceeds the multipliers
            weight = 2 * jnp.max(jnp.abs(multipliers))
            merit = 0.5 * _square(pull) + weight * jnp.sum(jnp.abs(at.error))
            left = difference(model, new.q, posture)[moving]
            merit_after = 0.5 * _square(left) + weight * jnp.sum(jnp.abs(new.error))
            better = jnp.where(at.reached, merit_after < merit, better)
        expected = before - _square(at.error + _times(at.rates.T, d))
        good = better & (before - after > 0.25 * expected)
        damping = jnp.where(good, damping * LOWER, jnp.where(better, damping, damping * RAISE))
        damping = jnp.maximum(damping, 10 * eps)
        idle = jnp.where(better & (after < HARDLY * before), 0, s.idle + 1)
        # the posture
        rests = settled = stuck = jnp.zeros((), bool)
        length, stride = s.length, s.stride
        if posture is not None:
            longest = jnp.max(jnp.abs(d), initial=0)
            rests = at.reached & (longest < 10 * eps**0.5)
            stride = jnp.where(at.reached, jnp.minimum(longest, NEAR), NEAR)
            push = pushed(_times(at.rates, multipliers) - pull)
            settled = rests & (jnp.min(jnp.where(fixed, push, 0), initial=0) > -10 * eps**0.5)
            length = jnp.where(better, jnp.minimum(1, SLOWLY * length), 0.5 * length)
            length = jnp.where(at.reached & ~rests, length, 1)
            stuck = length < 1e-4
            multipliers, fixed = (
                jnp.where(at.reached, y, jnp.zeros_like(y)) for y in (multipliers, fixed)
            )
        at = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, at)
        if posture is None:
            settled = at.reached
        nearer = _square(at.error) < _square(s.best.error)
        best = jax.tree.map(lambda a, b: jnp.where(nearer | at.reached, a, b), at, s.best)
        idle, number = (jnp.where(at.reached, 0, x) for x in (idle, s.step + 1))
        again = ~at.reached & ((number >= STEPS_A_START) | (idle >= PATIENCE))
        start = s.start + again.astype(jnp.int32)
        over = settled | stuck | (start > o.starts)
        return _State(
            at, best, damping, length, multipliers, fixed, rests, stride,
            number, idle, start,
            s.steps + 1, settled, over,
        )  # fmt: skip

    def restarted(s: _State, before: _State) -> _State:
        def begin(_):
            at = point(start(jnp.clip(s.start - 1, 0, len(table) - 1)))
            zero = jnp.zeros_like(s.step)
            return at, jnp.asarray(DAMPING, kind), zero, zero

        again = (s.start > before.start) & ~s.over
        at, damping, step, idle = jax.lax.cond(
            again, begin, lambda _: (s.at, s.damping, s.step, s.idle), None
        )
        return s._replace(at=at, damping=damping, step=step, idle=idle)

    first, zero = point(jnp.clip(q0, lower_q, upper_q)), jnp.zeros((), jnp.int32)
    no = jnp.zeros((), bool)
    s = _State(
        at=first,
        best=first,
        damping=jnp.asarray(DAMPING, kind),
        length=jnp.ones((), kind),
        multipliers=jnp.zeros_like(first.error),
        fixed=jnp.zeros((n,), bool),
        rests=no,
        stride=jnp.full((), NEAR, kind),
        step=zero,
        idle=zero,
        start=zero,
        steps=zero,
        settled=no,
        over=first.reached if posture is None else no,
    )
    s = jax.lax.while_loop(
        lambda s: ~s.over & (s.steps < o.max_steps), lambda s: restarted(step(s), s), s
    )
    none = posture is None
    multipliers = jnp.zeros_like(s.multipliers) if none else s.multipliers
    fixed = jnp.zeros_like(s.fixed) if none else s.fixed
    settled = s.best.reached if none else s.settled
    tried = jnp.minimum(s.start, o.starts) + 1
    return Found(s.best.q, multipliers, fixed, s.best.reached, settled, s.steps, tried)


def within(r: Rows, o: Settings) -> Bool[Array, ""]:
    """Whether all errors are within their tolerances."""
    loop = jnp.minimum(o.position_tolerance, o.angle_tolerance)
    near = jnp.all(r.position <= o.position_tolerance) & jnp.all(r.angle <= o.angle_tolerance)
    return near & (r.loop <= loop) & jnp.all(r.missing <= o.position_tolerance)


def _damped_step(J: Float[Array, "n m"], damping: Array) -> Callable:
    """A function of r and g: ``d = g − J (JᵀJ + λ)⁻¹ (r + Jᵀ g)``, and y with ``d = g − J y``.

    The smaller of the two systems of equations is factorized, which give the same step.
    """
    n, m = J.shape
    A = linear.matmul(J.T, J) if m <= n else linear.matmul(J, J.T)
    L = linear.cholesky(A + damping * jnp.eye(len(A), dtype=A.dtype))

    def inverse(b):
        return linear.solve_upper(L.T, linear.solve_lower(L, b[:, None]))[:, 0]

    def solve(r, g) -> tuple[Array, Array]:
        b = r + _times(J.T, g)
        if m <= n:
            y = inverse(b)
            return g - _times(J, y), y
        d = g - inverse(_times(J, b))
        return d, (r + _times(J.T, d)) / damping

    return solve


def _times(A: Float[Array, "i j"], x: Float[Array, " j"]) -> Float[Array, " i"]:
    return jnp.sum(A * x[None], axis=1)


def _square(x: Array) -> Array:
    return jnp.sum(x * x)
