"""Linear-quadratic problems with bounds of the controls and penalties that have kinks.

An active-set method guesses which controls are at their bounds and which rows are penalized. Then
one Riccati sweep solves the problem, and its solution tells the next guess. OSQP, qpOASES and their
like would do this too, but no package does it in O(T) and within a compiled loop.
"""

from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...spatial import linear
from ..problems._constraints import Rows
from ..problems._local_models import Dynamics, Quadratic, times
from ._riccati import Gains, lqr_rollout, riccati_backward

Tree = TypeVar("Tree")

ROUNDS = 10
"""Greatest number of sweeps."""
PARTS = 6
"""So many parts of the way to the motion of a sweep are tried: 1, ½, ¼ …"""
ENOUGH = 1e-3
"""Part of what steepest descent gains that a motion has to gain, if no minimum is found."""
CURVED = 1e-2
"""Greatest negative curvature along a step, relative to its slope, that counts as rounding."""


class Held(NamedTuple):
    """Controls that are held at their bounds."""

    low: Bool[Array, "T m"]
    high: Bool[Array, "T m"]


class Penalty(eqx.Module):
    """``ρ/2 |P(r + C z)|²`` about a trajectory with z = (x, u) and ``r = c + λ/ρ``.

    P drops the rows of inequalities ``c ≤ 0`` that are negative.
    """

    r: Rows
    C: Rows
    rho: Float[Array, ""]
    equality: Rows

    def at(self, x: Array, u: Array) -> Rows:
        """``r + C z`` at the states x (T + 1, n) and controls u."""
        z = jnp.concatenate([x[:-1], u], axis=1)
        return Rows(
            self.r.stage + _many(self.C.stage, z), self.r.final + times(self.C.final, x[-1])
        )

    def active(self, value: Rows) -> Rows:
        """Rows that are penalized."""
        sign = zip(value, self.equality, strict=True)
        return Rows(*((x > 0) | jnp.broadcast_to(jnp.array(e), x.shape) for x, e in sign))

    def change(self, at: Rows) -> Float[Array, ""]:
        """The change of the penalty from r to what :meth:`at` returns."""
        new, old = self._pushed(at), self._pushed(self.r)
        return 0.5 * self.rho * _sum(jax.tree.map(lambda a, b: (a - b) * (a + b), new, old))

    def slope(self, at: Rows) -> Float[Array, ""]:
        """Its change of first order."""
        along = jax.tree.map(jnp.subtract, at, self.r)
        return self.rho * _sum(jax.tree.map(jnp.multiply, self._pushed(self.r), along))

    def _pushed(self, value: Rows) -> Rows:
        return jax.tree.map(lambda a, y: jnp.where(a, y, 0), self.active(value), value)

    def add(self, l: Quadratic, end: Quadratic, active: Rows) -> tuple[Quadratic, Quadratic]:
        """The costs with the penalty of the active rows alone."""
        n = l.x.shape[-1]
        C = jnp.where(active.stage[..., None], self.C.stage, 0)
        E = jnp.where(active.final[..., None], self.C.final, 0)
        g = self.rho * _many(jnp.swapaxes(C, 1, 2), self.r.stage)
        H = self.rho * linear.matmul(jnp.swapaxes(C, 1, 2), C)
        l = l._replace(x=l.x + g[:, :n], u=l.u + g[:, n:])
        end = end._replace(
            x=end.x + self.rho * times(E.T, self.r.final), xx=end.xx + self.rho * times(E.T, E)
        )
        return add_curvature(l, H), end


class _Round(NamedTuple):
    held: Held
    active: Rows | None
    x: Float[Array, "N n"]
    u: Float[Array, "T m"]
    """The best motion so far."""
    best: Gains
    """Gains of the sweep that led to it, with the change of the costs along it."""
    settled: Bool[Array, ""]
    count: Array


def active_set_gains(
    f: Dynamics,
    l: Quadratic,
    end: Quadratic,
    mu: Float[Array, ""],
    box: tuple[Float[Array, "T m"], Float[Array, "T m"]] | None,
    slope: Float[Array, "T m"],
    penalty: Penalty | None = None,
) -> Gains:
    """The gains of a motion within the bounds, with the change of its regularized cost.

    A Riccati sweep with bounds of k alone is not enough. The motion ``u = k + K x`` is clipped, and
    where the system is unstable, clipped feedback leads to motions that are worse at every step
    length. Nor is the curvature of the penalties that are active now: the step would run far past
    the kinks of the others.

    A control that the sweep moves out of its bounds is held at them in the next one. A held control
    is released if its slope, at the solution of the sweep, points inwards. If nothing changes, the
    problem is solved. Near a solution that takes one or two sweeps, and otherwise often two to
    five.

    The method may also go round in circles, most of all with cheap controls, long horizons and
    little regularization. Then the result is the best motion that ``ROUNDS`` sweeps lead to, each
    clipped to the bounds, or on the way from the best one before to it. If even that gains
    less than steepest descent, the model counts as one without a minimum, so that more
    regularization comes to help.

    Source: Hintermüller, Ito, Kunisch (2002), The primal-dual active set strategy as a semismooth
    Newton method, Alg. 2.

    Args:
        f: dynamics without gaps. l: stage costs. end: final cost.
        mu: regularization.
        box: lower and upper bounds of the changes of the controls; no change is within them.
        slope: the gradient by the controls at the point itself. Controls that it holds at their
            bounds are the first guess.
        penalty: the part of the costs that has kinks.

    Returns:
        The gains. The motion ``u = k + K x`` is within the bounds. ``slope + bend`` is the change
        of the costs, with penalty and regularization, along it. ``definite`` is False if the model
        has no minimum within the bounds, or if none was found and the cost hardly falls.
    """

    if box is None and penalty is None:
        return riccati_backward(f, l, end, mu)

    def value(x: Array, u: Array) -> tuple[Array, Array]:
        """The change of the costs, of first order and the rest."""
        first, second = change(l, end, x, u)
        second = second + 0.5 * mu * jnp.sum(u * u)
        if penalty is None:
            return first, second
        here = penalty.at(x, u)
        more = penalty.slope(here)
        return first + more, second + penalty.change(here) - more

    def sweep(held: Held, active: Rows | None):
        """The gains, the motion within the bounds, and the next guess."""
        costs = (l, end) if penalty is None or active is None else penalty.add(l, end, active)
        if box is None:
            gains = riccati_backward(f, *costs, mu)
            x, u = lqr_rollout(f, gains)
        else:
            low, high = box
            free = ~(held.low | held.high)
            gains = riccati_backward(f, *costs, mu, free=free, fixed=jnp.where(held.low, low, high))
            x, u = lqr_rollout(f, gains)
            pull = _control_slopes(f, costs[0], mu, gains, x, u)
            held = Held(
                jnp.where(free, u < low, held.low & (pull > 0)),
                jnp.where(free, u > high, held.high & (pull < 0)),
            )
            x, u = lqr_rollout(f, gains, box)
        return gains, (x, u), (held, None if penalty is None else penalty.active(penalty.at(x, u)))

    def body(s: _Round) -> _Round:
        gains, goal, guess = sweep(s.held, s.active)
        parts = 0.5 ** jnp.arange(PARTS, dtype=mu.dtype)
        between = lambda part: jax.tree.map(lambda a, b: a + part * (b - a), (s.x, s.u), goal)  # noqa: E731
        first, second = jax.vmap(lambda part: value(*between(part)))(parts)
        total = jnp.where(jnp.isfinite(first + second), first + second, jnp.inf)
        before = s.best.slope + s.best.bend
        chosen = jnp.where(total[0] < before, 0, jnp.argmin(total))
        first, second = first[chosen], second[chosen]
        # a sweep knows the curvature of free controls alone, and a model that has no minimum
        # between the bounds promises much by its negative curvature
        definite = gains.definite & (second >= -CURVED * jnp.abs(first))
        better = (s.count == 0) | definite & (total[chosen] < before)
        new = *between(parts[chosen]), gains._replace(slope=first, bend=second, definite=definite)
        x, u, best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, (s.x, s.u, s.best))
        settled, (held, active) = _equal(guess, (s.held, s.active)), guess
        return _Round(held, active, x, u, best, settled, s.count + 1)

    nowhere, no, zero = jnp.zeros(l.u.shape, bool), jnp.zeros((), bool), jnp.zeros_like(mu)
    held, active = Held(nowhere, nowhere), None
    if box is not None:
        held = Held((box[0] >= 0) & (slope > 0), (box[1] <= 0) & (slope < 0))
    if penalty is not None:
        active = penalty.active(penalty.r)
    k, K, Vx, Vxx = (jnp.zeros_like(x) for x in (l.u, l.ux, l.x, l.xx))
    nothing, x = (
        Gains(k, K, Vx, Vxx, zero, zero, no),
        jnp.zeros((len(k) + 1, l.x.shape[1]), k.dtype),
    )
    first = _Round(held, active, x, k, nothing, no, jnp.zeros((), jnp.int32))

    def unfinished(s: _Round):
        return ~s.settled & (s.count < ROUNDS) & (s.best.definite | (s.count == 0))

    s = jax.lax.while_loop(unfinished, body, first)
    best = s.best
    # steepest descent within the bounds, to the minimum along its way
    down = -slope if box is None else jnp.clip(-slope, *box)
    first, second = value(*lqr_rollout(f, nothing._replace(k=down)))
    part = jnp.where(second > 0, jnp.clip(-0.5 * first / second, 0, 1), 1)
    least = part * (first + part * second)
    fall = best.slope + best.bend
    found = s.settled | (fall < 0) & (fall <= ENOUGH * least)
    k = s.u - linear.einsum("tmn,tn->tm", best.K, s.x[:-1])
    return best._replace(k=k, definite=best.definite & found)


def _control_slopes(f: Dynamics, l: Quadratic, mu, gains: Gains, x: Array, u: Array):
    """The slope of the cost to go by each control along the motion of the gains."""
    after = gains.Vx + _many(gains.Vxx, x[1:])
    return l.u + _many(l.ux, x[:-1]) + _many(l.uu, u) + mu * u + _many(f.B.swapaxes(1, 2), after)


def _equal(a: Tree, b: Tree) -> Bool[Array, ""]:
    same = jax.tree.map(lambda x, y: jnp.all(x == y), a, b)
    return jnp.all(jnp.stack(jax.tree.leaves(same)))


def _sum(rows: Rows) -> Float[Array, ""]:
    return jnp.sum(rows.stage) + jnp.sum(rows.final)


def _many(A: Array, x: Array) -> Array:
    return jnp.sum(A * x[:, None, :], axis=-1)


def change(
    l: Quadratic, end: Quadratic, x: Float[Array, "N n"], u: Float[Array, "T m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The change of the quadratic costs along a motion, of first and of second order."""
    slope = jnp.sum(l.x * x[:-1]) + jnp.sum(l.u * u) + jnp.sum(end.x * x[-1])
    bend = jnp.sum(x[:-1] * _many(l.xx, x[:-1])) + jnp.sum(u * _many(l.uu, u))
    cross = jnp.sum(u * _many(l.ux, x[:-1]))
    return slope, 0.5 * (bend + jnp.sum(x[-1] * times(end.xx, x[-1]))) + cross


def add_curvature(l: Quadratic, H: Array) -> Quadratic:
    """Stage costs with second derivatives H by (x, u) added."""
    n = l.x.shape[-1]
    xx, ux, uu = l.xx + H[:, :n, :n], l.ux + H[:, n:, :n], l.uu + H[:, n:, n:]
    return l._replace(xx=xx, ux=ux, uu=uu)
