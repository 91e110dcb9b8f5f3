"""Small dense linear algebra without LAPACK.

In jaxlib 0.10.0 to 0.11.0, batched calls of LAPACK in one program can wait for each other forever.
XLA runs calls that do not depend on each other at the same time, on the threads of one pool. Each
call puts parts of its batch into the same pool and blocks its thread until they are done. Once as
many calls have started as there are threads, no thread is left for the parts. On two cores, a loop
over two QR, Cholesky or LU factorizations or triangular solves that follow a computation in
parallel hung within seconds. A call whose batch has less than 2e5 operations is not split, and no
call is split in jaxlib 0.12.

As long as the library supports these versions, functions that may be mapped over take the functions
here, or are compiled to lanes, which have factorizations of their own, or call LAPACK for one thing
at a time. Most functions here are also faster in a batch, because XLA fuses them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

_WRITTEN = 16  # the largest triangular matrix that is solved with entry by entry
_BLOCK = 10  # the largest block eliminated at once; between 6 and 10 the speed hardly changes
_PANEL = 8  # the columns of a QR factorization that are reflected before the others follow


def matmul(A: ArrayLike, B: ArrayLike) -> Array:
    """``A B`` in the precision of its arguments; GPUs multiply float32 in TF32 otherwise."""
    return jnp.matmul(A, B, precision="highest")


def einsum(subscripts: str, *operands: ArrayLike) -> Array:
    """``jnp.einsum`` in the precision of its arguments, as :func:`matmul`."""
    return jnp.einsum(subscripts, *operands, precision="highest")


def cholesky(P: Float[Array, "*b s s"]) -> Float[Array, "*b s s"]:
    """The lower triangular L with positive diagonal and ``P = L Lᵀ``; NaN if there is none.

    Written out entry by entry, so that XLA fuses a whole batch into one kernel: for sizes up to
    about 10.
    """
    s = P.shape[-1]
    if s == 0:
        return P
    L: list[list] = [[jnp.zeros(P.shape[:-2], P.dtype)] * s for _ in range(s)]
    for j in range(s):
        L[j][j] = jnp.sqrt(P[..., j, j] - sum(L[j][k] ** 2 for k in range(j)))
        less = 1 / L[j][j]
        for i in range(j + 1, s):
            L[i][j] = (P[..., i, j] - sum(L[i][k] * L[j][k] for k in range(j))) * less
    return jnp.stack([jnp.stack(row, axis=-1) for row in L], axis=-2)


def solve_lower(L: Float[Array, "*b s s"], B: Float[Array, "*b s m"]) -> Float[Array, "*b s m"]:
    """``L⁻¹ B`` for a lower triangular L: entry by entry as :func:`cholesky`, blocks if large."""
    n, rows = L.shape[-1], []
    if n == 0:
        return B
    if n > _WRITTEN:
        return _solve_blocks(L, B)
    for i in range(n):
        rest = B[..., i, :] - sum(L[..., i, k, None] * x for k, x in enumerate(rows))
        rows.append(rest * (1 / L[..., i, i, None]))
    return jnp.stack(rows, axis=-2)


def _solve_blocks(L: Float[Array, "*b s s"], B: Float[Array, "*b s m"]) -> Float[Array, "*b s m"]:
    """The same by a loop over blocks of rows, whose code does not grow with the matrix."""
    n, k = L.shape[-1], _BLOCK
    blocks = -(-n // k)
    more, lead, every = blocks * k - n, L.shape[:-2], np.arange(blocks)
    zeros = [(0, 0)] * len(lead)
    L = jnp.pad(L, [*zeros, (0, more), (0, more)])  # filled up with a unit matrix
    L = L + jnp.broadcast_to(jnp.diag(jnp.asarray(np.arange(n + more) >= n, L.dtype)), L.shape)
    B = jnp.pad(B, [*zeros, (0, more), (0, 0)])
    L = L.reshape(*lead, blocks, k, blocks, k)
    own = L[..., every, :, every, :]  # blocks in front
    rows = jnp.moveaxis(L.reshape(*lead, blocks, k, n + more), -3, 0)
    B = jnp.moveaxis(B.reshape(*lead, blocks, k, B.shape[-1]), -3, 0)

    def step(X, block):
        i, own, row, b = block
        x = solve_lower(own, b - matmul(row, X))  # X is zero below
        return jax.lax.dynamic_update_slice_in_dim(X, x, i * k, axis=-2), None

    X = jnp.zeros((*lead, n + more, B.shape[-1]), B.dtype)
    return jax.lax.scan(step, X, (jnp.asarray(every), own, rows, B))[0][..., :n, :]


def solve_upper(R: Float[Array, "*b s s"], B: Float[Array, "*b s m"]) -> Float[Array, "*b s m"]:
    """``R⁻¹ B`` for an upper triangular R, as :func:`solve_lower`."""
    return solve_lower(R[..., ::-1, ::-1], B[..., ::-1, :])[..., ::-1, :]


def qr_factor(A: Float[Array, "m n"]) -> Float[Array, "k n"]:
    """The upper triangular R of ``A = Q R``, with k = min(m, n) and diagonal entries of any sign.

    Columns that depend on others give entries near zero on the diagonal. Derivatives are those of
    autodiff, for columns that are independent. The errors of R are those of LAPACK: R belongs
    exactly to an A whose columns differ by a few units of rounding.

    Source: Householder reflections, applied in panels of a few columns as in Schreiber, Van Loan,
    "A storage-efficient WY representation for products of Householder transformations", 1989.
    Departure: all panels have the size of the first one, so that one loop serves them.

    Cost: at most 4 m n² operations, twice as many as LAPACK, and two to four times its time.
    """
    m, n = A.shape
    size = min(_PANEL, n)
    if A.size == 0:
        return A[: min(m, n)]
    rows, panels = jnp.arange(m), -(-n // size)
    columns = jnp.pad(A.T, ((0, panels * size - n), (0, 0)))  # a column is contiguous in memory

    def reflect(P, at):
        j, row = at  # in the panel, in the matrix
        x = jnp.where(rows >= row, jax.lax.dynamic_index_in_dim(P, j, keepdims=False), 0)
        first = jnp.sum(jnp.where(rows == row, x, 0))
        square = matmul(x, x)
        there = square > jnp.finfo(A.dtype).tiny  # its inverse is finite
        length = jnp.sqrt(jnp.where(there, square, 1))
        factor = jnp.where(there, 1 / (length * (length + jnp.abs(first))), 0)
        v = x + jnp.where(rows == row, jnp.where(first < 0, -length, length), 0)
        P = P - (factor * matmul(P, v))[:, None] * v[None]
        return P, (v, factor)

    def panel(columns, top):
        each = jnp.arange(size)
        P, (V, factor) = jax.lax.scan(reflect, columns[:size], (each, top + each))
        if panels == 1:
            return P, None
        # the product of the reflections is 1 − Vᵀ T V
        unit = jnp.eye(size, dtype=A.dtype) + factor[:, None] * jnp.triu(matmul(V, V.T), 1)
        T, rest = solve_upper(unit, jnp.diag(factor)), columns[size:]
        rest = rest - matmul(matmul(matmul(rest, V.T), T), V)
        return jnp.concatenate([rest, P]), None

    columns, _ = jax.lax.scan(panel, columns, size * jnp.arange(panels))
    return jnp.triu(columns[:n, : min(m, n)].T)


def definite(P: Float[Array, "*b s s"]) -> Bool[Array, "*b"]:
    """Whether symmetric matrices are positive definite, judged by their pivots."""
    return jnp.isfinite(jnp.sum(cholesky(P), axis=(-2, -1)))


def inverse(M: Float[Array, "n n"], unroll: bool = False) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix of any size, by Gauss–Jordan elimination.

    M is scaled to unit diagonal first, which takes the condition number of the mass matrices of
    real robots from 1e4…1e10 to 30…1e4. Without it single precision is useless, and elimination
    without a search for pivots would lose digits. Rows are eliminated from the last one on, leaves
    before their parents as in the articulated-body algorithm: what is subtracted is then never
    nearly all of a body's inertia. From the root on, a chain of 35 joints loses two digits more.
    Two to four times faster than LAPACK in a batch of matrices of the size of a robot.

    Args:
        M: the matrix.
        unroll: write the steps within a block out instead of looping over them.
    """
    if M.size == 0:
        return M
    scale = jax.lax.rsqrt(jnp.diagonal(M))
    both = scale[:, None] * scale[None, :]
    X = _eliminate_blocks(M * both, unroll) * both
    return 0.5 * (X + X.T)


def _eliminate(A: Float[Array, "n n"], unroll: bool) -> Float[Array, "n n"]:
    """The inverse, eliminated one unknown at a time, from the last to the first.

    A step exchanges the last unknown with its right-hand side and brings it to the front:
    ``[A c; r d] → [1/d r/d; −c/d A − c r/d]``. After n steps all are where they were.
    """

    def step(A, _):
        d = A[-1, -1]
        row, column = A[-1, :-1] / d, A[:-1, -1]
        rest = A[:-1, :-1] - column[:, None] * row[None, :]
        return _exchanged(1 / d[None, None], row[None], -column[:, None] / d, rest), None

    return jax.lax.scan(step, A, None, length=len(A), unroll=unroll)[0]


def _eliminate_blocks(A: Float[Array, "n n"], unroll: bool) -> Float[Array, "n n"]:
    """The same by blocks, with products instead of single updates."""
    n = A.shape[0]
    blocks = -(-n // _BLOCK)
    if blocks <= 1:
        return _eliminate(A, unroll)
    size = -(-n // blocks)
    more = blocks * size - n  # the last block is filled up with a unit matrix
    A = jnp.pad(A, (0, more)) + jnp.diag((jnp.arange(n + more) >= n).astype(A.dtype))

    def step(A, _):
        inverse, column = _eliminate(A[-size:, -size:], unroll), A[:-size, -size:]
        row = matmul(inverse, A[-size:, :-size])
        rest = A[:-size, :-size] - matmul(column, row)
        column = -matmul(column, inverse)
        return _exchanged(inverse, row, column, rest), None

    return jax.lax.scan(step, A, None, length=blocks)[0][:n, :n]


def _exchanged(inverse: Array, row: Array, column: Array, rest: Array) -> Float[Array, "n n"]:
    """``[inverse row; column rest]``, as a sum: XLA fuses it, but not concatenations on a GPU."""
    k, m = len(inverse), len(rest)
    top = jnp.pad(inverse, ((0, m), (0, m))) + jnp.pad(row, ((0, m), (k, 0)))
    return top + jnp.pad(column, ((k, 0), (0, m))) + jnp.pad(rest, ((k, 0), (k, 0)))
