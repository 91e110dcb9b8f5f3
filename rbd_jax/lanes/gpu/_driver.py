"""NVIDIA's driver: PTX becomes kernels that can be launched, by the functions of ``libcuda``.

Kernels belong to no context of a device (CUDA 12.0 and newer): the driver loads them into each
device where they are launched.
"""

import ctypes
import weakref
from functools import cache
from typing import Any

LIBRARY = "libcuda.so.1"
_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p
FUNCTIONS = {
    "cuInit": [_INT],
    "cuDeviceGetCount": [_POINTER],
    "cuDeviceGetAttribute": [_POINTER, _INT, _INT],
    "cuDeviceTotalMem_v2": [_POINTER, _INT],
    "cuLibraryLoadData": [_POINTER, _TEXT, _POINTER, _POINTER, _INT, _POINTER, _POINTER, _INT],
    "cuLibraryGetKernel": [_POINTER, _POINTER, _TEXT],
    "cuLibraryUnload": [_POINTER],
    "cuKernelSetAttribute": [_INT, _INT, _POINTER, _INT],
    "cuStreamGetCtx": [_POINTER, _POINTER],
    "cuCtxPushCurrent_v2": [_POINTER],
    "cuCtxPopCurrent_v2": [_POINTER],
    "cuLaunchKernel": [_POINTER, *[_INT] * 7, *[_POINTER] * 3],
    "cuGetErrorString": [_INT, _POINTER],
}
"""The functions that are used, with the kinds of their arguments. Each returns 0 or an error."""

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
_MULTIPROCESSORS, _THREADS = 16, 39  # …_MULTIPROCESSOR_COUNT, …_MAX_THREADS_PER_MULTIPROCESSOR
_CHIP = 97  # …_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_DYNAMIC, _CARVEOUT = 8, 9  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, …_CARVEOUT
_PART = 6
"""JAX leaves a quarter of a GPU's memory to others; local memory may take a sixth."""
_LOG, _LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, …_SIZE_BYTES
_NEWEST = (9, 0)


class Driver:
    """The driver behind a library, an object that has :data:`FUNCTIONS`."""

    def __init__(self, library: Any):
        self._library = library
        for name, kinds in FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise RuntimeError(
                    f"lanes on a GPU need a driver for CUDA 12.0 or newer: this one has no {name}"
                ) from None
            function.restype, function.argtypes = ctypes.c_int, kinds
        self._call("cuInit", 0)

    def address(self, name: str) -> int:
        """Where a function of the driver is."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def architecture(self) -> str:
        """The oldest architecture among the devices, as ``sm_90``; at most the one that is tested.

        Newer devices run PTX for older ones.
        """
        kinds = [tuple(self._attribute(a, d) for a in (_MAJOR, _MINOR)) for d in self._devices()]
        major, minor = min([*kinds, _NEWEST])
        return f"sm_{major}{minor}"

    def local_bytes(self) -> int:
        """How much local memory a thread may take.

        The driver takes it for as many threads as the device can hold at a time.
        """
        found = []
        for d in self._devices():
            total = ctypes.c_size_t()
            self._call("cuDeviceTotalMem_v2", ctypes.byref(total), d)
            threads = self._attribute(_MULTIPROCESSORS, d) * self._attribute(_THREADS, d)
            found.append(total.value // _PART // threads)
        return min(found, default=0)

    def chip_bytes(self) -> int:
        """How much memory on the chip a block may take."""
        return min((self._attribute(_CHIP, d) for d in self._devices()), default=0)

    def _devices(self) -> range:
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return range(count.value)

    def _attribute(self, attribute: int, device: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def load(self, ptx: str) -> "Loaded":
        """Load PTX.

        Raises:
            RuntimeError: the driver does not accept it; what it says of it is told.
        """
        return Loaded(self, ptx)

    def _call(self, name: str, *args: Any, log: Any = None) -> None:
        error = getattr(self._library, name)(*args)
        if error:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(error, ctypes.byref(text))
            said = (
                f"\n{log.value.decode(errors='replace')}" if log is not None and log.value else ""
            )
            reason = (text.value or b"an unknown error").decode()
            raise RuntimeError(
                f"NVIDIA's driver: {name} failed: {reason} (error {error}); "
                f"with RBD_JAX_LANES=cpu, XLA computes on GPUs{said}"
            )


class Loaded:
    """Kernels of one PTX text; they are unloaded when the last reference is dropped.

    XLA keeps an executable, and with it what the executable calls, until its work has ended.
    """

    def __init__(self, driver: Driver, ptx: str):
        self._driver, self._handle = driver, ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_LOG, _LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        driver._call("cuLibraryLoadData", ctypes.byref(self._handle), ptx.encode(), options, values,
                     2, None, None, 0, log=log)  # fmt: skip
        unload = weakref.finalize(self, driver._library.cuLibraryUnload, self._handle)
        unload.atexit = False  # the driver ends with the process

    def kernel(self, name: str, chip_bytes: int = 0) -> int:
        """The handle of a kernel, of which a block takes so much memory on the chip."""
        found, call = ctypes.c_void_p(), self._driver._call
        call("cuLibraryGetKernel", ctypes.byref(found), self._handle, name.encode())
        for device in self._driver._devices() if chip_bytes else ():
            for attribute, value in ((_DYNAMIC, chip_bytes), (_CARVEOUT, 100)):  # of 100
                call("cuKernelSetAttribute", attribute, value, found, device)
        return found.value or 0


@cache
def driver() -> Driver:
    """The driver of this machine.

    Raises:
        RuntimeError: there is none, or it is too old.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as e:
        raise RuntimeError(f"lanes on a GPU need NVIDIA's driver: {e}") from None
    return Driver(library)
