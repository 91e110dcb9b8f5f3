"""Crocoddyl's BoxFDDP on a problem of this library: the same steps, costs and derivatives.

Its action models are Python here and call compiled functions of this library for each step, so
that its iterations are Crocoddyl's and its times are not.
"""

import importlib.util
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import neutral, tasks
from rbd_jax.optimize.linear_quadratic._lq_approximation import quadratic_end, quadratic_stage

from ._ipopt import Found


def available() -> bool:
    """Whether there is a Crocoddyl."""
    return importlib.util.find_spec("crocoddyl") is not None


def _models(problem) -> tuple[list[Any], Any]:
    """The action models of all steps, and that of the last state."""
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

        def __init__(self, state, k):
            super().__init__(state, nu if k is not None else 0, 1)
            self.k = k

        def calc(self, data, x, u=None):
            if self.k is None:
                data.cost = float(last(x))
            else:
                to, cost = advance(self.k, x, u)
                data.xnext, data.cost = np.asarray(to), float(cost)

        def calcDiff(self, data, x, u=None):
            if self.k is None:
                end = last_slopes(x)
                data.Lx, data.Lxx = np.asarray(end.x), np.asarray(end.xx)
                return
            A, B, lx, lu, lxx, lux, luu = (np.asarray(a) for a in slopes(self.k, x, u))
            data.Fx, data.Fu, data.Lx, data.Lu = A, B, lx, lu
            data.Lxx, data.Lxu, data.Luu = lxx, lux.T, luu

    flat = nq == nv
    state = crocoddyl.StateVector(nq + nv) if flat else Manifold()
    steps = [Step(state, k) for k in range(problem.steps)]
    if problem.bounded:
        low, high = (np.asarray(b, float) for b in problem.bounds())
        for step in steps:
            step.u_lb, step.u_ub = low, high
    return steps, Step(state, None)


def solve_all(trials: tasks.Trials, limit: int, patience: float = np.inf) -> Found:
    """BoxFDDP from every start, one after the other, with the tolerance 1e-9, its default.

    None begins after ``patience`` seconds.
    """
    import crocoddyl  # pyright: ignore[reportMissingImports]

    problem, found, last = trials.problem, [], time.monotonic() + patience
    nq, (steps, end) = problem.model.nq, _models(problem)
    for q0, v0, u in zip(trials.q0, trials.v0, trials.u, strict=True):
        if found and time.monotonic() > last:
            break
        shooting = crocoddyl.ShootingProblem(np.concatenate([q0, v0]), steps, end)
        solver, us = crocoddyl.SolverBoxFDDP(shooting), list(np.asarray(u))
        solver.th_stop = 1e-9
        done = solver.solve(list(shooting.rollout(us)), us, limit, True)
        x = np.array(solver.xs)
        found.append((x[:, :nq], x[:, nq:], np.array(solver.us), done, solver.iter, solver.cost))
    q, v, u, done, count, cost = (np.stack(y) for y in zip(*found, strict=True))
    q, v, u = jnp.asarray(q), jnp.asarray(v), jnp.asarray(u)
    return Found(q, v, u, done, count + 1, cost, float("nan"))  # iterations count from zero
