"""The derivatives of a solution with respect to the problem, by the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ._expansion import costates, curvature, linear, quadratic
from ._problem import Problem
from ._riccati import backward, forward
from ._tolerances import tolerances


def without_derivatives(tree: PyTree) -> PyTree:
    """The same values, as constants for differentiation."""
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x  # noqa: E731
    return jax.tree.map(stop, tree)


@eqx.filter_custom_jvp
def stationary(
    problem: Problem, q0: Array, v0: Array, u: Float[Array, "T nu"], successful: Bool[Array, ""]
) -> Float[Array, "T nu"]:
    """The controls ``u`` of a solution, as a function of the problem and (q0, v0).

    The equations ``∂J/∂u = 0`` for the free controls and ``u = bound`` for the others define u.
    Hence ``H δu = −δ(∂J/∂u)`` with ``H = ∂²J/∂u²``. One Riccati sweep with exact second derivatives
    solves this equation, in forward and in reverse mode. Derivatives are NaN if u is not
    ``successful`` or not a strict minimum. In a batch, the derivatives of an unsuccessful sample on
    which the result does not depend are zero, so the other samples keep theirs.
    """
    return u


@stationary.def_jvp
def _stationary_jvp(primals, tangents):
    *parameters, u, successful = primals
    is_none = lambda x: x is None  # noqa: E731
    rates = tuple(tangents[:-2])
    moving = jax.tree.map(
        lambda t, p: None if t is None else p, rates, tuple(parameters), is_leaf=is_none
    )
    low, high = (jnp.broadcast_to(x, u.shape) for x in parameters[0].bounds())
    slack = tolerances(u.dtype).at_bound * (1 + jnp.abs(u))
    at_low, at_high = u <= low + slack, u >= high - slack
    free = ~(at_low | at_high)

    def condition(moving, u):
        problem, q0, v0 = eqx.combine(moving, tuple(parameters))

        def objective(u):
            path = problem.simulate(q0, v0, u)
            return problem.cost(path.q, path.v, u)

        low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
        # a control at a bound moves with the bound, and the free controls respond to that
        moved = jnp.where(at_low, low, jnp.where(at_high, high, u))
        return jnp.where(free, jax.grad(objective)(moved), u - moved)

    change = jax.jvp(lambda x: condition(x, u), (moving,), (rates,))[1]
    here = without_derivatives((*parameters, u))

    def matvec(w):  # H for the free controls, the identity for the others
        Hw = jax.jvp(lambda x: condition(moving, x), (u,), (jnp.where(free, w, 0),))[1]
        return jnp.where(free, Hw, w)

    def solve(_, y):
        w, definite = _newton(here, free, jnp.where(free, y, 0))
        # NaN is inserted here and not in the result: this function is not transposed, whereas a
        # `where` around the result would give zero in reverse mode
        undefined = ~(successful & definite) & jnp.any(y != 0)
        return jnp.where(undefined, jnp.nan, jnp.where(free, w, y))

    return u, jax.lax.custom_linear_solve(matvec, -change, solve, symmetric=True)


def _newton(here: tuple, free, y):
    """``H⁻¹ y`` for the free controls, and whether H is positive definite for them.

    It is the solution of the linear-quadratic problem with the slope ``−y`` in the controls.
    """
    problem, q0, v0, u = here
    path = problem.simulate(q0, v0, u)
    f = linear(problem, path.q, path.v, u, gaps=False)
    l, end = quadratic(problem, path.q, path.v, u, exact=True)
    n = end.x.size
    more = curvature(problem, path.q, path.v, u, costates(f, l, end))
    l = l._replace(
        x=jnp.zeros_like(l.x),
        u=-y,
        xx=l.xx + more[:, :n, :n],
        ux=l.ux + more[:, n:, :n],
        uu=l.uu + more[:, n:, n:],
    )
    end = end._replace(x=jnp.zeros_like(end.x))
    gains = backward(f, l, end, jnp.zeros((), u.dtype), free=free)
    return forward(f, gains)[1], gains.definite
