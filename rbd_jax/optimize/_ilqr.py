"""Iterative LQR and differential dynamic programming with control limits, on the manifold."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lanes import lanes
from ..model import difference
from ._descent import Options, Proposal, descend, line_search, options
from ._expansion import Quadratic, costates, curvature, gauss_newton, quadratic, times
from ._problem import Problem, with_explicit_closures
from ._riccati import Gains, backward
from ._solution import Found, Solution, checked_arguments, solution_of


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
) -> Solution:
    """Iterative LQR: DDP without the second derivatives of the dynamics (Gauss–Newton).

    Source: Tassa, Erez, Todorov (2012); control limits: Tassa, Mansard, Todorov (2014). Departure:
    states are points of the manifold, and the errors of a state are in its tangent space.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        max_steps: limit of steps. A step is one expansion with its line search.
        tol: the solver stops when the expected decrease of the cost by a full step is less than
            ``tol (1 + |cost|)``. None means 1e-9 in float64 and 1e-5 in float32.
        regularization: first Levenberg–Marquardt parameter, relative to the scale of Quu.
        throw: raise a RuntimeError if the solver does not converge. Otherwise ``result`` of the
            solution says how it ended, and the derivatives of an unsuccessful solution are NaN.
        progress: a function that is called after each step with its number, the cost, the expected
            decrease, the step length and the regularization, for example :func:`print_progress`.

    Returns:
        The solution. Its derivatives with respect to the problem and the initial state follow from
        the implicit function theorem, see :class:`Solution`.

    Raises:
        ValueError: for a wrong shape, or ``max_steps`` below 1. TypeError: for a value that is no
            array, or of integers.

    Cost of a step: T times :func:`rbd_jax.simulate.step_derivatives` plus O(T (n + m)³). The
    expansions of all stages are computed in parallel.
    """
    o = options(problem.model.dtype, max_steps, tol, regularization, progress)
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
) -> Solution:
    """Differential dynamic programming: exact second derivatives of dynamics and costs.

    The arguments, the result and its derivatives are those of :func:`ilqr`. DDP converges
    quadratically.

    Source: as :func:`ilqr`. The second derivatives come from
    :func:`rbd_jax.derivatives.forward_dynamics_hessian`. Departure: they are weighted by the
    costates of the trajectory, which gives the exact Newton step of single shooting (Pantoja 1988),
    and not by the slope of the value function. So all of them are evaluated in parallel.
    """
    o = options(problem.model.dtype, max_steps, tol, regularization, progress)
    return _solve("ddp", problem, q0, v0, u, o, True, throw)


def _solve(name, problem, q0, v0, u, o: Options, second_order: bool, throw: bool) -> Solution:
    q0, v0, u = checked_arguments(name, problem, q0, v0, u)

    def solve(problem, q0, v0, u) -> Found:
        u = problem.clip(u)
        path = problem.simulate(q0, v0, u)
        cost = problem.cost(path.q, path.v, u)
        point = path.q, path.v, u, cost
        gains = jnp.zeros((*u.shape, 2 * v0.size), u.dtype)

        def propose(point, _, mu, exact):
            return _propose(problem, point, mu, exact if second_order else None)

        s = descend(propose, point, gains, cost, o)
        q, v, u, _ = s.point
        return Found(u, s.carried, s.result, s.steps, s.history, (q, v))

    return solution_of(solve, with_explicit_closures(problem, q0, v0), q0, v0, u, throw)


def add_curvature(l: Quadratic, H: Array) -> Quadratic:
    """Stage costs with the second-order terms of the dynamics added."""
    n = l.x.shape[-1]
    xx, ux, uu = l.xx + H[:, :n, :n], l.ux + H[:, n:, :n], l.uu + H[:, n:, n:]
    return l._replace(xx=xx, ux=ux, uu=uu)


def curvature_scale(l: Quadratic) -> Float[Array, ""]:
    """Mean curvature of the costs in the controls, the unit of μ. It is 1 if there is none."""
    size = jnp.mean(jnp.abs(jnp.diagonal(l.uu, axis1=1, axis2=2)))
    return jnp.where(size > 0, size, 1)


def _propose(problem: Problem, point, mu, exact: Array | None):
    q, v, u, cost = point
    f, l, end = gauss_newton(problem, q, v, u, gaps=False)
    size = curvature_scale(l)
    if exact is not None:
        l_exact, end_exact = quadratic(problem, q, v, u, exact=True)
        l_exact = add_curvature(l_exact, curvature(problem, q, v, u, costates(f, l, end)))
        choose = lambda a, b: jnp.where(exact, a, b)  # noqa: E731
        l, end = jax.tree.map(choose, (l_exact, end_exact), (l, end))
    box = None
    if problem.bounded:
        low, high = problem.bounds()
        box = low[None] - u, high[None] - u
    gains = backward(f, l, end, mu * size, box)

    expected = -(gains.slope + gains.bend)
    definite = gains.definite & jnp.isfinite(expected)
    new, new_cost, length = _search(problem, q, v, u, cost, gains, definite)
    return Proposal((*new, new_cost), cost, new_cost, expected, length, definite), gains.K


@lanes
def _search(problem: Problem, q, v, u, cost, gains: Gains, definite):
    """The line search along the feedforward controls."""

    def attempt(length):
        *point, new_cost = roll(problem, q, v, u, length * gains.k, gains.K)
        return tuple(point), new_cost

    def predicted(length):  # the model is convex: at least this part of the whole decrease
        return -length * (gains.slope + gains.bend)

    return line_search(attempt, cost, predicted, definite)


def roll(problem: Problem, q, v, u, k, K):
    """The trajectory under the controls ``u + k + K (x ⊖ x_k)``, and its cost."""
    problem, model = problem.prepared(), problem.model

    def step(state, row):
        q, v, total = state
        i, qn, vn, un, k, K = row
        x = jnp.concatenate([difference(model, qn, q), v - vn])
        u = problem.clip(un + k + times(K, x))
        q1, v1, cost = problem.advance(i, q, v, u)
        return (q1, v1, total + cost), (q1, v1, u)

    start = q[0], v[0], jnp.zeros((), q.dtype)
    rows = jnp.arange(problem.steps), q[:-1], v[:-1], u, k, K
    (qT, vT, total), (q1, v1, u1) = jax.lax.scan(step, start, rows)
    q1, v1 = (jnp.concatenate([x[:1], y]) for x, y in ((q, q1), (v, v1)))
    return q1, v1, u1, total + problem.final_cost(qT, vT)
