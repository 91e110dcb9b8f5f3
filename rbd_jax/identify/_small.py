"""Triangular factors of small matrices, elementwise.

LAPACK's batched calls share a pool of threads with the program that makes them: two that run at the
same time can wait for one another for ever (jaxlib 0.10 on two cores). These fuse instead.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def cholesky(P: Float[Array, "*b s s"]) -> Float[Array, "*b s s"]:
    """The lower triangular L with positive diagonal and ``P = L Lᵀ``; NaN if there is none."""
    s = P.shape[-1]
    L: list[list] = [[jnp.zeros(P.shape[:-2], P.dtype)] * s for _ in range(s)]
    for j in range(s):
        L[j][j] = jnp.sqrt(P[..., j, j] - sum(L[j][k] ** 2 for k in range(j)))
        for i in range(j + 1, s):
            L[i][j] = (P[..., i, j] - sum(L[i][k] * L[j][k] for k in range(j))) / L[j][j]
    return _stacked(L)


def solve_lower(L: Float[Array, "*b s s"], B: Float[Array, "*b s m"]) -> Float[Array, "*b s m"]:
    """``L⁻¹ B`` for a lower triangular L."""
    rows: list[Array] = []
    for i in range(L.shape[-1]):
        rest = B[..., i, :] - sum(L[..., i, k, None] * x for k, x in enumerate(rows))
        rows.append(rest / L[..., i, i, None])
    return jnp.stack(rows, axis=-2)


def definite(P: Float[Array, "*b s s"]) -> Array:
    """Whether a symmetric matrix is positive definite (bool), by its pivots."""
    L = cholesky(P)
    return jnp.isfinite(jnp.sum(L, axis=(-2, -1)))


def _stacked(rows: list[list]) -> Array:
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
