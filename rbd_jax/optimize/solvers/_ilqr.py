"""Iterative LQR and differential dynamic programming with control limits, on the manifold."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...lanes import lanes
from ...spatial import linear
from ..linear_quadratic._active_set import active_set_gains, add_curvature
from ..linear_quadratic._lq_approximation import costates, curvature, gauss_newton, quadratic
from ..linear_quadratic._riccati import Gains
from ..problems._local_models import Dynamics, Quadratic, times
from ..problems._problem import Problem, with_explicit_closures
from ._batches import ending_alone
from ._solution import Found, Solution, checked_arguments, solution_of
from ._sqp_loop import Options, Proposal, line_search, options, sqp_loop
from ._tolerances import tolerances


def ilqr(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    max_steps: int = 200,
    tol: float | None = None,
    regularization: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
    iterates: bool = False,
) -> Solution:
    """Iterative LQR: DDP without the second derivatives of the dynamics (Gauss–Newton).

    Source: Tassa, Erez, Todorov (2012). Departures: states are points of the manifold, and the
    errors of a state are in its tangent space. Control limits are not those of Tassa, Mansard,
    Todorov (2014), who bound the feedforward of one step at a time: all steps are solved for
    together, as an active set (Hintermüller, Ito, Kunisch 2002).

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        max_steps: limit of steps. A step is one expansion with its line search.
        tol: the solver succeeds when the model expects a full step to change the cost by less than
            ``tol (1 + |cost|)``, and each entry of the gradient by the controls, projected onto
            their bounds, is at most 1e-6 (1e-3 in float32) times ``1 + |cost|``. Where the motion
            without feedback is so unstable that this gradient is nothing but rounding, the slopes
            of the Lagrangian by controls and states count, with the costates under the feedback K.
            That step is then taken, if the gradient is as small after it. None means 1e-9 in
            float64 and 1e-5 in float32.
        regularization: first Levenberg–Marquardt parameter, relative to the scale of Quu.
        throw: raise a RuntimeError if the solver does not converge. Otherwise ``result`` of the
            solution says how it ended, and the derivatives of an unsuccessful solution are NaN.
        progress: a function that is called after each step with its number, the cost, the expected
            decrease, the step length and the regularization, for example :func:`print_progress`.
        iterates: whether the history keeps the states and controls before each step. It needs
            ``max_steps`` times the memory of a trajectory.

    Returns:
        The solution. Its derivatives with respect to the problem and the initial state follow from
        the implicit function theorem, see :class:`Solution`.

    Raises:
        ValueError: for a wrong shape, or ``max_steps`` below 1. TypeError: for a value that is no
            array, or of integers.

    Cost of a step: T times :func:`rbd_jax.simulate.step_derivatives` plus O(T (n + m)³), the latter
    up to ten times while bounds begin or cease to hold. The expansions of all stages are computed
    in parallel.
    """
    o = options("ilqr", problem.model.dtype, max_steps, tol, regularization, progress, iterates)
    return _solve("ilqr", problem, q0, v0, u, o, False, throw)


def ddp(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    max_steps: int = 200,
    tol: float | None = None,
    regularization: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
    iterates: bool = False,
) -> Solution:
    """Differential dynamic programming: exact second derivatives of dynamics and costs.

    The arguments, the result and its derivatives are those of :func:`ilqr`. DDP converges
    quadratically. Where the exact model has no minimum, the solver mixes it with the model of
    :func:`ilqr`, with as large a share of the exact one as has a minimum.

    Source: as :func:`ilqr`. The second derivatives come from
    :func:`rbd_jax.derivatives.forward_dynamics_hessian`. Departure: they are weighted by the
    costates of the trajectory, which gives the exact Newton step of single shooting (Pantoja 1988),
    and not by the slope of the value function. So all of them are evaluated in parallel.
    """
    o = options("ddp", problem.model.dtype, max_steps, tol, regularization, progress, iterates)
    return _solve("ddp", problem, q0, v0, u, o, True, throw)


def _solve(name, problem, q0, v0, u, o: Options, second_order: bool, throw: bool) -> Solution:
    q0, v0, u = checked_arguments(name, problem, q0, v0, u)

    def one(problem, q0, v0, u) -> Found:
        u = problem.clip(u)
        q, v = problem.stacked(problem.simulate(q0, v0, u))
        cost = problem.cost(q, v, u)
        point = q, v, u, cost
        gains = jnp.zeros((*u.shape, problem.nx), u.dtype)

        def expand(point, K):
            return _expand(problem, point, K, second_order)

        def attempt(model, point, _, *how):
            return _attempt(problem, model, point, *how)

        s = sqp_loop(expand, attempt, point, gains, cost, o, second_order)
        q, v, u, _ = s.point
        return Found(u, s.carried, s.result, s.steps, s.history, (q, v))

    def solve(*args) -> Found:
        # a kernel of exact second derivatives compiles for minutes
        return ending_alone(one, *args) if o.plain and not second_order else one(*args)

    return solution_of(solve, with_explicit_closures(problem, q0, v0), q0, v0, u, throw)


def curvature_scale(l: Quadratic) -> Float[Array, ""]:
    """Mean curvature of the costs in the controls, the unit of μ. It is 1 if there is none."""
    size = jnp.mean(jnp.abs(jnp.diagonal(l.uu, axis1=1, axis2=2)))
    return jnp.where(size > 0, size, 1)


class Model(NamedTuple):
    """A linear-quadratic model about a trajectory."""

    f: Dynamics
    l: Quadratic
    end: Quadratic
    more: tuple[Quadratic, Quadratic] | None
    """The exact second derivatives minus the Gauss–Newton model; None for Gauss–Newton."""
    size: Float[Array, ""]
    """The unit of μ."""
    gradient: Float[Array, "T m"]
    """Gradient of the objective by the controls."""
    pull: Float[Array, "T m"]
    """The same with the costates under the last feedback, which keep their digits where the motion
    without it is unstable."""


def _expand(problem: Problem, point, K, second_order: bool) -> Model:
    q, v, u, cost = point
    f, l, end = gauss_newton(problem, q, v, u, gaps=False)
    lam, more = costates(f, l, end), None
    if second_order:
        l_exact, end_exact = quadratic(problem, q, v, u, exact=True)
        l_exact = add_curvature(l_exact, curvature(problem, q, v, u, lam))
        more = jax.tree.map(jnp.subtract, (l_exact, end_exact), (l, end))
    pull = gradient(f, l, costates(f, l, end, K))
    return Model(f, l, end, more, curvature_scale(l), gradient(f, l, lam), pull)


def gradient(f: Dynamics, l: Quadratic, lam: Float[Array, "T n"]) -> Float[Array, "T m"]:
    """The gradient of the objective by the controls, from the costates."""
    return l.u + linear.einsum("tnm,tn->tm", f.B, lam)


def steepness(problem: Problem, u, g: Float[Array, "T m"], cost: Array) -> Float[Array, ""]:
    """The greatest entry of the projected gradient ``u − clip(u − g)``, relative to 1 + |cost|.

    It is zero where the gradient is zero but for controls that it holds at their bounds.
    """
    return jnp.max(jnp.abs(u - problem.clip(u - g)), initial=0) / (1 + jnp.abs(cost))


def stationary(
    problem: Problem, u, g: Float[Array, "T m"], cost: Array, part: float = 1.0
) -> Bool[Array, ""]:
    """Whether the steepness is at most a part of the tolerance for slopes."""
    return steepness(problem, u, g, cost) <= part * tolerances(u.dtype).slope


NOISE = 1e4
"""Rounding of the slopes by the states, in units of the precision."""


def balanced(problem: Problem, u, K, g, reduced, cost: Array, part: float = 1.0) -> Bool[Array, ""]:
    """Whether the slopes of the Lagrangian vanish, by controls and states, for some costates.

    With the costates of the controls alone, the slope by the states is zero. Where the motion
    without feedback is unstable, these costates are nothing but rounding, and those under the
    feedback K are taken: with them, the slope by the states is ``−Kᵀ g``.

    Args:
        problem: what is minimized. u: the controls. K: the feedback.
        g: slope by the controls with the costates under feedback.
        reduced: with those without feedback. cost: of the trajectory.
        part: of the tolerance for slopes that counts.
    """
    most = lambda x: jnp.max(jnp.abs(x), initial=0)  # noqa: E731
    least, pulled = part * tolerances(u.dtype).slope, most(linear.einsum("tmn,tm->tn", K, g))
    noise = NOISE * jnp.finfo(u.dtype).eps
    # how much of the slopes by the states comes back through the motion
    lost = most(reduced - g) * noise > least * pulled
    still = stationary(problem, u, g, cost, part) & (pulled <= least * (1 + jnp.abs(cost)))
    return stationary(problem, u, reduced, cost, part) | (lost & still)


def step_bounds(problem: Problem, u: Array) -> tuple[Array, Array] | None:
    """Bounds of the changes of the controls; None without bounds."""
    if not problem.bounded:
        return None
    low, high = problem.bounds()
    return low[None] - u, high[None] - u


def mixed(costs: tuple, more: tuple, share: Float[Array, ""]) -> tuple:
    """The costs with a share of what the exact second derivatives add, even if that is NaN."""
    add = lambda a, b: a + jnp.where(share > 0, share * b, 0)  # noqa: E731
    return jax.tree.map(add, costs, more)


def _attempt(problem: Problem, model: Model, point, mu, share):
    q, v, u, cost = point
    l, end = model.l, model.end
    if model.more is not None:
        l, end = mixed((l, end), model.more, share)
    box = step_bounds(problem, u)
    mu = mu * model.size
    gains = active_set_gains(model.f, l, end, mu, box, model.pull)
    expected = -(gains.slope + gains.bend)
    definite = gains.definite & jnp.isfinite(expected)
    new, new_cost, length = _search(problem, q, v, u, cost, gains, definite)
    slope = gradient(model.f, model.l, costates(model.f, model.l, model.end, gains.K))
    ready = balanced(problem, u, gains.K, slope, model.gradient, cost)
    proposal = Proposal((*new, new_cost), cost, new_cost, expected, length, definite, ready)
    return proposal, gains.K


@lanes
def _search(problem: Problem, q, v, u, cost, gains: Gains, definite):
    """The line search along the feedforward controls."""

    def attempt(length):
        *point, new_cost = roll(problem, q, v, u, length * gains.k, gains.K)
        return tuple(point), new_cost

    def predicted(length):  # the model is convex: at least this part of the whole decrease
        return -length * (gains.slope + gains.bend)

    return line_search(attempt, cost, predicted, definite)


def roll(problem: Problem, q, v, u, k, K, box: tuple[Array, Array] | None = None):
    """The trajectory under the controls ``u + k + K (x ⊖ x_k)``, and its cost.

    The controls stay within the bounds of the problem, or within those of each step in ``box``.
    """
    problem = problem.prepared()

    def step(state, row):
        q, v, total = state
        i, qn, vn, un, k, K, box = row
        x = problem.difference(qn, vn, q, v)
        u = un + k + times(K, x)
        u = problem.clip(u) if box is None else jnp.clip(u, *box)
        q1, v1, cost = problem.advance(i, q, v, u)
        return (q1, v1, total + cost), (q1, v1, u)

    start = q[0], v[0], jnp.zeros((), q.dtype)
    rows = jnp.arange(problem.steps), q[:-1], v[:-1], u, k, K, box
    (qT, vT, total), (q1, v1, u1) = jax.lax.scan(step, start, rows)
    q1, v1 = (jnp.concatenate([x[:1], y]) for x, y in ((q, q1), (v, v1)))
    return q1, v1, u1, total + problem.final_cost(qT, vT)
