"""Quadratic programs in a box: the control limits of DDP."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._expansion import times


def restrict(
    H: Float[Array, "m m"], free: Bool[Array, " m"]
) -> tuple[Float[Array, "m m"], Bool[Array, ""]]:
    """Cholesky factor of H with the rows and columns that are not free made those of the identity.

    Also whether it is positive definite; if not, the factor is that of the identity.
    """
    both = free[:, None] & free[None, :]
    eye = jnp.eye(H.shape[0], dtype=H.dtype)
    L = jnp.linalg.cholesky(jnp.where(both, H, eye))
    definite = jnp.all(jnp.isfinite(L))
    return jnp.where(definite, L, eye), definite


def solve_free(L: Array, free: Array, b: Float[Array, "m *r"]) -> Float[Array, "m *r"]:
    """``H⁻¹ b`` among the free coordinates, zero in the others."""
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
    iterations: int = 30,
) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
    """Minimise ``½ xᵀ H x + gᵀ x`` within ``low ≤ x ≤ high`` for a positive definite H.

    Source: projected Newton (Bertsekas 1982), as in Tassa, Mansard, Todorov (2014), Alg. 1; here
    all step lengths of the line search are tried at once.

    Returns:
        The minimiser, and which coordinates are free, not held at a bound.
    """
    lengths = 0.5 ** jnp.arange(12.0, dtype=H.dtype)
    small = 100 * jnp.finfo(H.dtype).eps

    def held(x, slope):
        return ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))

    def value(x):
        return jnp.sum(x * (0.5 * times(H, x) + g))

    def go_on(state):
        _, _, done, k = state
        return ~done & (k < iterations)

    def body(state):
        x, _, _, k = state
        slope = times(H, x) + g
        free = ~held(x, slope)
        L, _ = restrict(H, free)
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
    x = jax.lax.while_loop(go_on, body, start)[0]
    return x, ~held(x, times(H, x) + g)
