"""XLA's foreign function interface in LLVM text: its constants, struct layouts and calls.

The numbers are read from ``c_api.h``, which comes with jaxlib, not written down here: so the
version that a handler reports is true, and its offsets are right, for the jaxlib installed.
"""

import re
from functools import cache
from pathlib import Path

import jax

ONCE = "nounwind noinline optnone"
"""Attributes of functions that run once a call: they are not worth LLVM's time."""

_SIZES = {"size_t": 8, "int64_t": 8, "int": 4, "int32_t": 4, "uint32_t": 4}


@cache
def constant(name: str) -> int:
    """A constant by its name without ``XLA_FFI_``, from an ``enum`` or a ``#define``."""
    found = re.search(rf"\bXLA_FFI_{name}(?:\s*=)?\s+(\d+)\b", _header())
    if not found:
        raise NotImplementedError(f"this version of XLA has no constant XLA_FFI_{name}")
    return int(found[1])


@cache
def layout(struct: str) -> tuple[dict[str, int], int]:
    """Offset of each field of a struct, its name without ``XLA_FFI_``, and where the last one ends.

    Fields of a struct inside are there too, as ``api_version.major_version``.
    """
    body = re.search(rf"\bstruct XLA_FFI_{struct} {{(.*?)}}", _header(), re.DOTALL)
    if not body:
        raise NotImplementedError(f"this version of XLA has no struct XLA_FFI_{struct}")
    offsets, end = {}, 0
    for declaration in body[1].split(";")[:-1]:
        *kind, name = declaration.replace("*", " * ").split()
        inner, size = _kind([k for k in kind if k not in ("const", "struct")])
        start = _rounded(end, min(size, 8))
        offsets |= {name: start} | {f"{name}.{k}": start + offset for k, offset in inner.items()}
        end = start + size
    return offsets, end


def offset(path: str) -> int:
    """Offset of a field, given as ``Struct.field``."""
    struct, field = path.split(".", 1)
    return layout(struct)[0][field]


def at(name: str, base: str, position: int) -> str:
    """Let ``%name`` be the address of what is so many bytes behind ``base``."""
    return f"  %{name} = getelementptr i8, ptr {base}, i64 {position}"


def load(name: str, base: str, position: int, kind: str = "ptr") -> str:
    """Let ``%name`` be what is so many bytes behind ``base``."""
    return f"{at(f'{name}.at', base, position)}\n  %{name} = load {kind}, ptr %{name}.at"


def store(value: str, base: str, position: int) -> str:
    """Write a value, given with its type, so many bytes behind ``base``."""
    name = f"{base[1:]}.{position}"
    return f"{at(name, base, position)}\n  store {value}, ptr %{name}"


def invoke(result: str, function: str, **fields: str) -> str:
    """Call a function of XLA's table ``%api`` with these arguments, values with their types."""
    struct = f"{function}_Args"
    size = layout(struct)[1]
    values = {"struct_size": f"i64 {size}", "extension_start": "ptr null"} | fields
    lines = [f"  %in = alloca [{size} x i8], align 8"]
    lines += [store(value, "%in", offset(f"{struct}.{field}")) for field, value in values.items()]
    lines.append(load("function", "%api", offset(f"Api.XLA_FFI_{function}")))
    return "\n".join(lines) + f"\n  {result} %function(ptr %in)"


def pointers_text(symbol: str) -> str:
    """``@symbol.pointers`` writes down where the data of so many buffers are."""
    return f"""\
define internal void @{symbol}.pointers(ptr %buffers, ptr %out, i64 %size) {ONCE} {{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %copy ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %copy, label %end
copy:
  %from = getelementptr ptr, ptr %buffers, i64 %k
  %to = getelementptr ptr, ptr %out, i64 %k
  %buffer = load ptr, ptr %from
{load("data", "%buffer", offset("Buffer.data"))}
  store ptr %data, ptr %to
  %k.next = add i64 %k, 1
  br label %look
end:
  ret void
}}
"""


def sizes_text(symbol: str) -> str:
    """``@symbol.roomy`` calls ``@symbol.pages`` for so many buffers of floating-point numbers."""
    single, double = (constant(f"DataType_{name}") for name in ("F32", "F64"))
    return f"""\
define internal void @{symbol}.roomy(ptr %buffers, i64 %size) {ONCE} {{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %told ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %read, label %end
read:
  %from = getelementptr ptr, ptr %buffers, i64 %k
  %buffer = load ptr, ptr %from
{load("data", "%buffer", offset("Buffer.data"))}
{load("type", "%buffer", offset("Buffer.dtype"), "i32")}
{load("rank", "%buffer", offset("Buffer.rank"), "i64")}
{load("dims", "%buffer", offset("Buffer.dims"))}
  %is.single = icmp eq i32 %type, {single}
  %is.double = icmp eq i32 %type, {double}
  %four = select i1 %is.single, i64 4, i64 0
  %bytes.each = select i1 %is.double, i64 8, i64 %four
  br label %axis
axis:
  %j = phi i64 [ 0, %read ], [ %j.next, %multiply ]
  %bytes = phi i64 [ %bytes.each, %read ], [ %bytes.next, %multiply ]
  %inside = icmp slt i64 %j, %rank
  br i1 %inside, label %multiply, label %told
multiply:
  %dim.at = getelementptr i64, ptr %dims, i64 %j
  %dim = load i64, ptr %dim.at
  %bytes.next = mul i64 %bytes, %dim
  %j.next = add i64 %j, 1
  br label %axis
told:
  call void @{symbol}.pages(ptr %data, i64 %bytes)
  %k.next = add i64 %k, 1
  br label %look
end:
  ret void
}}
"""


def error_text(symbol: str) -> str:
    """``@symbol.error`` makes an error, ``@symbol.forget`` destroys one."""
    return f"""\
define internal ptr @{symbol}.error(ptr %api, i32 %code, ptr %message) {ONCE} {{
{invoke("%error = call ptr", "Error_Create", errc="i32 %code", message="ptr %message")}
  ret ptr %error
}}

define internal void @{symbol}.forget(ptr %api, ptr %error) {ONCE} {{
{invoke("call void", "Error_Destroy", error="ptr %error")}
  ret void
}}
"""


def pool_text(symbol: str) -> str:
    """``@symbol.threads`` counts XLA's threads, 1 if there is no pool; ``@symbol.schedule`` asks.

    The latter gives a task to the pool and says whether it was taken.
    """
    schedule = {"ctx": "ptr %ctx", "task": "ptr %task", "data": "ptr %data"}
    return f"""\
define internal i64 @{symbol}.threads(ptr %api, ptr %ctx) {ONCE} {{
  %count = alloca i64
  store i64 1, ptr %count
{invoke("%error = call ptr", "ThreadPool_NumThreads", ctx="ptr %ctx", num_threads="ptr %count")}
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %counted, label %failed
failed:
  call void @{symbol}.forget(ptr %api, ptr %error)
  ret i64 1
counted:
  %threads = load i64, ptr %count
  ret i64 %threads
}}

define internal i1 @{symbol}.schedule(ptr %api, ptr %ctx, ptr %task, ptr %data) {ONCE} {{
{invoke("%error = call ptr", "ThreadPool_Schedule", **schedule)}
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %end, label %failed
failed:
  call void @{symbol}.forget(ptr %api, ptr %error)
  br label %end
end:
  ret i1 %fine
}}
"""


def metadata_text(symbol: str) -> str:
    """``@symbol.metadata`` answers XLA's question for the interface's version, if it is asked.

    It looks for that question among the extensions of a call and says whether it was there. The
    number of the type of the handler's state is in ``@symbol.type``.
    """
    version = layout("Api_Version")[1]
    answers = {
        "api_version.struct_size": f"i64 {version}",
        "api_version.extension_start": "ptr null",
        "api_version.major_version": f"i32 {constant('API_MAJOR')}",
        "api_version.minor_version": f"i32 {constant('API_MINOR')}",
        "traits": "i32 0",
        "state_type_id.type_id": "i64 %state",
    }
    base = "Metadata_Extension.extension_base"
    stores = [store(v, "%metadata", offset(f"Metadata.{f}")) for f, v in answers.items()]
    return f"""\
define internal i1 @{symbol}.metadata(ptr %start) {ONCE} {{
entry:
  br label %look
look:
  %extension = phi ptr [ %start, %entry ], [ %next, %other ]
  %last = icmp eq ptr %extension, null
  br i1 %last, label %none, label %compare
compare:
{load("type", "%extension", offset(f"{base}.type"), "i32")}
  %asked = icmp eq i32 %type, {constant("Extension_Metadata")}
  br i1 %asked, label %answer, label %other
other:
{load("next", "%extension", offset(f"{base}.next"))}
  br label %look
answer:
  %state = load i64, ptr @{symbol}.type
{load("metadata", "%extension", offset("Metadata_Extension.metadata"))}
{chr(10).join(stores)}
  ret i1 true
none:
  ret i1 false
}}
"""


@cache
def _header() -> str:
    """The header without comments, the fields of the table of functions spelled out."""
    path = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", r"\1* \1;", text)


def _kind(words: list[str]) -> tuple[dict[str, int], int]:
    """The fields, if any, and the size of a C type, on a platform of 64 bits."""
    name = words[0]
    if "*" in words or name in _SIZES:
        return {}, 8 if "*" in words else _SIZES[name]
    if alias := re.search(rf"\btypedef (\w+) {name};", _header()):
        return _kind([alias[1]])
    if re.search(rf"\benum {{[^}}]*}} {name};", _header()):
        return {}, 4
    inner, end = layout(name.removeprefix("XLA_FFI_"))
    return inner, _rounded(end, 8)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
