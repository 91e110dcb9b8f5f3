"""The inverse of a positive definite matrix, by Gauss–Jordan elimination in place.

LAPACK, which XLA calls for a Cholesky factorisation, is two to four times slower in a batch of
matrices of the size of a robot, and two such calls at once can wait for each other forever
(jaxlib 0.10.2). The loops here are of fixed programs, whatever the size.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import formulations

_BLOCK = 10  # the largest block eliminated at once; between 6 and 10 the speed hardly changes


@jax.custom_jvp
def invert(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix; its rule is in ``rules``.

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
    """The inverse, number after number, the last one first.

    A step exchanges the last unknown with its right-hand side and brings it to the front:
    ``[A c; r d] → [1/d r/d; −c/d A − c r/d]``. After n of them all are where they were.
    """

    def step(A, _):
        d = A[-1, -1]
        row, column = A[-1, :-1] / d, A[:-1, -1]
        rest = A[:-1, :-1] - column[:, None] * row[None, :]
        return _exchanged(1 / d[None, None], row[None], -column[:, None] / d, rest), None

    # at most _BLOCK steps; XLA:CPU would repeat the arithmetic of unrolled ones
    unroll = formulations.current().recursions == "levels"
    return jax.lax.scan(step, A, None, length=len(A), unroll=unroll)[0]


def _eliminate_blocks(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The same by blocks, with products instead of single updates."""
    n = A.shape[0]
    blocks = -(-n // _BLOCK)
    if blocks <= 1:
        return _eliminate(A)
    size = -(-n // blocks)
    more = blocks * size - n  # the last block is filled up with a unit matrix
    A = jnp.pad(A, (0, more)) + jnp.diag((jnp.arange(n + more) >= n).astype(A.dtype))

    def step(A, _):
        inverse, column = _eliminate(A[-size:, -size:]), A[:-size, -size:]
        row = jnp.matmul(inverse, A[-size:, :-size], precision="highest")
        rest = A[:-size, :-size] - jnp.matmul(column, row, precision="highest")
        column = -jnp.matmul(column, inverse, precision="highest")
        return _exchanged(inverse, row, column, rest), None

    return jax.lax.scan(step, A, None, length=blocks)[0][:n, :n]


def _exchanged(inverse: Array, row: Array, column: Array, rest: Array) -> Float[Array, "n n"]:
    """``[inverse row; column rest]``, as a sum: XLA fuses it, but not concatenations on a GPU."""
    k, m = len(inverse), len(rest)
    top = jnp.pad(inverse, ((0, m), (0, m))) + jnp.pad(row, ((0, m), (k, 0)))
    return top + jnp.pad(column, ((k, 0), (0, m))) + jnp.pad(rest, ((k, 0), (k, 0)))
