"""The derivative of a solution with respect to the problem, by the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ._expansion import costates, curvature, linear, quadratic
from ._problem import Problem
from ._riccati import backward, forward


def frozen(tree: PyTree) -> PyTree:
    """The same values, constant under differentiation."""
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x  # noqa: E731
    return jax.tree.map(stop, tree)


@eqx.filter_custom_jvp
def stationary(
    problem: Problem, q0: Array, v0: Array, u: Float[Array, "T nu"], good: Bool[Array, ""]
) -> Float[Array, "T nu"]:
    """The controls ``u``, stationary if ``good``, as a function of the problem and (q0, v0).

    ``∂J/∂u = 0`` for the controls that are free and ``u = bound`` for the others define u, hence
    ``H δu = −δ(∂J/∂u)`` with ``H = ∂²J/∂u²``, solved by one Riccati sweep with the exact second
    derivatives (at the costates, as DDP has them). Forward and reverse mode. A derivative is NaN
    if u is not ``good``, or no strict minimum; that of a sample of a batch on which nothing depends
    is zero all the same, so that others may be picked out.
    """
    return u


@stationary.def_jvp
def _stationary_jvp(primals, tangents):
    *parameters, u, good = primals
    is_none = lambda x: x is None  # noqa: E731
    rates = tuple(tangents[:-2])
    moving = jax.tree.map(
        lambda t, p: None if t is None else p, rates, tuple(parameters), is_leaf=is_none
    )
    low, high = (jnp.broadcast_to(x, u.shape) for x in parameters[0].bounds())
    slack = (1e-9 if u.dtype == jnp.float64 else 1e-5) * (1 + jnp.abs(u))
    at_low, at_high = u <= low + slack, u >= high - slack
    free = ~(at_low | at_high)

    def condition(moving, u):
        problem, q0, v0 = eqx.combine(moving, tuple(parameters))

        def objective(u):
            path = problem.simulate(q0, v0, u)
            return problem.cost(path.q, path.v, u)

        low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
        # the free controls answer to a bound that moves: their slope is taken with it
        at = jnp.where(at_low, low, jnp.where(at_high, high, u))
        return jnp.where(free, jax.grad(objective)(at), u - at)

    change = jax.jvp(lambda x: condition(x, u), (moving,), (rates,))[1]
    here = frozen((*parameters, u))

    def matvec(w):  # H among the free controls, the identity in the others
        Hw = jax.jvp(lambda x: condition(moving, x), (u,), (jnp.where(free, w, 0),))[1]
        return jnp.where(free, Hw, w)

    def solve(_, y):
        w, definite = _newton(here, free, jnp.where(free, y, 0))
        # put here and not on the result: this is opaque to transposition, to forward and reverse
        # mode alike, whereas a `where` around it would be zero in reverse mode
        lost = ~(good & definite) & jnp.any(y != 0)
        return jnp.where(lost, jnp.nan, jnp.where(free, w, y))

    return u, jax.lax.custom_linear_solve(matvec, -change, solve, symmetric=True)


def _newton(here: tuple, free, y):
    """``H⁻¹ y`` among the free controls: the linear-quadratic problem with ``−y`` as its slope.

    Also whether H is positive definite there.
    """
    problem, q0, v0, u = here
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
    return forward(f, gains)[1], gains.definite
