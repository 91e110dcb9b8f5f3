"""Kernels that are loaded: the table in which the dispatcher finds them, and their end.

A kernel is loaded once, whoever asks for its code. Its code is unloaded when neither Python nor an
executable of XLA uses it any more; the table counts the latter.
"""

import ctypes
import hashlib
import mmap
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from . import _machine
from ._dispatch import BUCKETS, SLOT, SLOT_BYTES, SLOTS, SYMBOLS, dispatcher_text
from ._ir import Unsupported

TARGET = "rbd_jax.lanes"
"""The name of the only target that is registered with XLA for CPUs."""


class Kernel:
    """Loaded code. It stays loaded as long as this object lives, or an executable that calls it.

    ``key`` is the hash of its code by which a call names it.
    """

    def __init__(self, key: int):
        self.key = key


class _Entry:
    """What the table knows of a kernel, and who uses it."""

    def __init__(self, code: Any, slot: int, kernel: Kernel):
        self.code, self.slot, self.kernel = code, slot, weakref.ref(kernel)

    def used(self) -> bool:
        return self.kernel() is not None or _word(self.slot, "users").value != 0


lock = threading.RLock()
_entries: dict[int, _Entry] = {}


def load(text: str, symbol: str) -> Kernel:
    """The kernel of a text, compiled and loaded unless it is there already.

    Args:
        text: the module, with the table that :func:`._handler.handler_text` wrote.
        symbol: the name of that table.

    Raises:
        Unsupported: too many kernels are in use.
    """

    def make():
        _for_cpus()
        code = _machine.load(text, symbol)
        return code, code.address(symbol)

    return keep(text, make)


def keep(text: str, make: Callable[[], tuple[Any, int]]) -> Kernel:
    """The kernel of a text, made unless it is there already.

    ``make`` gives what has to live as long as the kernel, and the address of its table.

    Raises:
        Unsupported: too many kernels are in use.
    """
    key = _key(text)
    with lock:
        kernel = _again(key)
        if kernel is None:
            _unload()
            code, address = make()
            slot, kernel = _free_slot(key), Kernel(key)
            _entries[key] = _Entry(code, slot, kernel)
            _word(slot, "users").value = 0
            _word(slot, "kernel").value = address
            _word(slot, "key").value = key
        return kernel


def loaded() -> int:
    """How many kernels are loaded, after those that nobody uses are gone."""
    with lock:
        _unload()
        return len(_entries)


def _key(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1


def _again(key: int) -> Kernel | None:
    """The kernel of this key, if its code is loaded."""
    entry = _entries.get(key)
    if entry is None:
        return None
    kernel = entry.kernel()
    if kernel is None:
        kernel = Kernel(key)
        entry.kernel = weakref.ref(kernel)
    return kernel


def _unload() -> None:
    for key, entry in list(_entries.items()):
        if not entry.used():
            _word(entry.slot, "key").value = 0
            del _entries[key]


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


@cache
def dispatcher() -> _machine.Code:
    """The code of the handler that XLA knows, which stays."""
    return _machine.load(dispatcher_text(), *SYMBOLS)


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


@cache
def _for_cpus() -> None:
    register(dispatcher(), TARGET, "cpu")


def register(code: _machine.Code, target: str, platform: str) -> None:
    """Make the handlers of a dispatcher known to XLA, which is for good."""
    address = code.address
    ctypes.c_void_p.from_address(address("lanes.table")).value = _table()
    info = _TypeInfo(ctypes.sizeof(_TypeInfo), None, address("lanes.release"))
    _keep_forever(code, info)
    number, type_info = _capsule(address("lanes.type")), _capsule(ctypes.addressof(info))
    kind: Any = {"type_id": number, "type_info": type_info}
    jax.ffi.register_ffi_type(target, kind, platform=platform)
    stages = {k: _capsule(address(f"lanes.{k}")) for k in ("instantiate", "execute")}
    jax.ffi.register_ffi_target(target, stages, platform=platform)


def _capsule(address: int):
    return jax.ffi.pycapsule(ctypes.c_void_p(address))
