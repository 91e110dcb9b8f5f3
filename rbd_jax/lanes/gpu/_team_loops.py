"""How a team carries out operations whose rounds are not independent: sums, factorizations.

The table :data:`WRITERS` has them; every other operation is written as for one thread, see
:mod:`._team`.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

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
_ALONE, _LEVEL = 4, 70
"""Instructions of a solution for an entry of the factor, where each thread computes all of it, and
for a level, where the threads divide it, about."""
_BEGIN, _STEP, _SWAP = 10, 9, 5
"""Instructions of a sum whose terms tables name, about: for an element, for a term, and for adding
the numbers of pairs of threads."""
_WRITTEN_STEPS = 100
"""The most terms of such sums that are written one after the other; more are added in loops."""
_FAR_OFF = 2**16
"""Bytes of a vector whose elements such tables can name."""


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


def _levels(columns: Columns) -> list[list[int]]:
    """Rows that can be eliminated at the same time, those first that no other row changes."""
    height = [0] * len(columns)
    for k in reversed(range(len(columns))):
        for i in columns[k][:-1]:
            height[i] = max(height[i], height[k] + 1)
    return [[k for k, h in enumerate(height) if h == level] for level in range(max(height) + 1)]


class _Round(NamedTuple):
    """Some elements that the threads of a team compute at the same time."""

    steps: int
    """The most terms of a thread."""
    parts: list[tuple[int, int, int]]
    """For each element: its number, by how many threads it is computed, and its terms."""


def _balanced(counts: dict[int, int], team: int) -> list[_Round]:
    """Divide elements among threads; one with many terms has several threads, a power of two.

    A round takes as many of the elements with the most terms as it is worth: the more terms for the
    instructions that a thread needs, the better.
    """
    waiting = sorted(counts, key=lambda t: -counts[t])
    rounds = []
    while waiting:
        best: tuple[float, _Round] | None = None
        total, steps = 0, 1
        for r, target in enumerate(waiting[:team], 1):
            total += counts[target]
            while not (found := _fits(waiting[:r], counts, steps, team)):
                steps += 1
            most = max(p for _, p, _ in found)
            cost = _STEP * steps + _BEGIN + _SWAP * (most.bit_length() - 1)
            if best is None or total / cost >= best[0]:
                best = total / cost, _Round(steps, found)
        assert best is not None
        rounds.append(best[1])
        waiting = waiting[len(best[1].parts) :]
    return rounds


def _fits(targets: list[int], counts: dict[int, int], steps: int, team: int) -> list:
    """The elements with their threads, those with the most first; empty if threads are too few."""
    found = []
    for t in targets:
        threads = 1
        while threads * steps < counts[t]:
            threads *= 2
        found.append((t, threads, counts[t]))
    enough = sum(p for _, p, _ in found) <= team and (team <= WARP or found[0][1] == 1)
    return sorted(found, key=lambda x: -x[1]) if enough else []


def _add_terms(e: Team, place: Memory, sums: dict[int, list[tuple[int, int]]],
               term: Callable) -> None:  # fmt: skip
    """Add terms to some elements of a vector, each of which belongs to one thread or several.

    Args:
        e: the emitter, which divides.
        place: the vector.
        sums: for each element, two numbers of each of its terms.
        term: ``term(total, first, second)`` adds a term to a total; it gets the numbers as
            distances in bytes.
    """
    item, dtype = place.dtype.itemsize, place.dtype
    rounds = _balanced({t: len(x) for t, x in sums.items()}, e.team)
    if sum(steps for steps, _ in rounds) > _WRITTEN_STEPS:
        _add_terms_in_loops(e, place, sums, term)
        return
    for steps, parts in rounds:
        some = next(iter(sums.values()))[0]  # for threads without a term: read, and not added
        heads, words, owners = [], [[] for _ in range(steps)], []
        for target, threads, _ in parts:
            for own in range(threads):
                terms = sums[target][own::threads]
                heads.append((target, len(terms)))
                owners.append(2 * threads + (own == 0))
                for m in range(steps):
                    words[m].append(terms[m] if m < len(terms) else some)
        most = max(threads for _, threads, _ in parts)
        if most > 1:  # threads hand each other registers only if all of them are there
            idle = e.team - len(heads)
            heads, owners = heads + [(parts[0][0], 0)] * idle, owners + [0] * idle
            words = [row + [some] * idle for row in words]
        least = min(c for _, c in heads)
        table = [_pairs(e, row, item) for row in words]
        ends = _pairs(e, [(t, 0) for t, _ in heads], item)
        numbers = e.table(np.array([c for _, c in heads], np.int32)) if least < steps else None
        groups = e.table(np.array(owners, np.int32)) if most > 1 else None

        def one(k: Reg, table=table, ends=ends, numbers=numbers, groups=groups, least=least,
                most=most, steps=steps) -> None:  # fmt: skip
            at, owner, first = e.load(ends, (_sym(e, k),)), None, None
            total: Elem = e.load_at(place, at)
            if groups is not None:
                owner = e.load(groups, (_sym(e, k),))
                bit = e.emit(f"and i32 {owner.ref}, 1", _I32, False)
                first = elementwise.compare(e, "ne", bit, np.int32(0))
                total = elementwise.select(e, first, total, dtype.type(0), dtype)
            count = None if numbers is None else e.load(numbers, (_sym(e, k),))
            for m in range(steps):
                new = term(total, *_pair(e, e.load(table[m], (_sym(e, k),))))
                if m >= least:
                    assert count is not None
                    there = elementwise.compare(e, "gt", count, np.int32(m))
                    new = elementwise.select(e, there, new, total, dtype)
                total = new
            distance = 1
            while distance < most:
                assert owner is not None
                more = elementwise.compare(e, "gt", owner, np.int32(2 * distance + 1))
                both = elementwise.add(e, total, e.swap(total, dtype, distance), dtype)
                total = elementwise.select(e, more, both, total, dtype)
                distance *= 2
            if first is None:
                e.store_at(place, at, total)
                return
            assert isinstance(first, Reg)
            with e.only_if(first):
                e.store_at(place, at, total)

        e.rounds(len(heads), one)


def _add_terms_in_loops(e: Team, place: Memory, sums: dict[int, list[tuple[int, int]]],
                        term: Callable) -> None:  # fmt: skip
    """The same, for few threads: those elements in one loop that have as many terms."""
    item = place.dtype.itemsize
    by_count: dict[int, list[int]] = {}
    for target, terms in sums.items():
        by_count.setdefault(len(terms), []).append(target)
    for count, targets in sorted(by_count.items()):
        ends = _pairs(e, [(t, 0) for t in targets], item)
        words = _pairs(e, [sums[t][m] for m in range(count) for t in targets], item)

        def one(k: Reg, ends=ends, words=words, targets=targets, count=count) -> None:
            at, row = e.load(ends, (_sym(e, k),)), _sym(e, k)

            def added(total: Elem, m) -> Elem:
                return term(total, *_pair(e, e.load(words, (m * len(targets) + row,))))

            total: Elem = e.load_at(place, at)
            if count > _SEVERAL:
                kind = [(place.dtype, False)]
                (total,) = e.loop(count, lambda m, now: [added(now[0], m)], [total], kind)
            else:
                for m in range(count):
                    total = added(total, m)
            e.store_at(place, at, total)

        e.rounds(len(targets), one)


def _sym(e: Team, k: Reg) -> Sym:
    """A number of 32 bits as an index."""
    return Sym(((e.wide_index(k), 1),))


def _pairs(e: Team, pairs: list[tuple[int, int]], itemsize: int) -> Memory:
    """A table of pairs of elements, each as its distance from the first element in bytes.

    So one read gives both, and no thread has to compute with them.
    """
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T * itemsize
    return e.table((first + (second << 16)).astype(np.uint32).view(np.int32))


def _pair(e: Team, word: Reg) -> tuple[Reg, Reg]:
    """Both distances of a number of such a table."""
    first = e.emit(f"and i32 {word.ref}, {_FAR_OFF - 1}", _I32, False)
    return first, e.emit(f"lshr i32 {word.ref}, 16", _I32, False)


def _fits_pairs(columns: Columns, dtype: np.dtype) -> bool:
    """Whether the entries of a factor lie near enough to each other for such tables."""
    return sum(map(len, columns)) * dtype.itemsize <= _FAR_OFF


@writes("factorized")
def factorize(e: Team, op: Op, plan: Plan) -> bool:
    """Level by level; the entries that the rows of a level change are divided."""
    (A,), (v,), columns = op.ins, op.outs, op.params["columns"]
    if e.divides or not columns or not _fits_pairs(columns, v.dtype):
        return False
    dtype, at = v.dtype, _Entries(columns)
    item = dtype.itemsize
    place, scales = e.place_for(v), e.allocate((at.n,), v.dtype, False)
    if place.base != "%scratch" or place.start != 0:  # a vector that threads read again
        e.borrowed.discard(v)
        result, place = place, e.allocate(v.shape, dtype, False)
    else:
        result = None
    where = [e.table(x.astype(np.int32)) for x in (at.rows, at.columns)] if A.ndim == 2 else []

    def fill(loops: tuple):
        (k,) = loops
        found = tuple(Sym(((e.wide_index(e.load(t, (k,))), 1),)) for t in where)
        e.store(place, (k,), e.read(A, found or (k,)))

    e.nest((v.size,), fill)
    late: list[tuple[int, int]] = []  # entries that are scaled at the end, and their rows
    for level in _levels(columns):
        sums: dict[int, list[tuple[int, int]]] = {}
        entries = [(at.of[k, i], k) for k in level for i in columns[k][:-1]]
        for k in level:
            above = columns[k][:-1]
            for i, j in ((i, j) for i in above for j in above if j <= i):
                sums.setdefault(at.of[i, j], []).append((at.of[k, i], at.of[k, j]))
        square = None
        if len(level) == 1:
            (k,) = level
            scale = elementwise.MAPS["rsqrt"](e, e.load(place, (at.of[k, k],)), dtype)
            e.store(scales, (k,), scale)
            square = elementwise.mul(e, scale, scale, dtype)
            late += entries
        else:
            _scale_rows(e, place, scales, [(at.of[k, k], k) for k in level], entries)

        def term(total: Elem, a: Reg, b: Reg, square=square) -> Elem:
            x, y = (e.load_at(place, i) for i in (a, b))
            x = x if square is None else elementwise.mul(e, x, square, dtype)
            return elementwise.sub(e, total, elementwise.mul(e, x, y, dtype), dtype)

        if sums:
            with e.within(place, [*sums, *(n for n, _ in entries)]), e.dividing():
                _add_terms(e, place, sums, term)
    both = _pairs(e, late, item) if late else None
    ends = _pairs(e, [(at.of[k, k], k) for k in range(at.n)], item)

    def scaled(k: Reg) -> None:
        assert both is not None
        here, row = _pair(e, e.load(both, (_sym(e, k),)))
        x = elementwise.mul(e, e.load_at(place, here), e.load_at(scales, row), dtype)
        e.store_at(place, here, x)

    def inverse(k: Reg) -> None:
        here, row = _pair(e, e.load(ends, (_sym(e, k),)))
        e.store_at(place, here, e.load_at(scales, row))

    with e.dividing():
        if late:
            e.rounds(len(late), scaled)
        e.rounds(at.n, inverse)
    e.release(scales)
    e.places[v] = place
    if result is not None:
        e.fill(v, result, plan)
    return True


def _scale_rows(e: Team, place: Memory, scales: Memory, rows: list[tuple[int, int]],
                entries: list[tuple[int, int]]) -> None:  # fmt: skip
    """Divide the rows of a level by the roots of their pivots, whose inverses are kept.

    Args:
        e: the emitter.
        place: the entries of the matrix.
        scales: for each row, the inverse of its pivot's root.
        rows: the pivots and the numbers of their rows.
        entries: the other entries and the numbers of their rows.
    """
    dtype = place.dtype
    pivots, others = (_pairs(e, x, dtype.itemsize) if x else None for x in (rows, entries))

    def pivot(k: Reg) -> None:
        assert pivots is not None
        here, row = _pair(e, e.load(pivots, (_sym(e, k),)))
        e.store_at(scales, row, elementwise.MAPS["rsqrt"](e, e.load_at(place, here), dtype))

    def entry(k: Reg) -> None:
        assert others is not None
        here, row = _pair(e, e.load(others, (_sym(e, k),)))
        x = elementwise.mul(e, e.load_at(place, here), e.load_at(scales, row), dtype)
        e.store_at(place, here, x)

    numbers = [k for _, k in rows]
    with e.within(place, [n for n, _ in rows]), e.within(scales, numbers), e.dividing():
        e.rounds(len(rows), pivot)
    if entries:
        with e.within(place, [n for n, _ in entries]), e.within(scales, numbers), e.dividing():
            e.rounds(len(entries), entry)


@writes("factorized_solve")
def solve(e: Team, op: Op, plan: Plan) -> bool:
    """For one vector: level by level, down from the last unknowns and up again.

    The elements that the unknowns of a level change are divided. Of many columns, each thread has
    some columns instead.
    """
    (entries, b), (v,), columns = op.ins, op.outs, op.params["columns"]
    if e.divides or v.ndim != 1 or not columns or not _fits_pairs(columns, v.dtype):
        return False
    levels, at, dtype = _levels(columns), _Entries(columns), v.dtype
    if _ALONE * len(at.rows) < _LEVEL * len(levels):
        return False
    L = e.places.get(entries)
    if L is None or L.start != 0 or L.strides != (1,) or L.wide != e.is_wide(entries):
        return False
    place, x = e.place_for(v), e.allocate((at.n,), dtype, False)
    below: list[list[int]] = [[] for _ in columns]
    for m, row in enumerate(columns):
        for k in row[:-1]:
            below[k].append(m)

    def sweep(level: list[int], others: Callable[[int], list[int]]) -> None:
        """Subtract what the unknowns of a level contribute to others."""
        sums: dict[int, list[tuple[int, int]]] = {}
        for k in level:
            for i in others(k):
                sums.setdefault(i, []).append((at.of[max(i, k), min(i, k)], k))
        if not sums:
            return
        alone = None
        if len(level) == 1:
            (k,) = level
            alone = elementwise.mul(e, e.load(x, (k,)), e.load(L, (at.of[k, k],)), dtype)
        else:
            scale(level, x)

        def term(total: Elem, entry: Reg, k: Reg) -> Elem:
            y = e.load_at(x, k) if alone is None else alone
            product = elementwise.mul(e, e.load_at(L, entry), y, dtype)
            return elementwise.sub(e, total, product, dtype)

        with e.within(x, [*sums, *([] if alone is not None else level)]), e.dividing():
            _add_terms(e, x, sums, term)

    def scale(rows: list[int], to: Memory) -> None:
        """Divide some unknowns by their pivots."""
        some = _pairs(e, [(k, at.of[k, k]) for k in rows], dtype.itemsize)

        def one(k: Reg) -> None:
            own, diagonal = _pair(e, e.load(some, (_sym(e, k),)))
            y = elementwise.mul(e, e.load_at(x, own), e.load_at(L, diagonal), dtype)
            e.store_at(to, own, y)

        if rows:
            with e.within(x, rows), e.dividing():
                e.rounds(len(rows), one)

    e.nest((at.n,), lambda loops: e.store(x, loops, e.read(b, loops)))
    done: set[int] = set()
    for level in levels:
        sweep(level, lambda k: columns[k][:-1])
        several = len(level) > 1 and any(len(columns[k]) > 1 for k in level)
        done |= set(level) if several else set()
    scale([k for k in range(at.n) if k not in done], x)
    done = set()
    for level in reversed(levels):
        sweep(level, lambda k: below[k])
        several = len(level) > 1 and any(below[k] for k in level)
        done |= set(level) if several else set()
    scale([k for k in range(at.n) if k not in done], x)
    e.release(x)
    e.nest((at.n,), lambda loops: e.store(place, loops, e.load(x, loops)))
    e.places[v] = place
    return True
