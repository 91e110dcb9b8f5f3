"""Multiple shooting: the states are unknowns too, and the solver closes the gaps between them."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...lanes import lanes
from ..linear_quadratic._associative import parallel_backward, parallel_forward
from ..linear_quadratic._euler_sweep import direction
from ..linear_quadratic._lq_approximation import costates, gauss_newton
from ..linear_quadratic._riccati import lqr_rollout, riccati_backward
from ..problems._problem import Problem, with_explicit_closures
from ._batches import ending_alone
from ._ilqr import balanced, curvature_scale, gradient
from ._solution import Found, Solution, checked_argument, checked_arguments, solution_of
from ._sqp_loop import ENOUGH_NEAR, TINY, Options, Proposal, line_search, options, sqp_loop
from ._tolerances import tolerances


def multiple_shooting(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    q: Float[Array, "N nq"] | None = None,
    v: Float[Array, "N nv"] | None = None,
    riccati: Literal["sequential", "associative"] = "sequential",
    max_steps: int = 200,
    tol: float | None = None,
    regularization: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
    iterates: bool = False,
) -> Solution:
    """Sequential quadratic programming on states and controls, with a Gauss–Newton Hessian.

    Every step of the horizon is a shooting interval. A Riccati sweep through ``x⁺ = A x + B u + d``
    with the gaps d solves the quadratic program, and an ℓ₁ merit function decides whether a step is
    accepted. Only the sweep is sequential in time. With ``riccati="associative"`` nothing is.

    Source: Bock, Plitt (1984); Giftthaler et al. (2018), Gauss–Newton multiple shooting; merit
    function: Nocedal, Wright (2006), (18.36), with a penalty for each gap, updated as by Powell
    (1978), (3.8): one that fits the largest multiplier would make steps short. The first step from
    a guess with gaps minimizes a model without bounds, as in Crocoddyl's BoxFDDP.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        q: first guess of the configurations; a rollout of u if None.
        v: first guess of the velocities; give both q and v, or neither.
        riccati: how the sweep runs. ``"associative"`` is faster on a parallel device for long
            horizons of small robots. It does not work with bounds.
        max_steps: limit of steps.
        tol: the solver succeeds when the gaps are closed and a full step promises to change the
            merit, which adds the penalty of the gaps to the cost, by less than ``tol (1 + merit)``,
            in the gaps and in the cost alike, and the slopes of the Lagrangian are as small as in
            :func:`ilqr`. None as in :func:`ilqr`.
        regularization: as in :func:`ilqr`.
        throw: as in :func:`ilqr`. progress: as in :func:`ilqr`. iterates: as in :func:`ilqr`.

    Returns:
        The solution. Its states are those of the solver: if it succeeded, each state is the step
        from the one before up to a gap of at most 1e-6 (1e-3 in float32) in every entry. A rollout
        of the controls alone may lead elsewhere, because an unstable robot falls without feedback.
        Derivatives follow from the implicit function theorem, see :class:`Solution`.

    Raises:
        ValueError: for a wrong shape, or an unknown ``riccati``. TypeError: for a value that is no
            array, or of integers.
    """
    q0, v0, u = checked_arguments("multiple_shooting", problem, q0, v0, u)
    if riccati not in ("sequential", "associative"):
        raise ValueError(
            f"multiple_shooting: riccati must be 'sequential' or 'associative', got {riccati!r}"
        )
    if riccati == "associative" and problem.bounded:
        raise ValueError(
            "multiple_shooting: riccati='associative' takes no bounds; use 'sequential'"
        )
    if (q is None) != (v is None):
        raise ValueError("multiple_shooting: give guesses of both q and v, or of neither")
    if q is not None:
        shapes = ((problem.steps + 1, n) for n in (problem.model.nq, problem.model.nv))
        q, v = (
            checked_argument("multiple_shooting", problem, name, x, shape)
            for name, x, shape in zip("qv", (q, v), shapes, strict=True)
        )
        memory = jnp.broadcast_to(v0[problem.model.nv :], (len(v), v0.size - problem.model.nv))
        v = jnp.concatenate([v, memory], axis=1)
    o = options("multiple_shooting", u.dtype, max_steps, tol, regularization, progress, iterates)
    guess = None if q is None else (q, v)

    def solve(problem, q0, v0, u) -> Found:
        def form(in_turn: bool) -> Callable[..., Found]:
            return lambda problem, *x: _solve(problem, *x, riccati=riccati, o=o, in_turn=in_turn)

        if riccati == "associative" or not o.plain:
            return form(False)(problem, guess, q0, v0, u)
        return ending_alone(form(False), problem, guess, q0, v0, u, whole=form(True))

    return solution_of(solve, with_explicit_closures(problem, q0, v0), q0, v0, u, throw)


def _solve(
    problem: Problem,
    guess: tuple[Array, Array] | None,
    q0: Array,
    v0: Array,
    u: Array,
    *,
    riccati: str,
    o: Options,
    in_turn: bool,
) -> Found:
    """Solve one problem. All steps of the horizon are computed at once, or ``in_turn``."""
    u = problem.clip(u)
    q, v = problem.stacked(problem.simulate(q0, v0, u)) if guess is None else guess
    q, v = (jnp.concatenate([x0[None], x[1:]]) for x0, x in ((q0, q), (v0, v)))
    q, v = jax.lax.stop_gradient((q, v))
    merit, gaps = _merit(problem, q, v, u, in_turn)
    penalty = jnp.ones_like(gaps)
    gains = jnp.zeros((*u.shape, problem.nx), u.dtype)
    closed = jnp.max(gaps) <= tolerances(u.dtype).violation
    start = (
        (q, v, u, merit, gaps),
        (gains, penalty, Cut(closed, jnp.ones((), bool), jnp.zeros((), bool))),
    )

    def attempt(_, point, carried, mu, share):
        _, penalty, cut = carried
        return _attempt(problem, point, penalty, cut, mu, riccati, o.tol, in_turn)

    # the model of an Euler step is made within the sweep
    s = sqp_loop(lambda *_: (), attempt, *start, merit + jnp.sum(gaps), o)
    q, v, u, cost, _ = s.point
    return Found(u, s.carried[0], s.result, s.steps, s.history, (q, v), cost)


def _merit(problem: Problem, q: Array, v: Array, u: Array, in_turn: bool) -> tuple[Array, Array]:
    """The objective, and the absolute gaps (T, n)."""

    flying, begun = problem.kind.past_landings(problem, q[:-1], v[:-1])
    prepared = flying.prepared()

    def one(row):
        return _cost_and_gap(prepared, *row)

    each = jax.lax.map if in_turn else lambda f, rows: jax.vmap(f)(rows)
    k = jnp.arange(problem.steps)
    costs, gaps = each(one, (k, q[:-1], begun, u, q[1:], v[1:]))
    return jnp.sum(costs) + problem.final_cost(q[-1], v[-1]), gaps


@lanes
def _cost_and_gap(problem: Problem, k, q, v, u, q_next, v_next) -> tuple[Array, Array]:
    q1, v1, cost = problem.advance(k, q, v, u)
    return cost, jnp.abs(problem.difference(q_next, v_next, q1, v1))


FAR = 1e3
"""A regularization that steps need only if the feedback pushes controls out of their bounds."""


class Cut(NamedTuple):
    """Whether the motion of the model is cut off at the bounds of the controls.

    The step is cut off there in any case. A model whose motion is not is easier to follow, and
    needs fewer steps and fewer trials of their lengths. But far from a solution, or where feedback
    pushes controls out of their bounds, it promises what no step can keep.
    """

    bounds: Bool[Array, ""]
    """Whether the model has bounds at all. It has none in the first step from a guess with gaps.
    That step closes the gaps and asks for more than the bounds allow. Feedback of controls that
    it holds at their bounds would be lost, and the next steps would have to find it again."""
    now: Bool[Array, ""]
    """In the next step: at the beginning, and after a short step."""
    always: Bool[Array, ""]
    """From now on, because a model that was not cut off has led to large regularizations."""


def _attempt(
    problem: Problem, point, penalty, cut: Cut, mu, riccati: str, tol: float, in_turn: bool
):
    q, v, u, cost, gaps = point
    box = limits = None
    always = cut.always | (mu > FAR)
    strict = cut.bounds & (cut.now | always)
    if problem.bounded:
        low, high = problem.bounds()
        box = low[None] - u, high[None] - u
        box = jnp.where(cut.bounds, box[0], -jnp.inf), jnp.where(cut.bounds, box[1], jnp.inf)
        limits = jnp.where(strict, box[0], -jnp.inf), jnp.where(strict, box[1], jnp.inf)
    if problem.kind.robot(problem) is not None and riccati == "sequential":
        dx, du, K, multipliers, slope, *g, definite = direction(
            problem, q, v, u, mu, box, limits, in_turn
        )
    else:
        f, l, end = gauss_newton(problem, q, v, u)
        mu = mu * curvature_scale(l)
        if riccati == "associative":
            gains = parallel_backward(f, l, end, mu)
            dx, du = parallel_forward(f, gains)
        else:
            gains = riccati_backward(f, l, end, mu, box)
            dx, du = lqr_rollout(f, gains, limits)
        K, definite = gains.K, gains.definite
        multipliers = gains.Vx + jnp.sum(gains.Vxx * dx[1:, None, :], axis=-1)
        slope = jnp.sum(l.x * dx[:-1]) + jnp.sum(l.u * du) + jnp.sum(end.x * dx[-1])
        g = [gradient(f, l, costates(f, l, end, how)) for how in (K, None)]
    size = jnp.abs(multipliers)
    penalty = jnp.maximum(1.1 * size, 0.5 * (penalty + size))
    # the penalties have changed, so the merits of both points are computed with the new ones
    closed = lambda gaps: jnp.sum(penalty * gaps, axis=(-2, -1))  # noqa: E731
    expected = closed(gaps) - slope

    def attempt(length):
        q1, v1 = jax.vmap(problem.integrate)(q, v, length * dx)
        u1 = problem.clip(u + length * du)
        new_cost, new_gaps = _merit(problem, q1, v1, u1, in_turn)
        return (q1, v1, u1, new_cost, new_gaps), new_cost + closed(new_gaps)

    def predicted(length):  # the gaps shrink in proportion, and half the slope is lost by curvature
        return length * (closed(gaps) - (1 - 0.5 * length) * slope)

    merit = cost + closed(gaps)
    definite = definite & jnp.isfinite(expected)
    new, new_merit, length = line_search(attempt, merit, predicted, definite, ENOUGH_NEAR)
    closes = jnp.max(gaps) <= tolerances(u.dtype).violation
    # both parts of the expected decrease are negligible, not only their sum
    small = jnp.maximum(closed(gaps), jnp.abs(slope)) <= tol * (1 + jnp.abs(merit))
    ready = closes & small & balanced(problem, u, K, g[0], g[1], cost)
    proposal = Proposal(new, merit, new_merit, expected, length, definite, ready)
    return proposal, (K, penalty, Cut(jnp.ones((), bool), length < TINY, always))
