"""A whole kernel for CPUs, as one module of LLVM text.

Operands and results lie in memory sample by sample, as JAX has them. A block turns W samples of
an operand into vectors, one element a vector, computes, and turns the results back. The module
has three functions and the table that the dispatcher reads::

    define internal void @prologue(ptr %args, ptr %shared)
    define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first)
    define internal void @lanes.run(…, i64 %begin, i64 %end, i64 %count)    ; a range of blocks
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir._blocks import Block, Sym, Value, strides_of
from ..ir._row_work import has_rows
from ..llvm import _compiler, _math_functions
from ..llvm._emitter import Emitter
from ..llvm._kernel_bodies import bodies
from ..llvm._llvm_writer import Reg, scalar_type
from ..llvm._memory import FOREVER, Memory
from ..xla._kernel_table import Buffer, buffers_of, numbers_of

_I64 = np.dtype("int64")


@dataclass(frozen=True)
class Text:
    """LLVM text of a kernel and what it needs."""

    text: str
    symbol: str
    shared_bytes: int
    scratch_bytes: int


def kernel_text(
    program: Block, width: int, batched: bool, grain: int = 0, most_scratch: int = FOREVER
) -> Text:
    """Write the kernel of a program for ``width`` samples at a time.

    Raises:
        TooLarge: a block needs more than ``most_scratch`` bytes of memory.
    """
    first, second = Emitter(width), Emitter(width)
    second.arena.most = most_scratch
    search = width > 1 or has_rows(program)
    bodies(program, first, second, _load_samples, _store_samples)
    return _module(first, second, program, width, batched, grain, search)


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
            grain: int, search: bool) -> Text:  # fmt: skip
    shared_bytes, scratch_bytes = first.arena.size, second.arena.size
    vector_bits = 8 * width * floating_bytes(program)
    attributes = (
        f'nounwind "prefer-vector-width"="{max(256, min(512, vector_bits))}" '
        f'"min-legal-vector-width"="{min(512, vector_bits)}"'
    ) + f" {_compiler.WITHOUT_ROWS}" * (not search)
    declared = set(first.declared)
    definitions = []
    for name, bits, w in sorted(first.math):
        definitions.append(_math_functions.definition(name, bits, w))
        declared |= _math_functions.declarations([name], bits, w)
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
    table = table_text(
        symbol, operands=buffers_of(program.inputs, batched),
        results=[Buffer(v.dtype, v.size, batched) for v in program.outputs],
        width=width, batched=batched, shared_bytes=shared_bytes, scratch_bytes=scratch_bytes,
        grain=grain,
    )  # fmt: skip
    return Text(body + "\n" + table, symbol, shared_bytes, scratch_bytes)


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


def table_text(
    symbol: str,
    *,
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
    width: int,
    batched: bool,
    shared_bytes: int,
    scratch_bytes: int,
    grain: int = 0,
) -> str:
    """LLVM text of the table ``@symbol`` and of the loop over blocks, ``@symbol.run``.

    Args:
        symbol: name of the table in the module, the only one that is visible outside.
        operands: the operands, whose pointers are in ``%args``.
        results: the results, whose pointers are in ``%rets``, at least one.
        width: samples that one block computes. A call with fewer samples is an error.
        batched: whether results have a leading axis of samples. Without it, there is one.
        shared_bytes: memory that the prologue fills for all blocks.
        scratch_bytes: memory that each thread has for its blocks.
        grain: blocks that a thread takes at a time. A call of no more blocks stays on its thread.
            With 0, each call measures a block and decides by its time.
    """
    if min(len(results), width) < 1 or min(shared_bytes, scratch_bytes, grain) < 0:
        raise ValueError("a kernel has results and lanes, and no negative sizes")
    if not batched and width != 1:
        raise ValueError("a kernel of one sample has one lane")
    numbers = (
        len(operands), len(results), width, int(batched), shared_bytes, scratch_bytes, grain
    )  # fmt: skip
    pointers = "prologue", f"{symbol}.run", f"{symbol}.buffers"
    entries = [*(f"ptr @{name}" for name in pointers), *(f"i64 {n}" for n in numbers)]
    kinds = ", ".join(entry.split()[0] for entry in entries)
    table = f"@{symbol} = constant {{ {kinds} }} {{ {', '.join(entries)} }}\n"
    known = numbers_of([*operands, *results])
    words = ", ".join(f"i64 {n}" for n in known)
    buffers = f"@{symbol}.buffers = internal constant [{len(known)} x i64] [{words}]\n"
    return buffers + table + _run(symbol, width)


def _run(symbol: str, width: int) -> str:
    """A range of blocks, one after the other. The last one of all ends with the last sample."""
    return f"""\
define internal void @{symbol}.run(
    ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %begin, i64 %end, i64 %count) nounwind {{
entry:
  %last = sub i64 %count, {width}
  br label %look
look:
  %k = phi i64 [ %begin, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %end
  br i1 %more, label %next, label %out
next:
  %here = mul i64 %k, {width}
  %over = icmp sgt i64 %here, %last
  %first = select i1 %over, i64 %last, i64 %here
  call void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first) noinline
  %k.next = add i64 %k, 1
  br label %look
out:
  ret void
}}
"""
