"""Newton's method for the equation of an implicit step, differentiated implicitly.

This is our own loop, although optimistix has a Newton method. optimistix is in an extra, and the
integrators ``"variational"`` and ``"generalized_alpha"`` must work in an installation without
extras. The loop is short, because :func:`jax.lax.custom_root` has the implicit derivative.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MAX_STEPS = 12
"""Limit of Newton's steps. Two or three suffice if the time step resolves the motion."""


def newton(residual: Callable[[Array], Array], guess: Float[Array, " n"]) -> Float[Array, " n"]:
    """The root of ``residual`` near ``guess``, a velocity or an acceleration (rad, m, s).

    The iteration ends when the correction is so small that the next one, which is about its square,
    is below rounding. Forward mode assembles the Jacobian, with the analytical rules of the
    accelerations. The derivatives of the root follow from the implicit function theorem,
    ``δx = −J⁻¹ δr``, in forward and reverse mode and of any order. The result is NaN if the
    iteration does not converge, which means that the time step is too long.
    """
    if guess.size == 0:
        return guess
    tolerance = float(jnp.finfo(guess.dtype).eps) ** 0.6

    def solve(f, x):
        def unfinished(state):
            k, x, size = state
            return (k < MAX_STEPS) & (size > tolerance * (1 + jnp.max(jnp.abs(x))))

        def correct(state):
            k, x, _ = state
            J, r = jax.jacfwd(lambda y: (f(y),) * 2, has_aux=True)(x)
            step = jnp.linalg.solve(J, r)
            return k + 1, x - step, jnp.max(jnp.abs(step))

        start = jnp.zeros((), jnp.int32), x, jnp.asarray(jnp.inf, x.dtype)
        _, x, size = jax.lax.while_loop(unfinished, correct, start)
        converged = size < tolerance**0.5 * (1 + jnp.max(jnp.abs(x)))
        return jnp.where(converged, x, jnp.nan)

    def solve_linear(f, b):
        return jnp.linalg.solve(jax.jacfwd(f)(jnp.zeros_like(b)), b)

    return jax.lax.custom_root(residual, guess, solve, solve_linear)
