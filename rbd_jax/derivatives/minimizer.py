"""The derivative of what follows from a minimizer: implicit, exact, through no iteration.

With the stationarity ``r(θ, x) = 0`` and its symmetric derivative ``H = ∂r/∂x``,

    H δx = −∂r/∂θ δθ

which is the implicit function theorem. It holds wherever r is differentiable at the solution; at a
switch of an active set it gives the derivative of one side. A derivative needs the solution, and
not the search for it: :func:`implicit_solve` runs the search once, for the value, and takes
derivatives of a function that is given the solution.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .ruled import ruled


class Stationary(NamedTuple):
    """A problem by its functions, all static.

    ``residual(theta, x) -> r``; ``solver(theta, x)`` is a function ``r -> H⁻¹ r``.
    """

    residual: Callable[[Any, Array], Array]
    solver: Callable[[Any, Array], Callable[[Array], Array]]


@ruled
def minimizer(problem: Stationary, theta: PyTree, x: Array) -> Array:
    """``x``, which solves the problem for theta, with its implicit derivative in theta."""
    return x


@minimizer.def_jvp
def _minimizer_jvp(primals, tangents):
    problem, theta, x = primals
    _, dtheta, _ = tangents
    _, change = eqx.filter_jvp(lambda t: problem.residual(t, x), (theta,), (dtheta,))
    fixed = jax.lax.stop_gradient
    solve = problem.solver(
        jax.tree.map(lambda y: fixed(y) if eqx.is_array(y) else y, theta), fixed(x)
    )

    def hessian(y):
        return jax.jvp(lambda x: problem.residual(theta, x), (x,), (y,))[1]

    dx = jax.lax.custom_linear_solve(hessian, -change, lambda _, y: solve(y), symmetric=True)
    return minimizer(problem, theta, x), dx


@ruled
def implicit_solve(search: Callable, known: Callable, args: PyTree, rest: PyTree) -> tuple:
    """``search(args, rest) -> (out, x, notes)`` with the derivatives of ``known(args, x)``.

    Args:
        search: finds the solution x of some problem by iterations, and the values that follow.
        known: ``known(args, x) -> (out, x)``, the same values from the solution, which it passes
            through :func:`minimizer` wherever it depends on ``args``.
        args: what the derivatives are with respect to.
        rest: what has no derivative, as where the search begins and when it gives up.

    Returns:
        ``(out, x, notes)``; the notes on the search have no derivative.
    """
    return search(args, rest)


@implicit_solve.def_jvp
def _implicit_solve_jvp(primals, tangents):
    search, known, args, rest = primals
    out, x, notes = implicit_solve(search, known, args, rest)
    _, (dout, dx) = eqx.filter_jvp(lambda t: known(t, x), (args,), (tangents[2],))
    return (out, x, notes), (dout, dx, jax.tree.map(lambda _: None, notes))
