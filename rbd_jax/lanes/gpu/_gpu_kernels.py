"""Kernels of programs on NVIDIA GPUs, and their call from XLA."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._failures import Unsupported
from .._jax_internals import kernel_call
from ..frontend._read_program import read_program
from ..ir._access_analysis import VIEWS
from ..ir._blocks import Block
from ..llvm import _compiler
from ..xla import _kernel_registry
from ..xla._dispatcher import SYMBOLS, dispatcher_text
from ..xla._kernel_table import BUFFER, FIELDS, Buffer, buffers_of, numbers_of
from ..xla._operands import in_all_axes, in_one_axis, shared
from . import _launch, _ptx
from ._driver import Driver, driver
from ._team import WARP
from ._time_model import MULTIPROCESSORS, SCHEDULERS, Work, seconds, work_of

if TYPE_CHECKING:
    from ..primitive._primitive import Form, Mapped, Program

TARGET = "rbd_jax.lanes.gpu"
"""The name of the target that is registered with XLA for NVIDIA GPUs."""


TEAM: int | None = None
"""So many threads compute a sample, if their memory fits on the chip; by default
:func:`team_of` chooses."""
TEAMS = {20: 8, 50: 16}
"""Below so many elements an operation, so many threads; else a warp.

On an H200, these were the fastest of 8, 16 and 32 threads for the dynamics of UR5, HyQ and Talos
(4096 robots, float32).
"""
LARGER = 64, 128
"""Sizes that are considered too where a multiprocessor holds so few samples that their warps leave
a scheduler without work."""
SURE, SURE_ALONE = 1.6, 2.3
"""Another size, or one thread a sample in its own form, is taken if the model of the time expects
it to be so many times as fast.

For robots or functions that it was not fitted to, the model was wrong by at most 1.52 for teams and
2.22 for one thread (``python -m benchmarks gpu_model``, which also lists what is chosen).
"""
LINES = 25_000
"""The model is not asked about longer texts, which take long to write for each size."""
BYTES_BY_ROOT = 280
"""A kernel pays if a thread's memory is at most so many bytes times the root of the samples.

One thread works through its memory while most of the GPU waits, where XLA has a kernel for each
operation of all samples. In 53 comparisons in float32 on an H200, this rule chose the faster way,
or one that took at most 1.6 times as long (``python -m benchmarks gpu``).
"""
FOR_SEARCHES = 2
"""So many times as much pays for loops that end when their data say so, as solvers have.

XLA asks the GPU after each round whether another one follows, and all samples wait for the last.
"""


class Kernel:
    """A loaded kernel, how many threads a sample has, and the bytes of its memory outside."""

    def __init__(self, loaded: _kernel_registry.Kernel, made: _ptx.Ptx):
        self.loaded, self.team, self.shared_bytes = loaded, made.team, made.shared_bytes
        self.far_bytes = made.far_bytes


class _Entries:
    """What the dispatcher has to know of a kernel, and the kernel."""

    def __init__(self, made: _ptx.Ptx, code, batched: bool, operands: int, buffers: list[int]):
        self.code = code
        self.buffers = (ctypes.c_int64 * len(buffers))(*buffers)
        known = {"prologue": code.kernel(made.prologue)}
        known |= {"run": code.kernel(made.entry, made.chip_bytes), "threads": made.threads}
        known |= {"samples": made.samples, "chip_bytes": made.chip_bytes}
        known |= {"operands": operands, "results": len(buffers) // len(BUFFER) - operands}
        known |= {"buffers": ctypes.addressof(self.buffers), "shared_bytes": made.shared_bytes}
        known |= {"batched": int(batched), "width": 1}
        self.table = (ctypes.c_int64 * len(FIELDS))(*(known.get(name, 0) for name in FIELDS))


def kernel_of(program: "Program", sizes: tuple[int, ...], mapped: "Mapped") -> Kernel:
    """The kernel for a batch, compiled when it is first asked for.

    Raises:
        Unsupported: an operation cannot be compiled, or takes too much memory, or XLA is faster.
        RuntimeError: there is no driver, or it does not take the kernel.
    """
    samples, flags = math.prod(sizes), shared(sizes, mapped)
    written = chosen(Writings(program, flags, bool(sizes)), samples)
    most = BYTES_BY_ROOT * (FOR_SEARCHES if written.searches else 1) * math.sqrt(samples)
    if written.team == 1 and not program.strict and written.made.scratch_bytes > most:
        raise Unsupported(f"so much memory a sample for {samples} samples")
    key = ("gpu", flags, bool(sizes), written.form, written.team)
    if key not in program.derived:
        device = for_gpus()
        most = min(_ptx.LOCAL_BYTES, device.local_bytes())
        made = _ptx.ptx_of(written.made, device.architecture(), most=most,
                           chip=device.chip_bytes())  # fmt: skip
        byte = np.dtype("uint8")
        memory = [Buffer(byte, max(made.shared_bytes, 1), False)]
        memory += [Buffer(byte, made.far_bytes, bool(sizes))] if made.far_bytes else []
        buffers = numbers_of([*written.operands, *written.results, *memory])
        loaded = _load(made, bool(sizes), len(written.operands), buffers)
        program.derived[key] = Kernel(loaded, made)
    return program.derived[key]


@dataclass(frozen=True)
class Written:
    """A program for a team of some size, and the form of the function that it was traced in."""

    form: "Form"
    made: _ptx.Functions
    operands: list[Buffer]
    results: list[Buffer]
    searches: bool

    @property
    def team(self) -> int:
        """Threads of a sample."""
        return self.made.team

    @cached_property
    def work(self) -> Work:
        """The kernel, as the model of the time sees it."""
        own = (b for b in (*self.operands, *self.results) if b.batched)
        far = 2 * self.made.far_bytes  # which is written, and read again
        return work_of(self.made, far + sum(b.dtype.itemsize * b.size for b in own))


class Writings:
    """A program in all ways in which its samples may be computed; each is written when asked for.

    Args:
        program: the function of a sample.
        flags: which operands all samples share.
        batched: whether there are samples.
        chip: bytes of memory on the chip that a block can have; by default those of the GPU.
    """

    def __init__(self, program: "Program", flags: tuple[bool, ...], batched: bool,
                 chip: int | None = None):  # fmt: skip
        self._program, self._flags, self._batched, self._chip = program, flags, batched, chip

    @property
    def rule(self) -> int:
        """The size of a team by the rule of thumb."""
        return self._kept("rule", lambda: team_of(self._block("")))

    def written(self, team: int, form: "Form" = "") -> Written | None:
        """The program for a team of this size; None if its memory is too large for the chip."""
        return self._kept(("written", form, team), lambda: self._write(team, form))

    def _block(self, form: "Form") -> Block:
        program = self._program.in_form(form) if form else self._program
        return read_program(program.closed, list(self._flags))

    def _kept(self, key, make: Callable[[], Any]):
        key = ("gpu", self._flags, self._batched, self._chip, key)
        if key not in self._program.derived:
            self._program.derived[key] = make()
        return self._program.derived[key]

    def _write(self, team: int, form: "Form") -> Written | None:
        block = self._block(form)
        try:
            made = _ptx.functions(block, team)
            _ptx.samples_of_block(made.scratch_bytes, team, self._chip or for_gpus().chip_bytes())
        except Unsupported:
            if team == 1:
                raise
            return None
        operands = buffers_of(block.inputs, self._batched)
        results = [Buffer(v.dtype, v.size, self._batched) for v in block.outputs]
        return Written(form, made, operands, results, _searches(block))


def chosen(ways: Writings, samples: int) -> Written:
    """The way that suits so many samples.

    It is the team of the rule of thumb, unless the model of the time is sure of another way: a team
    of another size, or one thread a sample in the form for one thread.
    """
    found = ways.written(TEAM or ways.rule) or ways.written(1)
    assert found is not None  # one thread needs no memory on the chip
    if TEAM or found.made.text.count("\n") > LINES:
        return found
    others: list[tuple[Written | None, float]] = []
    if found.team > 1:
        few = found.work.resident * found.team < SCHEDULERS * WARP
        sizes = (*TEAMS.values(), WARP, *(LARGER if few else ()))
        others += [(ways.written(t), SURE) for t in sizes if t != found.team]
    if found.team == 1 or samples > 2 * MULTIPROCESSORS * found.work.resident:
        others.append((ways.written(1, "thread"), SURE_ALONE))  # teams wait for their turn
    best, least = found, seconds(found.work, samples)
    for other, sure in others:
        if other is not None and (time := sure * seconds(other.work, samples)) < least:
            best, least = other, time
    return best


def team_of(block: Block) -> int:
    """How many threads have enough to do in most operations of a program.

    Searches have a whole warp: their robots wait for memory on the chip, not for each other.
    """
    sizes = [v.size for op in block.ops if op.name not in VIEWS for v in op.outs if not v.uniform]
    mean = sum(sizes) / max(len(sizes), 1)
    fits = (team for most, team in TEAMS.items() if mean < most)
    return WARP if _searches(block) else next(fits, WARP)


def _load(
    made: _ptx.Ptx, batched: bool, operands: int, buffers: list[int]
) -> _kernel_registry.Kernel:
    """The kernel of a text with these buffers, loaded unless it is there already."""

    def make():
        code = for_gpus().load(made.text)
        found = _Entries(made, code, batched, operands, buffers)
        return found, ctypes.addressof(found.table)

    again = _load, (made, batched, operands, buffers)
    return _kernel_registry.find_or_add(f"{made.text}{batched}{buffers}", make, again)


def _searches(block: Block) -> bool:
    """Whether the number of rounds of some loop depends on data."""
    return any(op.name == "while" or any(map(_searches, op.blocks)) for op in block.ops)


def call_kernel(kernel: Kernel, program: "Program", sizes, mapped: "Mapped", *operands) -> list:
    """Call a kernel on operands whose batch axes lie in front, each with some of them.

    Neighboring threads read neighboring numbers: the elements of a sample lie side by side for a
    team, and those of neighboring samples where each has one thread. The last results are memory:
    for what all samples share, and for what a sample keeps outside of the chip.
    """
    flat = in_one_axis(program, sizes, mapped, operands)
    lead = (math.prod(sizes),) if sizes else ()
    outs = [jax.ShapeDtypeStruct((*lead, *a.shape), a.dtype) for a in program.avals_out]
    outs.append(jax.ShapeDtypeStruct((max(kernel.shared_bytes, 1),), np.uint8))
    last, far = kernel.team == 1, bool(kernel.far_bytes)
    if far:
        outs.append(jax.ShapeDtypeStruct((*lead, kernel.far_bytes), np.uint8))
    own = len(program.avals_out)
    layouts = (
        tuple(_layout(x.ndim, last and any(m)) for x, m in zip(flat, mapped, strict=True)),
        (
            *(_layout(a.ndim, last and bool(sizes)) for a in outs[:own]),
            *(_layout(a.ndim, False) for a in outs[own:]),
        ),
    )
    results = kernel_call(TARGET, kernel.loaded.key, flat, outs, layouts)
    return in_all_axes(results[:own], sizes)


def _layout(ndim: int, last: bool) -> tuple[int, ...]:
    """The order of axes in memory, from the greatest stride to the least."""
    return (*range(1, ndim), 0) if last else tuple(range(ndim))


@cache
def available() -> bool:
    """Whether there is a driver that takes kernels."""
    try:
        driver()
    except RuntimeError:
        return False
    return True


def for_gpus() -> Driver:
    """The driver; the first call makes the launcher known to XLA, once for all threads."""
    with _kernel_registry.lock:
        return _registered()


@cache
def _registered() -> Driver:
    found = driver()
    _kernel_registry.register(launcher(found), TARGET, "CUDA")
    return found


def launcher(device: Driver) -> _compiler.Code:
    """The code of the handler that launches kernels by the functions of a driver."""
    text = dispatcher_text(_launch.launch_text())
    code = _compiler.load(text, *SYMBOLS, *_launch.USED)
    for name in _launch.USED:
        ctypes.c_void_p.from_address(code.address(name)).value = device.address(name)
    return code
