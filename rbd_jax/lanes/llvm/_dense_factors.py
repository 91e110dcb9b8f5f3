"""LLVM code of Cholesky factors and triangular systems that are too large to be written out.

Both go through squares of T rows and T columns. What the rows and columns before a square subtract
from it is summed in registers by a loop, as in a product of matrices, and what then happens inside
the square is written out.
"""

from collections.abc import Callable

import numpy as np

from ..ir._blocks import Op, Sym
from ..ir._loop_fusion import Plan
from . import _elementwise as elementwise
from ._emitter import Emitter, writes
from ._llvm_writer import BOOL, Elem, Reg

TILE = 4
"""T, the rows and columns of a square: its sums fill the registers of a CPU."""

Index = int | Sym
Square = dict[tuple[int, int], Elem]
"""Row and column within a square -> what stands there."""


def _less(e: Emitter, x: Elem, a: Elem, b: Elem, dtype: np.dtype) -> Elem:
    """``x − a b``."""
    return elementwise.sub(e, x, elementwise.mul(e, a, b, dtype), dtype)


def _reduced(
    e: Emitter, square: Square, count: int, factors: Callable, dtype: np.dtype, wide: bool
) -> Square:
    """A square less the sum of ``count`` products.

    ``factors(k)`` gives the factors of the product k, for each row and for each column.
    """
    if not count:
        return square
    places = list(square)

    def inside(k: Sym, now: list[Reg]) -> list[Elem]:
        rows, columns = factors(k)
        return [_less(e, x, rows(i), columns(j), dtype)
                for (i, j), x in zip(places, now, strict=True)]  # fmt: skip

    like = [(dtype, wide)] * len(places)
    return dict(zip(places, e.loop(count, inside, list(square.values()), like), strict=True))


def _tiles(n: int) -> list[tuple[int, int]]:
    """Where squares begin, and how many rows each has."""
    return [(k, min(TILE, n - k)) for k in range(0, n, TILE)]


def _for_tiles(e: Emitter, begin: int, end: int, body: Callable[[Index, int], None]) -> None:
    """Loop over the squares between two columns, which do not depend on each other."""
    whole, rest = divmod(end - begin, TILE)
    if whole:
        e.nest((whole,), lambda loops: body(loops[0] * TILE + begin, TILE))
    if rest:
        body(end - rest, rest)


def _inverse(e: Emitter, x: Elem, dtype: np.dtype) -> Elem:
    return elementwise.MAPS["div"](e, dtype.type(1), x, dtype)


@writes("cholesky")
def cholesky(e: Emitter, op: Op, plan: Plan) -> None:
    """The lower factor, by columns of squares; NaN if the matrix is not positive definite."""
    (A,), (v,) = op.ins, op.outs
    n, dtype, wide = v.shape[-1], v.dtype, e.is_wide(v)
    place = e.place_for(v)
    U = e.allocate((n, n), dtype, wide)  # the transposed factor: a column lies in one piece

    def matrix(lead: tuple) -> None:
        fine: Elem = np.True_
        for first, rows in _tiles(n):

            def above(k: Sym, i: Index, j: Index) -> tuple[Callable, Callable]:
                return (lambda s: e.load(U, (k, i + s))), (lambda s: e.load(U, (k, j + s)))

            low = [(i, j) for i in range(rows) for j in range(i + 1)]
            S: Square = {(i, j): e.read(A, (*lead, first + i, first + j)) for i, j in low}
            S = _reduced(e, S, first, lambda k, f=first: above(k, f, f), dtype, wide)
            inverse: list[Elem] = []
            for j in range(rows):
                positive = elementwise.compare(e, "gt", S[j, j], dtype.type(0))
                fine = elementwise.MAPS["and"](e, fine, positive, BOOL)
                S[j, j] = elementwise.MAPS["sqrt"](e, S[j, j], dtype)
                inverse.append(_inverse(e, S[j, j], dtype))
                for i in range(j + 1, rows):
                    S[i, j] = elementwise.mul(e, S[i, j], inverse[j], dtype)
                    for k in range(j + 1, i + 1):
                        S[i, k] = _less(e, S[i, k], S[i, j], S[k, j], dtype)
            for (i, j), x in S.items():
                e.store(U, (first + j, first + i), x)

            def beside(at: Index, count: int, first=first, rows=rows, S=S, inverse=inverse) -> None:
                B: Square = {(i, j): e.read(A, (*lead, at + i, first + j))
                             for i in range(count) for j in range(rows)}  # fmt: skip
                B = _reduced(e, B, first, lambda k: above(k, at, first), dtype, wide)
                for i in range(count):
                    for j in range(rows):
                        for k in range(j):
                            B[i, j] = _less(e, B[i, j], B[i, k], S[j, k], dtype)
                        B[i, j] = elementwise.mul(e, B[i, j], inverse[j], dtype)
                for j in range(rows):
                    for i in range(count):
                        e.store(U, (first + j, at + i), B[i, j])

            _for_tiles(e, first + rows, n, beside)

        def copied(loops: tuple) -> None:
            i, j = loops
            zero, nan = dtype.type(0), dtype.type(np.nan)
            low = elementwise.compare(e, "ge", e.register(i), e.register(j))
            x = elementwise.select(e, low, e.load(U, (j, i)), zero, dtype)
            e.store(place, (*lead, i, j), elementwise.select(e, fine, x, nan, dtype))

        e.nest((n, n), copied)

    if v.size:
        e.nested(v.shape[:-2], matrix)
    e.release(U)
    e.places[v] = place


@writes("triangular_solve")
def triangular_solve(e: Emitter, op: Op, plan: Plan) -> None:
    """The unknowns of ``A x = b``, a few at once, from the first on or from the last one on."""
    (A, b), (v,), p = op.ins, op.outs, op.params
    n, dtype, wide = A.shape[-1], v.dtype, e.is_wide(v)
    place = e.place_for(v)

    def at(k: Index) -> Index:
        """The row that is found k-th."""
        return k if p["down"] else k * -1 + (n - 1)

    def entry(lead: tuple, i: Index, k: Index) -> Elem:
        i, k = at(i), at(k)
        return e.read(A, (*lead, k, i) if p["transposed"] else (*lead, i, k))

    def system(lead: tuple) -> None:
        for first, rows in _tiles(n):
            low = [(i, k) for i in range(rows) for k in range(i)]
            S: Square = {(i, k): entry(lead, first + i, first + k) for i, k in low}
            inverse = [] if p["unit"] else [
                _inverse(e, entry(lead, first + i, first + i), dtype) for i in range(rows)
            ]  # fmt: skip

            def solved(col: Index, count: int, first=first, rows=rows, S=S, inverse=inverse):
                def products(k: Sym) -> tuple[Callable, Callable]:
                    return (lambda i: entry(lead, first + i, k)), (
                        lambda j: e.load(place, (*lead, at(k), col + j)))  # fmt: skip

                x: Square = {(i, j): e.read(b, (*lead, at(first + i), col + j))
                             for i in range(rows) for j in range(count)}  # fmt: skip
                x = _reduced(e, x, first, products, dtype, wide)
                for i in range(rows):
                    for j in range(count):
                        for k in range(i):
                            x[i, j] = _less(e, x[i, j], S[i, k], x[k, j], dtype)
                        if inverse:
                            x[i, j] = elementwise.mul(e, x[i, j], inverse[i], dtype)
                        e.store(place, (*lead, at(first + i), col + j), x[i, j])

            _for_tiles(e, 0, v.shape[-1], solved)

    if v.size:
        e.nested(v.shape[:-2], system)
    e.places[v] = place
