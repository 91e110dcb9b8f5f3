"""The work of one call on a CPU, done by one thread or shared by several, in LLVM text.

A call computes two blocks itself and takes the time of the second one. If what is left is worth
it, other threads are asked for help. Threads take chunks of blocks from a counter. The calling
thread takes part, and at the end waits only for chunks that somebody has begun, never for a thread
to start: a pool whose threads are all busy, or all inside such calls, cannot stop it. What a
thread may touch that starts after the call has ended is the ``job``, memory of its own that is
freed by whoever leaves last, and code of the dispatcher, which is never unloaded.
"""

from ..xla import _c_api
from ..xla._c_api import at, load, store
from ..xla._dispatcher import fail, kernel_fields
from ..xla._kernel_table import field
from . import _libc
from ._libc import LINE, YIELD, give, pause, take

SPINS = 2000
"""So many times a call looks whether the other threads are done before it yields its core."""
HELP_NS = 25_000
"""One more thread takes part for every so much work; to wake one takes about 8, often 20 µs."""
CHUNK_NS = 5_000
"""A thread takes work of about so much time at once."""

# Offsets in a job. The two counters that all threads write have cache lines of their own.
_JOB = {"next": 0, "done": LINE, "refs": 2 * LINE}
_FIELDS = {"begin": "i64", "chunks": "i64", "grain": "i64", "blocks": "i64", "count": "i64"}
_FIELDS |= {"scratch_bytes": "i64", "run": "ptr", "args": "ptr", "rets": "ptr", "shared": "ptr"}
_JOB |= {name: 2 * LINE + 8 * k for k, name in enumerate(_FIELDS, 1)}
_JOB_BYTES = 2 * LINE + 8 * (len(_FIELDS) + 1)

_RUN = "call void %run(ptr %args, ptr %rets, ptr %shared, ptr %scratch"


def compute_text() -> str:
    """``@lanes.compute`` for kernels of this process, and what it needs."""
    return "\n".join((
        _compute(),
        jobs_text(),
        _libc.memory_text("lanes"),
        _libc.pages_text("lanes"),
        _c_api.sizes_text("lanes"),
        _libc.clock_text("lanes"),
        _c_api.pool_text("lanes"),
        *(f"declare {declaration}" for declaration in _libc.declared().values()),
    ))  # fmt: skip


def jobs_text() -> str:
    """``@lanes.blocks`` computes all blocks of a call, and all that it needs."""
    return "\n".join((_blocks(), _share(), _start(), _task(), _work(), _wait(), _drop()))


def _compute() -> str:
    """One call: memory, prologue, and all blocks, with the help of the pool or without."""
    return f"""\
define internal ptr @lanes.compute(
    ptr %api, ptr %ctx, ptr %kernel, ptr %buffers.in, ptr %buffers.out, i64 %count) nounwind {{
{kernel_fields("prologue", "operands", "results", "width", "shared_bytes", "scratch_bytes")}
  %args = alloca ptr, i64 %operands, align 8
  %rets = alloca ptr, i64 %results, align 8
{take("lanes", "shared", "%shared_bytes")}
{take("lanes", "scratch", "%scratch_bytes")}
  %lacks.shared = icmp eq ptr %shared, null
  %lacks.scratch = icmp eq ptr %scratch, null
  %lacks = or i1 %lacks.shared, %lacks.scratch
  br i1 %lacks, label %poor, label %rich
rich:
  call void @lanes.pointers(ptr %buffers.in, ptr %args, i64 %operands)
  call void @lanes.pointers(ptr %buffers.out, ptr %rets, i64 %results)
  call void @lanes.roomy(ptr %buffers.out, i64 %results)
  call void %prologue(ptr %args, ptr %shared)
  %ending = add i64 %count, %width
  %rounded = sub i64 %ending, 1
  %blocks = sdiv i64 %rounded, %width
  call void @lanes.blocks(ptr %api, ptr %ctx, ptr %kernel,
    ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %blocks, i64 %count)
{give("lanes", "shared")}
{give("lanes", "scratch")}
  ret ptr null
poor:
{give("lanes", "shared")}
{give("lanes", "scratch")}
  br label %memory
{fail("memory")}
}}
"""


def _blocks() -> str:
    """Alone where there are few blocks or no other threads, or where the rest takes no time."""
    fields = load("run", "%kernel", field("run")), load("fixed", "%kernel", field("grain"), "i64")
    return f"""\
define internal void @lanes.blocks(
    ptr %api, ptr %ctx, ptr %kernel, ptr %args, ptr %rets, ptr %shared, ptr %scratch,
    i64 %blocks, i64 %count) nounwind {{
entry:
{chr(10).join(fields)}
  %measured = icmp eq i64 %fixed, 0
  %enough = select i1 %measured, i64 3, i64 %fixed
  %many = icmp sgt i64 %blocks, %enough
  br i1 %many, label %ask, label %alone
ask:
  %pool = call i64 @lanes.threads(ptr %api, ptr %ctx)
  %single = icmp sle i64 %pool, 1
  br i1 %single, label %alone, label %plan
plan:
  br i1 %measured, label %measure, label %chosen
measure:
  {_RUN}, i64 0, i64 1, i64 %count)
  %start = call i64 @lanes.now()
  {_RUN}, i64 1, i64 2, i64 %count)
  %end = call i64 @lanes.now()
  %time = sub i64 %end, %start
  %sane = icmp sgt i64 %time, 10
  %block = select i1 %sane, i64 %time, i64 10
  %rest = sub i64 %blocks, 2
  %work = mul i64 %block, %rest
  %helped = sdiv i64 %work, {HELP_NS}
  %few = icmp slt i64 %helped, 2
  br i1 %few, label %alone, label %worth
worth:
  %chunk = sdiv i64 {CHUNK_NS}, %block
  %threads.4 = mul i64 %pool, 4
  %fair = sdiv i64 %rest, %threads.4
  %large = icmp sgt i64 %chunk, %fair
  %smaller = select i1 %large, i64 %fair, i64 %chunk
  %none = icmp slt i64 %smaller, 1
  %least = select i1 %none, i64 1, i64 %smaller
  br label %chosen
chosen:
  %begin = phi i64 [ 0, %plan ], [ 2, %worth ]
  %grain = phi i64 [ %fixed, %plan ], [ %least, %worth ]
  %wanted = phi i64 [ %pool, %plan ], [ %helped, %worth ]
  %over = icmp sgt i64 %wanted, %pool
  %threads = select i1 %over, i64 %pool, i64 %wanted
  %shared.out = call i1 @lanes.share(ptr %api, ptr %ctx, ptr %kernel, ptr %args, ptr %rets,
    ptr %shared, ptr %scratch, i64 %begin, i64 %blocks, i64 %count, i64 %grain, i64 %threads)
  br i1 %shared.out, label %done, label %alone
alone:
  %from = phi i64 [ 0, %entry ], [ 0, %ask ], [ 2, %measure ], [ %begin, %chosen ]
  {_RUN}, i64 %from, i64 %blocks, i64 %count)
  br label %done
done:
  ret void
}}
"""


def _share() -> str:
    """Compute blocks with other threads; says whether it did, which it does not without memory."""
    values = {"next": "i64 0", "done": "i64 0", "refs": "i64 %threads"}
    values |= {name: f"{kind} %{name}" for name, kind in _FIELDS.items()}
    return f"""\
define internal i1 @lanes.share(
    ptr %api, ptr %ctx, ptr %kernel, ptr %args, ptr %rets, ptr %shared, ptr %scratch,
    i64 %begin, i64 %blocks, i64 %count, i64 %grain, i64 %wanted) nounwind {{
  %number = sub i64 %blocks, %begin
  %whole = sub i64 %number, 1
  %full = sdiv i64 %whole, %grain
  %chunks = add i64 %full, 1
  %scarce = icmp slt i64 %chunks, %wanted
  %threads = select i1 %scarce, i64 %chunks, i64 %wanted
{load("run", "%kernel", field("run"))}
{load("scratch_bytes", "%kernel", field("scratch_bytes"), "i64")}
  %job = call ptr @malloc(i64 {_JOB_BYTES})
  %poor = icmp eq ptr %job, null
  br i1 %poor, label %no, label %start
start:
{chr(10).join(store(value, "%job", _JOB[name]) for name, value in values.items())}
  call void @lanes.start(ptr %api, ptr %ctx, ptr %job, i64 %threads)
  call void @lanes.work(ptr %job, ptr %scratch)
  call void @lanes.wait(ptr %job)
  call void @lanes.drop(ptr %job, i64 1)
  ret i1 true
no:
  ret i1 false
}}
"""


def _start() -> str:
    """Ask for all threads but this one; give back the references of those that do not come."""
    return """\
define internal void @lanes.start(ptr %api, ptr %ctx, ptr %job, i64 %threads) nounwind {
entry:
  br label %look
look:
  %k = phi i64 [ 1, %entry ], [ %k.next, %ask ]
  %more = icmp slt i64 %k, %threads
  br i1 %more, label %ask, label %end
ask:
  %k.next = add i64 %k, 1
  %came = call i1 @lanes.schedule(ptr %api, ptr %ctx, ptr @lanes.task, ptr %job)
  br i1 %came, label %look, label %failed
failed:
  %missing = sub i64 %threads, %k
  call void @lanes.drop(ptr %job, i64 %missing)
  br label %end
end:
  ret void
}
"""


def _task() -> str:
    """What a thread of the pool does. If it comes too late, or has no memory, others did it."""
    return f"""\
define internal void @lanes.task(ptr %job) nounwind {{
{load("chunks", "%job", _JOB["chunks"], "i64")}
{at("next", "%job", _JOB["next"])}
  %chunk = load atomic i64, ptr %next monotonic, align 8
  %late = icmp sge i64 %chunk, %chunks
  br i1 %late, label %end, label %help
help:
{load("scratch_bytes", "%job", _JOB["scratch_bytes"], "i64")}
  call void @lanes.help(ptr %job, i64 %scratch_bytes)
  br label %end
end:
  call void @lanes.drop(ptr %job, i64 1)
  ret void
}}

define internal void @lanes.help(ptr %job, i64 %scratch_bytes) noinline nounwind {{
{take("lanes", "scratch", "%scratch_bytes")}
  %poor = icmp eq ptr %scratch, null
  br i1 %poor, label %end, label %work
work:
  call void @lanes.work(ptr %job, ptr %scratch)
{give("lanes", "scratch")}
  br label %end
end:
  ret void
}}
"""


def _work() -> str:
    """Compute chunks until none is left. The kernel is not touched after the last one is done."""
    return f"""\
define internal void @lanes.work(ptr %job, ptr %scratch) nounwind {{
entry:
{chr(10).join(load(name, "%job", _JOB[name], kind) for name, kind in _FIELDS.items())}
{at("next", "%job", _JOB["next"])}
{at("done", "%job", _JOB["done"])}
  br label %look
look:
  %chunk = atomicrmw add ptr %next, i64 1 monotonic
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %compute, label %out
compute:
  %before = mul i64 %chunk, %grain
  %first = add i64 %begin, %before
  %full = add i64 %first, %grain
  %over = icmp sgt i64 %full, %blocks
  %end = select i1 %over, i64 %blocks, i64 %full
  {_RUN}, i64 %first, i64 %end, i64 %count)
  %was.done = atomicrmw add ptr %done, i64 1 release
  br label %look
out:
  ret void
}}
"""


def _wait() -> str:
    """Wait for the chunks that other threads have begun; none is left that nobody has."""
    return f"""\
define internal void @lanes.wait(ptr %job) nounwind {{
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


def _drop() -> str:
    """Give back references to a job; who gives back the last frees it."""
    return f"""\
define internal void @lanes.drop(ptr %job, i64 %references) nounwind {{
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
