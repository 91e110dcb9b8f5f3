"""Code of one sample for a team of threads, which divide its loops and share its memory.

Every thread of a team runs the same code. What is outside of loops over elements is computed by
each of them, from the same numbers, to the same result. The rounds of a loop over elements are
divided: thread t of T takes the rounds t, t + T, and so on. Loops over steps, as scans are, are
run by all threads together, and their inside is written by the same rules.

Arrays lie in *scratch*, which the threads of a team share. A thread may read what another one
has written, or overwrite what another one has read, only after the team has *met*: each thread
waits there for the others. :class:`_Touched` knows which bytes have been touched since the last
meeting, so that the team meets only where data crosses threads.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..ir._blocks import Op, Sym, Value, strides_of
from ..ir._loop_fusion import Plan
from ..llvm._emitter import Emitter
from ..llvm._llvm_writer import Elem, Reg
from ..llvm._memory import Memory, Recorded

_I32, _I64, _FLAG = np.dtype("int32"), np.dtype("int64"), np.dtype(bool)
_THREAD = Reg("%thread", _I64, False)
WARP = 32
"""So many threads of a GPU go together, and can hand each other registers."""
WRITERS: dict[str, Callable[["Team", Op, Plan], bool]] = {}
"""Name of an operation -> the function that writes it for a team, or says that it does not."""


class _Touched(NamedTuple):
    """Bytes of scratch memory that threads have touched since they met; bit k is byte k."""

    read: int = 0
    written: int = 0
    """By one thread, for others."""
    alike: int = 0
    """By every thread with the same number."""

    def __or__(self, other: "_Touched") -> "_Touched":  # type: ignore[override]
        return _Touched(*(a | b for a, b in zip(self, other, strict=True)))

    def collides(self, later: "_Touched") -> bool:
        """Whether the threads have to meet before they touch others."""
        writes = later.written | later.alike
        return bool(later.read & self.written or writes & (self.read | self.written | self.alike))


class Team(Emitter):
    """Writes a function whose parameters are ``%thread``, ``%scratch`` and ``%sample``.

    Args:
        size: threads of a team, a power of two.
        meeting: the function in which they wait for each other.
    """

    hides_counters = False

    def __init__(self, size: int, meeting: str):
        super().__init__(1)
        self.team, self._meeting = size, meeting
        self.arena = Recorded()
        self._touched = _Touched()
        self._inside: _Touched | None = None
        """What the rounds of the loop touch that is being divided."""
        self._extents: dict[int, int] = {}
        self._writes = 0
        self._unused: dict[str, tuple[str, list[str], str]] = {}
        """Quotients that no index needs so far: the one before, where to write, and what."""

    def planned(self) -> "Team | None":
        """An emitter whose arrays lie closer together, if that saves memory."""
        if not isinstance(self.arena, Recorded) or self.arena.planned().size >= self.arena.size:
            return None
        again = Team(self.team, self._meeting)
        again.arena = self.arena.planned()
        return again

    # --- operands and results: the elements of a sample lie side by side ---

    def pointer(self, table: str, k: int) -> str:
        """Pointers are parameters."""
        return f"%{table}.{k}"

    def place(self, table: str, k: int, v: Value) -> Memory:
        """Where the elements of this sample lie."""
        size = v.size * v.dtype.itemsize
        at = self.arithmetic("mul nsw", Reg("%sample", _I64, True), np.int64(size))
        text = f"getelementptr i8, ptr {self.pointer(table, k)}, i64 {at.ref}"
        base = self.emit(text, _I64, False).ref
        return Memory(base, 0, v.dtype, True, v.shape, strides_of(v.shape), fixed=table == "args")

    def _apart(self, m: Memory, idx: tuple):
        yield 0, self.address(m, idx)

    # --- memory that is shared ---

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype, wide: bool, fresh: bool = False
    ) -> Memory:
        """Memory of the team for an array."""
        m = super().allocate(shape, dtype, wide, fresh)
        self._extents[m.offset] = dtype.itemsize * math.prod(shape)
        return m

    def load(self, m: Memory, idx: tuple) -> Reg:
        """Read an element, behind a meeting where another thread may have written it."""
        self._touch(_Touched(read=self._bytes_of(m, idx)))
        return super().load(m, idx)

    def store(self, m: Memory, idx: tuple, x: Elem) -> None:
        """Write an element."""
        bytes_ = self._bytes_of(m, idx)
        self._writes += bool(bytes_)
        alone = self._inside is not None
        self._touch(_Touched(written=bytes_) if alone else _Touched(alike=bytes_))
        super().store(m, idx, x)

    def _bytes_of(self, m: Memory, idx: tuple) -> int:
        """The bytes of an element, or of its whole array if its place is not known."""
        if m.base != "%scratch":
            return 0
        flat = self._flat(m, idx)
        if isinstance(flat, int):
            begin = m.offset + flat * m.dtype.itemsize
            end = begin + m.dtype.itemsize
        else:
            begin, end = m.offset, m.offset + self._extents[m.offset]
        return ((1 << (end - begin)) - 1) << begin

    def _touch(self, new: _Touched) -> None:
        if self._inside is not None:
            self._inside |= new
            return
        if self._touched.collides(new):
            self.meet()
        self._touched |= new

    def meet(self) -> None:
        """Let the threads wait for each other."""
        self.line(self._waiting())
        self._touched = _Touched()

    def _waiting(self) -> str:
        return f"call void @{self._meeting}()"

    def _spill(self, v: Value) -> Memory:
        """Every thread writes the whole array, before the loop in which it is read."""
        inside, self._inside = self._inside, None
        m = super()._spill(v)
        self._inside = inside
        return m

    # --- loops ---

    def opaque(self, op: Op, plan: Plan) -> None:
        """An operation that writes code of its own."""
        own = WRITERS.get(op.name)
        if own is None or not own(self, op, plan):
            super().opaque(op, plan)

    @property
    def divides(self) -> bool:
        """Whether the rounds of a loop are being divided."""
        return self._inside is not None

    def forget(self) -> None:
        """LLVM takes what was read before for changed."""
        self.line('call void asm sideeffect "", "~{memory}"()')

    def turn(self) -> None:
        """Where a loop over steps begins anew, or branches part and join."""
        if self._inside is None:
            self.meet()

    def loop(self, n: int, body, carried=(), like=(), reverse: bool = False) -> list[Reg]:
        """A loop that all threads run together, or that one thread runs in its round."""
        if self._inside is not None:
            return super().loop(n, body, carried, like, reverse)
        if any(self._touched):
            self.meet()

        def inside(k, now):
            meeting: list = []
            self._lines.append(meeting)
            before = self._writes
            out = body(k, now)
            if self._writes != before:  # what the round before has left
                meeting.append("  " + self._waiting())
            return out

        return super().loop(n, inside, carried, like, reverse)

    def nest(self, lengths: tuple[int, ...], body) -> None:
        """Loops inside each other as one, whose rounds the threads divide among them."""
        if self._inside is not None or math.prod(lengths) == 1:
            self.nested(lengths, body)
            return
        with self.dividing():
            self.rounds(math.prod(lengths), lambda k: body(self.indices(k, lengths)))

    @contextmanager
    def dividing(self) -> Iterator[None]:
        """What is written inside is done by threads that touch different elements."""
        meeting: list = []
        self._lines.append(meeting)
        self._inside = _Touched()
        yield
        inside, self._inside = self._inside, None
        if self._touched.collides(inside):
            meeting.append("  " + self._waiting())
            self._touched = _Touched()
        self._touched |= inside

    @contextmanager
    def only_if(self, flag: Reg) -> Iterator[None]:
        """What is written inside is done by the threads that have this flag."""
        inside, done = self.name("inside"), self.name("done")
        with self.scope():  # what all threads have to write before stands before the branch
            self.line(f"br i1 {flag.ref}, label {inside}, label {done}")
            self.block(inside)
            with self.scope():
                yield
            self.line(f"br label {done}")
            self.block(done)

    def thread(self) -> Reg:
        """The number of this thread in its team."""
        return self.emit(f"trunc i64 {_THREAD.ref} to i32", _I32, False)

    def wide_index(self, x: Reg) -> Reg:
        """A whole number of 32 bits as an index."""
        return self.emit(f"zext i32 {x.ref} to i64", _I64, False)

    def swap(self, x: Elem, dtype: np.dtype, distance: int) -> Reg:
        """The register of the thread whose number differs in this bit."""
        kind = self.type(dtype, False)
        name = f"@lanes.swap.{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}"
        out = self.name()
        self.line(f"{out} = call {kind} {name}({kind} {self.operand(x, dtype, False)}, "
                  f"i64 {_THREAD.ref}, i32 {distance})")  # fmt: skip
        return Reg(out, dtype, False)

    def nest_in_order(self, lengths: tuple[int, ...], body, free) -> None:
        """Loops of which the rounds of some must follow each other; ``free`` names the others."""
        free = () if self._inside is not None else free()
        if not free:
            self.nested(lengths, body)
            return
        bound = [k for k in range(len(lengths)) if k not in free]

        def round_(own: tuple):
            def whole(rest: tuple):
                at = dict(zip((*free, *bound), (*own, *rest), strict=True))
                body(tuple(at[k] for k in range(len(lengths))))

            self.nested(tuple(lengths[k] for k in bound), whole)

        self.nest(tuple(lengths[k] for k in free), round_)

    def rounds(self, n: int, body) -> None:
        """Write ``for k in range(thread, n, team)``; the number of a round has 32 bits."""
        thread = self.thread()
        if n > self.team:
            self._while_below(thread.ref, n, body)
        elif n == self.team:
            with self.scope():
                body(thread)
        else:
            with self.only_if(self.emit(f"icmp ult i32 {thread.ref}, {n}", _FLAG, False)):
                body(thread)

    def _while_below(self, begin: str, end: str | int, body) -> None:
        """Write ``for k in range(begin, end, team)``."""
        head, inside, done = (self.name(kind) for kind in ("rounds", "round", "done"))
        k, following, more = (self.name() for _ in range(3))
        with self.scope():
            before = self.label
            self.line(f"br label {head}")
            self.block(head)
            at = len(self._lines)
            self._lines.append("")
            self.line(f"{more} = icmp ult i32 {k}, {end}")
            self.line(f"br i1 {more}, label {inside}, label {done}")
            self.block(inside)
            with self.scope():
                body(Reg(k, _I32, False))
            self.line(f"{following} = add nuw i32 {k}, {self.team}")
            self.line(f"br label {head}")
            self._lines[at] = (
                f"  {k} = phi i32 [ {begin}, %{before} ], [ {following}, %{self.label} ]"
            )
            self.block(done)

    def indices(self, k: Reg, lengths: tuple[int, ...]) -> tuple:
        """The numbers of the rounds of each loop.

        Each is ``q − n p``, where p is the quotient of q by the length n. Where an array is gone
        through in the order of its memory, the quotients cancel, and nobody divides.
        """
        at = self.emit(f"zext i32 {k.ref} to i64", _I64, False)
        found: list[Sym] = []
        for n in reversed(lengths[1:]):
            quotient = self._quotient(k, n)
            above = Reg(quotient.ref + ".wide", _I64, False)
            found.append(Sym(((at, 1), (above, -n))))
            k, at = quotient, above
        return tuple([Sym(((at, 1),)), *reversed(found)])

    def _quotient(self, k: Reg, n: int) -> Reg:
        """A quotient, which is written here if an index turns out to need it."""
        out, lines = Reg(self.name("quotient"), _I32, False), []
        self._lines.append(lines)
        self._unused[out.ref + ".wide"] = (
            k.ref + ".wide",
            lines,
            f"{out.ref} = udiv i32 {k.ref}, {n}",
        )
        return out

    def integer(self, index: Sym | int) -> Reg | int:
        """The value of an index."""
        for atom, _ in index.terms if isinstance(index, Sym) else ():
            self._write_quotient(atom.ref)
        return super().integer(index)

    def _write_quotient(self, ref: str) -> None:
        if ref in self._unused:
            above, lines, text = self._unused.pop(ref)
            self._write_quotient(above)
            narrow = ref.removesuffix(".wide")
            lines += ["  " + text, f"  {ref} = zext i32 {narrow} to i64"]
