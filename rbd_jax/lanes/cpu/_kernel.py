"""A whole kernel: the prologue for what all samples share, a block of W samples, the handler.

Operands and results lie in memory sample by sample, as JAX has them. A block turns W samples of
an operand into vectors, one element a vector, computes, and turns the results back.
"""

from dataclasses import dataclass

import numpy as np

from ..ir._access_analysis import VIEWS, Axes, bases, reads, taken
from ..ir._blocks import Block, Sym, Value, strides_of
from ..ir._loop_fusion import assemble
from ..llvm import _math_functions
from ..llvm._emitter import Emitter
from ..llvm._llvm_writer import Reg, scalar_type
from ..llvm._memory import Memory
from ..xla import _kernel_table

_I64 = np.dtype("int64")


@dataclass(frozen=True)
class Text:
    """LLVM text of a kernel and what it needs."""

    text: str
    symbol: str
    shared_bytes: int
    scratch_bytes: int


def kernel_text(program: Block, width: int, batched: bool, grain: int = 0) -> Text:
    """Write the kernel of a program for ``width`` samples at a time."""
    first, second = Emitter(width), Emitter(width)
    bodies(program, first, second, _load_samples, _store_samples)
    return _module(first, second, program, width, batched, grain)


def bodies(program: Block, first: Emitter, second: Emitter, load, store) -> None:
    """Write what all samples share with one emitter, and a block of samples with another one.

    ``load`` and ``store`` say where operands and results of samples lie: they are called with
    the emitter, the value, its number, and ``store`` with the plan of the block.
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

    second.globals, second.tables = first.globals, first.tables
    second.declared, second.math = first.declared, first.math
    _uniform_operands(second, program.inputs, numbers)
    second.places.update(handed)
    for v, k in numbers.items():
        if not v.uniform:
            load(second, v, k)
    assemble(block)
    plan = second.run(block)
    for k, v in enumerate(block.outputs):
        store(second, v, k, plan)


def _split(program: Block) -> tuple[Block, Block, list[Value]]:
    """What all samples share, what each has its own, and what the second takes from the first.

    A loop can give both. It is the second's, and so is what is made of its results.
    """
    alike, apart, late = [], [], set()
    for op in program.ops:
        ins = [*op.ins, *(v for inner in op.blocks for v in taken(inner))]
        shared = all(v.uniform for v in op.outs) and not any(v in late for v in ins)
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
            for v in taken(inner):
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


def _rows(e: Emitter, table: str, k: int, v: Value) -> list[str]:
    """Pointers to the first element of each of W samples."""
    base, kind = e.pointer(table, k), scalar_type(v.dtype, memory=True)
    at = e.arithmetic("mul", Reg("%first", _I64, False), np.int64(v.size))
    rows = []
    for lane in range(e.width):
        place = e.arithmetic("add", at, np.int64(lane * v.size)) if lane else at
        rows.append(e.emit(f"getelementptr {kind}, ptr {base}, i64 {place.ref}", _I64, False).ref)
    return rows


def _load_samples(e: Emitter, v: Value, k: int) -> None:
    e.borrowed.add(v)
    rows = _rows(e, "args", k, v)
    if e.width == 1:
        e.places[v] = Memory(rows[0], 0, v.dtype, True, v.shape, strides_of(v.shape), fixed=True)
        return
    place = e.places[v] = e.allocate(v.shape, v.dtype, True)
    line = place._replace(shape=(v.size,), strides=(1,))
    one, vector = (e.type(v.dtype, w, memory=True) for w in (False, True))

    def chunk(t: Sym | int):
        column = e.integer(t)
        column = str(column) if isinstance(column, int) else column.ref
        loaded = []
        for row in rows:
            at, x = e.name(), e.name()
            e.line(f"{at} = getelementptr {one}, ptr {row}, i64 {column}")
            e.line(f"{x} = load {vector}, ptr {at}, align {v.dtype.itemsize}, !invariant.load !0")
            loaded.append(x)
        for n, x in enumerate(_transposed(e, loaded, vector)):
            at = e.address(line, (t + n,))
            e.line(f"store {vector} {x}, ptr {at}, align {v.dtype.itemsize * e.width}")

    def single(t: Sym, _):
        column, ref = e.register(t), "poison"
        for lane, row in enumerate(rows):
            at, x, out = e.name(), e.name(), e.name()
            e.line(f"{at} = getelementptr {one}, ptr {row}, i64 {column.ref}")
            e.line(f"{x} = load {one}, ptr {at}, !invariant.load !0")
            e.line(f"{out} = insertelement {vector} {ref}, {one} {x}, i32 {lane}")
            ref = out
        at = e.address(line, (t,))
        e.line(f"store {vector} {ref}, ptr {at}, align {v.dtype.itemsize * e.width}")
        return []

    _tiles(e, v.size, chunk, single)


def _store_samples(e: Emitter, v: Value, k: int, plan) -> None:
    rows = _rows(e, "rets", k, v)
    if e.width == 1:
        e.fill(v, Memory(rows[0], 0, v.dtype, True, v.shape, strides_of(v.shape)), plan)
        return
    place = e.places.get(v)
    if place is None or not place.wide or place.strides != strides_of(v.shape):
        place = e.allocate(v.shape, v.dtype, True)
        e.fill(v, place, plan)
    line = place._replace(shape=(v.size,), strides=(1,))
    one, vector = (e.type(v.dtype, w, memory=True) for w in (False, True))

    def load(t):
        x, at = e.name(), e.address(line, (t,))
        e.line(f"{x} = load {vector}, ptr {at}, align {v.dtype.itemsize * e.width}")
        return x

    def chunk(t: Sym | int):
        loaded = [load(t + n) for n in range(e.width)]
        column = e.integer(t)
        column = str(column) if isinstance(column, int) else column.ref
        for row, x in zip(rows, _transposed(e, loaded, vector), strict=True):
            at = e.name()
            e.line(f"{at} = getelementptr {one}, ptr {row}, i64 {column}")
            e.line(f"store {vector} {x}, ptr {at}, align {v.dtype.itemsize}")

    def single(t: Sym, _):
        x, column = load(t), e.register(t)
        for lane, row in enumerate(rows):
            at, out = e.name(), e.name()
            e.line(f"{out} = extractelement {vector} {x}, i32 {lane}")
            e.line(f"{at} = getelementptr {one}, ptr {row}, i64 {column.ref}")
            e.line(f"store {one} {out}, ptr {at}")
        return []

    _tiles(e, v.size, chunk, single)


def _tiles(e: Emitter, size: int, chunk, single) -> None:
    """Squares of W elements of W samples; the last one overlaps the one before it."""

    def square(t: Sym, _):
        chunk(t * e.width)
        return []

    if size < e.width:
        if size:
            e.loop(size, single)
        return
    e.loop(size // e.width, square)
    if size % e.width:
        chunk(size - e.width)


def _transposed(e: Emitter, rows: list[str], vector: str) -> list[str]:
    """W vectors of W elements, with rows and columns exchanged, by log₂ W rounds of shuffles."""
    w = e.width
    halves = [
        ", ".join(f"i32 {n}" for k in range(w // 2) for n in (s + k, s + k + w))
        for s in (0, w // 2)
    ]
    for _ in range(w.bit_length() - 1):
        new = []
        for a, b in zip(rows[: w // 2], rows[w // 2 :], strict=True):
            for mask in halves:
                out = e.name()
                e.line(f"{out} = shufflevector {vector} {a}, {vector} {b}, <{w} x i32> <{mask}>")
                new.append(out)
        rows = new
    return rows


def _module(first: Emitter, second: Emitter, program: Block, width: int, batched: bool,
            grain: int) -> Text:  # fmt: skip
    shared_bytes, scratch_bytes = first.arena.size, second.arena.size
    vector_bits = 8 * width * floating_bytes(program)
    attributes = (
        f'nounwind "prefer-vector-width"="{max(256, min(512, vector_bits))}" '
        f'"min-legal-vector-width"="{min(512, vector_bits)}"'
    )
    names = set(_kernel_table.declared())
    declared = {line for line in first.declared if line.split("@")[1].split("(")[0] not in names}
    definitions = []
    for name, bits, w in sorted(first.math):
        definitions.append(_math_functions.definition(name, bits, w))
        declared |= {line for line in _math_functions.declarations([name], bits, w)
                     if line.split("@")[1].split("(")[0] not in names}  # fmt: skip
    body = "\n".join([
        *first.globals, *sorted(declared), *definitions,
        "define internal void @prologue(ptr noalias readonly %args, ptr noalias %scratch) #0 {",
        "entry:", first.text(), "  ret void", "}",
        "define internal void @block(ptr noalias readonly %args, ptr noalias readonly %rets, "
        "ptr noalias %shared, ptr noalias %scratch, i64 %first) #0 {",
        "entry:", second.text(), "  ret void", "}",
        f"attributes #0 = {{ {attributes} }}", "!0 = !{}",
    ])  # fmt: skip
    symbol = "lanes"
    handler = _kernel_table.handler_text(
        symbol, operands=_kernel_table.buffers_of(program.inputs, batched),
        results=[_kernel_table.Buffer(v.dtype, v.size, batched) for v in program.outputs],
        width=width, batched=batched, shared_bytes=shared_bytes, scratch_bytes=scratch_bytes,
        grain=grain,
    )  # fmt: skip
    return Text(body + "\n" + handler, symbol, shared_bytes, scratch_bytes)


def _floats(block: Block) -> list[Value]:
    found = [v for v in [*block.inputs, *block.outputs] if v.dtype.kind == "f"]
    for op in block.ops:
        found += [v for v in op.outs if v.dtype.kind == "f"]
        for inner in op.blocks:
            found += _floats(inner)
    return found


def floating_bytes(block: Block) -> int:
    """The size of the largest floating-point type of a program."""
    return max((v.dtype.itemsize for v in _floats(block)), default=4)
