"""Symmetric systems of one sample, where it is known which entries of the factor are zero.

``A = Lᵀ L`` with a lower triangular L: the last unknown is eliminated first, so that the mass
matrix of a tree, whose leaves come last, gives L no entries beside its own. XLA takes all columns
of the dense matrix. Lanes write out the entries that are not zero, and nothing else.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..ir._blocks import Value
from ._reader import Reader, rule

Columns = tuple[tuple[int, ...], ...]
"""For each row of L the columns that are not zero, in ascending order, with its own last."""
MOST = 12_000
"""Products that are written out; a system that needs more takes loops."""
_EXACT = jax.lax.Precision.HIGHEST


def columns_of(pattern: np.ndarray) -> Columns:
    """Where the factor of a symmetric matrix is not zero, for the pattern of the matrix.

    Raises:
        ValueError: if the pattern is not square.
    """
    if np.ndim(pattern) != 2 or np.shape(pattern)[0] != np.shape(pattern)[1]:
        raise ValueError(
            f"columns_of: the pattern has the shape {np.shape(pattern)}; it has to be square, "
            "with True where the matrix may have an entry"
        )
    filled = np.tril(np.asarray(pattern, bool)) | np.eye(len(pattern), dtype=bool)
    for k in reversed(range(len(filled))):
        row = np.flatnonzero(filled[k, :k])
        filled[np.ix_(row, row)] |= np.tri(len(row), dtype=bool)
    return tuple(tuple(map(int, np.flatnonzero(row))) for row in filled)


def factorized(A: jax.Array, columns: Columns) -> jax.Array:
    """The entries of L row by row, with the inverse of each diagonal entry in its place.

    A is the matrix, or a vector of its entries where L may have some, row by row as L is.

    It has no derivative: differentiate the solution instead, with ``custom_linear_solve``.

    Raises:
        ValueError: for another shape. TypeError: for a matrix of integers.
    """
    n, entries = len(columns), sum(map(len, columns))
    _check("factorized", "A", A, [(n, n), (entries,)])
    return _factorized_p.bind(A, columns=columns)


def factorized_solve(L: jax.Array, b: jax.Array, columns: Columns) -> jax.Array:
    """``A⁻¹ b`` from the entries that :func:`factorized` has returned; b may have columns.

    Raises:
        ValueError: for another shape. TypeError: for arrays of integers, or of two precisions.
    """
    n, entries = len(columns), sum(map(len, columns))
    _check("factorized_solve", "L", L, [(entries,)])
    _check("factorized_solve", "b", b, [(n, *jnp.shape(b)[1:])])
    if L.dtype != b.dtype:
        raise TypeError(f"factorized_solve: L is {L.dtype} and b is {b.dtype}; convert one of them")
    return _solve_p.bind(L, b, columns=columns)


def _check(function: str, name: str, x: jax.Array, shapes: list[tuple[int, ...]]) -> None:
    """Refuse an array of another shape than one of these, or of integers."""
    if jnp.shape(x) not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{function}: {name} has the shape {jnp.shape(x)}; it has to be {wanted}")
    if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        raise TypeError(f"{function}: {name} is {jnp.result_type(x)}; it has to be floating point")


# --- for XLA ---------------------------------------------------------------------------


def places(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries."""
    rows = np.repeat(np.arange(len(columns)), [len(c) for c in columns])
    return rows, np.concatenate([np.array(c, int) for c in columns])


def _plain_factorized(A, *, columns: Columns):
    n, done = len(columns), []
    if A.ndim == 1:
        A = _dense(A, columns)
    for k in reversed(range(n)):
        row = A[k, : k + 1]
        if done:
            below = jnp.stack([x[: k + 1] for x in done])
            row = row - jnp.matmul(below[:, k], below, precision=_EXACT)
        scale = jax.lax.rsqrt(row[k])
        done.append(jnp.concatenate([row[:k] * scale, scale[None]]))
    rows, at = places(columns)
    L = jnp.stack([jnp.pad(x, (0, n - len(x))) for x in reversed(done)])
    return L[rows, at]


def _dense(entries, columns: Columns):
    n = len(columns)
    zeros = jnp.zeros((n, n), entries.dtype)
    return zeros.at[places(columns)].set(entries, unique_indices=True)


def _plain_solve(L, b, *, columns: Columns):
    n, L = len(columns), _dense(L, columns)

    def change(l, x):
        return l.reshape(-1, *[1] * (b.ndim - 1)) * x[None]

    for k in reversed(range(n)):
        y = b[k] * L[k, k]
        b = jnp.concatenate([b[:k] - change(L[k, :k], y), y[None], b[k + 1 :]])
    for k in range(n):
        x = b[k] * L[k, k]
        b = jnp.concatenate([b[:k], x[None], b[k + 1 :] - change(L[k + 1 :, k], x)])
    return b


def _primitive(name: str, plain, aval, batch) -> Primitive:
    p = Primitive(name)
    p.def_impl(jax.jit(plain, static_argnames="columns"))
    p.def_abstract_eval(aval)
    batching.primitive_batchers[p] = batch
    mlir.register_lowering(p, mlir.lower_fun(plain, multiple_results=False))
    return p


def _each_alone(plain, args, dims, *, columns):
    return jax.vmap(partial(plain, columns=columns), in_axes=tuple(dims))(*args), 0


def _solve_batch(args, dims, *, columns):
    """Many right sides of one system are its columns."""
    (L, b), (of_L, of_b) = args, dims
    if of_L is not None:
        return _each_alone(_plain_solve, args, dims, columns=columns)
    b = jnp.moveaxis(b, of_b, -1)
    flat = factorized_solve(L, b.reshape(len(columns), -1), columns)
    return flat.reshape(b.shape), b.ndim - 1


_factorized_p = _primitive(
    "factorized",
    _plain_factorized,
    lambda A, *, columns: ShapedArray((sum(map(len, columns)),), A.dtype),
    partial(_each_alone, _plain_factorized),
)
_solve_p = _primitive(
    "factorized_solve",
    _plain_solve,
    lambda L, b, *, columns: ShapedArray(b.shape, L.dtype),
    _solve_batch,
)


# --- for lanes -------------------------------------------------------------------------


def _small(columns: Columns) -> bool:
    return sum(len(c) * (len(c) + 1) // 2 for c in columns) <= MOST


@rule("factorized")
def _factorized(r: Reader, eqn, A: Value):
    columns = eqn.params["columns"]
    if not _small(columns):
        return r.inline(partial(_plain_factorized, columns=columns), A)
    shape = eqn.outvars[0].aval.shape
    return r.op("factorized", [A], shape, A.dtype, columns=columns)


@rule("factorized_solve")
def _solved(r: Reader, eqn, L: Value, b: Value):
    columns = eqn.params["columns"]
    if not _small(columns):
        return r.inline(partial(_plain_solve, columns=columns), L, b)
    return r.op("factorized_solve", [L, b], b.shape, b.dtype, columns=columns)
