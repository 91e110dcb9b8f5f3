"""The registry of loaded kernels: the table in which the dispatcher finds them, and their end.

A kernel is loaded once, whoever asks for its code. Its code is unloaded when neither Python nor an
executable of XLA uses it any more; the table counts the latter.

An executable that JAX serializes brings its kernels along, as LLVM text: JAX pickles what an
executable keeps alive, and so a :class:`Kernel`. In another process XLA makes the executable first.
It gets a place in the table for each kernel, and the kernels come when they are unpickled.
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

from .._failures import Unsupported
from ..llvm import _compiler
from ._dispatcher import BUCKETS, SLOT, SLOT_BYTES, SLOTS


class Kernel:
    """Loaded code. It stays loaded as long as this object lives, or an executable that calls it.

    ``key`` is the hash of its code by which a call names it, and ``again`` a function with
    arguments that loads it, in another process too.
    """

    def __init__(self, key: int, again: tuple[Callable, tuple]):
        self.key, self._again = key, again

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
_dispatchers: list[_compiler.Code] = []
"""Those that XLA knows. All have the same functions that count users."""


def find_or_add(
    text: str, make: Callable[[], tuple[Any, int]], again: tuple[Callable, tuple]
) -> Kernel:
    """The kernel of a text, made unless it is there already.

    Args:
        text: what tells the kernel from others.
        make: a function that gives what has to live as long as the kernel, and the address of its
            table.
        again: a function and arguments, which can be pickled, that give the same kernel.

    Raises:
        Unsupported: too many kernels are in use.
    """
    key = _key(text)
    with lock:
        entry = _entries.get(key)
        kernel = entry.kernel() if entry else None
        if kernel is not None:
            return kernel
        if entry is None or entry.code is None:
            _unload()
            code, address = make()
            entry = _entry_of(key)
            entry.code = code
            _word(entry.slot, "kernel").value = address
        kernel = Kernel(key, again)
        entry.kernel = weakref.ref(kernel)
        return kernel


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
    """A slot for an executable that comes before its kernel, which counts as a user of it."""
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
