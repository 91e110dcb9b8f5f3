"""The derivative of a solution with respect to the problem, by the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._expansion import costates, curvature, linear, quadratic
from ._problem import Problem
from ._riccati import backward, forward


def frozen(tree: PyTree) -> PyTree:
    """The same values, constant under differentiation."""
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x  # noqa: E731
    return jax.tree.map(stop, tree)


def stationary(
    problem: Problem, q0: Array, v0: Array, u: Float[Array, "T nu"]
) -> Float[Array, "T nu"]:
    """The controls ``u``, known to be stationary, as a function of the problem and (q0, v0).

    ``∂J/∂u = 0`` for the controls that are free and ``u = bound`` for the others define u; the
    linear system with ``H = ∂²J/∂u²`` is solved by one Riccati sweep with the exact second
    derivatives (at the costates, as DDP has them). Forward and reverse mode, any order of one.
    """
    low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
    slack = 1e-9 if u.dtype == jnp.float64 else 1e-5
    slack = slack * (1 + jnp.abs(u))
    at_low, at_high = u <= low + slack, u >= high - slack
    free = ~(at_low | at_high)

    def objective(u):
        path = problem.simulate(q0, v0, u)
        return problem.cost(path.q, path.v, u)

    def condition(u):
        bound = jnp.where(at_low, low, jnp.where(at_high, high, u))
        return jnp.where(free, jax.grad(objective)(u), u - bound)

    fixed = frozen((problem, q0, v0))

    def solve(_, y):
        return jnp.where(free, _newton(*fixed, u, free, jnp.where(free, y, 0)), y)

    def tangent_solve(matvec, y):
        return jax.lax.custom_linear_solve(matvec, y, solve, solve, symmetric=False)

    return jax.lax.custom_root(condition, u, lambda _, x: x, tangent_solve)


def _newton(problem: Problem, q0, v0, u, free, y):
    """``H⁻¹ y`` among the free controls: the linear-quadratic problem with ``−y`` as its slope."""
    path = problem.simulate(q0, v0, u)
    f = linear(problem, path.q, path.v, u)
    l, end = quadratic(problem, path.q, path.v, u, exact=True)
    n = f.d.shape[-1]
    more = curvature(problem, path.q, path.v, u, costates(f, l, end))
    l = l._replace(
        x=jnp.zeros_like(l.x),
        u=-y,
        xx=l.xx + more[:, :n, :n],
        ux=l.ux + more[:, n:, :n],
        uu=l.uu + more[:, n:, n:],
    )
    f, end = f._replace(d=jnp.zeros_like(f.d)), end._replace(x=jnp.zeros_like(end.x))
    gains = backward(f, l, end, jnp.zeros((), u.dtype), free=free)
    du = forward(f, gains)[1]
    return eqx.error_if(
        du, ~gains.definite, "rbd_jax.optimize: no derivative: the solution is not a strict minimum"
    )
