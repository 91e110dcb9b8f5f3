"""The one handler that XLA knows, in LLVM text: it finds the kernel of a call and runs it.

JAX cannot forget a target of its foreign function interface, so kernels are no targets. A call
names its kernel by an attribute, a hash of the kernel's code, and the handler looks it up in a
table that Python fills, see :mod:`._kernel_registry`. An executable counts as a user of its kernels
from the moment XLA instantiates it until it is destroyed. So Python knows when code can be
unloaded.
An executable that another process has compiled is instantiated before its kernels are there:
Python then gives a place in the table, whose kernel is null until it is loaded.

How a call is computed is told by the folders of the machines: a CPU works through blocks of samples
(``cpu._work_sharing``), and a GPU gets launches (``gpu._launch``). All that still runs when a call
has ended is code of the dispatcher's module, which is never unloaded.
"""

from . import _c_api
from ._c_api import constant, load, offset
from ._kernel_table import BUFFER, BUFFER_BYTES, field

BUCKETS, SLOTS = 4096, 16
"""The table is an array of buckets; the low bits of a hash say which, its place inside is free."""
SLOT = {"key": 0, "kernel": 8, "users": 16}
"""Offsets in a slot. A key of 0 means that it is empty, a kernel of 0 that it is to be loaded."""
SLOT_BYTES = 32
SYMBOLS = tuple(
    f"lanes.{s}" for s in ("table", "place", "type", "execute", "instantiate", "count", "release")
)
"""What is visible outside of the dispatcher's module."""

_ERRORS = {
    "missing": ("NOT_FOUND", "the kernel of this call is not loaded in this process; load the "
                "executable by jax.experimental.serialize_executable, which brings its kernels "
                "along, or compile the function again"),
    "unfit": (
        "INVALID_ARGUMENT",
        "operands or results are not those of the kernel, in number, dtype or size",
    ),
    "few": ("INVALID_ARGUMENT", "fewer samples than the kernel computes at a time"),
    "memory": ("RESOURCE_EXHAUSTED", "no memory for the kernel to work in"),
}  # fmt: skip


def dispatcher_text(compute: str) -> str:
    """LLVM text of the dispatcher, whose ``@lanes.compute`` and what it needs is ``compute``.

    What is visible outside of its module::

    @lanes.table        a pointer to the table, to be set
    @lanes.place        a pointer to a function, to be set: it gives a key that is not in the table
                        a slot, for which it counts a user, or null if there is no room
    @lanes.type         the number of the type of states, to be set by XLA
    @lanes.execute      the handler that runs a kernel
    @lanes.instantiate  the handler that counts an executable as a user of its kernel
    @lanes.count        the function that counts a user of a slot
    @lanes.release      the function that takes it away from the count
    """
    parts = (
        "@lanes.table = global ptr null",
        "@lanes.place = global ptr null",
        "@lanes.type = global i64 0",
        *(f'@lanes.{name}.text = private constant [{len(text) + 1} x i8] c"{text}\\00"'
          for name, (_, text) in _ERRORS.items()),
        _entry("execute", _execute()),
        _entry("instantiate", _instantiate()),
        _change("count", "add"),
        _change("release", "sub"),
        _named(),
        _find(),
        _fit(),
        _c_api.pointers_text("lanes"),
        _c_api.error_text("lanes"),
        _c_api.metadata_text("lanes"),
        compute,
    )  # fmt: skip
    return "\n".join(parts)


def kernel_fields(*names: str) -> str:
    """Let names be what stands in the table of ``%kernel``."""
    kinds: dict[str, str] = dict.fromkeys(("prologue", "run", "buffers"), "ptr")
    return "\n".join(load(name, "%kernel", field(name), kinds.get(name, "i64")) for name in names)


def fail(name: str) -> str:
    """Blocks that return an error, labeled with its name."""
    code = constant(f"Error_Code_{_ERRORS[name][0]}")
    return f"""\
{name}:
  %{name}.error = call ptr @lanes.error(ptr %api, i32 {code}, ptr @lanes.{name}.text)
  ret ptr %{name}.error"""


def _entry(name: str, inside: str) -> str:
    """A handler: it answers XLA's question for its version, or looks for its kernel and goes on."""
    return f"""\
define ptr @lanes.{name}(ptr %frame) nounwind {{
{load("extension", "%frame", offset("CallFrame.extension_start"))}
{load("api", "%frame", offset("CallFrame.api"))}
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %look, label %extended
extended:
  %answered = call i1 @lanes.metadata(ptr %extension)
  br i1 %answered, label %end, label %look
look:
{load("ctx", "%frame", offset("CallFrame.ctx"))}
  %key = call i64 @lanes.named(ptr %frame)
  %slot = call ptr @lanes.find(i64 %key)
  %lost = icmp eq ptr %slot, null
{inside}
end:
  ret ptr null
{fail("missing")}
}}
"""


def _named() -> str:
    """The key of the kernel that the only attribute of a call names, or 0."""
    return f"""\
define internal i64 @lanes.named(ptr %frame) nounwind {{
entry:
{load("number", "%frame", offset("CallFrame.attrs.size"), "i64")}
  %one = icmp eq i64 %number, 1
  br i1 %one, label %read, label %none
read:
{load("types", "%frame", offset("CallFrame.attrs.types"))}
  %type = load i32, ptr %types
  %scalar = icmp eq i32 %type, {constant("AttrType_SCALAR")}
  br i1 %scalar, label %found, label %none
found:
{load("attrs", "%frame", offset("CallFrame.attrs.attrs"))}
  %attr = load ptr, ptr %attrs
{load("value", "%attr", offset("Scalar.value"))}
  %key = load i64, ptr %value
  ret i64 %key
none:
  ret i64 0
}}
"""


def _find() -> str:
    """The slot of a key, or null."""
    slot = f"mul i64 %k, {SLOT_BYTES}"
    return f"""\
define internal ptr @lanes.find(i64 %key) nounwind {{
entry:
  %nothing = icmp eq i64 %key, 0
  br i1 %nothing, label %none, label %start
start:
  %table = load ptr, ptr @lanes.table
  %low = and i64 %key, {BUCKETS - 1}
  %at = mul i64 %low, {SLOTS * SLOT_BYTES}
  %bucket = getelementptr i8, ptr %table, i64 %at
  br label %look
look:
  %k = phi i64 [ 0, %start ], [ %k.next, %compare ]
  %more = icmp slt i64 %k, {SLOTS}
  br i1 %more, label %compare, label %none
compare:
  %place = {slot}
  %slot = getelementptr i8, ptr %bucket, i64 %place
  %other = load atomic i64, ptr %slot acquire, align 8
  %same = icmp eq i64 %other, %key
  %k.next = add i64 %k, 1
  br i1 %same, label %found, label %look
found:
  ret ptr %slot
none:
  ret ptr null
}}
"""


def _fit() -> str:
    """Whether so many buffers have the dtypes and sizes for which a kernel was written."""
    return f"""\
define internal i1 @lanes.fit(ptr %buffers, ptr %table, i64 %size, i64 %count) nounwind {{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %told ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %read, label %right
read:
  %at = mul i64 %k, {BUFFER_BYTES}
  %expected = getelementptr i8, ptr %table, i64 %at
{load("code", "%expected", BUFFER["dtype"], "i64")}
{load("elements", "%expected", BUFFER["size"], "i64")}
{load("batched", "%expected", BUFFER["batched"], "i64")}
  %from = getelementptr ptr, ptr %buffers, i64 %k
  %buffer = load ptr, ptr %from
{load("type", "%buffer", offset("Buffer.dtype"), "i32")}
{load("rank", "%buffer", offset("Buffer.rank"), "i64")}
{load("dims", "%buffer", offset("Buffer.dims"))}
  %many = icmp ne i64 %batched, 0
  %samples = select i1 %many, i64 %count, i64 1
  %whole = mul i64 %elements, %samples
  br label %axis
axis:
  %j = phi i64 [ 0, %read ], [ %j.next, %multiply ]
  %length = phi i64 [ 1, %read ], [ %length.next, %multiply ]
  %inside = icmp slt i64 %j, %rank
  br i1 %inside, label %multiply, label %told
multiply:
  %dim.at = getelementptr i64, ptr %dims, i64 %j
  %dim = load i64, ptr %dim.at
  %length.next = mul i64 %length, %dim
  %j.next = add i64 %j, 1
  br label %axis
told:
  %wide = zext i32 %type to i64
  %same.type = icmp eq i64 %wide, %code
  %same.size = icmp eq i64 %length, %whole
  %same = and i1 %same.type, %same.size
  %k.next = add i64 %k, 1
  br i1 %same, label %look, label %wrong
right:
  ret i1 true
wrong:
  ret i1 false
}}
"""


def _instantiate() -> str:
    """Count a user, and let XLA keep the slot as the state of the executable's call.

    Python may empty a slot that has no user. It looks at the users once more after it has taken
    the key away, as the key is looked at here once more after the user has been counted.
    """
    state = {"ctx": "ptr %ctx", "type_id": "ptr @lanes.type", "state": "ptr %place"}
    state["stage"] = f"i32 {constant('ExecutionStage_INSTANTIATE')}"
    return f"""\
  br i1 %lost, label %ask, label %found
found:
  call void @lanes.count(ptr %slot)
  %now = load atomic i64, ptr %slot seq_cst, align 8
  %still = icmp eq i64 %now, %key
  br i1 %still, label %keep, label %emptied
emptied:
  call void @lanes.release(ptr %slot)
  br label %ask
ask:
  %nameless = icmp eq i64 %key, 0
  br i1 %nameless, label %missing, label %give
give:
  %placing = load ptr, ptr @lanes.place
  %given = call ptr %placing(i64 %key)
  %full = icmp eq ptr %given, null
  br i1 %full, label %missing, label %keep
keep:
  %place = phi ptr [ %slot, %found ], [ %given, %give ]
{_c_api.invoke("%failed = call ptr", "State_Set", **state)}
  %fine = icmp eq ptr %failed, null
  br i1 %fine, label %end, label %undo
undo:
  call void @lanes.release(ptr %place)
  ret ptr %failed"""


def _change(name: str, how: str) -> str:
    """Change the number of users of a slot by one."""
    return f"""\
define void @lanes.{name}(ptr %slot) nounwind {{
{_c_api.at("users", "%slot", SLOT["users"])}
  %before = atomicrmw {how} ptr %users, i64 1 seq_cst
  ret void
}}
"""


def _execute() -> str:
    """Whether the operands fit the kernel, and then the call."""
    return f"""\
  br i1 %lost, label %missing, label %found
found:
{load("kernel", "%slot", SLOT["kernel"])}
  %awaited = icmp eq ptr %kernel, null
  br i1 %awaited, label %missing, label %there
there:
{kernel_fields("operands", "results", "width", "batched", "buffers")}
{load("args.size", "%frame", offset("CallFrame.args.size"), "i64")}
{load("rets.size", "%frame", offset("CallFrame.rets.size"), "i64")}
  %fits.operands = icmp eq i64 %args.size, %operands
  %fits.results = icmp eq i64 %rets.size, %results
  %fits = and i1 %fits.operands, %fits.results
  br i1 %fits, label %shape, label %unfit
shape:
{load("rets", "%frame", offset("CallFrame.rets.rets"))}
  %result = load ptr, ptr %rets
{load("rank", "%result", offset("Buffer.rank"), "i64")}
  %has.rank = icmp sge i64 %rank, %batched
  br i1 %has.rank, label %measure, label %unfit
measure:
  %many = icmp ne i64 %batched, 0
  br i1 %many, label %samples, label %counted
samples:
{load("dims", "%result", offset("Buffer.dims"))}
  %length = load i64, ptr %dims
  br label %counted
counted:
  %count = phi i64 [ 1, %measure ], [ %length, %samples ]
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %end, label %compare
compare:
  %enough = icmp sge i64 %count, %width
  br i1 %enough, label %fit, label %few
fit:
{load("args", "%frame", offset("CallFrame.args.args"))}
  %expected = mul i64 %operands, {BUFFER_BYTES}
  %buffers.out = getelementptr i8, ptr %buffers, i64 %expected
  %fit.in = call i1 @lanes.fit(ptr %args, ptr %buffers, i64 %operands, i64 %count)
  %fit.out = call i1 @lanes.fit(ptr %rets, ptr %buffers.out, i64 %results, i64 %count)
  %fit.all = and i1 %fit.in, %fit.out
  br i1 %fit.all, label %compute, label %unfit
compute:
  %failed = call ptr @lanes.compute(
    ptr %api, ptr %ctx, ptr %kernel, ptr %args, ptr %rets, i64 %count)
  ret ptr %failed
{fail("unfit")}
{fail("few")}"""
