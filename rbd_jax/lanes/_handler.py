"""What a compiled kernel shows to the dispatcher, in LLVM text.

The kernel is two functions of the same LLVM module, written by others::

    define internal void @prologue(ptr %args, ptr %shared)
    define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first)

This file adds a loop over blocks and a table of what a call needs to know. XLA does not know the
kernel: it calls the dispatcher, which is there once for all kernels, see :mod:`._dispatch`.
"""

FIELDS = (
    "prologue", "run", "operands", "results", "width", "batched", "shared_bytes", "scratch_bytes",
    "grain",
)  # fmt: skip
"""The table's entries, each of 8 bytes; the first two are functions."""


def field(name: str) -> int:
    """Where an entry lies in a kernel's table, in bytes."""
    return 8 * FIELDS.index(name)


def declared() -> dict[str, str]:
    """What the text below declares, by name: nothing."""
    return {}


def handler_text(
    symbol: str,
    *,
    operands: int,
    results: int,
    width: int,
    batched: bool,
    shared_bytes: int,
    scratch_bytes: int,
    grain: int = 0,
) -> str:
    """LLVM text of the table ``@symbol`` and of the loop over blocks, ``@symbol.run``.

    Args:
        symbol: name of the table in the module, the only one that is visible outside.
        operands: number of operands, the pointers in ``%args``.
        results: number of results, the pointers in ``%rets``, at least one.
        width: samples that one block computes. A call with fewer samples is an error.
        batched: whether results have a leading axis of samples. Without it, there is one.
        shared_bytes: memory that the prologue fills for all blocks.
        scratch_bytes: memory that each thread has for its blocks.
        grain: blocks that a thread takes at a time. A call of no more blocks stays on its thread.
            With 0, each call measures a block and decides by its time.
    """
    if min(results, width) < 1 or min(operands, shared_bytes, scratch_bytes, grain) < 0:
        raise ValueError("a kernel has results and lanes, and no negative sizes")
    if not batched and width != 1:
        raise ValueError("a kernel of one sample has one lane")
    numbers = (operands, results, width, int(batched), shared_bytes, scratch_bytes, grain)
    entries = ["ptr @prologue", f"ptr @{symbol}.run", *(f"i64 {n}" for n in numbers)]
    kinds = ", ".join(entry.split()[0] for entry in entries)
    table = f"@{symbol} = constant {{ {kinds} }} {{ {', '.join(entries)} }}\n"
    return table + _run(symbol, width)


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
