"""A program as PTX, the assembly of NVIDIA's GPUs: one sample a thread.

The same emitter writes the code as for CPUs, with one sample in place of W. What differs:

- **Layout.** Operands and results of samples lie sample-last: element j of sample s of n is at
  j n + s, so that threads side by side read side by side.
- **Scratch** is an array of the entry function, in a thread's local memory, which the hardware
  interleaves between threads. LLVM puts what it can of it into registers.
- **What all samples share** is computed by an entry of its own before the other. The threads of
  one block divide its loops over elements among them.
- **No C library.** Functions that only it has are unsupported, and sine, cosine and tangent of
  angles beyond 1e5 (float32) or 1e9 (float64) are NaN.

NVIDIA's assembler accepts the PTX of every benchmarked function, and tests run the LLVM functions
behind that of some programs on a CPU. ``_launch`` launches it.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._failures import Unsupported
from ..ir._blocks import Block, Op, Sym, Value, strides_of
from ..ir._loop_fusion import Plan
from ..llvm import _compiler, _math_functions
from ..llvm._emitter import Emitter
from ..llvm._kernel_bodies import bodies
from ..llvm._llvm_writer import Reg, scalar_type
from ..llvm._memory import Memory

TRIPLE = "nvptx64-nvidia-cuda"
THREADS = 128
"""A launch has at most so many threads in a block."""
TOGETHER = 256
"""So many threads compute what all samples share."""
LOCAL_BYTES = 512 * 2**10
"""Local memory that the hardware gives a thread at most."""
PROLOGUE, ENTRY = "lanes_prologue", "lanes"
"""The names of the two entries."""

_I64 = np.dtype("int64")
_SAMPLE = Reg("%sample", _I64, True)
_COUNT = Reg("%n", _I64, False)
_DIVIDED = ("assemble", "reduce", "arg", "cumulate", "dot")
"""Operations of which each round of a loop writes its own elements, and reads none of them."""
_THREAD, _BESIDE = Reg("%thread", _I64, False), Reg("%threads", _I64, False)


@dataclass(frozen=True)
class Ptx:
    """PTX of a program.

    Both entries take, in this order, the pointers to the operands, those to the results, the
    pointer to the shared memory, and the number of samples as a 64-bit integer. The prologue
    is launched with one block of ``TOGETHER`` threads, then the other with at least as many
    threads as samples.
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
    ``@prologue`` takes the shared memory, and the numbers ``%thread`` of its own and ``%threads``
    of all that call it. They wait for each other in ``@lanes.barrier``, which
    the machine has to define. ``@sample`` takes the shared memory, its scratch, and the numbers
    ``%n`` of samples and ``%sample`` of its own. Numbers are ``i64``.
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


class Together(SampleLast):
    """Writes what all samples share, for threads that do it together.

    They divide the elements of a loop among them, and wait for each other behind it. What is not
    in a loop is computed by each of them. The first one alone does what changes memory step by
    step, while the others wait.
    """

    def __init__(self):
        super().__init__()
        self._alone = False

    def opaque(self, op: Op, plan: Plan) -> None:
        """An operation that writes code of its own."""
        if self._alone or op.name in _DIVIDED:
            super().opaque(op, plan)
            return
        first, inside, done = self.name(), self.name("first"), self.name("done")
        with self.scope():
            self.line(f"{first} = icmp eq i64 {_THREAD.ref}, 0")
            self.line(f"br i1 {first}, label {inside}, label {done}")
            self.block(inside)
            self._alone = True
            with self.scope():
                super().opaque(op, plan)
            self._alone = False
            self.line(f"br label {done}")
        self.block(done)
        self._wait()

    def nest(self, lengths: tuple[int, ...], body, loops: tuple = ()) -> None:
        """Loops inside each other as one, of which each thread takes every ``threads``-th round."""
        if self._alone:
            super().nest(lengths, body, loops)
            return
        if lengths:
            self._rounds(math.prod(lengths), lambda k: body(self._indices(k, lengths)))
        else:
            body(())
        self._wait()

    def _wait(self) -> None:
        self.line("call void @lanes.barrier()")

    def _rounds(self, n: int, body) -> None:
        """Write ``for k in range(thread, n, threads)``."""
        head, inside, done = (self.name(kind) for kind in ("rounds", "round", "done"))
        k, following, more = (self.name() for _ in range(3))
        with self.scope():
            before = self.label
            self.line(f"br label {head}")
            self.block(head)
            at = len(self._lines)
            self._lines.append("")
            self.line(f"{more} = icmp slt i64 {k}, {n}")
            self.line(f"br i1 {more}, label {inside}, label {done}")
            self.block(inside)
            with self.scope():
                body(Sym(((Reg(k, _I64, False), 1),)))
            self.line(f"{following} = add i64 {k}, {_BESIDE.ref}")
            self.line(f"br label {head}")
            self._lines[at] = (f"  {k} = phi i64 [ {_THREAD.ref}, %{before} ], "
                               f"[ {following}, %{self.label} ]")  # fmt: skip
            self.block(done)

    def _indices(self, k: Sym, lengths: tuple[int, ...]) -> tuple:
        first: Sym | int = k
        found: list = []
        for n in reversed(lengths[1:]):
            first, last = self.divmod(first, n)
            found.append(last)
        return (first, *reversed(found))


def functions(program: Block) -> Functions:
    """Write a program for one sample of many.

    Raises:
        Unsupported: it needs a function that only the C library has.
    """
    first, second = Together(), SampleLast()
    bodies(program, first, second, _load, _store)
    operands, results = len(program.inputs), len(program.outputs)
    inputs = ", ".join(f"ptr noalias readonly {x}" for x in _names("args", operands))
    outputs = "".join(f"ptr noalias {x}, " for x in _names("rets", results))
    inputs += ", " if inputs else ""
    own = "ptr noalias readonly %shared, ptr noalias %scratch, i64 %n, i64 %sample"
    text = "\n".join([
        *first.globals, *_mathematics(second),
        # others write to the shared memory while a thread waits: it is not noalias
        f"define internal void @prologue({inputs}{outputs}ptr %scratch, i64 %thread, "
        "i64 %threads) #1 {",
        "entry:", first.text(), "  ret void", "}",
        f"define internal void @sample({inputs}{outputs}{own}) #0 {{",
        "entry:", second.text(), "  ret void", "}",
        "attributes #0 = { nounwind alwaysinline }",
        "attributes #1 = { nounwind alwaysinline convergent }", "!0 = !{}", "",
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
        if name in _math_functions.LIBRARY:
            raise Unsupported(f"the function {name!r}, which only the C library has")
        definitions.append(_math_functions.definition(name, bits, width, libm=False))
        declared |= _math_functions.declarations([name], bits, width, libm=False)
    return [*sorted(declared), *definitions]


def ptx_text(program: Block, cpu: str = "sm_90", opt: int = 3) -> Ptx:
    """The PTX of a program, see :func:`functions` and :func:`ptx_of`."""
    return ptx_of(functions(program), cpu, opt)


def ptx_of(made: Functions, cpu: str = "sm_90", opt: int = 3, most: int = LOCAL_BYTES) -> Ptx:
    """The PTX of functions that are written.

    Args:
        made: from :func:`functions`.
        cpu: the oldest GPU that has to run it.
        opt: how much to optimize, 0 to 3.
        most: bytes of local memory that a thread can have.

    Raises:
        Unsupported: it needs more local memory than a thread can have.
    """
    if made.scratch_bytes > most:
        raise Unsupported(
            f"a program that needs {made.scratch_bytes / 2**10:.0f} KiB a sample, of which a "
            f"thread of this GPU can have {most / 2**10:.0f}"
        )
    target = _target(cpu, opt)
    module = _compiler.optimized(made.text + _entries(made), target, opt)
    return Ptx(target.emit_assembly(module), PROLOGUE, ENTRY, made.scratch_bytes, made.shared_bytes)


def _entries(f: Functions) -> str:
    """The two functions that a host can launch. Pointers say that they are to global memory."""
    names = [*f.pointers, "%shared"]
    casts = "\n".join(f"  {x} = addrspacecast ptr addrspace(1) %g{x[1:]} to ptr" for x in names)
    given = ", ".join(f"ptr {x}" for x in names)

    def parameters(shared: str) -> str:
        kinds = ["noalias readonly" if x.startswith("%args") else "noalias" for x in f.pointers]
        pairs = zip(names, [*kinds, shared], strict=True)
        return ", ".join(f"ptr addrspace(1) {kind} %g{x[1:]}" for x, kind in pairs)

    places = ("ctaid", "ntid", "tid")
    declared = "\n".join(f"declare i32 @llvm.nvvm.read.ptx.sreg.{x}.x()" for x in places)
    index = "\n".join(
        f"  %{x} = call i32 @llvm.nvvm.read.ptx.sreg.{x}.x()\n  %{name} = zext i32 %{x} to i64"
        for x, name in zip(places, ("block", "threads", "thread"), strict=True)
    )
    return f"""\
{declared}
declare void @llvm.nvvm.barrier0() convergent nounwind
define internal void @lanes.barrier() alwaysinline convergent nounwind {{
  call void @llvm.nvvm.barrier0() convergent
  ret void
}}
define ptx_kernel void @{PROLOGUE}({parameters("")}, i64 %n) nounwind convergent {{
{casts}
{index}
  call void @prologue({given}, i64 %thread, i64 %threads)
  ret void
}}
define ptx_kernel void @{ENTRY}({parameters("noalias readonly")}, i64 %n) nounwind {{
entry:
  %scratch = alloca [{max(f.scratch_bytes, 1)} x i8], align 64
{casts}
{index}
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
!nvvm.annotations = !{{!1, !2}}
!1 = !{{ptr @{ENTRY}, !"maxntidx", i32 {THREADS}}}
!2 = !{{ptr @{PROLOGUE}, !"maxntidx", i32 {TOGETHER}}}
"""


@cache
def _target(cpu: str, opt: int) -> Any:
    """The machine that LLVM compiles for."""
    llvm = _compiler.bindings()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=opt)
