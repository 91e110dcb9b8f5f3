"""First-order optimality of a solution, measured from the problem alone.

States and controls are the unknowns, as in a nonlinear program that one would give to IPOPT. Costs,
steps and constraints are differentiated by JAX, and the multipliers are those that leave the least
residual. Nothing comes from a solver.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import lsq_linear

import rbd_jax as rbd
from rbd_jax.optimize import Problem
from rbd_jax.optimize.problems._constraints import stack


class Residual(NamedTuple):
    """How far a trajectory is from the conditions of first order."""

    slope: float
    """Greatest entry of the gradient of the Lagrangian, projected onto bounds of the controls."""
    gap: float
    """Greatest entry of the gaps between states."""
    violation: float
    """Greatest violation of a constraint."""


def program(problem: Problem, constraints=()):
    """A function of a solution: the controls and the derivatives of the nonlinear program."""
    m, T = problem.model, problem.steps
    n = 2 * m.nv

    def at(q, v, u):
        rows = stack(problem, constraints, q[0], v[0])

        def moved(z):
            x = z[: T * n].reshape(T, n)
            new = jax.vmap(lambda q, d: rbd.integrate(m, q, d))(q[1:], x[:, : m.nv])
            du = z[T * n :].reshape(u.shape)
            return jnp.concatenate([q[:1], new]), v.at[1:].add(x[:, m.nv :]), u + du

        def one(k, q, v, u, q_next, v_next):
            q1, v1 = problem.advance(k, q, v, u)[:2]
            return jnp.concatenate([rbd.difference(m, q_next, q1), v1 - v_next])

        def gaps(z):
            q, v, u = moved(z)
            return jax.vmap(one)(jnp.arange(T), q[:-1], v[:-1], u, q[1:], v[1:]).ravel()

        def values(z):
            c = rows.values(problem, *moved(z))
            return jnp.concatenate([c.stage.ravel(), c.final])

        z = jnp.zeros(T * n + u.size, u.dtype)
        both = [(f(z), jax.jacfwd(f)(z)) for f in (gaps, values)]
        cost = lambda z: problem.cost(*moved(z))  # noqa: E731
        equal = (np.broadcast_to(rows.equality.stage, (T, rows.equality.stage.size)).ravel(),
                 rows.equality.final)  # fmt: skip
        return jax.grad(cost)(z), both, jnp.array(np.concatenate(equal), bool)

    return at


def residual(problem: Problem, u: np.ndarray, derivatives: Any, active: float) -> Residual:
    """The residual of one solution.

    Args:
        problem: what was minimized.
        u: the controls.
        derivatives: what :func:`program` gives at the solution.
        active: inequalities above minus this may have a multiplier.
    """
    g, ((gap, J), (c, C)), equal = jax.tree.map(lambda x: np.asarray(x, float), derivatives)
    equal, n = equal.astype(bool), g.size - u.size
    on = equal | (c > -active)
    free = np.ones(g.size, bool)
    low, high = np.full(u.shape, -np.inf), np.full(u.shape, np.inf)
    if problem.bounded:
        low, high = (np.broadcast_to(np.asarray(x, float), u.shape) for x in problem.bounds())
        free[n:] = ((u > low) & (u < high)).ravel()
    A = np.concatenate([J, C[on]]).T
    least = np.concatenate([np.full(len(J), -np.inf), np.where(equal[on], -np.inf, 0)])
    method = "bvls" if np.isfinite(least).any() else "trf"
    lam = lsq_linear(A[free], -g[free], (least, np.inf), method=method, tol=1e-14).x
    r = g + A @ lam
    by_u = u - np.clip(u - r[n:].reshape(u.shape), low, high)
    slope = max(np.abs(r[:n]).max(), np.abs(by_u).max())
    wrong = np.where(equal, np.abs(c), c).max(initial=0)
    return Residual(slope, np.abs(gap).max(), wrong)
