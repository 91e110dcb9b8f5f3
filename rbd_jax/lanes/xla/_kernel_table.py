"""What a compiled kernel shows to the dispatcher, in LLVM text.

The kernel is two functions of the same LLVM module, written by others::

    define internal void @prologue(ptr %args, ptr %shared)
    define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first)

This file adds a loop over blocks and a table of what a call needs to know. XLA does not know the
kernel: it calls the dispatcher, which is there once for all kernels, see :mod:`._dispatch`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..ir._blocks import Value
from . import _c_api

FIELDS = (
    "prologue", "run", "buffers", "operands", "results", "width", "batched", "shared_bytes",
    "scratch_bytes", "grain",
)  # fmt: skip
"""The table's entries, each of 8 bytes; the first two are functions, the third is a table."""

BUFFER = {"dtype": 0, "size": 8, "batched": 16}
"""Offsets in the table of buffers, which has an entry for each operand and then each result."""
BUFFER_BYTES = 24


class Buffer(NamedTuple):
    """An operand or result, as the code of a kernel reads or writes it.

    Attributes:
        dtype: of its elements.
        size: elements of one sample.
        batched: whether it has a leading axis of samples.
    """

    dtype: np.dtype
    size: int
    batched: bool


def buffers_of(values: Iterable[Value], batched: bool) -> list[Buffer]:
    """The buffers of operands or results; those that all samples share have no samples' axis."""
    return [Buffer(v.dtype, v.size, batched and not v.uniform) for v in values]


def numbers_of(buffers: Iterable[Buffer]) -> list[int]:
    """The table of buffers, as 64-bit integers."""
    return [
        n
        for b in buffers
        for n in (_c_api.constant(f"DataType_{_data_type(b.dtype)}"), b.size, int(b.batched))
    ]


def _data_type(dtype: np.dtype) -> str:
    """XLA's name of a dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return "PRED"
    return f"{dict(i='S', u='U', f='F')[dtype.kind]}{8 * dtype.itemsize}"


def field(name: str) -> int:
    """Where an entry lies in a kernel's table, in bytes."""
    return 8 * FIELDS.index(name)


def declared() -> dict[str, str]:
    """What the text below declares, by name: nothing."""
    return {}


def handler_text(
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
