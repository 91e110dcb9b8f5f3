"""The two functions of every kernel, for any machine: the prologue and the body.

The *prologue* computes once what all samples share. The *body* computes the samples. How the
samples of operands and results lie in memory is told by the folders of the machines.
"""

from collections.abc import Callable
from functools import partial

from ..ir._access_analysis import VIEWS, Axes, bases, captured, reads
from ..ir._blocks import Block, Value, strides_of
from ..ir._loop_fusion import assemble
from . import _array_loops, _control_flow, _dense_factors, _sparse_cholesky
from ._emitter import Emitter
from ._memory import Memory

FILES = (_array_loops, _control_flow, _dense_factors, _sparse_cholesky)
"""The files that fill the table ``WRITERS`` when they are imported."""


def bodies(
    program: Block,
    first: Emitter,
    second: Emitter,
    load: Callable,
    store: Callable | None = None,
    place: Callable | None = None,
) -> Emitter:
    """Write what all samples share with one emitter, and a block of samples with another one.

    ``load`` and ``store`` say where operands and results of samples lie: they are called with
    the emitter, the value, its number, and ``store`` with the plan of the block. Instead of
    ``store``, ``place`` may give the memory of a result, which is written as soon as it is known.

    Returns:
        The emitter of the samples: the second one, or the one that it has planned.
    """
    assemble(program)
    shared, block, needed = _split(program)
    numbers = {v: k for k, v in enumerate(program.inputs)}
    _uniform_operands(first, program.inputs, numbers)
    assemble(shared)
    plan = first.run(shared)
    for v in needed:
        if v not in first.places:
            first.places[v] = first.allocate(v.shape, v.dtype, False)
            first.fill(v, first.places[v], plan)
    handed = {v: first.places[v]._replace(base="%shared", fixed=True) for v in needed
              if first.places[v].base == "%scratch"}  # fmt: skip

    def write(second: Emitter) -> Emitter:
        second.globals, second.tables = first.globals, first.tables
        second.declared, second.math = first.declared, first.math
        _uniform_operands(second, program.inputs, numbers)
        second.places.update(handed)
        for v, k in numbers.items():
            if not v.uniform:
                load(second, v, k)
        if place is not None:
            second.run(block, partial(place, second))
            return second
        plan = second.run(block)
        for k, v in enumerate(block.outputs):
            assert store is not None
            store(second, v, k, plan)
        return second

    assemble(block)
    again = write(second).planned()
    return second if again is None else write(again)


def _split(program: Block) -> tuple[Block, Block, list[Value]]:
    """What all samples share, what each has its own, and what the second takes from the first.

    A loop can give both. It is the second's, and so is what is made of its results. So is the
    greatest number of some samples, which others do not share.
    """
    alike, apart, late = [], [], set()
    for op in program.ops:
        ins = [*op.ins, *(v for inner in op.blocks for v in captured(inner))]
        shared = all(v.uniform for v in (*op.outs, *ins)) and not any(v in late for v in ins)
        if shared:
            alike.append(op)
        else:
            late.update(op.outs)
        if not shared or op.name in VIEWS:
            apart.append(op)
    made = {id(op) for op in alike if op.name not in VIEWS}
    axes = Axes(program)
    needed: dict[Value, None] = {}

    def need(v: Value, idx: tuple):
        for b, _ in bases(v, idx):
            if b.op is not None and id(b.op) in made:
                needed[b] = None

    for op in apart:
        if op.name in VIEWS:
            continue
        for v, idx in reads(op, axes):
            need(v, idx)
        for inner in op.blocks:
            for v in captured(inner):
                need(v, tuple(0 for _ in v.shape))
                for part in _all_parts(v):
                    need(part, tuple(0 for _ in part.shape))
    for v in program.outputs:
        for part in _all_parts(v):
            need(part, tuple(0 for _ in part.shape))
    shared = Block(program.inputs, list(needed), alike)
    return shared, Block(program.inputs, program.outputs, apart), list(needed)


def _all_parts(v: Value) -> list[Value]:
    """A value and everything that is seen through it."""
    found, waiting = {}, [v]
    while waiting:
        v = waiting.pop()
        if v not in found and v.op is not None and v.op.name in VIEWS:
            waiting += v.op.ins
        found[v] = None
    return list(found)


def _uniform_operands(e: Emitter, inputs: list[Value], numbers: dict[Value, int]) -> None:
    for v in inputs:
        if v.uniform:
            e.places[v] = Memory(e.pointer("args", numbers[v]), 0, v.dtype, False, v.shape,
                                 strides_of(v.shape), fixed=True)  # fmt: skip
            e.borrowed.add(v)
