"""Operations that write loops of their own: updates, sums, products, scans, branches."""

from itertools import product

import numpy as np

from . import _maps as maps
from ._emit import Emitter
from ._ir import Block, Op, Sym, Value
from ._plan import Plan, bases
from ._text import Elem, Memory, Reg

_TILES = (4, 3, 5, 2)  # rows and columns of a product that are summed at once
_UNROLLED = 12  # terms of such a sum that are written one after the other


def _new(e: Emitter, v: Value) -> Memory:
    place = e.targets.get(v)
    if place is None:
        place = e.allocate(v.shape, v.dtype, e.is_wide(v))
    else:
        e.borrowed.add(v)
    return place


def assemble(e: Emitter, op: Op, plan: Plan) -> None:
    """Arrays joined along the axis of a loop: one after the other into memory."""
    (v,), axis, at = op.outs, op.params["axis"], 0
    place = _new(e, v)
    for part in op.ins:
        offset = tuple(at if k == axis else 0 for k in range(v.ndim))
        e.fill(part, place, plan, offset)
        at += part.shape[axis]
    e.places[v] = place


def scatter(e: Emitter, op: Op, plan: Plan) -> None:
    """Write or add to the places that a table names."""
    x, table, update = op.ins[:3]
    (v,) = op.outs
    place = e.places.get(x)
    own = place is not None and place.wide == e.is_wide(v) and not place.fixed
    if id(op) in plan.in_place and own:
        if x in e.borrowed or x.op is None:
            e.borrowed.add(v)
        e.borrowed.add(x)
    else:
        place = _new(e, v)
        e.fill(x, place, plan)
    axes = plan.axes.looped(update.shape)
    index, inside, fn = op.params["index"], op.params["limits"], op.params["fn"]

    def body(loops: tuple):
        ranges = [[loops[axes.index(k)]] if k in axes else range(n)
                  for k, n in enumerate(update.shape)]  # fmt: skip
        for idx in product(*ranges):
            at, new = index(e, table, idx), e.read(update, idx)
            if fn != "set":
                new = maps.MAPS[fn](e, e.load(place, at), new, v.dtype)
            if inside is not None:
                new = maps.select(e, inside(e, idx), new, e.load(place, at), v.dtype)
            e.store(place, at, new)

    if update.size:
        e.nest(tuple(update.shape[k] for k in axes), body)
    e.places[v] = place


def reduce(e: Emitter, op: Op, plan: Plan) -> None:
    """A sum and the like over the axis of a loop."""
    (x,), (v,) = op.ins, op.outs
    fn, gone = op.params["fn"], op.params["axes"]
    inner = [k for k in plan.axes.looped(x.shape) if k in gone]
    outer = plan.axes.looped(v.shape)
    kept = [k for k in range(x.ndim) if k not in gone]
    place = _new(e, v)
    start = maps.neutral(fn, v.dtype)
    wide = e.is_wide(v)

    def body(loops: tuple):
        ranges = [[loops[outer.index(k)]] if k in outer else range(n)
                  for k, n in enumerate(v.shape)]  # fmt: skip
        outs = list(product(*ranges))

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
                    totals[n] = maps.COMBINE[fn](e, totals[n], term, v.dtype)
            return totals

        totals = sums(inner, {}, [start] * len(outs))
        for out, total in zip(outs, totals, strict=True):
            e.store(place, out, total)

    e.nest(tuple(v.shape[k] for k in outer), body)
    e.places[v] = place


def arg(e: Emitter, op: Op, plan: Plan) -> None:
    """The place of the largest or smallest element along the axis of a loop."""
    (x,), (v,), (axis,) = op.ins, op.outs, op.params["axes"]
    place, outer = _new(e, v), plan.axes.looped(v.shape)
    wide = e.is_wide(v)
    like = [(x.dtype, wide), (v.dtype, wide)]

    def body(loops: tuple):
        ranges = [[loops[outer.index(k)]] if k in outer else range(n)
                  for k, n in enumerate(v.shape)]  # fmt: skip
        for idx in product(*ranges):

            def at(k, idx=idx):
                return (*idx[:axis], k, *idx[axis:])

            def step(k: Sym, old: list[Reg], at=at):
                number = maps.convert(e, e.integer(k), v.dtype)
                return list(e.better(op, (e.read(x, at(k)), number), (old[0], old[1])))

            first = [e.read(x, at(0)), v.dtype.type(0)]
            e.store(place, idx, e.loop(x.shape[axis], step, first, like)[1])

    e.nest(tuple(v.shape[k] for k in outer), body)
    e.places[v] = place


def cumulate(e: Emitter, op: Op, plan: Plan) -> None:
    """Running sums and the like."""
    (x,), (v,), axis = op.ins, op.outs, op.params["axis"]
    place = _new(e, v)
    n = v.shape[axis]

    def body(loops: tuple):
        def at(k):
            return (*loops[:axis], k, *loops[axis:])

        def step(k: Sym, now: list[Reg]):
            total = maps.COMBINE[op.params["fn"]](e, now[0], e.read(x, at(k)), v.dtype)
            e.store(place, at(k), total)
            return [total]

        e.loop(n, step, [maps.neutral(op.params["fn"], v.dtype)], [(v.dtype, e.is_wide(v))],
               op.params["reverse"])  # fmt: skip

    if v.size:
        e.nest(tuple(m for k, m in enumerate(v.shape) if k != axis), body)
    e.places[v] = place


def dot(e: Emitter, op: Op, plan: Plan) -> None:
    """A product of matrices: tiles of it are summed in registers."""
    (v,), (x, y) = op.outs, op.ins
    place, split = _new(e, v), len(op.params["order"][0])
    lengths = [x.shape[k] for k in op.params["contract"][0]]
    wide, n = e.is_wide(v), v.ndim
    rows = split - 1 if split > op.params["batch"] else None
    columns = n - 1 if n > split else None
    tiles = {a: next((t for t in _TILES if v.shape[a] % t == 0), 1)
             for a in (rows, columns) if a is not None}  # fmt: skip

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
                term = maps.mul(e, e.read(x, a), e.read(y, b), v.dtype)
                totals[m] = maps.add(e, totals[m], term, v.dtype)
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


# --- loops over steps -----------------------------------------------------------------


def _row(m: Memory, k: Sym) -> Memory:
    return m._replace(shape=m.shape[1:], strides=m.strides[1:], start=k * m.strides[0] + m.start)


def _enter(e: Emitter, v: Value, start: Value, plan: Plan) -> Memory:
    """Memory of a carry, with its first value in it."""
    place = e.allocate(v.shape, v.dtype, e.is_wide(v))
    e.fill(start, place, plan)
    e.places[v] = place
    return place


def _hand_over(e: Emitter, carry: list[Value], new: list[Value], plan: Plan, active=None) -> None:
    """The values of the next round into the memory of the carries."""
    small, large = [], []
    taken = [e.places[v] for v in carry]
    for old, v in zip(carry, new, strict=True):
        place = e.places[old]
        if v is old or (active is None and e.places.get(v) == place):
            continue
        if not plan.axes.looped(v.shape):
            for idx in np.ndindex(v.shape):
                small.append((place, idx, e.read(v, idx), old))
            continue
        at = plan.axes.pattern(v.shape)
        if any(e.places.get(b) in taken and (e.places[b] != place or idx != at)
               for b, idx in bases(v, at)):  # fmt: skip
            copy = e.allocate(v.shape, v.dtype, e.is_wide(v))
            e.fill(v, copy, plan)
            held = Value(v.shape, v.dtype, v.uniform)
            e.places[held] = copy
            large.append((place, held, old, copy))
        else:
            large.append((place, v, old, None))
    for place, v, old, copy in large:
        if active is not None:
            v = _where(active, v, old)
        e.fill(v, place, plan)
        if copy is not None:
            e.release(copy)
    for place, idx, x, old in small:
        if active is not None:
            x = maps.select(e, active, x, e.read(old, idx), old.dtype)
        e.store(place, idx, x)


def _where(active: Reg, new: Value, old: Value) -> Value:
    """The new value for samples that are still at work, the old one for the others."""
    flag = Value(new.shape, bool, False, None)
    flag.op = Op("flag", [], [flag], {"register": active})
    out = Value(new.shape, new.dtype, old.uniform)
    out.op = Op("map", [flag, old, new], [out], {"fn": "select", "lazy": True})
    return out


def scan(e: Emitter, op: Op, plan: Plan) -> None:
    """A loop of fixed length; its carry and its rows live in memory."""
    p, nk = op.params, op.params["carry"]
    block: Block = p["body"]
    carry, rows = block.inputs[:nk], block.inputs[nk:]
    new, each = block.outputs[:nk], block.outputs[nk:]
    for v, start in zip(carry, op.ins[:nk], strict=True):
        _enter(e, v, start, plan)
    stacked = [_new(e, v) for v in op.outs[nk:]]

    def body(k: Sym, _):
        for v, x in zip(rows, op.ins[nk:], strict=True):
            v.op = Op("view", [x], [v], {"index": lambda _, idx, k=k: (k, *idx)})
        for v, place in zip(each, stacked, strict=True):
            own = v.op is not None and v.const is None and v not in new and each.count(v) == 1
            if own and place.wide == e.is_wide(v):
                e.targets[v] = _row(place, k)
        inner = e.run(block)
        for v, place in zip(each, stacked, strict=True):
            target = _row(place, k)
            if e.places.get(v) != target:
                e.fill(v, target, inner)
            e.targets.pop(v, None)
        _hand_over(e, carry, new, inner)
        e.end(inner)
        for v in rows:
            v.op = None
        return []

    e.loop(p["length"], body, reverse=p["reverse"])
    for out, v in zip(op.outs[:nk], carry, strict=True):
        e.places[out] = e.places[v]
    for out, place in zip(op.outs[nk:], stacked, strict=True):
        e.places[out] = place


def while_(e: Emitter, op: Op, plan: Plan) -> None:
    """A loop that runs while any sample wants it; a sample that has finished keeps its values."""
    test, block = op.params["test"], op.params["body"]
    carry = block.inputs
    for v, start in zip(carry, op.ins, strict=True):
        _enter(e, v, start, plan)
    head, inside, done = e.name("while"), e.name("do"), e.name("done")
    e.line(f"br label {head}")
    e.block(head)
    with e.scope():
        tested = e.run(test)
        flag = test.outputs[0]
        active = e.read(flag, ())
        wide = e.wide(active) and e.width > 1
        on = e.operand(active, maps.BOOL, wide)
        if wide:
            kind = f"llvm.vector.reduce.or.v{e.width}i1"
            e.declared.add(f"declare i1 @{kind}(<{e.width} x i1>)")
            on_each, on = on, e.name()
            e.line(f"{on} = call i1 @{kind}(<{e.width} x i1> {on_each})")
        e.line(f"br i1 {on}, label {inside}, label {done}")
        e.block(inside)
        with e.scope():
            inner = e.run(block)
            _hand_over(e, carry, block.outputs, inner, active if e.wide(active) else None)
            e.end(inner)
        e.end(tested)
    e.line(f"br label {head}")
    e.block(done)
    for out, v in zip(op.outs, carry, strict=True):
        e.places[out] = e.places[v]


def cond(e: Emitter, op: Op, plan: Plan) -> None:
    """Branches that all samples take alike."""
    (which,), blocks = op.ins, op.params["branches"]
    places = [_new(e, v) for v in op.outs]
    number = maps.convert(e, e.read(which, ()), np.dtype(np.int64))
    low = maps.compare(e, "le", number, np.int64(0))
    done, other = e.name("done"), e.name("other")
    labels = [e.name("branch") for _ in blocks]
    cases = " ".join(f"i64 {k}, label {x}" for k, x in enumerate(labels[1:-1], 1))
    with e.scope():  # what a branch has to put before its loops stands before all branches
        e.line(f"br i1 {e.operand(low, maps.BOOL, False)}, label {labels[0]}, label {other}")
        e.block(other)
        e.line(f"switch i64 {e.operand(number, number.dtype, False)}, label {labels[-1]} "
               f"[ {cases} ]")  # fmt: skip
        for label, block in zip(labels, blocks, strict=True):
            e.block(label)
            with e.scope():
                inner = e.run(block)
                for v, place in zip(block.outputs, places, strict=True):
                    e.fill(v, place, inner)
                e.end(inner)
            e.line(f"br label {done}")
    e.block(done)
    for v, place in zip(op.outs, places, strict=True):
        e.places[v] = place


OPAQUE = {
    "assemble": assemble, "scatter": scatter, "reduce": reduce, "arg": arg, "cumulate": cumulate,
    "dot": dot, "scan": scan, "while": while_, "cond": cond,
}  # fmt: skip
