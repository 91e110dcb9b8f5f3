"""What handlers need of the C library and of the processor, in LLVM text: memory, waiting, time."""

import platform
import re
import sys

from ..xla._c_api import load, store

ON_STACK = 4096
"""Memory of at most so many bytes is on the stack."""
LINE = 64
"""Bytes of a cache line, and the alignment of memory."""
LARGE = 4 * 2**20
"""Memory of so many bytes asks the operating system for large pages, as NumPy's arrays do."""
_PAGE = 2 * 2**20
_LARGE_PAGES = 14  # MADV_HUGEPAGE
YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
"""The function that lets another thread have the core."""

_X86, _ARM = "@llvm.x86.sse2.pause()", "@llvm.aarch64.hint(i32 1)"
_WAITING = {"x86_64": _X86, "amd64": _X86, "arm64": _ARM, "aarch64": _ARM}.get(
    platform.machine().lower()
)
_MONOTONIC = 6 if sys.platform == "darwin" else 1


def declared() -> dict[str, str]:
    """What the text below declares, by name: functions of the C library and of LLVM."""
    functions = ["ptr @malloc(i64)", "void @free(ptr)", f"i32 @{YIELD}()"]
    functions.append("ptr @llvm.ptrmask.p0.i64(ptr, i64)")
    if sys.platform == "win32":
        functions.append("void @GetSystemTimePreciseAsFileTime(ptr)")
    else:
        functions.append("i32 @clock_gettime(i32, ptr)")
    if sys.platform == "linux":
        functions.append("i32 @madvise(ptr, i64, i32)")
    if _WAITING:
        functions.append(f"void {_WAITING}".replace("i32 1", "i32"))
    return {re.findall(r"@([\w.]+)", f)[0]: f for f in functions}


def pause() -> str:
    """The line that tells a core it is waiting in a loop, if there is such an instruction."""
    return f"  call void {_WAITING}\n" if _WAITING else ""


def take(symbol: str, name: str, size: str) -> str:
    """Let ``%name`` be aligned memory, or null if there is none. Stands in the first block."""
    return f"""\
  %{name}.small = icmp ule i64 {size}, {ON_STACK}
  %{name}.here = select i1 %{name}.small, i64 {size}, i64 0
  %{name}.stack = alloca i8, i64 %{name}.here, align {LINE}
  %{name}.there = select i1 %{name}.small, i64 0, i64 {size}
  %{name}.heap = call ptr @{symbol}.take(i64 %{name}.there)
  %{name} = select i1 %{name}.small, ptr %{name}.stack, ptr %{name}.heap"""


def give(symbol: str, name: str) -> str:
    """Give back what :func:`take` took, which may be null."""
    return f"  call void @{symbol}.give(ptr %{name}.heap)"


def memory_text(symbol: str) -> str:
    """``@symbol.take`` and ``@symbol.give``: aligned memory, its true address right before it.

    No memory is the null pointer, and so is memory of no bytes. Needs :func:`pages_text`.
    """
    return f"""\
define internal ptr @{symbol}.take(i64 %size) nounwind {{
  %nothing = icmp eq i64 %size, 0
  br i1 %nothing, label %failed, label %ask
ask:
  %with.room = add i64 %size, {LINE + 8}
  %memory = call ptr @malloc(i64 %with.room)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %align
align:
  %behind = getelementptr i8, ptr %memory, i64 {LINE + 8 - 1}
  %aligned = call ptr @llvm.ptrmask.p0.i64(ptr %behind, i64 -{LINE})
{store("ptr %memory", "%aligned", -8)}
  call void @{symbol}.pages(ptr %aligned, i64 %size)
  ret ptr %aligned
failed:
  ret ptr null
}}

define internal void @{symbol}.give(ptr %aligned) nounwind {{
  %none = icmp eq ptr %aligned, null
  br i1 %none, label %end, label %free
free:
{load("memory", "%aligned", -8)}
  call void @free(ptr %memory)
  br label %end
end:
  ret void
}}
"""


def pages_text(symbol: str) -> str:
    """``@symbol.pages`` asks for large pages for memory of ``LARGE`` bytes or more.

    XLA takes the memory of large results from the operating system in each call and gives it back
    afterwards, and so does the C library with much memory of a kernel. In pages of 4 kB that takes
    longer than the derivatives of a robot themselves. What is asked for is a wish: where it cannot
    be met, nothing changes.
    """
    wish = f"""\
  %large = icmp uge i64 %bytes, {LARGE}
  br i1 %large, label %ask, label %end
ask:
  %more = getelementptr i8, ptr %data, i64 {_PAGE - 1}
  %start = call ptr @llvm.ptrmask.p0.i64(ptr %more, i64 {-_PAGE})
  %behind = getelementptr i8, ptr %data, i64 %bytes
  %stop = call ptr @llvm.ptrmask.p0.i64(ptr %behind, i64 {-_PAGE})
  %from = ptrtoint ptr %start to i64
  %to = ptrtoint ptr %stop to i64
  %length = sub i64 %to, %from
  %ignored = call i32 @madvise(ptr %start, i64 %length, i32 {_LARGE_PAGES})
  br label %end
end:"""
    return f"""\
define internal void @{symbol}.pages(ptr %data, i64 %bytes) nounwind {{
{wish if sys.platform == "linux" else ""}
  ret void
}}
"""


def clock_text(symbol: str) -> str:
    """``@symbol.now`` reads a clock, in nanoseconds."""
    windows = """\
  call void @GetSystemTimePreciseAsFileTime(ptr %time)
  %ticks = load i64, ptr %time
  %now = mul i64 %ticks, 100"""
    posix = f"""\
  %ignored = call i32 @clock_gettime(i32 {_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
{load("rest", "%time", 8, "i64")}
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest"""
    return f"""\
define internal i64 @{symbol}.now() nounwind {{
  %time = alloca [16 x i8], align 8
{windows if sys.platform == "win32" else posix}
  ret i64 %now
}}
"""
