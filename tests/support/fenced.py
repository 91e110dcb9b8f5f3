"""Kernels called with memory that ends at a forbidden page: whoever goes beyond it, crashes.

The operands, the results, and the memory that a kernel works in each end with the last byte before
a page that may neither be read nor written. The bytes in front of each are looked at afterwards.
"""

import ctypes
import mmap

import jax
import numpy as np

from rbd_jax.lanes.cpu import _cpu_kernels
from rbd_jax.lanes.xla import _kernel_registry
from rbd_jax.lanes.xla._dispatcher import SLOT
from rbd_jax.lanes.xla._kernel_table import field
from rbd_jax.lanes.xla._operands import in_all_axes, in_one_axis

PAGE = mmap.PAGESIZE
_FENCE = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)


class Fenced:
    """So many bytes before a forbidden page."""

    def __init__(self, size: int, align: int = 1):
        size = -(-size // align) * align
        pages = -(-size // PAGE) + 1
        self._memory = mmap.mmap(-1, (pages + 1) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        end = start + pages * PAGE
        code = _libc.mprotect(ctypes.c_void_p(end), PAGE, 0)
        assert code == 0, ctypes.get_errno()
        self._end = end
        self.address, self.size = end - size, size
        self._before = self.address - start
        ctypes.memset(start, _FENCE, self._before)
        self._start = start

    def whole(self) -> bool:
        """Whether nobody has written in front of it."""
        found = np.frombuffer(ctypes.string_at(self._start, self._before), np.uint8)
        return bool((found == _FENCE).all())

    def array(self, shape, dtype) -> np.ndarray:
        """What lies there."""
        return np.frombuffer(ctypes.string_at(self.address, self.size), dtype).reshape(shape)

    def close(self) -> None:
        """Allow the page again, so that the memory can be given back."""
        _libc.mprotect(ctypes.c_void_p(self._end), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


def call(program, sizes: tuple[int, ...], mapped, operands) -> list[np.ndarray]:
    """The results of a kernel, computed in fenced memory on this thread."""
    kernel = _cpu_kernels.kernel_of(program, sizes, mapped)
    slot = _kernel_registry._entries[kernel.loaded.key].slot
    table = ctypes.c_int64.from_address(slot + SLOT["kernel"]).value
    known = lambda name: ctypes.c_int64.from_address(table + field(name)).value  # noqa: E731
    samples = int(np.prod(sizes, dtype=int))
    count = max(samples, kernel.width)
    flat = in_one_axis(program, sizes, mapped, operands)
    flat = [np.asarray(_cpu_kernels._filled(x, count) if any(m) else x)
            for x, m in zip(flat, mapped, strict=True)]  # fmt: skip
    lead = (count,) if sizes else ()
    shapes = [((*lead, *a.shape), np.dtype(a.dtype)) for a in program.avals_out]
    given = [Fenced(x.nbytes) for x in flat]
    for memory, x in zip(given, flat, strict=True):
        ctypes.memmove(memory.address, np.ascontiguousarray(x).ctypes.data, x.nbytes)
    made = [Fenced(int(np.prod(s, dtype=int)) * d.itemsize) for s, d in shapes]
    shared, scratch = (Fenced(known(f"{x}_bytes"), 64) for x in ("shared", "scratch"))
    tables = [(ctypes.c_void_p * max(len(m), 1))(*(x.address for x in m)) for m in (given, made)]
    args, rets = map(ctypes.addressof, tables)
    prologue = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(known("prologue"))
    prologue(args, shared.address)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 3)(known("run"))
    run(args, rets, shared.address, scratch.address, 0, -(-count // kernel.width), count)
    out = [m.array(s, d) for m, (s, d) in zip(made, shapes, strict=True)]
    for memory in (*given, *made, shared, scratch):
        assert memory.whole(), "a kernel has written in front of its memory"
        memory.close()
    return [np.asarray(x) for x in in_all_axes(list(map(jax.numpy.asarray, out)), sizes)]
