"""Cholesky factorization and solves for one small symmetric matrix, column by column.

LAPACK is slow for batches of small matrices, and lanes have none. Columns are written out, which
costs code and no arithmetic: n³/3 for the factorization, 2n² for a solve. The factorization of
:mod:`rbd_jax.spatial.linear` and that of lanes are written out entry by entry, which is too much
code for a matrix of the size of a robot.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_EXACT = jax.lax.Precision.HIGHEST


def cholesky(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L with ``A = L Lᵀ``, the inverse of its diagonal in place of the diagonal."""
    n = A.shape[0]
    columns = []
    for j in range(n):
        c = A[j:, j]
        if j:
            done = jnp.stack([x[j - k :] for k, x in enumerate(columns)], axis=1)  # (n - j, j)
            c = c - jnp.matmul(done, done[0], precision=_EXACT)
        scale = jax.lax.rsqrt(c[0])
        columns.append(jnp.concatenate([scale[None], c[1:] * scale]))
    return jnp.stack([jnp.pad(c, (j, 0)) for j, c in enumerate(columns)], axis=1)


def solve(L: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """``A⁻¹ b`` from the factor of :func:`cholesky`."""
    n = L.shape[0]
    for j in range(n):
        y = b[j] * L[j, j]
        rest = b[j + 1 :] - y * L[j + 1 :, j]
        b = jnp.concatenate([b[:j], y[None], rest])
    for j in reversed(range(n)):
        y = b[j] * L[j, j]
        b = jnp.concatenate([b[:j] - y * L[j, :j], y[None], b[j + 1 :]])
    return b
