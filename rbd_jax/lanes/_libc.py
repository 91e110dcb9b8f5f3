"""What handlers need of the C library and of the processor, in LLVM text: memory and waiting."""

import platform
import re
import sys

from ._c_api import ONCE, load, store

ON_STACK = 4096
"""Memory of at most so many bytes is on the stack."""
LINE = 64
"""Bytes of a cache line, and the alignment of memory."""
YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
"""The function that lets another thread have the core."""

_X86, _ARM = "@llvm.x86.sse2.pause()", "@llvm.aarch64.hint(i32 1)"
_WAITING = {"x86_64": _X86, "amd64": _X86, "arm64": _ARM, "aarch64": _ARM}.get(
    platform.machine().lower()
)


def declared() -> dict[str, str]:
    """What the text below declares, by name: functions of the C library and of LLVM."""
    functions = ["ptr @malloc(i64)", "void @free(ptr)", f"i32 @{YIELD}()"]
    functions.append("ptr @llvm.ptrmask.p0.i64(ptr, i64)")
    if _WAITING:
        functions.append(f"void {_WAITING}".replace("i32 1", "i32"))
    return {re.findall(r"@([\w.]+)", f)[0]: f for f in functions}


def pause() -> str:
    """The line that tells a core it is waiting in a loop, if there is such an instruction."""
    return f"  call void {_WAITING}\n" if _WAITING else ""


def take(symbol: str, name: str, size: int) -> str:
    """Let ``%name`` be aligned memory, or null if there is none. Stands in the first block."""
    if size <= ON_STACK:
        return f"  %{name} = alloca [{max(size, 1)} x i8], align {LINE}"
    return f"  %{name} = call ptr @{symbol}.take(i64 {size})"


def give(symbol: str, name: str, size: int) -> str:
    """Give back what :func:`take` took, which may be null."""
    return f"  call void @{symbol}.give(ptr %{name})" if size > ON_STACK else ""


def memory_text(symbol: str) -> str:
    """``@symbol.take`` and ``@symbol.give``: aligned memory, its true address right before it."""
    return f"""\
define internal ptr @{symbol}.take(i64 %size) {ONCE} {{
  %with.room = add i64 %size, {LINE + 8}
  %memory = call ptr @malloc(i64 %with.room)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %align
align:
  %behind = getelementptr i8, ptr %memory, i64 {LINE + 8 - 1}
  %aligned = call ptr @llvm.ptrmask.p0.i64(ptr %behind, i64 -{LINE})
{store("ptr %memory", "%aligned", -8)}
  ret ptr %aligned
failed:
  ret ptr null
}}

define internal void @{symbol}.give(ptr %aligned) {ONCE} {{
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
