"""The foreign-function handler around a kernel: LLVM text that XLA's CPU runtime can call.

The kernel is two functions of the same LLVM module, written by others::

    define internal void @prologue(ptr %args, ptr %shared)
    define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first)

The handler runs the prologue once and then the blocks of W samples, itself or together with
XLA's threads, see :mod:`._jobs`.
"""

import ctypes

import jax

from . import _c_api, _jobs, _libc
from ._c_api import ONCE, constant, load, offset
from ._libc import declared as declared

_ERRORS = {
    "unfit": ("INVALID_ARGUMENT", "operands or results are not those of the kernel"),
    "few": ("INVALID_ARGUMENT", "fewer samples than the kernel computes at a time"),
    "memory": ("RESOURCE_EXHAUSTED", "no memory for the kernel to work in"),
}


def register(name: str, address: int) -> None:
    """Make the handler at an address the CPU target ``name`` of ``jax.ffi.ffi_call``.

    JAX cannot forget a target: its code must stay loaded as long as the process lives.
    """
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")


def handler_text(
    symbol: str,
    *,
    operands: int,
    results: int,
    width: int,
    batched: bool,
    shared_bytes: int,
    scratch_bytes: int,
    grain: int,
) -> str:
    """LLVM text of the handler ``ptr @symbol(ptr %frame)`` and of all it needs but the kernel.

    Its other functions begin with the symbol and a point. It declares the functions that
    :func:`declared` lists, which the rest of the module must not declare again.

    Args:
        symbol: name of the handler in the module, the only one that is visible outside.
        operands: number of operands, the pointers in ``%args``.
        results: number of results, the pointers in ``%rets``, at least one.
        width: samples that one block computes. A call with fewer samples is an error.
        batched: whether results have a leading axis of samples. Without it, there is one.
        shared_bytes: memory that the prologue fills for all blocks.
        scratch_bytes: memory that each thread has for its blocks.
        grain: blocks that a thread takes at a time. A call of no more blocks stays on its thread.
    """
    if min(results, width, grain) < 1 or min(operands, shared_bytes, scratch_bytes) < 0:
        raise ValueError("a kernel has results, lanes and a grain, and no negative sizes")
    if not batched and width != 1:
        raise ValueError("a kernel of one sample has one lane")
    parts = (
        _entry(symbol, operands, results, width, batched),
        _compute(symbol, operands, results, width, shared_bytes, scratch_bytes),
        _run(symbol, width),
        _failures(symbol),
        _jobs.jobs_text(symbol, scratch_bytes, grain),
        _libc.memory_text(symbol),
        _c_api.pointers_text(symbol),
        _c_api.pool_text(symbol),
        _c_api.error_text(symbol),
        _c_api.metadata_text(symbol),
        "".join(f"declare {declaration}\n" for declaration in declared().values()),
    )
    return "\n".join(parts)


def _failures(symbol: str) -> str:
    """The messages of all errors."""
    return "".join(
        f'@{symbol}.{name}.text = private constant [{len(text) + 1} x i8] c"{text}\\00"\n'
        for name, (_, text) in _ERRORS.items()
    )


def _fail(symbol: str, name: str) -> str:
    """Blocks that return an error, labelled with its name."""
    code = constant(f"Error_Code_{_ERRORS[name][0]}")
    return f"""\
{name}:
  %{name}.error = call ptr @{symbol}.error(ptr %api, i32 {code}, ptr @{symbol}.{name}.text)
  ret ptr %{name}.error"""


def _entry(symbol: str, operands: int, results: int, width: int, batched: bool) -> str:
    """The handler itself: what is asked for, whether it fits, and then the call."""
    count = load("dims", "%result", offset("Buffer.dims")) + "\n  %count = load i64, ptr %dims"
    return f"""\
define ptr @{symbol}(ptr %frame) {ONCE} {{
{load("extension", "%frame", offset("CallFrame.extension_start"))}
{load("api", "%frame", offset("CallFrame.api"))}
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %check, label %extended
extended:
  %answered = call i1 @{symbol}.metadata(ptr %extension)
  br i1 %answered, label %end, label %check
check:
{load("operands", "%frame", offset("CallFrame.args.size"), "i64")}
{load("results", "%frame", offset("CallFrame.rets.size"), "i64")}
  %fits.operands = icmp eq i64 %operands, {operands}
  %fits.results = icmp eq i64 %results, {results}
  %fits = and i1 %fits.operands, %fits.results
  br i1 %fits, label %shape, label %unfit
shape:
{load("rets", "%frame", offset("CallFrame.rets.rets"))}
  %result = load ptr, ptr %rets
{load("rank", "%result", offset("Buffer.rank"), "i64")}
  %has.rank = icmp sge i64 %rank, {int(batched)}
  br i1 %has.rank, label %measure, label %unfit
measure:
{count if batched else "  %count = add i64 0, 1"}
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %end, label %compare
compare:
  %enough = icmp sge i64 %count, {width}
  br i1 %enough, label %compute, label %few
compute:
{load("args", "%frame", offset("CallFrame.args.args"))}
{load("ctx", "%frame", offset("CallFrame.ctx"))}
  %failed = call ptr @{symbol}.compute(ptr %api, ptr %ctx, ptr %args, ptr %rets, i64 %count)
  ret ptr %failed
end:
  ret ptr null
{_fail(symbol, "unfit")}
{_fail(symbol, "few")}
}}
"""


def _compute(
    symbol: str, operands: int, results: int, width: int, shared_bytes: int, scratch_bytes: int
) -> str:
    """One call: memory, prologue, and all blocks, with the help of the pool or without."""
    memory = {"shared": shared_bytes, "scratch": scratch_bytes}
    take = "\n".join(_libc.take(symbol, name, size) for name, size in memory.items())
    give = "\n".join(_libc.give(symbol, name, size) for name, size in memory.items())
    kernel = "ptr %args, ptr %rets, ptr %shared, ptr %scratch"
    return f"""\
define internal ptr @{symbol}.compute(
    ptr %api, ptr %ctx, ptr %operands, ptr %results, i64 %count) {ONCE} {{
  %args = alloca [{operands} x ptr], align 8
  %rets = alloca [{results} x ptr], align 8
{take}
  %lacks.shared = icmp eq ptr %shared, null
  %lacks.scratch = icmp eq ptr %scratch, null
  %lacks = or i1 %lacks.shared, %lacks.scratch
  br i1 %lacks, label %poor, label %rich
rich:
  call void @{symbol}.pointers(ptr %operands, ptr %args, i64 {operands})
  call void @{symbol}.pointers(ptr %results, ptr %rets, i64 {results})
  call void @prologue(ptr %args, ptr %shared) noinline
  %counted = add i64 %count, {width - 1}
  %blocks = sdiv i64 %counted, {width}
  %is.shared = call i1 @{symbol}.share(
    ptr %api, ptr %ctx, {kernel}, i64 %blocks, i64 %count)
  br i1 %is.shared, label %end, label %alone
alone:
  call void @{symbol}.run({kernel}, i64 0, i64 %blocks, i64 %count)
  br label %end
end:
{give}
  ret ptr null
poor:
{give}
  br label %memory
{_fail(symbol, "memory")}
}}
"""


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
