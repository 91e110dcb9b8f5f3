"""Crocoddyl's BoxFDDP and mim-solvers' CSQP on a problem of this library: the same functions.

The action models are Python here and call compiled functions of this library for each step, so
that iterations are those of the solvers and times are not.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import neutral, tasks
from rbd_jax.optimize.linear_quadratic._lq_approximation import quadratic_end, quadratic_stage
from rbd_jax.optimize.problems._constraints import Rows, stack

from ._ipopt import Found

PACKAGES = {"BoxFDDP": "crocoddyl", "CSQP": "mim_solvers"}
"""The package of each solver. Only CSQP takes constraints."""


def _models(problem, constraints, q0, v0, box: bool) -> tuple[list[Any], Any]:
    """The action models of all steps, and that of the last state.

    Args:
        problem: with its constraints. q0, v0: where it starts.
        box: whether the solver keeps bounds of the controls by itself; else they are rows too.
    """
    import crocoddyl  # pyright: ignore[reportMissingImports]

    nq, nv, nu = problem.model.nq, problem.model.nv, problem.controls
    split = lambda x: (x[:nq], x[nq:])  # noqa: E731
    join = jax.jit(lambda x, dx: jnp.concatenate(problem.integrate(*split(x), dx)))
    apart = jax.jit(lambda x, y: problem.difference(*split(x), *split(y)))

    @jax.jit
    def advance(k, x, u):
        q, v, cost = problem.advance(k, *split(x), u)
        return jnp.concatenate([q, v]), cost

    @jax.jit
    def slopes(k, x, u):
        q, v = split(x)
        A, B = problem.derivatives(q[None], v[None], u[None])
        return A[0], B[0], *quadratic_stage(problem, k, q, v, u, False)

    last = jax.jit(lambda x: problem.final_cost(*split(x)))
    last_slopes = jax.jit(lambda x: quadratic_end(problem, *split(x), False))

    rows = stack(problem, constraints, q0, v0)
    bounded = problem.bounded and not box
    bounds = [np.asarray(b, float) for b in problem.bounds()] if bounded else [np.zeros(0)] * 2

    def limits(equal, holds, bounds=bounds):
        """Bounds of all rows, those of the controls last; there are none where no row holds."""
        low = np.where(equal & holds, 0.0, -np.inf)
        high = np.where(holds, 0.0, np.inf)
        return [np.concatenate(x) for x in zip((low, high), bounds, strict=True)]

    @jax.jit
    def held(k, x, u):
        own = u if bounded else u[:0]
        return jnp.concatenate([rows.stage(problem, k, *split(x), u), own])

    @jax.jit
    def held_slopes(k, x, u):
        def at(z):
            q, v = problem.integrate(*split(x), z[: 2 * nv])
            return held(k, jnp.concatenate([q, v]), u + z[2 * nv :])

        J = jax.jacfwd(at)(jnp.zeros(2 * nv + nu))
        return J[:, : 2 * nv], J[:, 2 * nv :]

    @jax.jit
    def held_last(x):
        return rows.final(problem, *split(x))

    @jax.jit
    def held_last_slopes(x):
        at = lambda z: rows.final(problem, *problem.integrate(*split(x), z))  # noqa: E731
        return jax.jacfwd(at)(jnp.zeros(2 * nv))

    class Manifold(crocoddyl.StateAbstract):
        """States (q, v) whose differences are those of the problem."""

        def __init__(self):
            super().__init__(nq + nv, 2 * nv)

        def zero(self):
            return np.concatenate([np.asarray(neutral(problem.model)), np.zeros(nv)])

        def diff(self, x0, x1):
            return np.asarray(apart(x0, x1))

        def integrate(self, x, dx):
            return np.asarray(join(x, dx))

    class Step(crocoddyl.ActionModelAbstract):
        """Step k, or the last state if k is None."""

        def __init__(self, state, k, limits):
            none = k is None
            count = len(limits[0])
            super().__init__(state, 0 if none else nu, 1, count, 0, count if none else 0)
            self.k, (self.g_lb, self.g_ub) = k, limits

        def calc(self, data, x, u=None):
            if self.k is None:
                data.cost = float(last(x))
            else:
                to, cost = advance(self.k, x, u)
                data.xnext, data.cost = np.asarray(to), float(cost)
            if self.ng:
                data.g = np.asarray(held_last(x) if self.k is None else held(self.k, x, u))

        def calcDiff(self, data, x, u=None):
            if self.k is None:
                end = last_slopes(x)
                data.Lx, data.Lxx = np.asarray(end.x), np.asarray(end.xx)
                if self.ng:
                    data.Gx = np.asarray(held_last_slopes(x))
                return
            if self.ng:
                data.Gx, data.Gu = (np.asarray(J) for J in held_slopes(self.k, x, u))
            A, B, lx, lu, lxx, lux, luu = (np.asarray(a) for a in slopes(self.k, x, u))
            data.Fx, data.Fu, data.Lx, data.Lu = A, B, lx, lu
            data.Lxx, data.Lxu, data.Luu = lxx, lux.T, luu

    flat = nq == nv
    state = crocoddyl.StateVector(nq + nv) if flat else Manifold()
    equal, on = rows.equality, Rows(*(np.asarray(x) for x in rows.holds()))
    steps = [Step(state, k, limits(equal.stage, on.stage[k])) for k in range(problem.steps)]
    if problem.bounded and box:
        for step in steps:
            step.u_lb, step.u_ub = (np.asarray(b, float) for b in problem.bounds())
    return steps, Step(state, None, limits(equal.final, on.final, [np.zeros(0)] * 2))


def _solver(name: str, shooting, seconds: float) -> Any:
    """A solver whose tolerances let it find what the judge calls solved, CSQP in time."""
    if name == "BoxFDDP":
        import crocoddyl  # pyright: ignore[reportMissingImports]

        solver = crocoddyl.SolverBoxFDDP(shooting)
        solver.th_stop = 1e-9
        return solver
    import mim_solvers  # pyright: ignore[reportMissingImports]

    solver = mim_solvers.SolverCSQP(shooting)
    solver.termination_tolerance, solver.eps_abs, solver.eps_rel = 1e-6, 1e-10, 0.0
    solver.max_solve_time = seconds
    return solver


def solve_all(name: str, trials: tasks.Trials, limit: int, patience: float = np.inf) -> Found:
    """A solver from every start, in turn; none begins after ``patience`` seconds of the processor.

    Tolerances are the defaults, 1e-9 of BoxFDDP and 1e-6 of CSQP, but 1e-10 of the quadratic
    programs of CSQP: with their default of 1e-4 it solves fewer problems. Each quadratic program
    takes at most 1000 iterations, and each start of CSQP at most ``patience`` seconds.
    """
    import crocoddyl  # pyright: ignore[reportMissingImports]

    found, models, last = [], None, time.process_time() + patience
    nq = trials.problem.model.nq
    for k, (q0, v0, u) in enumerate(zip(trials.q0, trials.v0, trials.u, strict=True)):
        if found and time.process_time() > last:
            break
        if models is None or trials.each is not None:
            models = _models(*trials.at(k), q0, v0, name == "BoxFDDP")
        shooting = crocoddyl.ShootingProblem(np.concatenate([q0, v0]), *models)
        solver, us = _solver(name, shooting, patience), list(np.asarray(u))
        done = solver.solve(list(shooting.rollout(us)), us, limit, True)
        x = np.array(solver.xs)
        found.append((x[:, :nq], x[:, nq:], np.array(solver.us), done, solver.iter, solver.cost))
    q, v, u, done, count, cost = (np.stack(y) for y in zip(*found, strict=True))
    q, v, u = jnp.asarray(q), jnp.asarray(v), jnp.asarray(u)
    return Found(q, v, u, done, count + 1, cost, float("nan"))  # iterations count from zero
