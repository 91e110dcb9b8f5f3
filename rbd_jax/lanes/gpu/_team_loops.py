"""How a team carries out operations whose rounds are not independent: sums, factorizations.

The table :data:`WRITERS` has them; every other operation is written as for one thread, see
:mod:`._team`.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np

from ..frontend._sparse_cholesky import Columns, places
from ..ir._access_analysis import Rows, repeated
from ..ir._blocks import Op, Sym, Value
from ..ir._loop_fusion import Plan
from ..llvm import _elementwise as elementwise
from ..llvm._array_loops import update_place
from ..llvm._emitter import elements
from ..llvm._llvm_writer import Elem, Reg
from ..llvm._memory import Memory
from ._team import WARP, WRITERS, Team

_I32, _BOOL = np.dtype("int32"), np.dtype(bool)
_SHORT = 4
"""Shorter sums are computed by one thread."""
_SEVERAL = 8
"""More rows that are added to one place are read in a loop."""


def writes(name: str):
    """Register the function that writes an operation for a team."""

    def register(f):
        WRITERS[name] = f
        return f

    return register


# --- sums ---------------------------------------------------------------------------------


def _threads_an_element(e: Team, outs: int, terms: int, dtype: np.dtype) -> int:
    """How many threads add up the terms of one element: a power of two, or 1.

    Threads hand each other registers of at least 4 bytes, so that small numbers are left to one.
    """
    if e.team > WARP or e.divides or terms < _SHORT or dtype.itemsize < 4 or not outs:
        return 1
    each = 1
    while 2 * each * outs <= e.team and each < terms:
        each *= 2
    return each


@writes("reduce")
def reduce(e: Team, op: Op, plan: Plan) -> bool:
    """A sum and the like whose terms are divided among threads."""
    (x,), (v,) = op.ins, op.outs
    gone, outer = op.params["axes"], plan.axes.looped(v.shape)
    inner = [k for k in plan.axes.looped(x.shape) if k in gone]
    kept = [k for k in range(x.ndim) if k not in gone]
    combine = elementwise.COMBINE[op.params["fn"]]
    free = [k for k in gone if k not in inner]

    def terms(out: tuple, at: tuple):
        for more in np.ndindex(*(x.shape[k] for k in free)):
            place = dict(zip((*kept, *inner, *free), (*out, *at, *map(int, more)), strict=True))
            yield e.read(x, tuple(place[k] for k in range(x.ndim)))

    lengths = tuple(x.shape[k] for k in inner)
    start = elementwise.neutral(op.params["fn"], v.dtype)
    return _together(e, v, plan, outer, lengths, terms, (combine, start, op.params["fn"]))


@writes("dot")
def dot(e: Team, op: Op, plan: Plan) -> bool:
    """A product of which few elements have many terms."""
    (x, y), (v,) = op.ins, op.outs
    lengths = tuple(x.shape[k] for k in op.params["contract"][0])

    def terms(out: tuple, at: tuple):
        a, b = e.dot_indices(op, out, at)
        yield elementwise.mul(e, e.read(x, a), e.read(y, b), v.dtype)

    outer = plan.axes.looped(v.shape)
    kind = (elementwise.add, v.dtype.type(0), "sum")
    return _together(e, v, plan, outer, lengths, terms, kind)


def _together(e: Team, v: Value, plan: Plan, outer: tuple, lengths: tuple, terms,
              kind: tuple) -> bool:  # fmt: skip
    """Write such a sum, if it pays: each thread adds some terms, then pairs add their sums."""
    combine, start, name = kind
    rounds, outs = math.prod(lengths), math.prod(v.shape[k] for k in outer)
    each = _threads_an_element(e, outs, rounds, v.dtype)
    if each == 1 or v.size != outs or not rounds:
        return False
    place = e.place_for(v)
    thread = e.thread()
    own = e.emit(f"and i32 {thread.ref}, {each - 1}", _I32, False)
    which = e.emit(f"udiv i32 {thread.ref}, {each}", _I32, False)
    last = e.emit(f"call i32 @llvm.umin.i32(i32 {which.ref}, i32 {outs - 1})", _I32, False)
    e.declared.add("declare i32 @llvm.umin.i32(i32, i32)")
    with e.dividing():
        loops = e.indices(last, tuple(v.shape[k] for k in outer)) if outs > 1 else (0,) * len(outer)
        (out,) = elements(v.shape, outer, loops)
        total: Elem = start
        for first in range(0, rounds, each):
            k = e.emit(f"add i32 {own.ref}, {first}", _I32, False)
            if rounds - first < each:
                there = e.emit(f"icmp ult i32 {k.ref}, {rounds}", _BOOL, False)
                k = e.emit(f"call i32 @llvm.umin.i32(i32 {k.ref}, i32 {rounds - 1})", _I32, False)
            for term in terms(out, e.indices(k, lengths)):
                if rounds - first < each:
                    term = elementwise.select(e, there, term, start, v.dtype)
                total = combine(e, total, term, v.dtype)
        distance = each // 2
        while distance:
            other = e.swap(total, v.dtype, distance)
            total = _exact(e, combine, name, total, other, v.dtype)
            distance //= 2
        if outs > 1:
            first_one = e.emit(f"icmp eq i32 {own.ref}, 0", _BOOL, False)
            inside = e.emit(f"icmp ult i32 {which.ref}, {outs}", _BOOL, False)
            with e.only_if(e.emit(f"and i1 {first_one.ref}, {inside.ref}", _BOOL, False)):
                e.store(place, out, total)
    if outs == 1:
        e.store(place, out, total)
        e.remember((v, out), total)
    e.places[v] = place
    return True


def _exact(e: Team, combine, name: str, x: Elem, y: Elem, dtype: np.dtype) -> Elem:
    """Combine the sums of two threads, so that both get the same number to the last bit.

    No product may be fused into such a sum: the other thread has rounded it already.
    """
    if dtype.kind == "f" and name in ("sum", "prod"):
        word = {"sum": "fadd", "prod": "fmul"}[name]
        kind = e.type(dtype, False)
        a, b = e.operand(x, dtype, False), e.operand(y, dtype, False)
        return e.emit(f"{word} nsz {kind} {a}, {b}", dtype, False)
    return combine(e, x, y, dtype)


# --- updates ------------------------------------------------------------------------------


@writes("scatter")
def scatter(e: Team, op: Op, plan: Plan) -> bool:
    """Rows that are added to known places, several to some: each place is one thread's.

    It adds them in the order of the program.
    """
    if e.divides or (rows := repeated(op, plan.axes)) is None:
        return False
    x, (v,) = op.ins[0], op.outs
    place, in_place = update_place(e, op, plan)
    by_count: dict[int, list[tuple[tuple[int, ...], list[int]]]] = {}
    sources: dict[tuple[int, ...], list[int]] = {}
    if not in_place:
        across = (range(1) if k in rows.along else range(n) for k, n in enumerate(x.shape))
        sources = {at: [] for at in product(*across)}
    for k, at in enumerate(map(tuple, rows.places.tolist())):
        sources.setdefault(at, []).append(k)
    for at, found in sources.items():
        by_count.setdefault(len(found), []).append((at, found))
    with e.dividing():
        for count in sorted(by_count):
            _add_rows(e, op, place, in_place, rows, count, by_count[count])
    e.places[v] = place
    return True


def _add_rows(e: Team, op: Op, place: Memory, in_place: bool, rows: Rows, count: int,
              sums: list) -> None:  # fmt: skip
    """Write the sums of so many rows each, with their places and the numbers of the rows."""
    x, _, update, *_ = op.ins
    dtype, across = place.dtype, [k for k in range(x.ndim) if k not in rows.along]
    places = e.table(np.array([[at[k] for k in across] for at, _ in sums], np.int32))
    lead = np.unravel_index(np.array([found for _, found in sums], int), rows.lead)
    tables = [e.table(k.astype(np.int32)) for k in lead] if count else []
    lengths = tuple(x.shape[k] for k in rows.along)
    each = math.prod(lengths)
    # elements of a row are written one after the other where rows are enough for the team
    whole = -(-len(sums) // e.team) * each * (count + 2) <= (
        -(-len(sums) * each // e.team) * (3 * count + 8)
    )

    def numbers(table: Memory, at: tuple) -> Sym:
        return Sym(((e.wide_index(e.load(table, at)), 1),))

    def one(k: Sym, inner: tuple, of: Callable) -> None:
        at: list = [0] * x.ndim
        for n, axis in enumerate(across):
            at[axis] = of(places, (k, n))
        for axis, i in zip(rows.along, inner, strict=True):
            at[axis] = i
        total = e.load(place, tuple(at)) if in_place else e.read(x, tuple(at))

        def added(total: Elem, m) -> Elem:
            row = tuple(of(t, (k, m)) for t in tables)
            return elementwise.MAPS[op.params["fn"]](e, total, e.read(update, row + inner), dtype)

        if count > _SEVERAL:
            (total,) = e.loop(count, lambda m, now: [added(now[0], m)], [total], [(dtype, False)])
        else:
            for m in range(count):
                total = added(total, m)
        e.store(place, tuple(at), total)

    def rounds(k: Reg) -> None:
        if not whole:
            row, *inner = e.indices(k, (len(sums), *lengths))
            one(row, tuple(inner), numbers)
            return
        (row,) = e.indices(k, (len(sums),))
        of = cache(numbers)
        for inner in np.ndindex(lengths):
            one(row, inner, of)

    e.rounds(len(sums) if whole else len(sums) * each, rounds)


# --- symmetric systems --------------------------------------------------------------------


class _Entries:
    """Where the entries of a factor lie, row by row, see ``frontend._sparse_cholesky``."""

    def __init__(self, columns: Columns):
        self.n = len(columns)
        starts = np.cumsum([0, *map(len, columns)])
        self.of = {(k, i): int(starts[k]) + at
                   for k, c in enumerate(columns) for at, i in enumerate(c)}  # fmt: skip
        self.rows, self.columns = places(columns)


def _unpacked(e: Team, word: Reg, count: int) -> list[Sym]:
    """Indices that :func:`_packed` has put into one number."""
    bits, kind = (10, "i32") if word.dtype == _I32 else (20, "i64")
    found = []
    for k in range(count):
        x = e.emit(f"lshr {kind} {word.ref}, {bits * k}", word.dtype, False)
        x = e.emit(f"and {kind} {x.ref}, {2**bits - 1}", word.dtype, False)
        found.append(Sym(((e.wide_index(x) if kind == "i32" else x, 1),)))
    return found


def _packed(rows: list[tuple[int, ...]]) -> np.ndarray:
    """Some indices as one number each, so that one read gives all of them."""
    table = np.array(rows, np.int64)
    bits, kind = (10, np.int32) if table.max(initial=0) < 2**10 else (20, np.int64)
    return np.sum(table << (bits * np.arange(table.shape[1])), axis=1).astype(kind)


@writes("factorized")
def factorize(e: Team, op: Op, plan: Plan) -> bool:
    """Row by row from the last one; the entries that a row changes are divided."""
    (A,), (v,), columns = op.ins, op.outs, op.params["columns"]
    if e.divides:
        return False
    dtype, at = v.dtype, _Entries(columns)
    place, scales = e.place_for(v), e.allocate((at.n,), v.dtype, False)
    where = [e.table(x.astype(np.int32)) for x in (at.rows, at.columns)]

    def fill(loops: tuple):
        (k,) = loops
        row, column = (Sym(((e.wide_index(e.load(t, (k,))), 1),)) for t in where)
        e.store(place, (k,), e.read(A, (row, column) if A.ndim == 2 else (k,)))

    e.nest((v.size,), fill)
    for k in reversed(range(at.n)):
        scale = elementwise.MAPS["rsqrt"](e, e.load(place, (at.of[k, k],)), dtype)
        e.store(scales, (k,), scale)
        square = elementwise.mul(e, scale, scale, dtype)
        above = columns[k][:-1]
        changed = [(at.of[i, j], at.of[k, i], at.of[k, j]) for i in above for j in above if j <= i]
        if changed:
            _change(e, place, _packed(changed), square)

    def scaled(loops: tuple):
        (k,) = loops
        row, column = (e.load(t, (k,)) for t in where)
        scale = e.load(scales, (Sym(((e.wide_index(row), 1),)),))
        diagonal = elementwise.compare(e, "eq", row, column)
        below = elementwise.mul(e, e.load(place, (k,)), scale, dtype)
        e.store(place, (k,), elementwise.select(e, diagonal, scale, below, dtype))

    e.nest((v.size,), scaled)
    e.release(scales)
    e.places[v] = place
    return True


def _change(e: Team, place: Memory, table: np.ndarray, square: Elem) -> None:
    """Subtract products of two entries of a row from entries of the rows above it."""
    numbers, dtype = e.table(table), place.dtype

    def one(loops: tuple):
        target, *factors = _unpacked(e, e.load(numbers, loops), 3)
        x, a, b = (e.load(place, (i,)) for i in (target, *factors))
        product = elementwise.mul(e, elementwise.mul(e, a, square, dtype), b, dtype)
        e.store(place, (target,), elementwise.sub(e, x, product, dtype))

    e.nest((len(table),), one)
