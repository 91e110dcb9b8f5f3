"""Constrained trajectory optimization: an augmented Lagrangian around iLQR and DDP."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...lanes import lanes
from ...model.arguments import check_number
from ...model.outcome import RESULTS
from ..linear_quadratic._active_set import Penalty, active_set_gains, add_curvature
from ..linear_quadratic._lq_approximation import costates, curvature, gauss_newton, quadratic
from ..linear_quadratic._riccati import Gains
from ..problems._constraints import Constraint, Rows, Stack, stack, zeros
from ..problems._local_models import Dynamics, Quadratic
from ..problems._problem import Problem, with_explicit_closures
from ._ilqr import balanced, curvature_scale, gradient, mixed, roll, step_bounds
from ._implicit import States, held_controls, reached, without_derivatives
from ._implicit_constrained import constrained_stationary
from ._lagrangian import (
    Multipliers,
    Penalties,
    Weighted,
    advance,
    excess,
    final_stage,
    update,
    violation,
    with_terms,
)
from ._solution import (
    ConstrainedSolution,
    checked_argument,
    checked_arguments,
    checked_result,
    finished,
    times_of,
)
from ._sqp_loop import NEAR, LoopState, Options, Proposal, line_search, options, sqp_loop
from ._tolerances import tolerances

MARGIN = 0.5
"""Part of the tolerance for slopes at which a solution succeeds. Whoever tests it finds multipliers
of his own, by least squares, and their greatest slope is a little more than that of ours."""


class Limits(eqx.Module):
    """Tolerances and penalty limit of the outer loop."""

    feasible: float
    least_tol: float
    most_penalty: float | Array


def augmented_lagrangian(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    constraints: Iterable[Constraint],
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
    iterates: bool = False,
) -> ConstrainedSolution:
    """Minimize under constraints on states and controls: iLQR or DDP on the augmented Lagrangian.

    Source: Howell, Jackson, Manchester (2019), ALTRO, Alg. 2; rules for the penalty and the
    tolerances: Birgin, Martínez (2014), Alg. 4.1. Departures: one penalty for all rows; inner and
    outer steps are one loop, so that a batch does not wait for its slowest sample; bounds of
    the controls are never violated, and each step finds which of them and of the inequalities hold
    after it.

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
        iterates: as in :func:`ilqr`.

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
    o = options(name, u.dtype, max_steps, tol, regularization, progress, iterates)
    if penalty is not None:
        check_number(name, "penalty", penalty, positive=True)
    limits = checked_limits(name, u.dtype, o, feasibility, max_penalty)
    equal = rows.equality
    # Guesses of multipliers are good near the last tolerance. An update at a point that minimizes
    # the augmented Lagrangian worse than they do would spoil them.
    first_tol = max(1e-3, o.tol) if multipliers is None else o.tol
    if multipliers is None:
        multipliers = zeros(rows, u.dtype)
    if not isinstance(multipliers, Rows):
        raise TypeError(
            f"{name}: multipliers must be those of a solution, solution.multipliers, got "
            f"{type(multipliers).__name__}"
        )
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
    how = {"o": o, "limits": limits, "first_tol": first_tol, "second_order": second_order}
    out = penalized(*inputs, **how)
    return constrained_solution(problem, rows, q0, v0, out, throw)


def checked_limits(
    name: str, dtype, o: Options, feasibility: Any, max_penalty: float | Array | None
) -> Limits:
    """The limits of the solver ``name``, checked."""
    for what, x in {"max_penalty": max_penalty, "feasibility": feasibility}.items():
        if x is not None:
            check_number(name, what, x, positive=True)
    usual = tolerances(dtype)
    return Limits(
        usual.violation if feasibility is None else feasibility,
        o.tol,
        usual.most_penalty if max_penalty is None else max_penalty,
    )


def constrained_solution(
    problem: Problem, rows: Stack, q0: Array, v0: Array, out: tuple, throw: bool
) -> ConstrainedSolution:
    """The solution that :func:`penalized` found, made differentiable."""
    equal = rows.equality
    (q, v, u, _), (K, m), result, count, history = without_derivatives(out)
    good = result == RESULTS.successful
    at_low, at_high = without_derivatives(held_controls(problem, u))
    states = States(q, v, K).holding(at_low | at_high)
    w, lam = constrained_stationary(problem, rows, q0, v0, u, m.rows, good, states)
    q, v, u = reached(problem, q0, v0, w, states)
    c = rows.values(problem, q, v, u)
    cost = problem.cost(q, v, u)
    result = checked_result(result, problem, (q, v, u, K, cost, lam))
    v, memory = problem.unpacked(v)
    solution = ConstrainedSolution(
        t=times_of(problem), q=q, v=v, memory=memory, u=u, K=K, cost=cost,
        result=result, steps=count, history=history.of(problem), multipliers=lam, penalty=m.penalty,
        violation=excess(c, equal), names=rows.names,
    )  # fmt: skip
    return finished(solution, throw)


def penalized(
    problem: Problem,
    rows: Stack,
    q0,
    v0,
    u,
    multipliers: Rows,
    penalty: Array | None,
    *,
    o: Options,
    limits: Limits,
    first_tol: float,
    second_order: bool,
    after: LoopState | None = None,
) -> tuple:
    """The last point, the gains with the multipliers, how it ended, steps, history.

    Args:
        problem: what to minimize. rows: the constraints.
        q0: initial configuration. v0: initial velocity and memory. u: first guess.
        multipliers: first guess. penalty: first penalty; found here if None.
        o: options. limits: of the outer loop. first_tol: at which multipliers are updated first.
        second_order: whether the models are exact.
        after: a loop whose steps count too.
    """
    u = problem.clip(u)
    q, v = problem.stacked(problem.simulate(q0, v0, u))
    cost, c = problem.cost(q, v, u), rows.values(problem, q, v, u)
    if penalty is None:
        size = sum(jnp.sum(x * x) for x in excess(c, rows.equality))
        guess = 10 * jnp.maximum(1, jnp.abs(cost)) / jnp.maximum(1, 0.5 * size)
        penalty = jnp.clip(guess, 1e-2, jnp.minimum(1e4, limits.most_penalty))
    far = jnp.full((), jnp.inf, u.dtype)
    first = Multipliers(multipliers, penalty, jnp.asarray(first_tol, u.dtype), far)
    gains = jnp.zeros((*u.shape, problem.nx), u.dtype)
    expand, attempt = inner_steps(problem, rows, limits, second_order)
    start = (q, v, u, cost), (gains, first)
    merit = with_terms(problem, Penalties(rows, multipliers, penalty)).cost(q, v, u)
    s = sqp_loop(expand, attempt, *start, merit, o, second_order, after)
    return s.point, s.carried, s.result, s.steps, s.history


def inner_steps(
    problem: Problem, rows: Stack, limits: Limits, second_order: bool, eager: bool = False
):
    """Steps of iLQR on the augmented Lagrangian with its multipliers, for ``sqp_loop``.

    If ``eager``, each step begins with an update of the multipliers, whatever the last one left.
    """

    def renew(m: Multipliers, c: Rows, ready) -> Multipliers:
        last = limits.least_tol, limits.most_penalty, limits.feasible
        return advance(m, c, rows.equality, ready, *last)

    def expand(point, carried):
        (q, v, u, _), (K, m) = point, carried
        c = rows.values(problem, q, v, u)
        m = renew(m, c, jnp.ones((), bool)) if eager else m
        now = with_terms(problem, Penalties(rows, m.rows, m.penalty)).cost(q, v, u)
        return penalized_model(problem, rows, m, c, (q, v, u, K), second_order), m, c, now

    def attempt(expanded, point, carried, mu, share):
        model, m, c, now = expanded
        merit = with_terms(problem, Penalties(rows, m.rows, m.penalty))
        p, K = penalized_step(merit, model, (*point[:3], now), mu, share)
        size = violation(c, m.rows, m.penalty, rows.equality)
        negligible = jnp.abs(p.expected) <= m.tol * (1 + jnp.abs(p.merit))
        feasible = size <= limits.feasible
        # A decrease is the square of a slope. It may be negligible where the penalty is stiff and
        # the slope is not, and multipliers from there would come back to where they were.
        last = final_stage(m.penalty, m.tol, limits.least_tol, limits.most_penalty)
        solved = p.definite & (mu <= NEAR) & negligible & (p.stationary | ~(feasible | last))
        new = m if eager else renew(m, c, solved)
        # a minimum of the last stage that is no better than the one before
        lost = solved & last & ~feasible & (size > 0.5 * m.violation)
        p = p._replace(stationary=p.stationary & feasible, infeasible=lost, stays=True)
        return p, (K, new)

    return expand, attempt


class Model(NamedTuple):
    """A linear-quadratic model of the augmented Lagrangian that keeps the kinks of the penalty."""

    f: Dynamics
    l: Quadratic
    end: Quadratic
    more: tuple[Quadratic, Quadratic] | None
    """The exact second derivatives minus the Gauss–Newton model; None for Gauss–Newton."""
    penalty: Penalty
    active: Rows
    """The rows that are penalized at the point itself."""
    size: Float[Array, ""]
    """The unit of μ."""
    gradient: Float[Array, "T m"]
    """Gradient of the augmented Lagrangian with respect to the controls."""
    pull: Float[Array, "T m"]
    """The same with the costates under the last feedback, as in iLQR."""


def penalized_model(
    problem: Problem, rows: Stack, m: Multipliers, c: Rows, point: tuple, second_order: bool
) -> Model:
    """The model about a trajectory.

    Args:
        problem: what to minimize, without its constraints.
        rows: the constraints. m: their multipliers. c: their values.
        point: the states, their velocities, the controls and their last feedback.
        second_order: whether to compute the exact second derivatives too.
    """
    q, v, u, K = point
    f, l, end = gauss_newton(problem, q, v, u, gaps=False)
    more = None
    if second_order:
        exact = _exact(problem, rows, m, c, (q, v, u), (f, l, end))
        more = jax.tree.map(jnp.subtract, exact, (l, end))
    r = jax.tree.map(lambda c, x: c + x / m.penalty, c, m.rows)
    penalty = Penalty(r, rows.jacobians(problem, q, v, u), m.penalty, rows.equality)
    first = penalty.active(r)
    here = penalty.add(l, end, first)
    g, pull = (gradient(f, here[0], costates(f, *here, how)) for how in (None, K))
    return Model(f, l, end, more, penalty, first, curvature_scale(here[0]), g, pull)


def penalized_step(
    problem: Problem,
    model: Model,
    point: tuple[Array, Array, Array, Array],
    mu: Float[Array, ""],
    share: Float[Array, ""],
) -> tuple[Proposal, Array]:
    """A new point and its feedback.

    The step minimizes a model that keeps the bounds of the controls and the kinks of the penalties.

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
    gains = active_set_gains(
        f, l, end, mu * model.size, step_bounds(problem, u), model.pull, penalty
    )
    expected = -(gains.slope + gains.bend)
    definite = gains.definite & jnp.isfinite(expected)
    new, new_merit, length = _search(problem, q, v, u, merit, gains, expected, definite)
    K, here = gains.K, penalty.add(model.l, model.end, first)
    slope = gradient(f, here[0], costates(f, *here, K))
    ready = balanced(problem, u, K, slope, model.gradient, merit, MARGIN)
    proposal = Proposal((*new, new_merit), merit, new_merit, expected, length, definite, ready)
    return proposal, K


@lanes
def _search(problem: Problem, q, v, u, merit, gains: Gains, expected, definite):
    """The line search along the feedforward controls."""

    def attempt(length):
        *point, new = roll(problem, q, v, u, length * gains.k, gains.K)
        return tuple(point), new

    return line_search(attempt, merit, lambda x: x * (2 - x) * expected, definite)


def _exact(problem, rows: Stack, m: Multipliers, c: Rows, point, model):
    """The costs with second derivatives of dynamics and constraints."""
    (q, v, u), (f, l, end) = point, model
    lam = update(c, m.rows, m.penalty, rows.equality, jnp.inf)
    curved, last = quadratic(with_terms(problem, Weighted(rows, lam)), q, v, u, exact=True)
    curved = add_curvature(curved, curvature(problem, q, v, u, costates(f, curved, last)))
    # the slopes of the rows are in the penalty
    return curved._replace(x=l.x, u=l.u), last._replace(x=end.x)
