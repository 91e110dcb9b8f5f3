"""Matrices with many zeros as a few dense pieces, and half of a solve with the mass matrix.

Which entries of a constraint's Jacobian may differ from zero is known before any number is: a foot
is moved by the joints of its leg and by the base. Columns with the same nonzero rows are a piece.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model import Tree
from ..spatial import linear
from ..spatial.linear import solve_lower
from . import formulations


class BlockColumns(NamedTuple):
    """A matrix that is zero outside of some pieces; no two of them have a column in common."""

    parts: list[Float[Array, "k c"]]
    rows: list[np.ndarray]
    columns: list[np.ndarray]

    def times(self, x: Float[Array, " m"], size: int) -> Float[Array, " size"]:
        """The product with a vector, for a matrix of ``size`` rows."""
        total = jnp.zeros((size,), x.dtype)
        for part, rows, columns in zip(*self, strict=True):
            total = total.at[rows].add(linear.matmul(part, x[columns]))
        return total

    def dense(self, size: int) -> Float[Array, "size m"]:
        """The matrix itself, with ``size`` rows."""
        columns = [
            jnp.zeros((size, part.shape[1]), part.dtype).at[rows].set(part)
            for part, rows in zip(self.parts, self.rows, strict=True)
        ]
        return jnp.concatenate(columns, axis=1)[:, self.order]

    @property
    def order(self) -> np.ndarray:
        """Where each column is when those of the pieces follow one another."""
        return np.argsort(np.concatenate(self.columns))


def block_columns(A: Float[Array, "n m"], nonzero: Bool[np.ndarray, "n m"]) -> BlockColumns:
    """The matrix A, which is zero where ``nonzero`` does not hold; the last rows come first."""
    groups: dict[tuple, list] = {}
    for k, column in enumerate(nonzero.T):
        groups.setdefault(tuple(np.flatnonzero(column)[::-1]), []).append(k)
    groups = groups or {(): []}
    rows, columns = ([np.array(x, dtype=int) for x in xs] for xs in (groups, groups.values()))
    parts = [A[r[:, None], c] for r, c in zip(rows, columns, strict=True)]
    return BlockColumns(parts, rows, columns)


def times(
    A: Float[Array, "k n"], B: Float[Array, "n m"], nonzero: Bool[np.ndarray, "n m"]
) -> Float[Array, "k m"]:
    """``A B``, where it is known where B may differ from zero."""
    product = formulations.for_pairs(ancestors=_product_by_blocks, mask=_product_of_all)
    return product(A, B, nonzero)


def _product_of_all(A: Array, B: Array, _nonzero: np.ndarray) -> Array:
    return linear.matmul(A, B)


def _product_by_blocks(A: Array, B: Array, nonzero: np.ndarray) -> Array:
    P = block_columns(B, nonzero)
    parts = [linear.matmul(A[:, r], p) for p, r in zip(P.parts, P.rows, strict=True)]
    return jnp.concatenate(parts, axis=1)[:, P.order]


def inner(A: BlockColumns, B: BlockColumns, plus: Float[Array, " m"]) -> Float[Array, "m m"]:
    """``Aᵀ B + diag(plus)``, which is symmetric, for matrices with the same columns of pieces."""

    def block(f: int, g: int) -> Array:
        _, at_f, at_g = np.intersect1d(A.rows[f], B.rows[g], return_indices=True)
        own = linear.matmul(A.parts[f][at_f].T, B.parts[g][at_g])
        return own + jnp.diag(plus[A.columns[f]]) if f == g else own

    n = range(len(A.parts))
    low = [[block(f, g) for g in range(f + 1)] for f in n]
    rows = [jnp.concatenate([low[f][g] if g <= f else low[g][f].T for g in n], axis=1) for f in n]
    return jnp.concatenate(rows)[A.order][:, A.order]


def half_solve(
    tree: Tree,
    L: Float[Array, " pairs"],
    psi: Float[Array, " n"],
    B: Float[Array, "n m"],
    nonzero: Bool[np.ndarray, "n m"],
) -> tuple[BlockColumns, BlockColumns]:
    """``W = L⁻ᵀ B`` and ``Ψ W``, so that ``M⁻¹ B = L⁻¹ Ψ W`` and ``Bᵀ M⁻¹ B = Wᵀ Ψ W``.

    Source: Featherstone, Rigid Body Dynamics Algorithms, §6.5, with ``M = Lᵀ Ψ⁻¹ L``; columns of B
    fill in the ancestors of their rows and no other rows.
    """
    (i, j), n = tree.pairs, tree.n
    place = np.full((n, n), len(i))
    place[i, j] = np.arange(len(i))
    np.fill_diagonal(place, len(i) + 1)
    L = jnp.concatenate([L, jnp.asarray([0, 1], L.dtype)])
    P = block_columns(B, (tree.ancestor_mask.T.astype(int) @ nonzero) > 0)
    parts = [solve_lower(L[place[r, r[:, None]]], p) for p, r in zip(P.parts, P.rows, strict=True)]
    W = P._replace(parts=parts)
    weighed = [psi[r][:, None] * p for p, r in zip(parts, P.rows, strict=True)]
    return W, W._replace(parts=weighed)


def half_solve_by_inverse(
    inverse: Float[Array, "n n"], B: Float[Array, "n m"]
) -> tuple[BlockColumns, BlockColumns]:
    """``B`` and ``M⁻¹ B``, the same for a known inverse."""
    P = block_columns(B, np.ones(B.shape, dtype=bool))
    ((part, rows, _),) = zip(*P, strict=True)
    return P, P._replace(parts=[linear.matmul(inverse[rows[:, None], rows], part)])
