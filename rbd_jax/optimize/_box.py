"""Quadratic programs with bounds on the unknowns, for the control limits of DDP.

Projected Newton is written here because optax and optimistix have no solver for this problem.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._expansion import times


def restricted_cholesky(
    H: Float[Array, "m m"], free: Bool[Array, " m"]
) -> tuple[Float[Array, "m m"], Bool[Array, ""]]:
    """Cholesky factor of H, with the identity in the rows and columns that are not free.

    The second result says whether this matrix is positive definite. If it is not, the factor is
    the identity.
    """
    both = free[:, None] & free[None, :]
    eye = jnp.eye(H.shape[0], dtype=H.dtype)
    L = jnp.linalg.cholesky(jnp.where(both, H, eye))
    definite = jnp.all(jnp.isfinite(L))
    return jnp.where(definite, L, eye), definite


def solve_free(L: Array, free: Array, b: Float[Array, "m *r"]) -> Float[Array, "m *r"]:
    """``H⁻¹ b`` restricted to the free coordinates, and zero in the others."""
    mask = free.reshape(-1, *[1] * (b.ndim - 1))
    columns = jnp.where(mask, b, 0).reshape(b.shape[0], -1)
    y = jax.scipy.linalg.solve_triangular(L, columns, lower=True)
    x = jax.scipy.linalg.solve_triangular(L, y, lower=True, trans="T")
    return jnp.where(mask, x.reshape(b.shape), 0)


def box_qp(
    H: Float[Array, "m m"],
    g: Float[Array, " m"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
    max_steps: int = 30,
) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
    """Minimize ``½ xᵀ H x + gᵀ x`` within ``low ≤ x ≤ high`` for a positive definite H.

    The loop has no reverse mode. Solvers that use it are differentiated by the implicit function
    theorem.

    Source: projected Newton (Bertsekas 1982), as in Tassa, Mansard, Todorov (2014), Alg. 1.
    Departure: all step lengths of the line search are tried at once.

    Args:
        H: symmetric positive definite matrix. g: linear term.
        low: lower bounds. high: upper bounds.
        max_steps: limit of Newton steps.

    Returns:
        The minimizer, and which coordinates are free, that is, not held at a bound.
    """
    lengths = 0.5 ** jnp.arange(12.0, dtype=H.dtype)
    small = 100 * jnp.finfo(H.dtype).eps

    def held(x, slope):
        return ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))

    def value(x):
        return jnp.sum(x * (0.5 * times(H, x) + g))

    def unfinished(state):
        _, _, done, k = state
        return ~done & (k < max_steps)

    def body(state):
        x, _, _, k = state
        slope = times(H, x) + g
        free = ~held(x, slope)
        L, _ = restricted_cholesky(H, free)
        d = -solve_free(L, free, slope)
        tries = jnp.clip(x[None] + lengths[:, None] * d[None], low[None], high[None])
        values = jax.vmap(value)(tries)
        best = jnp.argmin(values)
        better = values[best] < value(x)
        size = jnp.max(jnp.abs(jnp.where(free, slope, 0)), initial=0)
        done = ~better | (size <= small * (1 + jnp.max(jnp.abs(g), initial=0)))
        return jnp.where(better, tries[best], x), free, done, k + 1

    x = jnp.clip(jnp.zeros_like(g), low, high)
    start = x, jnp.ones(g.shape, bool), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    x = jax.lax.while_loop(unfinished, body, start)[0]
    return x, ~held(x, times(H, x) + g)
