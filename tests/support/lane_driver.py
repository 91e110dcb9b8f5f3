"""A stand-in for NVIDIA's driver: its GPU is this CPU, which runs a kernel's threads in a loop.

XLA on the CPU calls the handler for GPUs, which launches kernels by the functions of this driver.
"""

import ctypes
import itertools
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from rbd_jax.lanes import _lowering
from rbd_jax.lanes.gpu import _driver, _gpu_kernels, _ptx
from rbd_jax.lanes.llvm import _compiler
from rbd_jax.lanes.xla import _c_api, _kernel_registry

from .lane_crew import Crew

STREAM, CONTEXT = 0x5712EA, 0xC0
OUT_OF_MEMORY, BAD_PTX = 2, 218
MEMORY = 4 * 1536 * 6 * 2**14
"""Of the device: 16 KiB for each thread, if all of them take a sixth of it."""
CHIP = 99 * 2**10
"""On the chip, of which a block can take so much."""
_TEXTS = {OUT_OF_MEMORY: b"out of memory", BAD_PTX: b"a PTX JIT compilation failed"}
_known: dict[str, _ptx.Functions] = {}
"""The functions behind a PTX text."""


class Launch(NamedTuple):
    """One launch: of the prologue or not, on which stream, in which context."""

    entry: str
    blocks: int
    threads: int
    stream: int
    context: int


class Library:
    """What ``libcuda`` has, and a diary."""

    def __init__(self):
        self.launches: list[Launch] = []
        self.fail: dict[str, int] = {}
        self.libraries: dict[int, tuple] = {}
        self.handles: dict[int, tuple[int, str]] = {}
        self.contexts: list[int] = []
        self.allowed: dict[int, int] = {}
        self.numbers = itertools.count(0x1000)
        for name, kinds in _driver.FUNCTIONS.items():
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self._named(name)))

    def _named(self, name: str):
        do = getattr(self, f"_{name}", lambda *args: None)
        return lambda *args: self.fail.get(name) or do(*args) or 0

    def _cuDeviceGetCount(self, count):
        _write(count, 1, ctypes.c_int)

    def _cuDeviceGetAttribute(self, value, attribute, device):
        _write(value, {75: 8, 76: 6, 16: 4, 39: 1536, 97: CHIP}[attribute], ctypes.c_int)

    def _cuDeviceTotalMem_v2(self, total, device):
        _write(total, MEMORY, ctypes.c_size_t)

    def _cuLibraryLoadData(self, library, text, options, values, count, *_):
        assert count == 2
        if "broken" in text.decode():
            log = ctypes.c_void_p.from_address(values).value
            ctypes.memmove(log, b"ptxas: line 7 is odd\0", 21)
            return BAD_PTX
        made = _known[text.decode()]
        number = next(self.numbers)
        self.libraries[number] = made, Crew(made, opt=0)
        _write(library, number)

    def _cuLibraryGetKernel(self, kernel, library, name):
        handle = next(self.numbers)
        self.handles[handle] = library, name.decode()
        _write(kernel, handle)

    def _cuLibraryUnload(self, library):
        del self.libraries[library]

    def _cuStreamGetCtx(self, stream, context):
        _write(context, CONTEXT)

    def _cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, context):
        _write(context, self.contexts.pop())

    def _cuGetErrorString(self, error, text):
        if error not in _TEXTS:
            return 1
        _write(text, ctypes.cast(_TEXTS[error], ctypes.c_void_p).value)

    def _cuKernelSetAttribute(self, attribute, value, kernel, device):
        assert attribute in (8, 9) and value <= {8: CHIP, 9: 100}[attribute]
        if attribute == 8:
            self.allowed[kernel] = value

    def _cuLaunchKernel(self, kernel, x, y, z, bx, by, bz, dynamic, stream, parameters, extra):
        assert (y, z, by, bz, extra) == (1, 1, 1, 1, None)
        assert dynamic <= self.allowed.get(kernel, 0)
        library, entry = self.handles[kernel]
        made, crew = self.libraries[library]
        count = len(made.pointers) + 1
        values = (ctypes.c_void_p * (count + 1)).from_address(parameters)
        pointers = [ctypes.c_void_p.from_address(at).value for at in values[:count]]
        n = ctypes.c_int64.from_address(values[count]).value
        self.launches.append(Launch(entry, x, bx, stream, self.contexts[-1]))
        if entry == _ptx.PROLOGUE:
            crew.prologue(pointers[:-1], pointers[-1])
        else:
            crew.samples(pointers[:-1], pointers[-1], min(n, x * bx // made.team))


def _write(address, value, kind=ctypes.c_void_p) -> None:
    kind.from_address(address).value = value


class _Shim:
    """The launcher's handlers, whose calls find a stream although XLA has none on a CPU."""

    def __init__(self, code: _compiler.Code):
        self.code = code
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self.execute, self.stream = kind(self._execute), kind(self._stream)
        self.inner = kind(code.address("lanes.execute"))

    def address(self, name: str) -> int:
        if name == "lanes.execute":
            return ctypes.cast(self.execute, ctypes.c_void_p).value or 0
        return self.code.address(name)

    def _execute(self, frame):
        at = ctypes.c_void_p.from_address(frame + _c_api.offset("CallFrame.api"))
        before, size = at.value, _c_api.layout("Api")[1]
        api = ctypes.create_string_buffer(ctypes.string_at(before, size), size)
        own = ctypes.cast(self.stream, ctypes.c_void_p).value
        _write(ctypes.addressof(api) + _c_api.offset("Api.XLA_FFI_Stream_Get"), own)
        at.value = ctypes.addressof(api)
        try:
            return self.inner(frame)
        finally:
            at.value = before

    def _stream(self, args):
        _write(args + _c_api.offset("Stream_Get_Args.stream"), STREAM)


@cache
def device() -> tuple[_driver.Driver, Library]:
    """The driver, whose launcher XLA knows as a handler for CPUs."""
    library = Library()
    found = _driver.Driver(library)
    _kernel_registry.register(_Shim(_gpu_kernels.launcher(found)), _gpu_kernels.TARGET, "cpu")  # type: ignore[arg-type]
    return found, library


@contextmanager
def gpu(monkeypatch):
    """Everything in lanes that XLA runs on the CPU is launched by the stand-in driver."""
    found, library = device()
    ptx_of = _ptx.ptx_of

    def noted(made, *args, **kwargs):
        ptx = ptx_of(made, *args, **kwargs)
        _known[ptx.text] = made
        return ptx

    with monkeypatch.context() as patch:
        patch.setattr(_ptx, "ptx_of", noted)
        patch.setattr(_gpu_kernels, "for_gpus", lambda: found)
        patch.setattr(_gpu_kernels, "available", lambda: True)
        patch.setattr(_gpu_kernels, "BYTES_BY_ROOT", float("inf"))
        patch.setitem(_lowering._PLATFORMS, "cpu", _gpu_kernels)
        library.launches.clear()
        yield library
