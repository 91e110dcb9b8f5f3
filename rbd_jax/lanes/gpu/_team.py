"""Code of one sample for a team of threads, which divide its loops and share its memory.

Every thread of a team runs the same code. What is outside of loops over elements is computed by
each of them, from the same numbers, to the same result. The rounds of a loop over elements are
divided: thread t of T takes the rounds t, t + T, and so on. Loops over steps, as scans are, are
run by all threads together, and their inside is written by the same rules.

Arrays lie in *scratch*, which the threads of a team share. What a long loop over steps stacks or
reads row by row lies *far*, in the memory of the GPU, because a round touches a row of it alone and
the memory on the chip decides how many samples are at work. A thread may read what another one
has written, or overwrite what another one has read, only after the team has *met*: each thread
waits there for the others. :class:`_Touched` knows which bytes have been touched since the last
meeting, so that the team meets only where data crosses threads.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..ir._blocks import Block, Op, Sym, Value, strides_of
from ..ir._loop_fusion import Plan
from ..llvm._emitter import Emitter
from ..llvm._llvm_writer import Elem, Reg
from ..llvm._memory import Memory, Recorded

_I32, _I64, _FLAG = np.dtype("int32"), np.dtype("int64"), np.dtype(bool)
_THREAD = Reg("%thread", _I64, False)
_SOMEWHERE = Sym(((_THREAD, 1),))
"""A place in a vector that nobody knows while the code is written."""
WARP = 32
"""So many threads of a GPU go together, and can hand each other registers."""
FAR_STEPS, FAR_BYTES = 24, 1024
"""A loop over so many steps is long: arrays with a row for each step lie far if they are large."""
GRANULE, GRANULES = 64, 4096
"""Bytes of far memory for each bit of :class:`_Touched`, and the number of these bits."""
WRITERS: dict[str, Callable[["Team", Op, Plan], bool]] = {}
"""Name of an operation -> the function that writes it for a team, or says that it does not."""


class _Touched(NamedTuple):
    """Memory that threads have touched since they met.

    The first ``GRANULES`` bits are parts of the far memory, and bit k after them is byte k of the
    scratch. Parts of a large far memory share bits, so that the threads meet once too often.
    """

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
    """Writes a function whose parameters are ``%thread``, ``%scratch``, ``%far`` and ``%sample``.

    Args:
        size: threads of a team, a power of two.
        meeting: the function in which they wait for each other.
        far: whether there is far memory.
    """

    hides_counters = False

    def __init__(self, size: int, meeting: str, far: bool = False):
        super().__init__(1)
        self.team, self._meeting, self._has_far = size, meeting, far
        self.arena, self.far = Recorded(), Recorded()
        self._steps: set[int] = set()
        """Rows of arrays that lie far: the numbers of steps of long loops, and one more."""
        self._touched = _Touched()
        self._inside: _Touched | None = None
        """What the rounds of the loop touch that is being divided."""
        self._extents: dict[tuple[str, int], int] = {}
        self._places: dict[tuple[str, int], int] = {}
        """Bits of the elements that may be meant where the place in an array is not known."""
        self._writes = 0
        self._unused: dict[str, tuple[str, list[str], str]] = {}
        """Quotients that no index needs so far: the one before, where to write, and what."""

    def planned(self) -> "Team | None":
        """An emitter whose arrays lie closer together, if that saves memory."""
        before = self.arena, self.far
        after = [x.planned() if isinstance(x, Recorded) else x for x in before]
        if all(x.size >= y.size for x, y in zip(after, before, strict=True)):
            return None
        again = Team(self.team, self._meeting, self._has_far)
        again.arena, again.far = after
        return again

    def run(self, block: Block, place: Callable[[Value, int], Memory] | None = None) -> Plan:
        """Write a block; see :meth:`Emitter.run`."""
        if self._has_far and not self.around:
            steps = {op.params["length"] for op in block.ops if op.name == "scan"}
            self._steps |= {n + k for n in steps if n >= FAR_STEPS for k in (0, 1)}
        return super().run(block, place)

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
        size = dtype.itemsize * math.prod(shape)
        if self._is_far(shape, size):
            m = Memory("%far", self.far.take(size, fresh), dtype, wide, shape, strides_of(shape))
        else:
            m = super().allocate(shape, dtype, wide, fresh)
        self._extents[m.base, m.offset] = size
        return m

    def release(self, m: Memory) -> None:
        """Give it back."""
        if m.base == "%far":
            self.far.give(m.offset, m.dtype.itemsize * math.prod(m.shape))
        else:
            super().release(m)

    def _is_far(self, shape: tuple[int, ...], size: int) -> bool:
        rows = bool(shape) and shape[0] in self._steps
        return rows and size >= FAR_BYTES and not self.around

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

    def load_at(self, m: Memory, at: Reg) -> Reg:
        """Read the element of a vector at a distance from the first, in bytes."""
        kind, out = self.type(m.dtype, False, memory=True), self.name()
        self._touch(_Touched(read=self._bytes_of(m, (_SOMEWHERE,))))
        self.line(f"{out} = load {kind}, ptr {self._address_at(m, at)}, align {m.dtype.itemsize}")
        return Reg(out, m.dtype, False)

    def store_at(self, m: Memory, at: Reg, x: Elem) -> None:
        """Write it."""
        bytes_ = self._bytes_of(m, (_SOMEWHERE,))
        self._writes += bool(bytes_)
        alone = self._inside is not None
        self._touch(_Touched(written=bytes_) if alone else _Touched(alike=bytes_))
        kind, ref = self.type(m.dtype, False, memory=True), self.operand(x, m.dtype, False)
        at_ = self._address_at(m, at)
        self.line(f"store {kind} {ref}, ptr {at_}, align {m.dtype.itemsize}")

    def _address_at(self, m: Memory, at: Reg) -> str:
        wide = self.wide_index(at)
        base = self.emit(f"getelementptr i8, ptr {m.base}, i64 {wide.ref}", _I64, False).ref
        if m.offset:
            base = self.emit(f"getelementptr i8, ptr {base}, i64 {m.offset}", _I64, False).ref
        return base

    def _bytes_of(self, m: Memory, idx: tuple) -> int:
        """The bits of an element, or of its whole array if its place is not known."""
        if m.base not in ("%scratch", "%far"):
            return 0
        flat = self._flat(m, idx)
        if not isinstance(flat, int) and (m.base, m.offset) in self._places:
            return self._places[m.base, m.offset]
        if isinstance(flat, int):
            begin = m.offset + flat * m.dtype.itemsize
            end = begin + m.dtype.itemsize
        else:
            begin, end = m.offset, m.offset + self._extents[m.base, m.offset]
        if m.base == "%scratch":
            return ((1 << (end - begin)) - 1) << (begin + GRANULES)
        parts = range(begin // GRANULE, -(-end // GRANULE))
        return sum({1 << k % GRANULES for k in parts})

    @contextmanager
    def within(self, m: Memory, numbers: Iterable[int]) -> Iterator[None]:
        """Says which elements of a vector are meant inside, where their places are not known."""
        key = m.base, m.offset
        bits = sum(self._bytes_of(m, (k,)) for k in set(numbers))
        before = self._places.get(key)
        self._places[key] = bits
        yield
        self._places.pop(key)
        if before is not None:
            self._places[key] = before

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

    @contextmanager
    def apart(self, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[Callable[..., Elem]]:
        """An element of each round goes through memory, where the rounds are divided.

        NVIDIA's assembler does not see :meth:`forget`. It would keep in registers what both parts
        read, of the factor of Talos more than there are, because nothing in between could change
        it. Of a store at a place that depends on the round it does not know what it changes.
        """
        if self._inside is not None or math.prod(shape) == 1:
            yield lambda x, _: x
            return
        m = self.allocate(shape, dtype, True)
        yield lambda x, round_: (self.store(m, round_, x), self.load(m, round_))[1]
        self.release(m)

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
