"""How the dispatcher launches a kernel on a GPU, in LLVM text for the host.

XLA calls the handler on a thread of the host. It launches the prologue with one block of threads
and then the other entry with as many blocks as hold all samples, on the stream of the call, and
returns. The GPU computes them later, one after the other.
"""

from ..xla._c_api import constant, invoke, load, offset
from ..xla._dispatcher import kernel_fields
from ._ptx import TOGETHER

USED = (
    "cuStreamGetCtx",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuLaunchKernel",
    "cuGetErrorString",
)
"""Functions of the driver. Their addresses are to be written to globals of these names."""

_MESSAGE = (
    "the GPU did not take the kernel: %s (CUDA error %d); "
    "with RBD_JAX_LANES=cpu, XLA computes on GPUs"
)
_BYTES = 256


def launch_text() -> str:
    """``@lanes.compute``, as the dispatcher for CPUs has it, and what it needs."""
    return "\n".join((
        *(f"@{name} = global ptr null" for name in USED),
        f'@lanes.message = private constant [{len(_MESSAGE) + 1} x i8] c"{_MESSAGE}\\00"',
        '@lanes.unknown = private constant [14 x i8] c"unknown error\\00"',
        "declare i32 @snprintf(ptr, i64, ptr, ...)",
        _compute(), _launch(), _refused(),
    ))  # fmt: skip


def _compute() -> str:
    """Both launches. The parameters of a launch are addresses of the values of arguments."""
    return f"""\
define internal ptr @lanes.compute(
    ptr %api, ptr %ctx, ptr %kernel, ptr %buffers.in, ptr %buffers.out, i64 %count) nounwind {{
start:
{kernel_fields("prologue", "run", "operands", "results", "shared_bytes")}
{kernel_fields("threads", "samples", "chip_bytes")}
  %given = add i64 %operands, %results
  %total = add i64 %given, 1
  %data = alloca ptr, i64 %given, align 8
  %parameters = alloca ptr, i64 %total, align 8
  %n = alloca i64, align 8
  %context = alloca ptr, align 8
  store i64 %count, ptr %n
  call void @lanes.pointers(ptr %buffers.in, ptr %data, i64 %operands)
  %behind = getelementptr ptr, ptr %data, i64 %operands
  call void @lanes.pointers(ptr %buffers.out, ptr %behind, i64 %results)
  br label %look
look:
  %k = phi i64 [ 0, %start ], [ %k.next, %write ]
  %slot = getelementptr ptr, ptr %parameters, i64 %k
  %more = icmp slt i64 %k, %given
  br i1 %more, label %write, label %last
write:
  %value = getelementptr ptr, ptr %data, i64 %k
  store ptr %value, ptr %slot
  %k.next = add i64 %k, 1
  br label %look
last:
  store ptr %n, ptr %slot
{invoke("%failed = call ptr", "Stream_Get", ctx="ptr %ctx", stream="ptr null")}
  %fine = icmp eq ptr %failed, null
  br i1 %fine, label %enter, label %end
end:
  ret ptr %failed
enter:
{load("stream", "%in", offset("Stream_Get_Args.stream"))}
  %get = load ptr, ptr @cuStreamGetCtx
  %got = call i32 %get(ptr %stream, ptr %context)
  %known = icmp eq i32 %got, 0
  br i1 %known, label %push, label %refused
push:
  %here = load ptr, ptr %context
  %push.it = load ptr, ptr @cuCtxPushCurrent_v2
  %pushed = call i32 %push.it(ptr %here)
  %inside = icmp eq i32 %pushed, 0
  br i1 %inside, label %begin, label %refused
begin:
  %shares = icmp sgt i64 %shared_bytes, 0
  br i1 %shares, label %first, label %second
first:
  %one = call i32 @lanes.launch(
    ptr %prologue, i64 1, i64 {TOGETHER}, i64 0, ptr %stream, ptr %parameters)
  %went = icmp eq i32 %one, 0
  br i1 %went, label %second, label %leave
second:
  %up = add i64 %count, %samples
  %rounded = sub i64 %up, 1
  %blocks = udiv i64 %rounded, %samples
  %two = call i32 @lanes.launch(
    ptr %run, i64 %blocks, i64 %threads, i64 %chip_bytes, ptr %stream, ptr %parameters)
  br label %leave
leave:
  %status = phi i32 [ %one, %first ], [ %two, %second ]
  %pop = load ptr, ptr @cuCtxPopCurrent_v2
  %popped = call i32 %pop(ptr %context)
  %worked = icmp eq i32 %status, 0
  br i1 %worked, label %done, label %refused
done:
  ret ptr null
refused:
  %error = phi i32 [ %got, %enter ], [ %pushed, %push ], [ %status, %leave ]
  %told = call ptr @lanes.refused(ptr %api, i32 %error)
  ret ptr %told
}}
"""


def _launch() -> str:
    """Launch a kernel in so many blocks, each of so many threads with so much memory."""
    return """\
define internal i32 @lanes.launch(ptr %kernel, i64 %blocks, i64 %threads, i64 %bytes,
    ptr %stream, ptr %parameters) nounwind {
  %grid = trunc i64 %blocks to i32
  %block = trunc i64 %threads to i32
  %memory = trunc i64 %bytes to i32
  %launch = load ptr, ptr @cuLaunchKernel
  %status = call i32 %launch(ptr %kernel, i32 %grid, i32 1, i32 1, i32 %block, i32 1, i32 1,
    i32 %memory, ptr %stream, ptr %parameters, ptr null)
  ret i32 %status
}
"""


def _refused() -> str:
    """An error that says what the driver says."""
    return f"""\
define internal ptr @lanes.refused(ptr %api, i32 %status) nounwind {{
  %text.at = alloca ptr, align 8
  store ptr null, ptr %text.at
  %message = alloca [{_BYTES} x i8], align 1
  %name = load ptr, ptr @cuGetErrorString
  %ignored = call i32 %name(i32 %status, ptr %text.at)
  %found = load ptr, ptr %text.at
  %nameless = icmp eq ptr %found, null
  %text = select i1 %nameless, ptr @lanes.unknown, ptr %found
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(
    ptr %message, i64 {_BYTES}, ptr @lanes.message, ptr %text, i32 %status)
  %error = call ptr @lanes.error(ptr %api, i32 {constant("Error_Code_INTERNAL")}, ptr %message)
  ret ptr %error
}}
"""
