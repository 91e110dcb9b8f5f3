"""Iterative LQR and differential dynamic programming, with control limits, on the manifold."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import difference
from ._descent import Options, Proposal, best, descend, lengths, options
from ._expansion import Quadratic, costates, curvature, linear, quadratic, times
from ._problem import Problem, explicit
from ._riccati import backward
from ._solution import Outcome, Solution, check, solved


def ilqr(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    max_iterations: int = 200,
    tol: float | None = None,
    regularisation: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
) -> Solution:
    """Iterative LQR: DDP without the second derivatives of the dynamics (Gauss–Newton).

    Source: Tassa, Erez, Todorov (2012); control limits: Tassa, Mansard, Todorov (2014). Departures:
    all step lengths are tried at once; states and their errors live on the manifold, in the
    tangent space of each.

    Args:
        problem: what to minimise.
        q0: initial configuration. v0: initial velocity.
        u: first guess of the controls.
        max_iterations: limit of iterations.
        tol: stop when a full step promises to lower the cost by less than ``tol (1 + |cost|)``;
            1e-9 in float64 and 1e-5 in float32 if None.
        regularisation: first Levenberg–Marquardt parameter, relative to the scale of Quu.
        throw: raise a runtime error if it does not converge; else say so in ``solution.result``,
            and the derivatives of what was found are NaN.
        progress: called each iteration with its number, cost, expected decrease, step and
            regularisation, e.g. :func:`print_progress`.

    Returns:
        The solution, differentiable with respect to the problem and the initial state.

    Raises:
        ValueError: for a wrong shape or dtype. Cost of an iteration: T times that of
        :func:`rbd_jax.step_derivatives`, plus (n + m)³; expansions are parallel in time.
    """
    o = options(problem.model.dtype, max_iterations, tol, regularisation, progress)
    return _solve("ilqr", problem, q0, v0, u, o, False, throw)


def ddp(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    *,
    max_iterations: int = 200,
    tol: float | None = None,
    regularisation: float = 1e-6,
    throw: bool = True,
    progress: Callable | None = None,
) -> Solution:
    """Differential dynamic programming: exact second derivatives of dynamics and costs.

    Source: as :func:`ilqr`; second-order terms from :func:`rbd_jax.forward_dynamics_hessian`,
    weighted by the costates of the trajectory (Pantoja 1988: the exact Newton step of single
    shooting) instead of by the slope of the value function, so that all of them are evaluated in
    parallel. Converges quadratically. Arguments and result as :func:`ilqr`.
    """
    o = options(problem.model.dtype, max_iterations, tol, regularisation, progress)
    return _solve("ddp", problem, q0, v0, u, o, True, throw)


def _solve(name, problem, q0, v0, u, o: Options, second_order: bool, throw: bool) -> Solution:
    q0, v0, u = check(name, problem, q0, v0, u)

    def solve(problem, q0, v0, u) -> Outcome:
        u = problem.clip(u)
        path = problem.simulate(q0, v0, u)
        cost = problem.cost(path.q, path.v, u)
        point = path.q, path.v, u, cost
        gains = jnp.zeros((*u.shape, 2 * v0.size), u.dtype)

        def propose(point, _, mu, newton):
            return _propose(problem, point, mu, newton if second_order else None)

        s = descend(propose, point, gains, cost, o)
        return Outcome(s.point[2], s.extra, s.result, s.iteration, s.history)

    return solved(solve, explicit(problem, q0, v0), q0, v0, u, throw)


def add_curvature(l: Quadratic, H: Array) -> Quadratic:
    """Stage costs with the second-order terms of the dynamics added."""
    n = l.x.shape[-1]
    xx, ux, uu = l.xx + H[:, :n, :n], l.ux + H[:, n:, :n], l.uu + H[:, n:, n:]
    return l._replace(xx=xx, ux=ux, uu=uu)


def scale(l: Quadratic) -> Float[Array, ""]:
    """Mean curvature of the costs in the controls, the unit of μ; 1 if there is none."""
    size = jnp.mean(jnp.abs(jnp.diagonal(l.uu, axis1=1, axis2=2)))
    return jnp.where(size > 0, size, 1)


def _propose(problem: Problem, point, mu, newton: Array | None):
    q, v, u, cost = point
    f = linear(problem, q, v, u)
    f = f._replace(d=jnp.zeros_like(f.d))  # of a trajectory: rounding
    l, end = quadratic(problem, q, v, u)
    size = scale(l)
    if newton is not None:
        exact, last = quadratic(problem, q, v, u, exact=True)
        exact = add_curvature(exact, curvature(problem, q, v, u, costates(f, l, end)))
        choose = lambda a, b: jnp.where(newton, a, b)  # noqa: E731
        l, end = jax.tree.map(choose, (exact, last), (l, end))
    box = None
    if problem.bounded:
        low, high = problem.bounds()
        box = low[None] - u, high[None] - u
    gains = backward(f, l, end, mu * size, box)

    def search(length):
        return _roll(problem, q, v, u, length * gains.k, gains.K)

    steps = lengths(q.dtype)
    tries = jax.vmap(search)(steps)
    i, (q1, v1, u1, new) = best(tries[3], tries)
    expected = -(gains.slope + gains.bend)
    fine = gains.definite & jnp.isfinite(expected)
    return Proposal((q1, v1, u1, new), cost, new, expected, steps[i], fine), gains.K


def _roll(problem: Problem, q, v, u, k, K):
    """The trajectory under ``u + k + K (x ⊖ x_k)`` and its cost."""
    model = problem.model

    def step(state, row):
        q, v, total = state
        i, qn, vn, un, k, K = row
        x = jnp.concatenate([difference(model, qn, q), v - vn])
        u = problem.clip(un + k + times(K, x))
        total = total + problem.stage_cost(i, q, v, u)
        q1, v1 = problem.step(i, q, v, u)
        return (q1, v1, total), (q1, v1, u)

    start = q[0], v[0], jnp.zeros((), q.dtype)
    rows = jnp.arange(problem.steps), q[:-1], v[:-1], u, k, K
    (qT, vT, total), (q1, v1, u1) = jax.lax.scan(step, start, rows)
    q1, v1 = (jnp.concatenate([x[:1], y]) for x, y in ((q, q1), (v, v1)))
    return q1, v1, u1, total + problem.final_cost(qT, vT)
