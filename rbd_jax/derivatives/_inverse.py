"""The inverse of a positive definite matrix, by Gauss–Jordan elimination in place.

LAPACK, which XLA calls for a Cholesky factorisation, is two to four times slower in a batch of
matrices of the size of a robot, and two such calls at once can wait for each other forever
(jaxlib 0.10.2). The loops here are of fixed programs, whatever the size.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms._tree import loops_are_cheap

_BLOCK = 10  # the largest block eliminated at once; between 6 and 10 the speed hardly changes


@jax.custom_jvp
def invert(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix; its rule is in ``_rules``.

    M is scaled to unit diagonal first, which takes the condition number of real robots from
    1e4…1e10 to 30…1e4; without it single precision is hopeless, and elimination without a search
    for pivots would lose digits. Leaves are eliminated before their parents, the last row first, as
    articulated bodies are: what is subtracted is then never nearly all of a body's inertia. From
    the root on, a chain of 35 joints loses two digits more.
    """
    if M.size == 0:
        return M
    scale = jax.lax.rsqrt(jnp.diagonal(M))
    both = scale[:, None] * scale[None, :]
    X = _eliminate_blocks(M * both) * both
    return 0.5 * (X + X.T)


def _eliminate(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse, column after column, the last one first.

    A step exchanges one unknown with its right-hand side. With ``d = A_kk``, it is the update
    ``A − (A_:k − e_k) (A_k: + e_k) / d`` of rank one.
    """

    def step(A, k_e):
        k, e = k_e
        return A - jnp.outer((A[:, k] - e) / A[k, k], A[k] + e), None

    n = A.shape[0]
    order = jnp.arange(n, dtype=jnp.int32), jnp.eye(n, dtype=A.dtype)
    unroll = not loops_are_cheap()  # at most _BLOCK steps; XLA:CPU would repeat their arithmetic
    return jax.lax.scan(step, A, order, reverse=True, unroll=unroll)[0]


def _eliminate_blocks(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The same by blocks of columns, with products instead of single updates."""
    n = A.shape[0]
    blocks = -(-n // _BLOCK)
    if blocks <= 1:
        return _eliminate(A)
    size = -(-n // blocks)
    more = blocks * size - n  # the last block is filled up with a unit matrix
    A = jnp.pad(A, (0, more)) + jnp.diag((jnp.arange(n + more) >= n).astype(A.dtype))

    def step(A, k_e):
        k, e = k_e
        rows = jax.lax.dynamic_slice_in_dim(A, k, size, 0)
        columns = jax.lax.dynamic_slice_in_dim(A, k, size, 1)
        inverse = _eliminate(jax.lax.dynamic_slice_in_dim(rows, k, size, 1))
        new_rows = jnp.matmul(inverse, rows + e, precision="highest")
        return A - jnp.matmul(columns - e.T, new_rows, precision="highest"), None

    starts = size * jnp.arange(blocks, dtype=jnp.int32)
    units = jnp.eye(n + more, dtype=A.dtype).reshape(blocks, size, n + more)
    return jax.lax.scan(step, A, (starts, units), reverse=True)[0][:n, :n]
