"""The equation that an implicit step solves: Newton's method, differentiated implicitly."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

ITERATIONS = 12  # never reached at steps that resolve the motion: two or three are enough


def newton(residual: Callable[[Array], Array], guess: Float[Array, " n"]) -> Float[Array, " n"]:
    """The root of ``residual`` near ``guess``, a velocity or an acceleration (rad, m, s).

    Iterates until the correction is so small that the next one, its square, is below rounding.
    The Jacobian is assembled by forward mode: with accelerations inside, from their analytical
    rule. Derivatives of the root are implicit (``δx = −J⁻¹ δr``), in both modes and of any order;
    no iteration is differentiated. NaN if the iteration does not converge: the step is too long.
    """
    if guess.size == 0:
        return guess
    tolerance = float(jnp.finfo(guess.dtype).eps) ** 0.6

    def solve(f, x):
        def unfinished(state):
            k, x, size = state
            return (k < ITERATIONS) & (size > tolerance * (1 + jnp.max(jnp.abs(x))))

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
