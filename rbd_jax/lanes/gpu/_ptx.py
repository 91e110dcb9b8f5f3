"""A program as PTX, the assembly of NVIDIA's GPUs: a team of threads, or one thread, a sample.

The same emitters write the code as for CPUs, with one sample in place of W. What differs:

- **A team** (:mod:`._team`) has its scratch in the memory on the chip. The elements of a sample lie
  side by side in operands and results, as the threads of a team read them.
- **One thread** a sample has its scratch in local memory, which the hardware interleaves between
  threads. Element j of sample s of n lies at j n + s, so that threads side by side read side by
  side.
- **What all samples share** is computed by an entry of its own before the other, by the threads
  of one block.
- **No C library.** Functions that only it has are unsupported, and sine, cosine and tangent of
  angles beyond 1e5 (float32) or 1e9 (float64) are NaN.

NVIDIA's assembler accepts the PTX of every benchmarked function, and tests run the LLVM functions
behind that of some programs on a CPU. ``_launch`` launches it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._failures import Unsupported
from ..ir._access_analysis import threads_a_sample
from ..ir._blocks import Block, Value, strides_of
from ..llvm import _compiler, _math_functions
from ..llvm._emitter import Emitter
from ..llvm._kernel_bodies import bodies
from ..llvm._llvm_writer import Reg, scalar_type
from ..llvm._memory import Memory
from . import _team_loops
from ._left_out import leave_out
from ._team import GRANULE, WARP, Team

TRIPLE = "nvptx64-nvidia-cuda"
TOGETHER = 256
"""So many threads compute what all samples share."""
REGISTERS, FEWEST, MOST = 65536, 64, 255
"""A multiprocessor has so many registers; a thread takes between so few and so many."""
BLOCKS = 32
"""A multiprocessor takes at most so many blocks at a time."""
CHIP_BYTES, BLOCK_BYTES = 227 * 2**10, 2**10
"""Memory on the chip that a block can have, and what each block takes beside its own."""
LOCAL_BYTES = 512 * 2**10
"""Local memory that the hardware gives a thread at most."""
PROLOGUE, ENTRY = "lanes_prologue", "lanes"
"""The names of the two entries."""

FILES = (_team_loops,)
"""The file that fills the table of what teams write in their own way when it is imported."""
_I64 = np.dtype("int64")
_COUNT = Reg("%n", _I64, False)


@dataclass(frozen=True)
class Ptx:
    """PTX of a program.

    Both entries take, in this order, the pointers to the operands, those to the results, the
    pointer to the shared memory, that to the far memory of all samples if they have some, and the
    number of samples as a 64-bit integer. The prologue
    is launched with one block of ``TOGETHER`` threads, then the other with at least as many
    threads as samples.
    """

    text: str
    prologue: str
    entry: str
    scratch_bytes: int
    shared_bytes: int
    far_bytes: int
    team: int
    samples: int
    """Of a block of threads."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.team * self.samples

    @property
    def chip_bytes(self) -> int:
        """Memory of a block on the chip."""
        return 0 if self.team == 1 else self.samples * _apart(self.scratch_bytes, self.team)


@dataclass(frozen=True)
class Functions:
    """LLVM text of the functions ``@prologue`` and ``@sample``, for any machine.

    Their parameters are pointers ``%args.k`` to the operands and ``%rets.k`` to the results. Then
    ``@prologue`` takes the memory for what all samples share, and the number ``%thread`` of a
    thread among ``TOGETHER``. ``@sample`` takes that memory, its scratch, its far memory, and the
    numbers ``%n`` of samples, ``%sample`` of its own, and ``%thread`` of the thread in its team.
    Numbers are ``i64``. Threads wait for each other in ``@lanes.meet.block`` and
    ``@lanes.meet.team``, which the machine has to define.
    """

    text: str
    operands: int
    results: int
    scratch_bytes: int
    shared_bytes: int
    team: int
    far_bytes: int = 0
    """Of a sample, in the memory of the GPU."""

    @property
    def pointers(self) -> list[str]:
        """The names of the pointers to operands and results."""
        return [*_names("args", self.operands), *_names("rets", self.results)]


def _names(table: str, count: int) -> list[str]:
    return [f"%{table}.{k}" for k in range(count)]


class SampleLast(Emitter):
    """Writes code of one sample, whose operands and results lie between those of others."""

    hides_counters = False

    def __init__(self):
        super().__init__(1)
        self._apart_by_n: set[str] = set()

    def pointer(self, table: str, k: int) -> str:
        """Pointers are parameters."""
        return f"%{table}.{k}"

    def place(self, table: str, k: int, v: Value) -> Memory:
        """Where the elements of this sample lie: the first one here, each other n further."""
        kind = scalar_type(v.dtype, memory=True)
        text = f"getelementptr {kind}, ptr {self.pointer(table, k)}, i64 %sample"
        base = self.emit(text, _I64, False).ref
        self._apart_by_n.add(base)
        return Memory(base, 0, v.dtype, True, v.shape, strides_of(v.shape), fixed=table == "args")

    def address(self, m: Memory, idx: tuple) -> str:
        """Pointer to an element."""
        if m.base not in self._apart_by_n:
            return super().address(m, idx)
        flat = m.start
        for i, s in zip(idx, m.strides, strict=True):
            flat = flat + i * s
        at = self.integer(flat)
        if isinstance(at, int):
            if not at:
                return m.base
            at = np.int64(at)
        step, kind = self.arithmetic("mul nsw", _COUNT, at), scalar_type(m.dtype, memory=True)
        return self.emit(f"getelementptr {kind}, ptr {m.base}, i64 {step.ref}", _I64, False).ref

    def _apart(self, m: Memory, idx: tuple):
        yield 0, self.address(m, idx)


def functions(program: Block, team: int = 1) -> Functions:
    """Write a program for one sample of many, of which each belongs to so many threads.

    Raises:
        Unsupported: it needs a function that only the C library has.
    """
    first = Team(TOGETHER, "lanes.meet.block")
    second = SampleLast() if team == 1 else Team(team, "lanes.meet.team", True)
    if team > 1:
        leave_out(program)
    with threads_a_sample(team):
        second = bodies(program, first, second, _load, place=_place)
    operands, results = len(program.inputs), len(program.outputs)
    inputs = ", ".join(f"ptr noalias readonly {x}" for x in _names("args", operands))
    outputs = "".join(f"ptr noalias {x}, " for x in _names("rets", results))
    inputs += ", " if inputs else ""
    # others write to memory that is shared while a thread waits: it is not noalias
    scratch = "ptr noalias %scratch" if team == 1 else "ptr %scratch"
    far = -(-second.far.size // GRANULE) * GRANULE if isinstance(second, Team) else 0
    kind = "nounwind alwaysinline" if team == 1 else "nounwind alwaysinline convergent"
    text = "\n".join([
        *first.globals, *_mathematics(second),
        f"define internal void @prologue({inputs}{outputs}ptr %scratch, i64 %thread) #1 {{",
        "entry:", first.text(), "  ret void", "}",
        f"define internal void @sample({inputs}{outputs}ptr noalias readonly %shared, {scratch}, "
        "ptr %far, i64 %n, i64 %sample, i64 %thread) #0 {",
        "entry:", second.text(), "  ret void", "}",
        f"attributes #0 = {{ {kind} }}",
        "attributes #1 = { nounwind alwaysinline convergent }", "!0 = !{}", "",
    ])  # fmt: skip
    if " frem " in text:
        raise Unsupported("the remainder of floating-point numbers, without the C library")
    return Functions(text, operands, results, second.arena.size, first.arena.size, team, far)


def _load(e, v: Value, k: int) -> None:
    e.borrowed.add(v)
    e.places[v] = e.place("args", k, v)


def _place(e, v: Value, k: int) -> Memory:
    return e.place("rets", k, v)


def _mathematics(e: Emitter) -> list[str]:
    """Declarations and definitions of the functions that are called."""
    declared, definitions = set(e.declared), []
    for name, bits, width in sorted(e.math):
        if name in _math_functions.LIBRARY:
            raise Unsupported(f"the function {name!r}, which only the C library has")
        definitions.append(_math_functions.definition(name, bits, width, libm=False))
        declared |= _math_functions.declarations([name], bits, width, libm=False)
    return [*sorted(declared), *definitions]


def ptx_text(program: Block, cpu: str = "sm_90", opt: int = 3, team: int = 1) -> Ptx:
    """The PTX of a program, see :func:`functions` and :func:`ptx_of`."""
    return ptx_of(functions(program, team), cpu, opt)


def _apart(scratch: int, team: int) -> int:
    """Bytes from the memory of one team to that of the next.

    A team reads so many neighboring numbers of 4 bytes at a time, the others of its warp as many at
    the same places of their memory. Of 32 banks, each team then finds other ones.
    """
    step = 4 * min(team, WARP)
    return -(-(scratch - step) // (4 * WARP)) * 4 * WARP + step if team < WARP else scratch


def samples_of_block(scratch: int, team: int, chip: int = CHIP_BYTES) -> int:
    """How many samples a block takes, so that as many as possible are at work at a time.

    Raises:
        Unsupported: the memory on the chip is too small for one.
    """
    if team == 1:
        return WARP
    apart = _apart(scratch, team)
    if apart > chip:
        raise Unsupported(f"a program that needs {scratch / 2**10:.0f} KiB of memory on the chip")
    least = max(1, WARP // team)
    sizes = [k for k in (least, 2 * least, 4 * least) if k == 1 or team <= WARP]
    sizes = [k for k in sizes if k * apart <= chip] or [1]

    return max(sizes, key=lambda k: (k * resident_blocks(scratch, team, k, chip), -k))


def resident_blocks(scratch: int, team: int, samples: int, chip: int = CHIP_BYTES) -> int:
    """How many blocks of so many samples a multiprocessor holds at a time, by their memory."""
    bytes_ = samples * _apart(scratch, team) + BLOCK_BYTES
    return min((chip + BLOCK_BYTES) // bytes_, BLOCKS)


def registers_of_thread(scratch: int, team: int, samples: int, chip: int = CHIP_BYTES) -> int:
    """How many registers a thread may take, so that all samples that the chip holds are at work."""
    threads = resident_blocks(scratch, team, samples, chip) * samples * team
    return min(max(REGISTERS // threads // 8 * 8, FEWEST), MOST)


def ptx_of(made: Functions, cpu: str = "sm_90", opt: int = 3, most: int = LOCAL_BYTES,
           chip: int = CHIP_BYTES) -> Ptx:  # fmt: skip
    """The PTX of functions that are written.

    Args:
        made: from :func:`functions`.
        cpu: the oldest GPU that has to run it.
        opt: how much to optimize, 0 to 3.
        most: bytes of local memory that a thread can have.
        chip: bytes of memory on the chip that a block can have.

    Raises:
        Unsupported: it needs more memory than a thread or a block can have.
    """
    samples = samples_of_block(made.scratch_bytes, made.team, chip)
    if made.team == 1 and made.scratch_bytes > most:
        raise Unsupported(
            f"a program that needs {made.scratch_bytes / 2**10:.0f} KiB a sample, of which a "
            f"thread of this GPU can have {most / 2**10:.0f}"
        )
    target = _target(cpu, opt)
    registers = 0
    if made.team > 1:
        registers = registers_of_thread(made.scratch_bytes, made.team, samples, chip)
    module = _compiler.optimized(made.text + _entries(made, samples, registers), target, opt)
    text = target.emit_assembly(module)
    return Ptx(text, PROLOGUE, ENTRY, made.scratch_bytes, made.shared_bytes, made.far_bytes,
               made.team, samples)  # fmt: skip


def _entries(f: Functions, samples: int, registers: int) -> str:
    """The two functions that a host can launch. Pointers say that they are to global memory."""
    own = [*f.pointers, "%shared"]
    names = [*own, "%far.all"] if f.far_bytes else own
    casts = "\n".join(f"  {x} = addrspacecast ptr addrspace(1) %g{x[1:]} to ptr" for x in names)
    given = ", ".join(f"ptr {x}" for x in own)

    def parameters(shared: str) -> str:
        kinds = ["noalias readonly" if x.startswith("%args") else "noalias" for x in f.pointers]
        pairs = zip(names, [*kinds, shared, *[""] * len(names[len(own) :])], strict=True)
        return ", ".join(f"ptr addrspace(1) {kind} %g{x[1:]}" for x, kind in pairs)

    return f"""\
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0() convergent nounwind
declare void @llvm.nvvm.bar.warp.sync(i32) convergent nounwind
define internal void @lanes.meet.block() alwaysinline convergent nounwind {{
  call void @llvm.nvvm.barrier0() convergent
  ret void
}}
define internal void @lanes.meet.team() alwaysinline convergent nounwind {{
{_meeting(f.team)}
  ret void
}}
{_swaps(f.team)}
define ptx_kernel void @{PROLOGUE}({parameters("")}, i64 %n) nounwind convergent {{
{casts}
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %thread = zext i32 %tid to i64
  call void @prologue({given}, i64 %thread)
  ret void
}}
{_memory(f)}
define ptx_kernel void @{ENTRY}({parameters("noalias readonly")}, i64 %n) nounwind convergent {{
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %own = udiv i32 %tid, {f.team}
  %thread.short = urem i32 %tid, {f.team}
  %thread = zext i32 %thread.short to i64
  %first = mul i32 %block, {samples}
  %sample.short = add i32 %first, %own
  %sample = zext i32 %sample.short to i64
{casts}
{_scratch(f)}
{_far(f)}
  %inside = icmp slt i64 %sample, %n
  br i1 %inside, label %work, label %done
work:
  call void @sample({given}, ptr %scratch, ptr %far, i64 %n, i64 %sample, i64 %thread)
  br label %done
done:
  ret void
}}
!nvvm.annotations = !{{!1, !2{", !3" if registers else ""}}}
!1 = !{{ptr @{ENTRY}, !"maxntidx", i32 {f.team * samples}}}
!2 = !{{ptr @{PROLOGUE}, !"maxntidx", i32 {TOGETHER}}}
!3 = !{{ptr @{ENTRY}, !"maxnreg", i32 {registers}}}
"""


def _meeting(team: int) -> str:
    """How the threads of a team wait for each other: those of a part of a warp, or of a block."""
    if team > WARP:
        return "  call void @llvm.nvvm.barrier0() convergent"
    return f"{_mask(team)}\n  call void @llvm.nvvm.bar.warp.sync(i32 %mask) convergent"


def _mask(team: int) -> str:
    """Which threads of a warp are the team."""
    if team == WARP:
        return "  %mask = add i32 0, -1"
    return f"""\
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %begin = and i32 %tid, {WARP - team}
  %mask = shl i32 {2**team - 1}, %begin"""


def _swaps(team: int) -> str:
    """How threads of a team hand each other registers, of which each has 32 bits."""
    if not 1 < team <= WARP:
        return ""
    mask = _mask(team)
    swap = "call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 %mask, i32 {}, i32 %distance, i32 31)"
    texts = ["declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32) convergent nounwind"]
    for kind, name, whole in (("float", "f32", "i32"), ("double", "f64", "i64"),
                              ("i32", "i32", "i32"), ("i64", "i64", "i64")):  # fmt: skip
        head = f"define internal {kind} @lanes.swap.{name}({kind} %x, i64 %thread, i32 %distance)"
        cast = f"bitcast {kind} %x to {whole}"
        if whole == "i32":
            body = f"  %bits = {cast}\n  %all = {swap.format('%bits')}"
        else:
            body = f"""\
  %bits = {cast}
  %low = trunc i64 %bits to i32
  %up = lshr i64 %bits, 32
  %high = trunc i64 %up to i32
  %low.other = {swap.format("%low")}
  %high.other = {swap.format("%high")}
  %low.wide = zext i32 %low.other to i64
  %high.wide = zext i32 %high.other to i64
  %shifted = shl i64 %high.wide, 32
  %all = or i64 %shifted, %low.wide"""
        texts.append(f"""{head} alwaysinline convergent nounwind {{
{mask}
{body}
  %out = bitcast {whole} %all to {kind}
  ret {kind} %out
}}""")
    return "\n".join(texts)


def _memory(f: Functions) -> str:
    if f.team == 1:
        return ""
    return "@lanes_memory = external addrspace(3) global [0 x i8], align 128"


def _scratch(f: Functions) -> str:
    """The memory of a sample: of its thread alone, or on the chip for its team."""
    if f.team == 1:
        return f"  %scratch = alloca [{max(f.scratch_bytes, 1)} x i8], align 64"
    return f"""\
  %offset = mul i32 %own, {_apart(f.scratch_bytes, f.team)}
  %chip = getelementptr i8, ptr addrspace(3) @lanes_memory, i32 %offset
  %scratch = addrspacecast ptr addrspace(3) %chip to ptr"""


def _far(f: Functions) -> str:
    """The far memory of a sample."""
    if not f.far_bytes:
        return "  %far = getelementptr i8, ptr %shared, i64 0"
    return f"""\
  %far.at = mul i64 %sample, {f.far_bytes}
  %far = getelementptr i8, ptr %far.all, i64 %far.at"""


@cache
def _target(cpu: str, opt: int) -> Any:
    """The machine that LLVM compiles for."""
    llvm = _compiler.bindings()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=opt)
