"""The blocks of one call, computed by several of XLA's threads, in LLVM text.

Threads take chunks of blocks from a counter. The calling thread takes part, and at the end waits
only for chunks that somebody has begun, never for a thread to start: a pool whose threads are all
busy, or all inside such calls, cannot stop it. What a thread may touch that starts after the call
has ended is the ``job``, memory of its own that is freed by whoever leaves last.
"""

from collections.abc import Iterable

from ._c_api import ONCE, at, load, store
from ._libc import LINE, YIELD, give, pause, take

SPINS = 2000
"""So many times a call looks whether the other threads are done before it yields its core."""

# Offsets in a job. The two counters that all threads write have cache lines of their own.
_JOB = {"next": 0, "done": LINE, "refs": 2 * LINE}
_FIELDS = {"chunks": "i64", "blocks": "i64", "count": "i64"}
_FIELDS |= {"args": "ptr", "rets": "ptr", "shared": "ptr"}
_JOB |= {name: 2 * LINE + 8 * k for k, name in enumerate(_FIELDS, 1)}
_JOB_BYTES = 3 * LINE


def jobs_text(symbol: str, scratch_bytes: int, grain: int) -> str:
    """``@symbol.share`` computes the blocks of a call together with the pool, and all it needs.

    It says whether it did: not if there are few blocks, no other threads, or no memory.
    """
    parts = (
        _share(symbol, grain),
        _start(symbol),
        _task(symbol, scratch_bytes),
        _work(symbol, grain),
        _wait(symbol),
        _drop(symbol),
    )
    return "\n".join(parts)


def _share(symbol: str, grain: int) -> str:
    values = {"next": "i64 0", "done": "i64 0", "refs": "i64 %threads"}
    values |= {name: f"{kind} %{name}" for name, kind in _FIELDS.items()}
    return f"""\
define internal i1 @{symbol}.share(
    ptr %api, ptr %ctx, ptr %args, ptr %rets, ptr %shared, ptr %scratch,
    i64 %blocks, i64 %count) {ONCE} {{
  %many = icmp sgt i64 %blocks, {grain}
  br i1 %many, label %ask, label %no
ask:
  %pool = call i64 @{symbol}.threads(ptr %api, ptr %ctx)
  %alone = icmp sle i64 %pool, 1
  br i1 %alone, label %no, label %plan
plan:
  %grained = add i64 %blocks, {grain - 1}
  %chunks = sdiv i64 %grained, {grain}
  %scarce = icmp slt i64 %chunks, %pool
  %threads = select i1 %scarce, i64 %chunks, i64 %pool
  %job = call ptr @malloc(i64 {_JOB_BYTES})
  %poor = icmp eq ptr %job, null
  br i1 %poor, label %no, label %start
start:
{_lines(store(value, "%job", _JOB[name]) for name, value in values.items())}
  call void @{symbol}.start(ptr %api, ptr %ctx, ptr %job, i64 %threads)
  call void @{symbol}.work(ptr %job, ptr %scratch)
  call void @{symbol}.wait(ptr %job)
  call void @{symbol}.drop(ptr %job, i64 1)
  ret i1 true
no:
  ret i1 false
}}
"""


def _start(symbol: str) -> str:
    """Ask for all threads but this one; give back the references of those that do not come."""
    return f"""\
define internal void @{symbol}.start(ptr %api, ptr %ctx, ptr %job, i64 %threads) {ONCE} {{
entry:
  br label %look
look:
  %k = phi i64 [ 1, %entry ], [ %k.next, %ask ]
  %more = icmp slt i64 %k, %threads
  br i1 %more, label %ask, label %end
ask:
  %k.next = add i64 %k, 1
  %came = call i1 @{symbol}.schedule(ptr %api, ptr %ctx, ptr @{symbol}.task, ptr %job)
  br i1 %came, label %look, label %failed
failed:
  %missing = sub i64 %threads, %k
  call void @{symbol}.drop(ptr %job, i64 %missing)
  br label %end
end:
  ret void
}}
"""


def _task(symbol: str, scratch_bytes: int) -> str:
    """What a thread of the pool does. If it comes too late, or has no memory, others did it."""
    return f"""\
define internal void @{symbol}.task(ptr %job) {ONCE} {{
{load("chunks", "%job", _JOB["chunks"], "i64")}
{at("next", "%job", _JOB["next"])}
  %chunk = load atomic i64, ptr %next monotonic, align 8
  %late = icmp sge i64 %chunk, %chunks
  br i1 %late, label %end, label %help
help:
  call void @{symbol}.help(ptr %job)
  br label %end
end:
  call void @{symbol}.drop(ptr %job, i64 1)
  ret void
}}

define internal void @{symbol}.help(ptr %job) {ONCE} {{
{take(symbol, "scratch", scratch_bytes)}
  %poor = icmp eq ptr %scratch, null
  br i1 %poor, label %end, label %work
work:
  call void @{symbol}.work(ptr %job, ptr %scratch)
{give(symbol, "scratch", scratch_bytes)}
  br label %end
end:
  ret void
}}
"""


def _work(symbol: str, grain: int) -> str:
    """Compute chunks until none is left."""
    return f"""\
define internal void @{symbol}.work(ptr %job, ptr %scratch) nounwind {{
entry:
{_lines(load(name, "%job", _JOB[name], kind) for name, kind in _FIELDS.items())}
{at("next", "%job", _JOB["next"])}
{at("done", "%job", _JOB["done"])}
  br label %look
look:
  %chunk = atomicrmw add ptr %next, i64 1 monotonic
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %compute, label %out
compute:
  %begin = mul i64 %chunk, {grain}
  %full = add i64 %begin, {grain}
  %over = icmp sgt i64 %full, %blocks
  %end = select i1 %over, i64 %blocks, i64 %full
  call void @{symbol}.run(
    ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %begin, i64 %end, i64 %count)
  %was.done = atomicrmw add ptr %done, i64 1 release
  br label %look
out:
  ret void
}}
"""


def _wait(symbol: str) -> str:
    """Wait for the chunks that other threads have begun; none is left that nobody has."""
    return f"""\
define internal void @{symbol}.wait(ptr %job) {ONCE} {{
entry:
{load("chunks", "%job", _JOB["chunks"], "i64")}
{at("done", "%job", _JOB["done"])}
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %spin ], [ %k.next, %yield ]
  %now = load atomic i64, ptr %done acquire, align 8
  %missing = icmp slt i64 %now, %chunks
  br i1 %missing, label %pause, label %end
pause:
  %k.next = add i64 %k, 1
  %patient = icmp slt i64 %k, {SPINS}
  br i1 %patient, label %spin, label %yield
spin:
{pause()}  br label %look
yield:
  %ignored = call i32 @{YIELD}()
  br label %look
end:
  ret void
}}
"""


def _drop(symbol: str) -> str:
    """Give back references to a job; who gives back the last frees it."""
    return f"""\
define internal void @{symbol}.drop(ptr %job, i64 %references) {ONCE} {{
{at("refs", "%job", _JOB["refs"])}
  %before = atomicrmw sub ptr %refs, i64 %references acq_rel
  %last = icmp eq i64 %before, %references
  br i1 %last, label %free, label %end
free:
  call void @free(ptr %job)
  br label %end
end:
  ret void
}}
"""


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(parts)
