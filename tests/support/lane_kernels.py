"""A small kernel inside a real handler, and a runtime made of paper that calls it without XLA."""

import ctypes
import threading

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.lanes.cpu import _cpu_kernels, _kernel
from rbd_jax.lanes.xla import _c_api, _kernel_registry, _kernel_table

# y = 3 x + 2 c, the second term made by the prologue; every sample also tells its thread.
KERNEL = """
@prologues = global i64 0
@blocks = global i64 0
@crooked = global i64 0
declare i64 @pthread_self()
declare i32 @usleep(i32)

define internal void @prologue(ptr %args, ptr %shared) {{
  %old = atomicrmw add ptr @prologues, i64 1 monotonic
  %c.at = getelementptr ptr, ptr %args, i64 1
  %c.data = load ptr, ptr %c.at
  %c = load float, ptr %c.data
  %s = fadd float %c, %c
  store float %s, ptr %shared
  ret void
}}

define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first) {{
  %old = atomicrmw add ptr @blocks, i64 1 monotonic
  %bits.shared = ptrtoint ptr %shared to i64
  %bits.scratch = ptrtoint ptr %scratch to i64
  %bits = or i64 %bits.shared, %bits.scratch
  %low = and i64 %bits, 63
  %older = atomicrmw or ptr @crooked, i64 %low monotonic

  %x.data = load ptr, ptr %args
  %x.at = getelementptr float, ptr %x.data, i64 %first
  %x.in = load <{width} x float>, ptr %x.at, align 4
  %end = getelementptr i8, ptr %scratch, i64 {scratch_end}
  store volatile <{width} x float> %x.in, ptr %end, align 4
  %ignored = call i32 @usleep(i32 {sleep})
  %x = load volatile <{width} x float>, ptr %end, align 4

  %s = load float, ptr %shared
  %s.one = insertelement <{width} x float> poison, float %s, i64 0
  %s.all = shufflevector <{width} x float> %s.one, <{width} x float> poison,
    <{width} x i32> zeroinitializer
  %x2 = fadd <{width} x float> %x, %x
  %x3 = fadd <{width} x float> %x2, %x
  %y = fadd <{width} x float> %x3, %s.all
  %y.data = load ptr, ptr %rets
  %y.at = getelementptr float, ptr %y.data, i64 %first
  store <{width} x float> %y, ptr %y.at, align 4

  %self = call i64 @pthread_self()
  %self.one = insertelement <{width} x i64> poison, i64 %self, i64 0
  %self.all = shufflevector <{width} x i64> %self.one, <{width} x i64> poison,
    <{width} x i32> zeroinitializer
  %t.slot = getelementptr ptr, ptr %rets, i64 1
  %t.data = load ptr, ptr %t.slot
  %t.at = getelementptr i64, ptr %t.data, i64 %first
  store <{width} x i64> %self.all, ptr %t.at, align 8
  ret void
}}
"""
FLOAT, LONG = np.dtype("float32"), np.dtype("int64")
SHAPE = {"width": 4, "batched": True, "grain": 1 << 40}
SHAPE |= {"shared_bytes": 4, "scratch_bytes": 16}
loaded: dict[str, "Kernel"] = {}


class Kernel:
    """A loaded kernel with its counters, callable under jit."""

    def __init__(self, text: str):
        self.loaded = _cpu_kernels.load(text, "handler")
        self.key = self.loaded.key
        self.code = _kernel_registry._entries[self.key].code

    def __call__(self, x, c):
        kinds = [jax.ShapeDtypeStruct(x.shape, k) for k in (jnp.float32, jnp.int64)]
        return jax.ffi.ffi_call(_cpu_kernels.TARGET, kinds)(x, c, kernel=np.int64(self.key))

    def counted(self, what: str) -> int:
        """Read a counter and set it to zero."""
        counter = ctypes.c_int64.from_address(self.code.address(what))
        value, counter.value = counter.value, 0
        return value


def handler(**changes) -> str:
    """The table and the loop over blocks of the kernel above."""
    shape = SHAPE | changes
    many = shape["batched"]
    operands = [_kernel_table.Buffer(FLOAT, 1, many), _kernel_table.Buffer(FLOAT, 1, False)]
    results = [_kernel_table.Buffer(FLOAT, 1, many), _kernel_table.Buffer(LONG, 1, many)]
    return _kernel.table_text("handler", operands=operands, results=results, **shape)


def kernel(sleep: int = 0, **changes) -> Kernel:
    """The kernel, each variant loaded once."""
    shape = SHAPE | changes
    end = max(shape["scratch_bytes"] - 4 * shape["width"], 0)
    text = KERNEL.format(width=shape["width"], scratch_end=end, sleep=sleep)
    if not sleep:
        text = text.replace("%ignored = call", "; ")
    text += handler(**changes)
    if text not in loaded:
        loaded[text] = Kernel(text)
    for counter in ("prologues", "blocks", "crooked"):
        loaded[text].counted(counter)
    return loaded[text]


def inputs(count: int):
    return jnp.arange(count, dtype=jnp.float32), jnp.float32(0.25)


def check(x, y):
    np.testing.assert_array_equal(y, 3 * np.asarray(x) + np.float32(0.5))


class Paper:
    """XLA's side of a call: a table of functions that do what a test wants.

    Args:
        threads: the size of the pool, None for a runtime without one.
        schedule: what becomes of the tasks: "inline", "thread", "later" (see ``late``), "never".
    """

    def __init__(self, threads: int | None = 4, schedule: str = "inline"):
        self.threads, self.schedule = threads, schedule
        self.late: list = []
        self.errors: list[str] = []
        self.destroyed = 0
        self.keep: list = []
        self.api = self.struct("Api")
        for name in vars(Paper):
            if name[0].isupper():
                self.method(name)

    def struct(self, name: str, **fields: int) -> int:
        """The address of a new struct of ``c_api.h``."""
        memory = ctypes.create_string_buffer(_c_api.layout(name)[1])
        self.keep.append(memory)
        address = ctypes.addressof(memory)
        for field, value in fields.items():
            ctypes.c_int64.from_address(address + _c_api.offset(f"{name}.{field}")).value = value
        return address

    def method(self, name: str) -> None:
        """Put a method of this object into the table."""
        do = getattr(self, name)
        offsets, size = _c_api.layout(f"{name}_Args")
        kinds = {k: ctypes.c_int32 if k == "errc" else ctypes.c_int64 for k in offsets}

        def called(address):
            args = {k: kinds[k].from_address(address + at).value for k, at in offsets.items()}
            assert args["struct_size"] == size and args["extension_start"] == 0
            return do(args)

        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(called)
        self.keep.append(function)
        at = self.api + _c_api.offset(f"Api.XLA_FFI_{name}")
        ctypes.c_int64.from_address(at).value = ctypes.cast(function, ctypes.c_void_p).value

    def Error_Create(self, args) -> int:
        self.errors.append(f"{args['errc']} {ctypes.string_at(args['message']).decode()}")
        return 1000 + len(self.errors)

    def Error_Destroy(self, args) -> int:
        assert args["error"] == 77
        self.destroyed += 1
        return 0

    def ThreadPool_NumThreads(self, args) -> int:
        if self.threads is None:
            return 77
        ctypes.c_int64.from_address(args["num_threads"]).value = self.threads
        return 0

    def ThreadPool_Schedule(self, args) -> int:
        task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args["task"])
        run = lambda: task(args["data"])  # noqa: E731
        if self.schedule == "never":
            return 77
        if self.schedule == "inline":
            run()
        else:
            self.late.append(threading.Thread(target=run))
            if self.schedule == "thread":
                self.late[-1].start()
        return 0

    def buffers(self, kind: str, arrays) -> dict[str, int]:
        """The fields of a frame that tell of its operands or results."""
        dims = [np.array(x.shape or (0,), np.int64) for x in arrays]
        table = np.array(
            [
                self.struct(
                    "Buffer",
                    dtype=_kernel_table.numbers_of([_kernel_table.Buffer(x.dtype, 1, False)])[0],
                    data=x.ctypes.data,
                    rank=x.ndim,
                    dims=d.ctypes.data,
                )
                for x, d in zip(arrays, dims, strict=True)
            ]
        )
        self.keep += [dims, table, arrays]
        return {f"{kind}.size": len(arrays), f"{kind}.{kind}": table.ctypes.data}

    def attribute(self, key: int) -> dict[str, int]:
        """The fields of a frame that name its kernel."""
        value, kind = np.array(key), np.array(_c_api.constant("AttrType_SCALAR"), np.int32)
        table = np.array([self.struct("Scalar", value=value.ctypes.data)])
        self.keep += [value, kind, table]
        return {"attrs.size": 1, "attrs.types": kind.ctypes.data, "attrs.attrs": table.ctypes.data}

    def call(self, kernel: Kernel, x, results=None, extension: int = 0, key: int | None = None):
        """Call a kernel; returns its results, or its error's number."""
        results = results or [np.zeros(x.shape, np.float32), np.zeros(x.shape, np.int64)]
        fields = self.buffers("args", [x, np.array(0.25, np.float32)])
        fields |= self.buffers("rets", results) | self.attribute(key or kernel.key)
        frame = self.struct("CallFrame", api=self.api, extension_start=extension, **fields)
        address = _cpu_kernels.dispatcher().address("lanes.execute")
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(frame) or results
