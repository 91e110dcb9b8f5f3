"""The derivative of a minimizer: implicit, exact, through no iteration.

With the stationarity ``r(θ, x) = 0`` and its symmetric derivative ``H = ∂r/∂x``,

    H δx = −∂r/∂θ δθ

which is the implicit function theorem. It holds wherever r is differentiable at the solution; at a
switch of an active set it gives the derivative of one side.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree


class Stationary(NamedTuple):
    """A problem by its functions, all static.

    ``find(theta, guess) -> (x, factor, rest)``; ``residual(theta, x) -> r``;
    ``solve(factor, r) -> H⁻¹ r`` with the factor that ``find`` has returned.
    """

    find: Callable[[Any, Array], tuple[Array, Any, Any]]
    residual: Callable[[Any, Array], Array]
    solve: Callable[[Any, Array], Array]


@eqx.filter_custom_jvp
def minimizer(problem: Stationary, theta: PyTree, guess: Array) -> tuple[Array, PyTree, PyTree]:
    """``(x, factor, rest)`` of ``problem.find``; x has the implicit derivative, the others none.

    The guess has no derivative either: it decides where the search starts, not where it ends.
    """
    return problem.find(theta, guess)


@minimizer.def_jvp
def _minimizer_jvp(primals, tangents):
    problem, theta, guess = primals
    _, dtheta, _ = tangents
    x, factor, rest = minimizer(problem, theta, guess)
    _, change = eqx.filter_jvp(lambda t: problem.residual(t, x), (theta,), (dtheta,))
    frozen = jax.lax.stop_gradient(factor)

    def hessian(y):
        return jax.jvp(lambda x: problem.residual(theta, x), (x,), (y,))[1]

    dx = jax.lax.custom_linear_solve(
        hessian, -change, lambda _, y: problem.solve(frozen, y), symmetric=True
    )
    unmoved = jax.tree.map(lambda _: None, (factor, rest))
    return (x, factor, rest), (dx, *unmoved)
