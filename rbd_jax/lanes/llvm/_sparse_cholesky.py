"""LLVM code of symmetric systems: only the entries of the factor that are not zero."""

import numpy as np

from ..ir._blocks import Op
from ..ir._loop_fusion import Plan
from . import _elementwise as elementwise
from ._emitter import Emitter, writes
from ._llvm_writer import Elem


@writes("factorized")
def factorize(e: Emitter, op: Op, plan: Plan) -> None:
    """Row by row from the last one: each from its own entries and the rows that end in it."""
    (A,), (v,), columns = op.ins, op.outs, op.params["columns"]
    place, dtype = e.place_for(v), v.dtype
    L: dict[tuple[int, int], Elem] = {}
    starts = np.cumsum([0, *map(len, columns)])
    for k in reversed(range(len(columns))):
        row = {i: e.read(A, (k, i) if A.ndim == 2 else (int(starts[k]) + at,))
               for at, i in enumerate(columns[k])}  # fmt: skip
        for m in (m for m in range(k + 1, len(columns)) if (m, k) in L):
            for i in (i for i in row if (m, i) in L):
                row[i] = elementwise.sub(
                    e, row[i], elementwise.mul(e, L[m, k], L[m, i], dtype), dtype
                )
        scale = elementwise.MAPS["rsqrt"](e, row[k], dtype)
        for at, i in enumerate(columns[k]):
            L[k, i] = scale if i == k else elementwise.mul(e, row[i], scale, dtype)
            e.store(place, (int(starts[k]) + at,), L[k, i])
    e.places[v] = place


@writes("factorized_solve")
def factorized_solution(e: Emitter, op: Op, plan: Plan) -> None:
    """Down from the last unknown and up again."""
    (entries, b), (v,), columns = op.ins, op.outs, op.params["columns"]
    place, dtype, starts = e.place_for(v), v.dtype, np.cumsum([0, *map(len, columns)])
    places = {(k, i): int(starts[k]) + at for k, c in enumerate(columns) for at, i in enumerate(c)}

    def L(k: int, i: int):
        return e.read(entries, (places[k, i],))

    def solve(column: tuple) -> None:
        x = {k: e.read(b, (k, *column)) for k in range(len(columns))}

        def reduced(k: int, i: int):
            return elementwise.sub(
                e, x[k], elementwise.mul(e, L(max(i, k), min(i, k)), x[i], dtype), dtype
            )

        with e.scope():
            for k in reversed(range(len(columns))):
                e.forget()
                x[k] = elementwise.mul(e, x[k], L(k, k), dtype)
                for i in columns[k][:-1]:
                    x[i] = reduced(i, k)
        x[0] = apart(x[0], column)
        with e.scope():  # which reads L again: its entries do not stay in registers
            for k in range(len(columns)):
                e.forget()
                for i in columns[k][:-1]:
                    x[k] = reduced(k, i)
                x[k] = elementwise.mul(e, x[k], L(k, k), dtype)
                e.store(place, (k, *column), x[k])

    if v.size:
        with e.apart(v.shape[1:], dtype) as apart:
            e.nest(v.shape[1:], solve)
    e.places[v] = place
