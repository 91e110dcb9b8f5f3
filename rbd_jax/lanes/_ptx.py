"""A program as PTX, the assembly of NVIDIA's GPUs: one sample a thread.

The same emitter writes the code as for CPUs, with one sample in place of W. What differs:

- **Layout.** Operands and results of samples lie sample-last: element j of sample s of n is at
  j n + s, so that threads side by side read side by side.
- **Scratch** is an array of the entry function, in a thread's local memory, which the hardware
  interleaves between threads. LLVM puts what it can of it into registers.
- **What all samples share** is computed by an entry of its own, of one thread, before the other.
- **No C library.** Functions that only it has are unsupported, and sine, cosine and tangent of
  angles beyond 1e5 (float32) or 1e9 (float64) are NaN.

NVIDIA's assembler accepts the PTX of every benchmarked function, and tests run the LLVM functions
behind that of some programs on a CPU. ``_gpu`` launches it. None of it has been run on a GPU.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from . import _machine, _math
from ._emit import Emitter
from ._ir import Block, Unsupported, Value, strides_of
from ._kernel import bodies
from ._memory import Memory
from ._text import Reg, scalar_type

TRIPLE = "nvptx64-nvidia-cuda"
THREADS = 128
"""A launch has at most so many threads in a block."""
LOCAL_BYTES = 512 * 2**10
"""Local memory that the hardware gives a thread at most."""
PROLOGUE, ENTRY = "lanes_prologue", "lanes"
"""The names of the two entries."""

_I64 = np.dtype("int64")
_SAMPLE = Reg("%sample", _I64, True)
_COUNT = Reg("%n", _I64, False)


@dataclass(frozen=True)
class Ptx:
    """PTX of a program.

    Both entries take, in this order, the pointers to the operands, those to the results, the
    pointer to the shared memory, and the number of samples as a 64-bit integer. The prologue
    is launched with one thread, then the other with at least as many threads as samples.
    """

    text: str
    prologue: str
    entry: str
    scratch_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Functions:
    """LLVM text of the functions ``@prologue`` and ``@sample``, for any machine.

    Their parameters are pointers ``%args.k`` to the operands and ``%rets.k`` to the results. Then
    ``@prologue`` takes the shared memory; ``@sample`` takes the shared memory, its scratch, and
    the numbers ``%n`` of samples and ``%sample`` of its own, both ``i64``.
    """

    text: str
    operands: int
    results: int
    scratch_bytes: int
    shared_bytes: int

    @property
    def pointers(self) -> list[str]:
        """The names of the pointers to operands and results."""
        return [*_names("args", self.operands), *_names("rets", self.results)]


def _names(table: str, count: int) -> list[str]:
    return [f"%{table}.{k}" for k in range(count)]


class SampleLast(Emitter):
    """Writes code of one sample, whose operands and results lie between those of others."""

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


def functions(program: Block) -> Functions:
    """Write a program for one sample of many.

    Raises:
        Unsupported: it needs a function that only the C library has.
    """
    first, second = SampleLast(), SampleLast()
    bodies(program, first, second, _load, _store)
    operands, results = len(program.inputs), len(program.outputs)
    inputs = ", ".join(f"ptr noalias readonly {x}" for x in _names("args", operands))
    outputs = "".join(f"ptr noalias {x}, " for x in _names("rets", results))
    inputs += ", " if inputs else ""
    own = "ptr noalias readonly %shared, ptr noalias %scratch, i64 %n, i64 %sample"
    text = "\n".join([
        *first.globals, *_mathematics(second),
        f"define internal void @prologue({inputs}{outputs}ptr noalias %scratch) #0 {{",
        "entry:", first.text(), "  ret void", "}",
        f"define internal void @sample({inputs}{outputs}{own}) #0 {{",
        "entry:", second.text(), "  ret void", "}",
        "attributes #0 = { nounwind alwaysinline }", "!0 = !{}", "",
    ])  # fmt: skip
    if " frem " in text:
        raise Unsupported("the remainder of floating-point numbers, without the C library")
    return Functions(text, operands, results, second.arena.size, first.arena.size)


def _load(e: SampleLast, v: Value, k: int) -> None:
    e.borrowed.add(v)
    e.places[v] = e.place("args", k, v)


def _store(e: SampleLast, v: Value, k: int, plan) -> None:
    e.fill(v, e.place("rets", k, v), plan)


def _mathematics(e: Emitter) -> list[str]:
    """Declarations and definitions of the functions that are called."""
    declared, definitions = set(e.declared), []
    for name, bits, width in sorted(e.math):
        if name in _math.LIBRARY:
            raise Unsupported(f"the function {name!r}, which only the C library has")
        definitions.append(_math.definition(name, bits, width, libm=False))
        declared |= _math.declarations([name], bits, width, libm=False)
    return [*sorted(declared), *definitions]


def ptx_text(program: Block, cpu: str = "sm_90", opt: int = 3) -> Ptx:
    """The PTX of a program.

    Args:
        program: the program of one sample, from :func:`._read.read_program`.
        cpu: the oldest GPU that has to run it.
        opt: how much to optimize, 0 to 3.

    Raises:
        Unsupported: it needs the C library, or more local memory than a thread can have.
    """
    return ptx_of(functions(program), cpu, opt)


def ptx_of(made: Functions, cpu: str = "sm_90", opt: int = 3) -> Ptx:
    """The PTX of functions that are written, see :func:`ptx_text`."""
    if made.scratch_bytes > LOCAL_BYTES:
        raise Unsupported(f"a program that needs {made.scratch_bytes / 2**10:.0f} KiB a sample")
    target = _target(cpu, opt)
    module = _machine.optimized(made.text + _entries(made), target, opt)
    return Ptx(target.emit_assembly(module), PROLOGUE, ENTRY, made.scratch_bytes, made.shared_bytes)


def _entries(f: Functions) -> str:
    """The two functions that a host can launch. Pointers say that they are to global memory."""
    names = [*f.pointers, "%shared"]
    parameters = ", ".join(f"ptr addrspace(1) {_quality(x)} %g{x[1:]}" for x in names)
    casts = "\n".join(f"  {x} = addrspacecast ptr addrspace(1) %g{x[1:]} to ptr" for x in names)
    given = ", ".join(f"ptr {x}" for x in names)
    index = "\n".join(
        f"  %{x} = call i32 @llvm.nvvm.read.ptx.sreg.{x}.x()" for x in ("ctaid", "ntid", "tid")
    )
    declared = "\n".join(
        f"declare i32 @llvm.nvvm.read.ptx.sreg.{x}.x()" for x in ("ctaid", "ntid", "tid")
    )
    return f"""\
{declared}
define ptx_kernel void @{PROLOGUE}({parameters}, i64 %n) nounwind {{
{casts}
  call void @prologue({given})
  ret void
}}
define ptx_kernel void @{ENTRY}({parameters}, i64 %n) nounwind {{
entry:
  %scratch = alloca [{max(f.scratch_bytes, 1)} x i8], align 64
{casts}
{index}
  %block = zext i32 %ctaid to i64
  %threads = zext i32 %ntid to i64
  %thread = zext i32 %tid to i64
  %begin = mul nsw i64 %block, %threads
  %sample = add nsw i64 %begin, %thread
  %inside = icmp slt i64 %sample, %n
  br i1 %inside, label %work, label %done
work:
  call void @sample({given}, ptr %scratch, i64 %n, i64 %sample)
  br label %done
done:
  ret void
}}
!nvvm.annotations = !{{!1}}
!1 = !{{ptr @{ENTRY}, !"maxntidx", i32 {THREADS}}}
"""


def _quality(name: str) -> str:
    return "noalias readonly" if name.startswith("%args") else "noalias"


@cache
def _target(cpu: str, opt: int) -> Any:
    """The machine that LLVM compiles for."""
    llvm = _machine.bindings()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=opt)
