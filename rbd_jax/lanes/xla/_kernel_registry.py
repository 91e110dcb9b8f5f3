"""The registry of loaded kernels: the table in which the dispatcher finds them, and their end.

A kernel is loaded once, whoever asks for its code. Its code is unloaded when neither Python nor an
executable of XLA uses it any more; the table counts the latter.

An executable that JAX serializes brings its kernels along, as LLVM text: JAX pickles what an
executable keeps alive, and so a :class:`Kernel`. In another process XLA makes the executable first.
It gets a place in the table for each kernel, and the kernels come when they are unpickled.

A kernel may still be compiled, on another thread, when the program that calls it is lowered. It
comes into the table when it is done. XLA, which instantiates an executable at the end of its own
work, waits for it.
"""

import ctypes
import hashlib
import mmap
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from .._failures import LanesWarning, Unsupported
from ..llvm import _background, _compiler
from ._dispatcher import BUCKETS, SLOT, SLOT_BYTES, SLOTS


class Kernel:
    """Loaded code. It stays loaded as long as this object lives, or an executable that calls it.

    ``key`` is the hash of its code by which a call names it, and ``again`` a function with
    arguments that loads it, in another process too. ``fault`` says why it could not be compiled.
    """

    def __init__(self, key: int, again: tuple[Callable, tuple]):
        self.key, self._again = key, again
        self.fault: Exception | None = None

    def __reduce__(self) -> tuple[Callable, tuple]:
        return self._again


class _Entry:
    """A kernel's place in the table, with what has to live as long, which may come later."""

    def __init__(self, key: int):
        self.slot = _free_slot(key)
        self.code: Any = None
        self.kernel: Callable[[], Kernel | None] = lambda: None
        for name, value in {"users": 0, "kernel": 0, "key": key}.items():
            _word(self.slot, name).value = value

    def used(self) -> bool:
        return self.kernel() is not None or _word(self.slot, "users").value != 0


lock = threading.RLock()
_entries: dict[int, _Entry] = {}
_compiling: dict[int, tuple[_background.Task, Kernel, Callable[[], tuple[Any, int]]]] = {}
"""Kernels that other threads compile, and what makes them on this thread; also those that cannot be
compiled."""
_dispatchers: list[_compiler.Code] = []
"""Those that XLA knows. All have the same functions that count users."""


def find_or_add(
    text: str,
    make: Callable[[], tuple[Any, int]],
    again: tuple[Callable, tuple],
    later: Callable[[], Callable[[], tuple[Any, int]] | None] = lambda: None,
) -> Kernel:
    """The kernel of a text, made unless it is there already.

    Args:
        text: what tells the kernel from others.
        make: a function that gives what has to live as long as the kernel, and the address of its
            table.
        again: a function and arguments, which can be pickled, that give the same kernel.
        later: a function that begins, and gives the rest for another thread to do, which gives the
            same as ``make``; or None if ``make`` is to be called now.

    Raises:
        Unsupported: too many kernels are in use.
    """
    key = _key(text)
    with lock:
        entry = _entries.get(key)
        kernel = entry.kernel() if entry else None
        if kernel is None and key in _compiling:
            kernel = _compiling[key][1]
        if kernel is not None:
            return kernel
        kernel = Kernel(key, again)
        if entry is None:  # no executable that is there already waits for it
            rest = later()
            if rest is not None:
                task = _background.start(lambda: _finish(kernel, rest))
                _compiling[key] = task, kernel, make
                return kernel
        if entry is None or entry.code is None:
            _unload()
            _enter(kernel, *make())
        else:
            entry.kernel = weakref.ref(kernel)
        return kernel


def _enter(kernel: Kernel, code: Any, address: int) -> None:
    """Put a kernel into the table."""
    entry = _entry_of(kernel.key)
    entry.code = code
    _word(entry.slot, "kernel").value = address
    entry.kernel = weakref.ref(kernel)


def _finish(kernel: Kernel, make: Callable[[], tuple[Any, int]]) -> None:
    """Compile a kernel and put it into the table."""
    made = make()
    with lock:
        _unload()
        _enter(kernel, *made)
        _compiling.pop(kernel.key, None)


def awaited(key: int) -> bool:
    """Wait while another thread compiles a kernel. Whether nothing went wrong."""
    with lock:
        task, kernel, make = _compiling.get(key, (None, None, None))
    if task is None or kernel is None or make is None:
        return True
    try:
        try:
            task.result()
        except Exception:  # the process may have been forked meanwhile
            _finish(kernel, make)
    except Exception as e:
        kernel.fault = e
        warnings.warn(
            f"lanes could not compile a kernel: {e}. After jax.clear_caches() XLA computes the "
            f"function, and with RBD_JAX_LANES=0. Please report this fault.",
            LanesWarning,
            stacklevel=2,
        )
    return kernel.fault is None


def loaded() -> int:
    """How many kernels are loaded, after those that nobody uses are gone."""
    with lock:
        _unload()
        return len(_entries)


def _key(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1


def _entry_of(key: int) -> _Entry:
    """The place of a key in the table, a new one unless it has one."""
    if key not in _entries:
        _entries[key] = _Entry(key)
    return _entries[key]


def _unload() -> None:
    for key, entry in list(_entries.items()):
        if not entry.used():
            _word(entry.slot, "key").value = 0
            if entry.used():  # an executable has found it right before
                _word(entry.slot, "key").value = key
            else:
                del _entries[key]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
def _place(key: int) -> int | None:
    """A slot for an executable that comes before its kernel, which counts as a user of it.

    A kernel that is being compiled comes first.
    """
    if not awaited(key):
        return None
    with lock:
        _unload()
        try:
            slot = _entry_of(key).slot
        except Unsupported:
            return None
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_dispatchers[0].address("lanes.count"))(slot)
        return slot


def _free_slot(key: int) -> int:
    """Where in the table there is room for a key."""
    bucket = _table() + (key & (BUCKETS - 1)) * SLOTS * SLOT_BYTES
    for slot in range(bucket, bucket + SLOTS * SLOT_BYTES, SLOT_BYTES):
        if _word(slot, "key").value == 0:
            return slot
    raise Unsupported("a program beside so many others that are in use")


def _word(slot: int, name: str) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(slot + SLOT[name])


class _TypeInfo(ctypes.Structure):
    """``XLA_FFI_TypeInfo``: how XLA lets go of a state."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def _keep_forever(*objects: Any) -> None:
    """Not even the end of Python frees them, as XLA may let go of executables after it."""
    for x in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))


@cache
def _table() -> int:
    """Address of the table."""
    memory = mmap.mmap(-1, BUCKETS * SLOTS * SLOT_BYTES)
    _keep_forever(memory)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def register(code: _compiler.Code, target: str, platform: str) -> None:
    """Make the handlers of a dispatcher known to XLA, which is for good."""
    _dispatchers.append(code)
    address = code.address
    ctypes.c_void_p.from_address(address("lanes.table")).value = _table()
    place = ctypes.cast(_place, ctypes.c_void_p).value
    ctypes.c_void_p.from_address(address("lanes.place")).value = place
    info = _TypeInfo(ctypes.sizeof(_TypeInfo), None, address("lanes.release"))
    _keep_forever(code, info, _place)
    number, type_info = _capsule(address("lanes.type")), _capsule(ctypes.addressof(info))
    kind: Any = {"type_id": number, "type_info": type_info}
    jax.ffi.register_ffi_type(target, kind, platform=platform)
    stages = {k: _capsule(address(f"lanes.{k}")) for k in ("instantiate", "execute")}
    jax.ffi.register_ffi_target(target, stages, platform=platform)


def _capsule(address: int):
    return jax.ffi.pycapsule(ctypes.c_void_p(address))
