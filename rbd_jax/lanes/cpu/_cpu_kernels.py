"""Kernels of programs on CPUs: which one a batch takes, how it is loaded, and its call from XLA."""

import math
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from .._failures import Unsupported
from .._jax_internals import kernel_call
from .._progress import no_collection, phase
from ..frontend._read_program import read_program
from ..ir._access_analysis import VIEWS
from ..ir._blocks import Block
from ..llvm import _background, _compiler
from ..llvm._memory import TooLarge
from ..xla import _kernel_registry
from ..xla._dispatcher import SYMBOLS, dispatcher_text
from ..xla._operands import in_all_axes, in_one_axis, shared
from . import _kernel_cache
from ._kernel import Text, floating_bytes, kernel_text
from ._work_sharing import compute_text

if TYPE_CHECKING:
    from ..primitive._primitive import Mapped, Program

TARGET = "rbd_jax.lanes"
"""The name of the only target that is registered with XLA for CPUs."""
SCRATCH_BYTES = 256 * 2**20
"""The memory of a kernel for each thread is at most this; a program that needs more takes XLA."""
LATER_BYTES = 2**16
"""Longer texts are compiled on another thread, while Python writes the next kernel."""
WIDE_BYTES = 480 * 2**10
"""Vectors longer than usual pay as long as the memory of a kernel fits the second cache. On a Zen 5
they make derivatives of HyQ (0.2 MB) 1.4 times as fast, and those of Talos (0.9 MB) half as fast.
"""

REUSED = 12
"""A kernel computes up to so many times the bytes of its memory. If it computes more than that of
``WIDE_BYTES``, it is written for vectors of the usual length first, which tells its memory."""


class Kernel(NamedTuple):
    """Compiled code of a program for so many samples at a time."""

    loaded: _kernel_registry.Kernel
    width: int


def kernel_of(program: "Program", sizes: tuple[int, ...], mapped: "Mapped") -> Kernel:
    """The kernel for a batch, compiled when it is first asked for.

    Raises:
        Unsupported: an operation cannot be compiled, or takes too much memory.
    """
    key = ("kernel", shared(sizes, mapped), _widest(sizes))
    if key not in program.derived:
        text, width = text_of(program, sizes, mapped)
        program.derived[key] = Kernel(load(text.text, text.symbol, later=True), width)
    kernel = program.derived[key]
    if kernel.loaded.fault is not None:
        raise kernel.loaded.fault
    return kernel


def text_of(program: "Program", sizes: tuple[int, ...], mapped: "Mapped") -> tuple[Text, int]:
    """The LLVM text of the kernel for a batch, and how many samples it computes at a time."""
    flags, most = shared(sizes, mapped), _widest(sizes)
    with no_collection():
        text, width = _kernel_cache.found_or_made(
            program.closed, (flags, most), lambda: _written(program, flags, most)
        )
    if text.scratch_bytes > SCRATCH_BYTES:
        raise Unsupported(
            f"a program that needs {text.scratch_bytes / 2**20:.0f} MiB for {width} samples, more "
            f"than the {SCRATCH_BYTES / 2**20:.0f} MiB that a thread may have"
        )
    return text, width


def _written(program: "Program", flags: tuple[bool, ...], most: int) -> tuple[Text, int]:
    """The same, written now."""
    with phase("read"):
        block = read_program(program.closed, list(flags))
    size = floating_bytes(block)
    usual, long = (
        min(b // 8 // size, most or 1) for b in (_compiler.BITS, _compiler.vector_bits())
    )
    with phase("write"):
        small = long == usual or _computed_bytes(block) * long < REUSED * WIDE_BYTES
        if long > usual and small:
            with suppress(TooLarge):
                return kernel_text(block, long, most > 0, 0, WIDE_BYTES), long
        text = kernel_text(block, usual, most > 0)
        if small or text.scratch_bytes * long // usual > WIDE_BYTES:
            return text, usual
        return kernel_text(block, long, most > 0), long


def _computed_bytes(block: Block) -> int:
    """The bytes that the operations of a block compute for one sample."""
    ops = [op for op in block.ops if op.name not in VIEWS]
    own = sum(v.size * v.dtype.itemsize for op in ops for v in op.outs if not v.uniform)
    return own + sum(_computed_bytes(inner) for op in ops for inner in op.blocks)


def _widest(sizes: tuple[int, ...]) -> int:
    """The largest power of two that a batch fills, at most the widest kernel; 0 for no batch."""
    widest = _compiler.vector_bits() // 32
    return min(1 << math.prod(sizes).bit_length() - 1, widest) if sizes else 0


def call_kernel(kernel: Kernel, program: "Program", sizes, mapped: "Mapped", *operands) -> list:
    """Call a kernel on operands whose batch axes lie in front, each with some of them."""
    samples = math.prod(sizes)
    padded = max(samples, kernel.width)
    flat = in_one_axis(program, sizes, mapped, operands)
    flat = [_filled(x, padded) if any(m) else x for x, m in zip(flat, mapped, strict=True)]
    lead = (padded,) if sizes else ()
    outs = [jax.ShapeDtypeStruct((*lead, *a.shape), a.dtype) for a in program.avals_out]
    results = kernel_call(TARGET, kernel.loaded.key, flat, outs)
    return in_all_axes(results, sizes)


def _filled(x, count: int):
    """As many samples as a kernel computes at a time; the last one stands in for missing ones."""
    missing = count - x.shape[0]
    if not missing:
        return x
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])


# --- loading ---


def load(text: str, symbol: str, later: bool = False) -> _kernel_registry.Kernel:
    """The kernel of a text, compiled and loaded unless it is there already.

    Args:
        text: the module, with the table that :func:`._kernel.table_text` wrote.
        symbol: the name of that table.
        later: whether another thread may compile it; XLA then waits for it at the end.

    Raises:
        Unsupported: too many kernels are in use.
    """

    def make():
        for_cpus()
        return placed(_compiler.load(text, symbol))

    def placed(code):
        return code, code.address(symbol)

    def begin():
        if not later or len(text) < LATER_BYTES or not _background.threads():
            return None
        for_cpus()
        rest = _compiler.load_later(text, symbol)
        return rest and (lambda: placed(rest()))

    again = _load_packed, (zlib.compress(text.encode(), 1), symbol)
    return _kernel_registry.find_or_add(text, make, again, begin)


def _load_packed(packed: bytes, symbol: str) -> _kernel_registry.Kernel:
    kernel = load(zlib.decompress(packed).decode(), symbol)
    _kernel_registry.awaited(kernel.key)  # nothing else waits for it before it is called
    return kernel


@cache
def dispatcher() -> _compiler.Code:
    """The code of the handler that XLA knows, which stays."""
    return _compiler.load(dispatcher_text(compute_text()), *SYMBOLS)


def for_cpus() -> None:
    """Make the handler known to XLA, once for all threads."""
    with _kernel_registry.lock:
        _registered()


@cache
def _registered() -> None:
    _kernel_registry.register(dispatcher(), TARGET, "cpu")
