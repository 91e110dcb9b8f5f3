"""LLVM code of scans, while loops and branches, which have blocks of other operations inside."""

import numpy as np

from ..ir._access_analysis import bases
from ..ir._blocks import Block, Op, Sym, Value
from ..ir._loop_fusion import Plan
from . import _elementwise as elementwise
from ._emitter import Emitter, writes
from ._llvm_writer import Reg
from ._memory import Memory


def _row(m: Memory, k: Sym) -> Memory:
    return m._replace(shape=m.shape[1:], strides=m.strides[1:], start=k * m.strides[0] + m.start)


def _enter(e: Emitter, v: Value, start: Value, plan: Plan) -> Memory:
    """Memory of a carry, with its first value in it."""
    place = e.allocate(v.shape, v.dtype, e.is_wide(v))
    if start.op is None or start.op.name != "unfilled":
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
            x = elementwise.select(e, active, x, e.read(old, idx), old.dtype)
        e.store(place, idx, x)


def _where(active: Reg, new: Value, old: Value) -> Value:
    """The new value for samples that are still at work, the old one for the others."""
    flag = Value(new.shape, bool, False, None)
    flag.op = Op("flag", [], [flag], {"register": active})
    out = Value(new.shape, new.dtype, old.uniform)
    out.op = Op("map", [flag, old, new], [out], {"fn": "select", "lazy": True})
    return out


@writes("scan")
def scan(e: Emitter, op: Op, plan: Plan) -> None:
    """A loop of fixed length; its carry and its rows live in memory."""
    p, nk = op.params, op.params["carry"]
    block: Block = p["body"]
    carry, rows = block.inputs[:nk], block.inputs[nk:]
    new, each = block.outputs[:nk], block.outputs[nk:]
    for v, start in zip(carry, op.ins[:nk], strict=True):
        _enter(e, v, start, plan)
    stacked = [e.place_for(v) for v in op.outs[nk:]]

    def body(k: Sym, _):
        e.around += 1
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
        e.around -= 1
        return []

    e.loop(p["length"], body, reverse=p["reverse"])
    for out, v in zip(op.outs[:nk], carry, strict=True):
        e.places[out] = e.places[v]
    for out, place in zip(op.outs[nk:], stacked, strict=True):
        e.places[out] = place


@writes("while")
def while_(e: Emitter, op: Op, plan: Plan) -> None:
    """A loop that runs while any sample wants it; a sample that has finished keeps its values."""
    test, block = op.params["test"], op.params["body"]
    carry = block.inputs
    for v, start in zip(carry, op.ins, strict=True):
        _enter(e, v, start, plan)
    once = op.params["once"]  # no round or one: a branch
    head, inside = (e.name("once"), e.name("if")) if once else (e.name("while"), e.name("do"))
    done = e.name("done")
    since = e.lines()
    e.line(f"br label {head}")
    e.block(head)
    e.turn()
    with e.scope():
        tested = e.run(test)
        flag = test.outputs[0]
        active = e.read(flag, ())
        wide = e.wide(active) and e.width > 1
        on = e.operand(active, elementwise.BOOL, wide)
        if wide:
            kind = f"llvm.vector.reduce.or.v{e.width}i1"
            e.declared.add(f"declare i1 @{kind}(<{e.width} x i1>)")
            on_each, on = on, e.name()
            e.line(f"{on} = call i1 @{kind}(<{e.width} x i1> {on_each})")
        e.line(f"br i1 {on}, label {inside}, label {done}")
        e.block(inside)
        with e.scope():
            e.around += 1
            inner = e.run(block)
            e.around -= 1
            _hand_over(e, carry, block.outputs, inner, active if e.wide(active) else None)
            e.end(inner)
        e.end(tested)
    e.line(f"br label {head}{e.note(since)}")
    e.block(done)
    e.turn()
    for out, v in zip(op.outs, carry, strict=True):
        e.places[out] = e.places[v]


@writes("cond")
def cond(e: Emitter, op: Op, plan: Plan) -> None:
    """Branches that all samples take alike."""
    (which,), blocks = op.ins, op.params["branches"]
    places = [e.place_for(v) for v in op.outs]
    number = elementwise.convert(e, e.read(which, ()), np.dtype(np.int64))
    low = elementwise.compare(e, "le", number, np.int64(0))
    done, other = e.name("done"), e.name("other")
    labels = [e.name("branch") for _ in blocks]
    e.turn()
    cases = " ".join(f"i64 {k}, label {x}" for k, x in enumerate(labels[1:-1], 1))
    with e.scope():  # what a branch has to put before its loops stands before all branches
        e.line(f"br i1 {e.operand(low, elementwise.BOOL, False)}, label {labels[0]}, label {other}")
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
            e.turn()
            e.line(f"br label {done}")
    e.block(done)
    for v, place in zip(op.outs, places, strict=True):
        e.places[v] = place


@writes("common_bound")
def common_bound(e: Emitter, op: Op, plan: Plan) -> None:
    """The greatest number of the samples of a vector."""
    (n,), (v,) = op.ins, op.outs
    place, x = e.place_for(v), e.read(n, ())
    if e.wide(x) and e.width > 1:
        kind = e.type(v.dtype, True)
        name = f"llvm.vector.reduce.smax.v{e.width}i{8 * v.dtype.itemsize}"
        e.declared.add(f"declare {e.type(v.dtype, False)} @{name}({kind})")
        operand = e.operand(x, v.dtype, True)
        x = e.emit(f"call {e.type(v.dtype, False)} @{name}({kind} {operand})", v.dtype, False)
    e.store(place, (), x._replace(wide=False) if isinstance(x, Reg) else x)
    e.places[v] = place


@writes("unfilled")
def unfilled(e: Emitter, op: Op, plan: Plan) -> None:
    """Memory, for an array that is not what a loop begins with."""
    (v,) = op.outs
    if any(reader.name not in ("while", "scan") for reader in plan.readers.get(v, ())):
        e.places[v] = e.place_for(v)
