"""LLVM code of operations with loops of their own: updates, sums, products of matrices."""

from itertools import product

import numpy as np

from ..ir._blocks import Op, Sym, Value
from ..ir._loop_fusion import Plan
from . import _elementwise as elementwise
from ._emitter import Emitter, elements, writes
from ._llvm_writer import Elem, Reg
from ._memory import Memory

_TILES = (4, 3, 5, 2)  # rows and columns of a product that are summed at once
_UNROLLED = 12  # terms of such a sum that are written one after the other


@writes("assemble")
def assemble(e: Emitter, op: Op, plan: Plan) -> None:
    """Arrays joined along the axis of a loop: one after the other into memory."""
    (v,), axis, at = op.outs, op.params["axis"], 0
    place = e.place_for(v)
    for part in op.ins:
        offset = tuple(at if k == axis else 0 for k in range(v.ndim))
        e.fill(part, place, plan, offset)
        at += part.shape[axis]
    e.places[v] = place


@writes("scatter")
def scatter(e: Emitter, op: Op, plan: Plan) -> None:
    """Write or add to the places that a table names."""
    x, table, update = op.ins[:3]
    (v,) = op.outs
    place, in_place = update_place(e, op, plan)
    if not in_place:
        e.fill(x, place, plan)
    axes = plan.axes.looped(update.shape)
    index, inside, fn = op.params["index"], op.params["limits"], op.params["fn"]

    def body(loops: tuple):
        for idx in elements(update.shape, axes, loops):
            at, new = index(e, table, idx), e.read(update, idx)
            if fn != "set":
                new = elementwise.MAPS[fn](e, e.load(place, at), new, v.dtype)
            if inside is not None:
                new = elementwise.select(e, inside(e, idx), new, e.load(place, at), v.dtype)
            e.store(place, at, new)

    def free():
        found = op.params["free"]()
        return tuple(k for k, axis in enumerate(axes) if axis in found)

    if update.size:
        e.nest_in_order(tuple(update.shape[k] for k in axes), body, free)
    e.places[v] = place


def update_place(e: Emitter, op: Op, plan: Plan) -> tuple[Memory, bool]:
    """Where the changed array lies, and whether the old one lies there and may be overwritten."""
    x, (v,) = op.ins[0], op.outs
    old = e.places.get(x)
    if id(op) not in plan.in_place or not old or old.wide != e.is_wide(v) or old.fixed:
        return e.place_for(v), False
    if x in e.borrowed or x.op is None:
        e.borrowed.add(v)
    e.borrowed.add(x)
    return old, True


@writes("reduce")
def reduce(e: Emitter, op: Op, plan: Plan) -> None:
    """A sum and the like over the axis of a loop."""
    (x,), (v,) = op.ins, op.outs
    fn, gone = op.params["fn"], op.params["axes"]
    inner = [k for k in plan.axes.looped(x.shape) if k in gone]
    outer = plan.axes.looped(v.shape)
    kept = [k for k in range(x.ndim) if k not in gone]
    place = e.place_for(v)
    start = elementwise.neutral(fn, v.dtype)
    wide = e.is_wide(v)

    def body(loops: tuple):
        outs = list(elements(v.shape, outer, loops))

        def sums(rest: list[int], fixed: dict, totals: list[Elem]) -> list[Elem]:
            if rest:

                def inside(k: Sym, now: list[Reg]):
                    return sums(rest[1:], {**fixed, rest[0]: k}, list(now))

                return list(e.loop(x.shape[rest[0]], inside, totals,
                                   [(v.dtype, wide)] * len(totals)))  # fmt: skip
            free = [k for k in gone if k not in fixed]
            for n, out in enumerate(outs):
                for more in product(*(range(x.shape[k]) for k in free)):
                    at = {**fixed, **dict(zip(free, more, strict=True)),
                          **dict(zip(kept, out, strict=True))}  # fmt: skip
                    term = e.read(x, tuple(at[k] for k in range(x.ndim)))
                    totals[n] = elementwise.COMBINE[fn](e, totals[n], term, v.dtype)
            return totals

        totals = sums(inner, {}, [start] * len(outs))
        for out, total in zip(outs, totals, strict=True):
            e.store(place, out, total)

    e.nest(tuple(v.shape[k] for k in outer), body)
    e.places[v] = place


@writes("arg")
def arg(e: Emitter, op: Op, plan: Plan) -> None:
    """The place of the largest or smallest element along the axis of a loop."""
    (x,), (v,), (axis,) = op.ins, op.outs, op.params["axes"]
    place, outer = e.place_for(v), plan.axes.looped(v.shape)
    wide = e.is_wide(v)
    like = [(x.dtype, wide), (v.dtype, wide)]

    def body(loops: tuple):
        for idx in elements(v.shape, outer, loops):

            def at(k, idx=idx):
                return (*idx[:axis], k, *idx[axis:])

            def step(k: Sym, old: list[Reg], at=at):
                number = elementwise.convert(e, e.register(k), v.dtype)
                return list(e.better(op, (e.read(x, at(k)), number), (old[0], old[1])))

            first = [e.read(x, at(0)), v.dtype.type(0)]
            e.store(place, idx, e.loop(x.shape[axis], step, first, like)[1])

    e.nest(tuple(v.shape[k] for k in outer), body)
    e.places[v] = place


@writes("cumulate")
def cumulate(e: Emitter, op: Op, plan: Plan) -> None:
    """Running sums and the like."""
    (x,), (v,), axis = op.ins, op.outs, op.params["axis"]
    place = e.place_for(v)
    n = v.shape[axis]

    def body(loops: tuple):
        def at(k):
            return (*loops[:axis], k, *loops[axis:])

        def step(k: Sym, now: list[Reg]):
            total = elementwise.COMBINE[op.params["fn"]](e, now[0], e.read(x, at(k)), v.dtype)
            e.store(place, at(k), total)
            return [total]

        e.loop(n, step, [elementwise.neutral(op.params["fn"], v.dtype)], [(v.dtype, e.is_wide(v))],
               op.params["reverse"])  # fmt: skip

    if v.size:
        e.nest(tuple(m for k, m in enumerate(v.shape) if k != axis), body)
    e.places[v] = place


@writes("dot")
def dot(e: Emitter, op: Op, plan: Plan) -> None:
    """A product of matrices: tiles of it are summed in registers."""
    (v,), (x, y) = op.outs, op.ins
    place, split = e.place_for(v), len(op.params["order"][0])
    lengths = [x.shape[k] for k in op.params["contract"][0]]
    wide, n = e.is_wide(v), v.ndim
    rows = split - 1 if split > op.params["batch"] else None
    columns = n - 1 if n > split else None
    tiles, outs = {}, v.size
    for a in (rows, columns):
        if a is not None:
            fits = (t for t in _TILES if v.shape[a] % t == 0 and outs >= t * plan.axes.team)
            tiles[a] = next(fits, 1)
            outs //= tiles[a]

    def body(loops: tuple):
        corner = tuple(i * tiles.get(a, 1) for a, i in enumerate(loops))
        tile = list(product(*(range(tiles.get(a, 1)) for a in range(n))))
        outs = [tuple(c + t for c, t in zip(corner, ts, strict=True)) for ts in tile]

        def sums(fixed: tuple, totals: list[Elem]) -> list[Elem]:
            if len(fixed) < len(lengths):
                n = lengths[len(fixed)]
                if n <= _UNROLLED:
                    for k in range(n):
                        totals = sums((*fixed, k), totals)
                    return totals

                def inside(k: Sym, now: list[Reg]):
                    return sums((*fixed, k), list(now))

                return list(e.loop(n, inside, totals,
                                   [(v.dtype, wide)] * len(totals)))  # fmt: skip
            for m, out in enumerate(outs):
                a, b = e.dot_indices(op, out, fixed)
                term = elementwise.mul(e, e.read(x, a), e.read(y, b), v.dtype)
                totals[m] = elementwise.add(e, totals[m], term, v.dtype)
            return totals

        totals = sums((), [v.dtype.type(0)] * len(outs))
        for out, total in zip(outs, totals, strict=True):
            e.store(place, out, total)

    if v.size and all(lengths):
        e.nest(tuple(m // tiles.get(a, 1) for a, m in enumerate(v.shape)), body)
    elif v.size:
        zero = Value(v.shape, v.dtype, True, np.zeros(v.shape, v.dtype))
        e.fill(zero, place, plan)
    e.places[v] = place
