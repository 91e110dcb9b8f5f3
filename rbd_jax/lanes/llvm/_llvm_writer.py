"""Writing LLVM code: registers, vectors of W samples, loops.

A register is a :class:`Reg`; a number that is known is a NumPy scalar. Lines are collected in
nested lists, so that something can still be put before a loop that has begun.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..ir._blocks import Sym


class Reg(NamedTuple):
    """A register: its name, the dtype of its elements, and whether each sample has its own."""

    ref: str
    dtype: np.dtype
    wide: bool


Elem = Reg | np.generic

INT = np.dtype("int64")
BOOL = np.dtype(bool)

LARGE_LOOP = 3000
"""Lines of a loop from which operations are not moved."""

OPAQUE_COUNTER = 60
"""Lines of a loop from which on LLVM does not see that addresses in it follow from a counter.

LLVM would look for a pointer to carry from round to round instead of each product with the counter
(strength reduction), for all addresses of the loop at once. In long loops this took a third of the
time of writing machine code, and made no kernel faster.
"""


def scalar_type(dtype: np.dtype, memory: bool = False) -> str:
    """LLVM's name of a dtype; a boolean takes a byte in memory."""
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    if dtype.kind == "b":
        return "i8" if memory else "i1"
    return f"i{8 * dtype.itemsize}"


def literal(x: np.generic) -> str:
    """A number as LLVM writes it."""
    if x.dtype.kind == "f":
        return "0x" + struct.pack(">d", float(x)).hex().upper()
    return str(int(x)) if x.dtype.kind != "b" else ("true" if x else "false")


def number(x, dtype: np.dtype) -> np.generic:
    """A number in a dtype."""
    return np.asarray(x).astype(dtype)[()]  # type: ignore[return-value]


class Writer:
    """Writes the body of one function."""

    hides_counters = True
    """Whether long loops do, see :data:`OPAQUE_COUNTER`."""

    def __init__(self, width: int):
        self.width = width
        self.globals: list[str] = []
        self.declared: set[str] = set()
        self.math: set[tuple[str, int, int]] = set()
        self.label = "entry"
        self.around = 0
        """Loops over steps around what is written now."""
        self._count = 0
        self._lines: list = []
        self._scopes: list[tuple[dict, list]] = [({}, self._lines)]

    # --- lines and scopes ---

    def text(self) -> str:
        """All lines."""
        out: list[str] = []

        def flatten(lines: list):
            for line in lines:
                flatten(line) if isinstance(line, list) else out.append(line)

        flatten(self._scopes[0][1])
        return "\n".join(out)

    def line(self, text: str) -> None:
        """Append a line."""
        self._lines.append("  " + text)

    def name(self, kind: str = "v") -> str:
        """A new name."""
        self._count += 1
        return f"%{kind}{self._count}"

    def remembered(self, key):
        """The register that holds what belongs to ``key``, if it is still in scope."""
        for memo, _ in reversed(self._scopes):
            if key in memo:
                return memo[key]
        return None

    def remember(self, key, value):
        """Keep a register for later use in this scope."""
        self._scopes[-1][0][key] = value
        return value

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope, at whose end everything remembered inside is forgotten."""
        before: list = []
        self._lines.append(before)
        self._scopes.append(({}, before))
        yield
        self._scopes.pop()

    @contextmanager
    def before_scope_of(self, key) -> Iterator[None]:
        """Write into the scope that remembers ``key``, before the loops that began inside it."""
        for depth in reversed(range(len(self._scopes))):
            if key in self._scopes[depth][0]:
                break
        else:
            depth = len(self._scopes) - 1
        if depth == len(self._scopes) - 1:
            yield
            return
        lines, scopes, label = self._lines, self._scopes, self.label
        self._lines, self._scopes = scopes[depth + 1][1], scopes[: depth + 1]
        yield
        self._lines, self._scopes, self.label = lines, scopes, label

    def block(self, label: str) -> None:
        """Begin a basic block."""
        self._lines.append(f"{label[1:]}:")
        self.label = label[1:]

    def lines(self) -> int:
        """How many lines there are, which tells :meth:`note` where a loop begins."""
        return len(self._lines)

    # --- types and instructions ---

    def type(self, dtype: np.dtype, wide: bool, memory: bool = False) -> str:
        """LLVM's type of a register or of an element in memory."""
        one = scalar_type(dtype, memory)
        return f"<{self.width} x {one}>" if wide and self.width > 1 else one

    def operand(self, x: Elem, dtype: np.dtype, wide: bool) -> str:
        """What stands in an instruction for a number or register; widened if needed."""
        if isinstance(x, Reg):
            return self.widen(x).ref if wide and not x.wide else x.ref
        text = literal(number(x, dtype))
        if not wide or self.width == 1:
            return text
        one = scalar_type(dtype)
        return "<" + ", ".join([f"{one} {text}"] * self.width) + ">"

    def widen(self, x: Reg) -> Reg:
        """The same number for every sample."""
        if self.width == 1:
            return Reg(x.ref, x.dtype, True)
        key = ("widen", x.ref)
        if (old := self.remembered(key)) is not None:
            return old._replace(dtype=x.dtype)
        vector, first, out = self.type(x.dtype, True), self.name(), self.name()
        self.line(f"{first} = insertelement {vector} poison, {scalar_type(x.dtype)} {x.ref}, i32 0")
        self.line(
            f"{out} = shufflevector {vector} {first}, {vector} poison, "
            f"<{self.width} x i32> zeroinitializer"
        )
        return self.remember(key, Reg(out, x.dtype, True))

    def wide(self, *xs: Elem) -> bool:
        """Whether a result of these differs between samples."""
        for x in xs:  # asked for each instruction: a generator would take twice as long
            if isinstance(x, Reg) and x.wide:
                return True
        return False

    def emit(self, text: str, dtype: np.dtype, wide: bool) -> Reg:
        """Append an instruction; the same instruction in reach is not written again."""
        if (old := self.remembered(text)) is not None:
            return old._replace(dtype=dtype)  # signed and unsigned integers share instructions
        out = self.name()
        self.line(f"{out} = {text}")
        return self.remember(text, Reg(out, dtype, wide))

    def part(self, pair: Reg, k: int, dtype: np.dtype) -> Reg:
        """One of two results of a function."""
        kind = self.type(dtype, pair.wide)
        return self.emit(f"extractvalue {{ {kind}, {kind} }} {pair.ref}, {k}", dtype, pair.wide)

    def intrinsic(self, name: str, out: np.dtype, *xs: Elem, like: np.dtype | None = None) -> Reg:
        """Call ``llvm.name``."""
        wide = self.wide(*xs)
        kinds = [like or x.dtype for x in xs]
        types = [self.type(k, wide) for k in kinds]
        args = ", ".join(
            f"{t} {self.operand(x, k, wide)}" for x, k, t in zip(xs, kinds, types, strict=True)
        )
        suffix = self.suffix(kinds[0], wide)
        if "sat" in name:
            suffix = self.suffix(out, wide) + "." + suffix
        call = f"@llvm.{name}.{suffix}"
        result = self.type(out, wide)
        self.declared.add(f"declare {result} {call}({', '.join(types)})")
        return self.emit(f"call {result} {call}({args})", out, wide)

    def suffix(self, dtype: np.dtype, wide: bool) -> str:
        """How the name of an intrinsic ends."""
        bits = 1 if dtype.kind == "b" else 8 * dtype.itemsize
        one = f"{'f' if dtype.kind == 'f' else 'i'}{bits}"
        return f"v{self.width}{one}" if wide and self.width > 1 else one

    # --- whole numbers for addresses ---

    def integer(self, index: Sym | int) -> Reg | int:
        """The value of an index."""
        if isinstance(index, int):
            return index
        total: Reg | int = 0
        for atom, factor in index.terms:
            term = atom
            if factor != 1:
                term = self.arithmetic("mul", atom, np.int64(factor))
            total = term if isinstance(total, int) else self.arithmetic("add", total, term)
        if index.const and isinstance(total, Reg):
            return self.arithmetic("add", total, np.int64(index.const))
        return total if isinstance(total, Reg) else index.const

    def register(self, index: Sym) -> Reg:
        """The value of an index that is not known."""
        value = self.integer(index)
        assert isinstance(value, Reg)
        return value

    def arithmetic(self, name: str, x: Elem, y: Elem) -> Reg:
        """An operation on 64-bit integers."""
        wide = self.wide(x, y)
        a, b = self.operand(x, INT, wide), self.operand(y, INT, wide)
        return self.emit(f"{name} {self.type(INT, wide)} {a}, {b}", INT, wide)

    # --- loops ---

    def note(self, since: int) -> str:
        """What the end of a loop tells LLVM, to keep it from what takes it long and gains nothing.

        LLVM looks through the whole outer loop again for each loop in it that it unrolls, so that
        loops inside a loop over steps are not. It looks through a loop again for each operation
        that could move out of it: a loop with many operations keeps them, as there are not enough
        registers for what would be moved. Of a sweep through optimal control each took nine tenths
        of the time.

        Args:
            since: how many lines there were when the loop began.
        """
        asked = ["llvm.loop.unroll.disable"] * bool(self.around)
        asked += ["llvm.licm.disable"] * (len(self._lines) - since > LARGE_LOOP)
        if not asked:
            return ""
        own = f"!{100 + len(self.globals)}"
        notes = ", ".join(f'!{{!"{x}"}}' for x in asked)
        self.globals.append(f"{own} = distinct !{{{own}, {notes}}}")
        return f", !llvm.loop {own}"

    def loop(
        self,
        n: int,
        body: Callable[[Sym, list[Reg]], list[Elem]],
        carried: Sequence[Elem] = (),
        like: Sequence[tuple[np.dtype, bool]] = (),
        reverse: bool = False,
    ) -> list[Reg]:
        """Write ``for k in range(n)``, n ≥ 1, which hands some registers from round to round."""
        with self.scope():
            start = [self.operand(x, d, w) for x, (d, w) in zip(carried, like, strict=True)]
            head, done = self.name("loop"), self.name("done")
            before, since = self.label, self.lines()
            self.line(f"br label {head}")
            self.block(head)
            k, phis, places = self.name("k"), [], []
            for dtype, wide in [(INT, False), *like]:
                phis.append(Reg(self.name() if phis else k, dtype, wide))
                places.append(len(self._lines))
                self._lines.append("")
            with self.scope():
                new = body(Sym(((phis[0], 1),)), phis[1:])
                ends = [self.operand(x, d, w) for x, (d, w) in zip(new or [], like, strict=True)]
            long = self.hides_counters and len(self._lines) - since > OPAQUE_COUNTER
            following, more, counter = self.name(), self.name(), self.name("k") if long else k
            self.line(f"{following} = add i64 {counter}, {-1 if reverse else 1}")
            last = 0 if reverse else n - 1
            self.line(f"{more} = icmp ne i64 {counter}, {last}")
            self.line(f"br i1 {more}, label {head}, label {done}{self.note(since)}")
            first = str(n - 1 if reverse else 0)
            refs = [counter, *(reg.ref for reg in phis[1:])]
            for place, reg, ref, a, b in zip(
                places, phis, refs, [first, *start], [following, *ends], strict=True
            ):
                kind = self.type(reg.dtype, reg.wide)
                self._lines[place] = (
                    f"  {ref} = phi {kind} [ {a}, %{before} ], [ {b}, %{self.label} ]"
                )
            if counter != k:
                self._lines[places[-1]] += f'\n  {k} = call i64 asm "", "=r,0"(i64 {counter})'
            self.block(done)
        # in a loop that ends with its body, what the last round computed is in reach behind it
        return [Reg(e, d, w) for e, (d, w) in zip(ends, like, strict=True)]
