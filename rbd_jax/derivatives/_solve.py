"""Solving with a mass matrix: scaled Cholesky factorisation, differentiated implicitly."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Factor = tuple[Float[Array, "nv nv"], Float[Array, " nv"]]


def factorize(M: Float[Array, "nv nv"]) -> Factor:
    """Cholesky factor of M scaled to unit diagonal, and the scale.

    The scaling takes the condition number of real robots from 1e4…1e10 to 30…1e4, without which
    single precision is hopeless.
    """
    scale = jax.lax.rsqrt(jnp.diagonal(M))
    return jnp.linalg.cholesky(M * scale[:, None] * scale[None, :]), scale


def solve_factored(factor: Factor, b: Array) -> Array:
    """``M⁻¹ b`` for a vector or a matrix of columns."""
    L, scale = factor
    scale = scale if b.ndim == 1 else scale[:, None]
    return scale * jax.scipy.linalg.cho_solve((L, True), scale * b)


def solve(factor: Factor, M: Float[Array, "nv nv"], b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``M⁻¹ b``; its derivative ``M⁻¹ (δb − δM M⁻¹ b)`` never goes through the factorisation."""
    factor = jax.lax.stop_gradient(factor)

    def matvec(x):
        return jnp.matmul(M, x, precision="highest")

    return jax.lax.custom_linear_solve(
        matvec, b, lambda _, y: solve_factored(factor, y), symmetric=True
    )
