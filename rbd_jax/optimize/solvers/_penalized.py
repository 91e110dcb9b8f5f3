"""A step of iLQR on the augmented Lagrangian: the penalized linear–quadratic problem."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...lanes import lanes
from ...spatial import linear
from ..problems._constraints import Rows, Stack
from ._sqp_loop import Proposal, line_search
from ..linear_quadratic._lq_approximation import Dynamics, Quadratic, costates, curvature, gauss_newton, quadratic, times
from ._ilqr import add_curvature, curvature_scale, gradient, mixed, roll, stationary
from ._lagrangian import Multipliers, Weighted, update, with_terms
from ..problems._problem import Problem
from ..linear_quadratic._riccati import Gains, backward, forward

ROUNDS = 10
"""Greatest number of changes of the active rows in one step."""


class Penalty(eqx.Module):
    """``ρ/2 |P(r + C z)|²`` about a trajectory, with ``r = c + λ/ρ``."""

    r: Rows
    C: Rows
    rho: Float[Array, ""]
    rows: Stack

    def at(self, x: Array, u: Array) -> Rows:
        """``r + C z`` at the states x (T + 1, n) and controls u."""
        z = jnp.concatenate([x[:-1], u], axis=1)
        return Rows(
            self.r.stage + _many(self.C.stage, z), self.r.final + times(self.C.final, x[-1])
        )

    def active(self, value: Rows) -> Rows:
        """Rows that are penalized."""
        sign = zip(value, self.rows.equality, strict=True)
        return Rows(*((x > 0) | jnp.broadcast_to(jnp.array(e), x.shape) for x, e in sign))

    def value(self, x: Array, u: Array) -> Float[Array, ""]:
        """The penalty at z = (x, u)."""
        value = self.at(x, u)
        on = jax.tree.map(lambda a, y: jnp.where(a, y, 0), self.active(value), value)
        return 0.5 * self.rho * (jnp.sum(on.stage**2) + jnp.sum(on.final**2))

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


def _many(A: Array, x: Array) -> Array:
    return jnp.sum(A * x[:, None, :], axis=-1)


class _Round(NamedTuple):
    active: Rows
    gains: Gains
    value: Float[Array, ""]
    settled: Bool[Array, ""]
    count: Array


class Model(NamedTuple):
    """A linear-quadratic model of the augmented Lagrangian that keeps the kinks of the penalty."""

    f: Dynamics
    l: Quadratic
    end: Quadratic
    more: tuple[Quadratic, Quadratic] | None
    """What the exact second derivatives add to the costs; None for Gauss–Newton."""
    penalty: Penalty
    active: Rows
    """The rows that are penalized at the point itself."""
    size: Float[Array, ""]
    """The unit of μ."""
    gradient: Float[Array, "T m"]
    """Of the augmented Lagrangian by the controls."""


def penalized_model(
    problem: Problem, rows: Stack, m: Multipliers, c: Rows, q, v, u, second_order: bool
) -> Model:
    """The model about a trajectory.

    Args:
        problem: what to minimize, without its constraints.
        rows: the constraints. m: their multipliers. c: their values.
        q: the states. v: their velocities. u: the controls.
        second_order: whether to compute the exact second derivatives too.
    """
    f, l, end = gauss_newton(problem, q, v, u, gaps=False)
    more = None
    if second_order:
        exact = _exact(problem, rows, m, c, (q, v, u), (f, l, end))
        more = jax.tree.map(jnp.subtract, exact, (l, end))
    r = jax.tree.map(lambda c, x: c + x / m.penalty, c, m.rows)
    penalty = Penalty(r, rows.jacobians(problem, q, v, u), m.penalty, rows)
    first = penalty.active(r)
    here = penalty.add(l, end, first)
    g = gradient(f, here[0], costates(f, *here))
    return Model(f, l, end, more, penalty, first, curvature_scale(here[0]), g)


def penalized_step(
    problem: Problem,
    model: Model,
    point: tuple[Array, Array, Array, Array],
    mu: Float[Array, ""],
    share: Float[Array, ""],
) -> tuple[Proposal, Array]:
    """A new point and its feedback.

    A semismooth Newton method minimizes the model: Riccati sweeps with the rows that the sweep
    before made active, until they do not change. A step with the rows that are active now would run
    far past the kinks of the others.

    Args:
        problem: with the penalties among its costs.
        model: the expansion about the point.
        point: q, v, u and the augmented Lagrangian.
        mu: regularization. share: of the exact second derivatives.
    """
    q, v, u, merit = point
    f, l, end, penalty, first = model.f, model.l, model.end, model.penalty, model.active
    if model.more is not None:
        l, end = mixed((l, end), model.more, share)
    mu = mu * model.size
    box = None
    if problem.bounded:
        low, high = problem.bounds()
        box = low[None] - u, high[None] - u

    def sweep(active: Rows) -> tuple[Gains, Array, Rows]:
        gains = backward(f, *penalty.add(l, end, active), mu, box)
        x, du = forward(f, gains, box)
        change = _value(l, end, x, du) + penalty.value(x, du) - penalty.value(0 * x, 0 * du)
        return gains, change, penalty.active(penalty.at(x, du))

    def go_on(s: _Round) -> Array:
        return ~s.settled & (s.count < ROUNDS)

    def body(s: _Round) -> _Round:
        gains, value, active = sweep(s.active)
        better = value < s.value
        gains = jax.tree.map(lambda a, b: jnp.where(better, a, b), gains, s.gains)
        same = jax.tree.map(lambda a, b: jnp.all(a == b), active, s.active)
        value = jnp.where(better, value, s.value)
        return _Round(active, gains, value, same.stage & same.final, s.count + 1)

    gains, value, active = sweep(first)
    same = jax.tree.map(lambda a, b: jnp.all(a == b), active, first)
    start = _Round(active, gains, value, same.stage & same.final, jnp.ones((), jnp.int32))
    s = jax.lax.while_loop(go_on, body, start)

    definite = s.gains.definite & jnp.isfinite(s.value)
    new, new_merit, length = _search(problem, q, v, u, merit, s.gains, -s.value, definite)
    ready = stationary(problem, u, model.gradient, merit)
    proposal = Proposal((*new, new_merit), merit, new_merit, -s.value, length, definite, ready)
    return proposal, s.gains.K


@lanes
def _search(problem: Problem, q, v, u, merit, gains: Gains, expected, definite):
    """The line search along the feedforward controls."""

    def attempt(length):
        *point, new = roll(problem, q, v, u, length * gains.k, gains.K)
        return tuple(point), new

    return line_search(attempt, merit, lambda x: x * (2 - x) * expected, definite)


def _value(l: Quadratic, end: Quadratic, x: Array, u: Array) -> Float[Array, ""]:
    """The costs of the linear–quadratic problem."""
    slope = jnp.sum(l.x * x[:-1]) + jnp.sum(l.u * u) + jnp.sum(end.x * x[-1])
    bend = jnp.sum(x[:-1] * (_many(l.xx, x[:-1]))) + jnp.sum(u * _many(l.uu, u))
    cross = jnp.sum(u * _many(l.ux, x[:-1]))
    return slope + 0.5 * (bend + jnp.sum(x[-1] * times(end.xx, x[-1]))) + cross


def _exact(problem, rows: Stack, m: Multipliers, c: Rows, point, model):
    """The costs with second derivatives of dynamics and constraints."""
    (q, v, u), (f, l, end) = point, model
    lam = update(c, m.rows, m.penalty, rows.equality, jnp.inf)
    curved, last = quadratic(with_terms(problem, Weighted(rows, lam)), q, v, u, exact=True)
    curved = add_curvature(curved, curvature(problem, q, v, u, costates(f, curved, last)))
    # the slopes of the rows are in the penalty
    return curved._replace(x=l.x, u=l.u), last._replace(x=end.x)
