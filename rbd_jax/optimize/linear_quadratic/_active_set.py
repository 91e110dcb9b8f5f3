"""Linear-quadratic problems with bounds of the controls and penalties that have kinks.

A semismooth Newton method, also known as the primal-dual active set method, guesses which controls
are at their bounds and which rows are penalized. Then one Riccati sweep solves the problem, and its
solution tells the next guess. OSQP, qpOASES and their like would do this too, but no package does
it in O(T) and within a compiled loop.
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
"""Greatest number of guesses."""


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
    best: Gains
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
    """The gains of the best motion within the bounds, with the change of its regularized cost.

    A Riccati sweep with bounds of k alone is not enough. The motion ``u = k + K x`` is clipped, and
    where the system is unstable, clipped feedback leads to motions that are worse at every step
    length. Nor is the curvature of the penalties that are active now: the step would run far past
    the kinks of the others.

    A control that the sweep moves out of its bounds is held at them in the next one. A held control
    is released if its slope, at the solution of the sweep, points inwards. If nothing changes, the
    problem is solved. Usually that takes two to five sweeps, and one near a solution. The method
    may also go round in circles, so the best motion of at most ``ROUNDS`` counts, clipped to the
    bounds.

    Source: Hintermüller, Ito, Kunisch (2002), The primal-dual active set strategy as a semismooth
    Newton method, Alg. 2.

    Args:
        f: dynamics without gaps. l: stage costs. end: final cost.
        mu: regularization.
        box: lower and upper bounds of the changes of the controls.
        slope: the gradient by the controls at the point itself. Controls that it holds at their
            bounds are the first guess.
        penalty: the part of the costs that has kinks.

    Returns:
        The gains. The motion ``u = k + K x`` is within the bounds. ``slope + bend`` is the change
        of the costs, with penalty and regularization, along it.
    """

    if box is None and penalty is None:
        return riccati_backward(f, l, end, mu)

    def sweep(held: Held, active: Rows | None) -> tuple[Gains, Held, Rows | None]:
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
            gains = gains._replace(k=u - linear.einsum("tmn,tn->tm", gains.K, x[:-1]))
        first, second = change(l, end, x, u)
        second = second + 0.5 * mu * jnp.sum(u * u)
        if penalty is not None:
            here = penalty.at(x, u)
            more = penalty.slope(here)
            first, second = first + more, second + penalty.change(here) - more
            active = penalty.active(here)
        # a sweep knows the curvature of free controls alone, and a model that has no minimum
        # between the bounds promises much by its negative curvature
        definite = gains.definite & (second >= -CURVED * jnp.abs(first))
        return gains._replace(slope=first, bend=second, definite=definite), held, active

    def body(s: _Round) -> _Round:
        new, held, active = sweep(s.held, s.active)
        better = new.definite & (new.slope + new.bend < s.best.slope + s.best.bend)
        best = jax.tree.map(lambda a, b: jnp.where(better | (s.count == 0), a, b), new, s.best)
        same = _equal((held, active), (s.held, s.active))
        return _Round(held, active, best, same, s.count + 1)

    nowhere, no = jnp.zeros(l.u.shape, bool), jnp.zeros((), bool)
    held, active = Held(nowhere, nowhere), None
    if box is not None:
        held = Held((box[0] >= 0) & (slope > 0), (box[1] <= 0) & (slope < 0))
    if penalty is not None:
        active = penalty.active(penalty.r)
    k, K, Vx, Vxx, zero = (jnp.zeros_like(x) for x in (l.u, l.ux, l.x, l.xx, mu))
    nothing = Gains(k, K, Vx, Vxx, zero, zero, no)
    first = _Round(held, active, nothing, no, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(lambda s: ~s.settled & (s.count < ROUNDS), body, first).best


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
