"""Constrained trajectory optimization: an augmented Lagrangian around iLQR and DDP."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model.outcome import RESULTS
from ._constrained_solution import ConstrainedSolution, finished
from ..problems._constraints import Constraint, Rows, Stack, stack, zeros
from ._sqp_loop import NEAR, descend, options
from ._implicit import without_derivatives
from ._implicit_constrained import constrained_stationary
from ._lagrangian import Multipliers, Penalties, advance, excess, violation, with_terms
from ._motion import States, held_controls, reached
from ._penalized import penalized_model, penalized_step
from ..problems._problem import Problem, with_explicit_closures
from ._solution import checked_argument, checked_arguments, if_finite, times_of
from ._tolerances import tolerances


class Limits(eqx.Module):
    """Of the outer loop."""

    feasible: float
    least_tol: float
    most_penalty: float | Array


def augmented_lagrangian(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    constraints: Sequence[Constraint],
    *,
    multipliers: Rows | None = None,
    penalty: float | Float[Array, ""] | None = None,
    second_order: bool = False,
    max_steps: int = 400,
    tol: float | None = None,
    feasibility: float | None = None,
    max_penalty: float | None = None,
    regularization: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
) -> ConstrainedSolution:
    """Minimize under constraints on states and controls: iLQR or DDP on the augmented Lagrangian.

    Source: Howell, Jackson, Manchester (2019), ALTRO, Alg. 2; rules for the penalty and the
    tolerances: Birgin, Martínez (2014), Alg. 4.1. Departures: one penalty for all rows; inner and
    outer steps are one loop, so that a batch does not wait for its slowest sample; bounds of
    the controls stay in the backward pass and are never violated.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        constraints: what has to hold, see :class:`Constraint`; :func:`joint_limits` and others are
            ready. Rows of one size, 1 say, are best: the penalty is the same for all.
        multipliers: first guess, ``solution.multipliers`` of a problem alike; zeros if None.
        penalty: first weight ρ of ``ρ/2 c²``, ``solution.penalty`` of a problem alike; if None,
            from the sizes of cost and violation at the first guess.
        second_order: exact second derivatives of dynamics, costs and constraints, as
            :func:`ddp`; else Gauss–Newton, as :func:`ilqr`.
        max_steps: limit of steps, inner and outer ones together.
        tol: as in :func:`ilqr`, for the augmented Lagrangian.
        feasibility: greatest violation that counts as none; 1e-6 in float64, 1e-3 in float32 if
            None.
        max_penalty: the greatest penalty; 1e8 in float64, 1e5 in float32 if None. Where it does
            not help any more, the problem is ``infeasible``.
        regularization: as in :func:`ilqr`. throw: as in :func:`ilqr`; the error names the
            constraint that fails. progress: as in :func:`ilqr`, with the augmented Lagrangian.

    Returns:
        The solution with its multipliers, differentiable as that of :func:`ilqr` is, provided that
        the gradients of the active constraints are independent and no multiplier of them is zero.
        Cost of a step: that of a step of :func:`ilqr`, and the derivatives of the constraints.

    Raises:
        ValueError: for a wrong shape, or two constraints of one name. TypeError: for a value that
            is no array, or of integers.
    """
    name = "augmented_lagrangian"
    q0, v0, u = checked_arguments(name, problem, q0, v0, u)
    problem, rows = with_explicit_closures(problem, q0, v0), stack(problem, constraints, q0, v0)
    usual = tolerances(u.dtype)
    o = options(u.dtype, max_steps, tol, regularization, progress)
    limits = Limits(
        usual.violation if feasibility is None else feasibility,
        o.tol,
        usual.most_penalty if max_penalty is None else max_penalty,
    )
    equal = rows.equality
    if multipliers is None:
        multipliers = zeros(rows, u.dtype)
    multipliers = Rows(
        checked_argument(
            name, problem, "multipliers.stage", multipliers.stage, (len(u), equal.stage.size)
        ),
        checked_argument(
            name, problem, "multipliers.final", multipliers.final, (equal.final.size,)
        ),
    )
    if penalty is not None:
        penalty = jnp.asarray(penalty, u.dtype)

    inputs = without_derivatives((problem, rows, q0, v0, u, multipliers, penalty))
    out = _solve(*inputs, o=o, limits=limits, second_order=second_order)
    (q, v, u, _), (K, m), result, count, history = without_derivatives(out)
    good = result == RESULTS.successful
    at_low, at_high = without_derivatives(held_controls(problem, u))
    states = States(q, v, K).holding(at_low | at_high)
    w, lam = constrained_stationary(problem, rows, q0, v0, u, m.rows, good, states)
    q, v, u = reached(problem, q0, v0, w, states)
    c = rows.values(problem, q, v, u)
    cost = problem.cost(q, v, u)
    result = if_finite(result, (q, v, u, K, cost, lam))
    solution = ConstrainedSolution(
        t=times_of(problem), q=q, v=v, u=u, K=K, cost=cost,
        result=result, steps=count, history=history, multipliers=lam, penalty=m.penalty,
        violation=excess(c, equal), names=rows.names,
    )  # fmt: skip
    return finished(solution, throw)


def _solve(problem, rows: Stack, q0, v0, u, multipliers, penalty, *, o, limits, second_order):
    """The last point, the gains with the multipliers, how it ended, steps, history."""
    u = problem.clip(u)
    path = problem.simulate(q0, v0, u)
    cost, c = problem.cost(path.q, path.v, u), rows.values(problem, path.q, path.v, u)
    if penalty is None:
        size = sum(jnp.sum(x * x) for x in excess(c, rows.equality))
        guess = 10 * jnp.maximum(1, jnp.abs(cost)) / jnp.maximum(1, 0.5 * size)
        penalty = jnp.clip(guess, 1e-2, jnp.minimum(1e4, limits.most_penalty))
    far = jnp.full((), jnp.inf, u.dtype)
    first = Multipliers(multipliers, penalty, jnp.asarray(max(1e-3, o.tol), u.dtype), far)
    gains = jnp.zeros((*u.shape, 2 * v0.size), u.dtype)
    expand, attempt = inner_steps(problem, rows, limits, second_order)
    start = (path.q, path.v, u, cost), (gains, first)
    merit = with_terms(problem, Penalties(rows, multipliers, penalty)).cost(path.q, path.v, u)
    s = descend(expand, attempt, *start, merit, o, second_order)
    return s.point, s.carried, s.result, s.steps, s.history


def inner_steps(
    problem: Problem, rows: Stack, limits: Limits, second_order: bool, eager: bool = False
):
    """Steps of iLQR on the augmented Lagrangian with its multipliers, for ``descend``.

    If ``eager``, each step begins with an update of the multipliers, whatever the last one left.
    """

    def change(m: Multipliers, c: Rows, ready) -> Multipliers:
        return advance(m, c, rows.equality, ready, limits.least_tol, limits.most_penalty)

    def expand(point, carried):
        (q, v, u, _), (_, m) = point, carried
        c = rows.values(problem, q, v, u)
        m = change(m, c, jnp.ones((), bool)) if eager else m
        now = with_terms(problem, Penalties(rows, m.rows, m.penalty)).cost(q, v, u)
        return penalized_model(problem, rows, m, c, q, v, u, second_order), m, c, now

    def attempt(expanded, point, carried, mu, share):
        model, m, c, now = expanded
        merit = with_terms(problem, Penalties(rows, m.rows, m.penalty))
        p, K = penalized_step(merit, model, (*point[:3], now), mu, share)
        size = violation(c, m.rows, m.penalty, rows.equality)
        negligible = jnp.abs(p.expected) <= m.tol * (1 + jnp.abs(p.merit))
        solved = p.definite & (mu <= NEAR) & negligible
        new = m if eager else change(m, c, solved)
        feasible = size <= limits.feasible
        # at the greatest penalty, to the last tolerance, and no better than at the last update
        last = (m.penalty >= limits.most_penalty) & (m.tol <= limits.least_tol)
        lost = solved & last & ~feasible & (size > 0.5 * m.violation)
        p = p._replace(stationary=p.stationary & feasible, infeasible=lost, stays=True)
        return p, (K, new)

    return expand, attempt
