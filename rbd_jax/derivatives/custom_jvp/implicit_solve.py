"""The derivative of what follows from a minimizer: implicit, exact, through no iteration.

With the stationarity ``r(θ, x) = 0`` and its symmetric derivative ``H = ∂r/∂x``,

    H δx = −∂r/∂θ δθ

which is the implicit function theorem. It holds wherever r is differentiable at the solution. Where
an active set changes, it gives the derivative of one side. A derivative needs the solution and not
the search for it: :func:`implicit_solve_custom_jvp` runs the search once, for the value, and takes
the derivatives of a function that is given the solution.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from ...spatial.linear import matmul
from .mechanism import custom_jvp


def _itself(theta: Any) -> Any:
    return theta


class Stationary(NamedTuple):
    """A problem by its functions, all static.

    ``residual(y, x) -> r``; ``solver(y, x, kept)`` is a function ``r -> H⁻¹ r``. Both get
    ``y = prepare(theta)``, which is computed and traced once for both and for the derivative H.
    ``kept`` is what a search has kept for the solver, such as the factor of H, or None.
    """

    residual: Callable[[Any, Array], Array]
    solver: Callable[[Any, Array, Any], Callable[[Array], Array]]
    prepare: Callable[[Any], Any] = _itself


@custom_jvp
def minimizer_custom_jvp(problem: Stationary, theta: PyTree, x: Array, kept: PyTree) -> Array:
    """``x``, which solves the problem for theta, with its implicit derivative in theta."""
    return x


@minimizer_custom_jvp.def_jvp
def _minimizer_jvp(primals, tangents):
    problem, theta, x, kept = primals

    def evaluated(theta):
        y = problem.prepare(theta)
        return problem.residual(y, x), y

    (_, y), (change, _) = eqx.filter_jvp(evaluated, (theta,), (tangents[1],))
    solve = problem.solver(*map(_fixed, (y, x, kept)))

    def hessian(z):
        return jax.jvp(lambda x: problem.residual(y, x), (x,), (z,))[1]

    dx = jax.lax.custom_linear_solve(hessian, -change, lambda _, r: solve(r), symmetric=True)
    return minimizer_custom_jvp(problem, theta, x, kept), dx


def _fixed(tree: PyTree) -> PyTree:
    """The same without derivatives."""
    return jax.tree.map(lambda y: jax.lax.stop_gradient(y) if eqx.is_array(y) else y, tree)


class Root(NamedTuple):
    """Equations by their functions, both static.

    ``residual(theta, x) -> r``; ``inverse(theta, x)`` is the matrix ``(∂r/∂x)⁻¹``, of few rows.
    """

    residual: Callable[[Any, Array], Array]
    inverse: Callable[[Any, Array], Array]


@custom_jvp
def root_custom_jvp(equations: Root, theta: PyTree, x: Array) -> Array:
    """``x``, a root of the equations for theta, with its implicit derivative in theta.

    Unlike those of :func:`minimizer_custom_jvp`, the equations need not be symmetric.
    """
    return x


@root_custom_jvp.def_jvp
def _root_jvp(primals, tangents):
    equations, theta, x = primals
    _, dtheta, _ = tangents
    _, change = eqx.filter_jvp(lambda t: equations.residual(t, x), (theta,), (dtheta,))
    dx = -matmul(equations.inverse(theta, x), change)
    return root_custom_jvp(equations, theta, x), dx


@custom_jvp
def implicit_solve_custom_jvp(
    search: Callable, known: Callable, args: PyTree, rest: PyTree, keep: bool
) -> tuple:
    """``search(args, rest, keep)`` with the derivatives of ``known(args, x, kept)``.

    Args:
        search: ``search(args, rest, keep) -> (out, x, notes, kept)`` finds the solution x of some
            problem by iterations, and the values that follow. If ``keep`` is set, it may keep
            something that helps to differentiate, such as the factor of a matrix.
        known: ``known(args, x, kept) -> (out, x)``, the same values from the solution, which it
            passes through :func:`minimizer_custom_jvp` or :func:`root_custom_jvp` wherever it
            depends on ``args``.
        args: what the derivatives are with respect to.
        rest: what has no derivative, as where the search begins and when it gives up.
        keep: whether the search shall keep something; False for
            callers, because a search whose result is differentiated does so by itself.

    Returns:
        ``(out, x, notes, kept)``; the last two have no derivative.
    """
    return search(args, rest, keep)


@implicit_solve_custom_jvp.def_jvp
def _implicit_solve_jvp(primals, tangents):
    search, known, args, rest, keep = primals
    out, x, notes, kept = implicit_solve_custom_jvp(search, known, args, rest, True)
    _, (dout, dx) = eqx.filter_jvp(lambda t: known(t, x, kept), (args,), (tangents[2],))
    rest = notes, kept if keep else None
    return (out, x, *rest), (dout, dx, *jax.tree.map(lambda _: None, rest))


@implicit_solve_custom_jvp.def_known
def _solved(value, search, known, args, rest, keep):
    """The same from the solution, which the search has found before."""
    _, x, notes, kept = value
    return *known(args, x, kept), notes, kept
