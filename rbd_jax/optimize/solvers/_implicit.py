"""The derivatives of a solution with respect to the problem, by the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ...derivatives.custom_jvp.mechanism import custom_jvp
from ..linear_quadratic._lq_approximation import costates, curvature, linear, quadratic
from ._motion import States, held_controls, motion
from ..problems._problem import Problem
from ..linear_quadratic._riccati import backward, forward


def without_derivatives(tree: PyTree) -> PyTree:
    """The same values, as constants for differentiation."""
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x  # noqa: E731
    return jax.tree.map(stop, tree)


@custom_jvp
def stationary(
    problem: Problem,
    q0: Array,
    v0: Array,
    u: Float[Array, "T nu"],
    successful: Bool[Array, ""],
    states: States,
) -> Float[Array, "T nu"]:
    """The corrections w of a solution's feedback, with the value u, as a function of the problem.

    The controls are ``w + K (x ⊖ x_k)`` about ``states``, see :func:`motion`. The equations
    ``∂J/∂w = 0`` for the free controls and ``u = bound`` for the others define w. Hence
    ``H δw = −δ(∂J/∂w)`` with ``H = ∂²J/∂w²``. One Riccati sweep with exact second derivatives
    solves this equation, in forward and in reverse mode. ``states`` must have no feedback of
    controls at their bounds, see :meth:`States.holding`. Derivatives are NaN if u is not
    ``successful`` or not a strict minimum. In a batch, the derivatives of an unsuccessful sample on
    which the result does not depend are zero, so the other samples keep theirs.
    """
    return u


@stationary.def_jvp
def _stationary_jvp(primals, tangents):
    *parameters, u, successful, states = primals
    is_none = lambda x: x is None  # noqa: E731
    rates = tuple(tangents[:-3])
    moving = jax.tree.map(
        lambda t, p: None if t is None else p, rates, tuple(parameters), is_leaf=is_none
    )
    at_low, at_high = held_controls(parameters[0], u)
    free = ~(at_low | at_high)

    def condition(moving, u):
        problem, q0, v0 = eqx.combine(moving, tuple(parameters))

        def objective(u):
            return problem.cost(*motion(problem, q0, v0, u, states))

        low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
        # a control at a bound moves with the bound, and the free controls respond to that
        moved = jnp.where(at_low, low, jnp.where(at_high, high, u))
        return jnp.where(free, jax.grad(objective)(moved), u - moved)

    change = jax.jvp(lambda x: condition(x, u), (moving,), (rates,))[1]
    here = without_derivatives((parameters[0], u, states))

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

    It is ``w = δu − K x`` of the linear-quadratic problem with the cost ``−yᵀ w``.
    """
    problem, u, (q, v, K) = here
    f = linear(problem, q, v, u, gaps=False)
    l, end = quadratic(problem, q, v, u, exact=True)
    n = end.x.size
    more = curvature(problem, q, v, u, costates(f, l, end, K))
    l = l._replace(
        x=jnp.sum(K * y[..., None], axis=1),
        u=-y,
        xx=l.xx + more[:, :n, :n],
        ux=l.ux + more[:, n:, :n],
        uu=l.uu + more[:, n:, n:],
    )
    end = end._replace(x=jnp.zeros_like(end.x))
    gains = backward(f, l, end, jnp.zeros((), u.dtype), free=free)
    x, du = forward(f, gains)
    return du - jnp.sum(K * x[:-1, None], axis=-1), gains.definite
