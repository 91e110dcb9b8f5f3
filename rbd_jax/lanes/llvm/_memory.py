"""The memory of a kernel: which bytes an array gets, and reading and writing its elements."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._failures import Mismatch
from ..ir._blocks import Sym, strides_of
from ._llvm_writer import INT, Elem, Reg, Writer, literal, scalar_type

ALIGNED = 8
"""Bytes of the largest number: where arrays of a planned memory begin are multiples of it."""
FOREVER = 2**62


class TooLarge(Exception):
    """A kernel needs more memory than it may have."""


class Arena:
    """Plans the memory of a kernel: bytes that are free again are used again.

    ``most`` bytes are allowed; a request beyond them raises :class:`TooLarge`.
    """

    def __init__(self):
        self.size = 0
        self.most = FOREVER
        self._free: list[tuple[int, int]] = []

    def take(self, size: int, fresh: bool = False) -> int:
        """An offset of so many bytes, aligned to 64; ``fresh``: that nobody has ever had."""
        size = -(-max(size, 1) // 64) * 64
        if fresh:
            return self._grown(self.size, size)
        fits = [(n, k) for k, (_, n) in enumerate(self._free) if n >= size]
        if fits:
            n, k = min(fits)
            start = self._free[k][0]
            self._free[k : k + 1] = [(start + size, n - size)] if n > size else []
            return start
        if self._free and sum(self._free[-1]) == self.size:  # the last gap is made longer
            return self._grown(self._free.pop()[0], size)
        return self._grown(self.size, size)

    def _grown(self, start: int, size: int) -> int:
        self.size = start + size
        if self.size > self.most:
            raise TooLarge
        return start

    def give(self, start: int, size: int) -> None:
        """Give bytes back."""
        size = -(-max(size, 1) // 64) * 64
        merged: list[tuple[int, int]] = []
        for a, n in sorted([*self._free, (start, size)]):
            if merged and merged[-1][0] + merged[-1][1] == a:
                merged[-1] = (merged[-1][0], merged[-1][1] + n)
            else:
                merged.append((a, n))
        self._free = merged


class Recorded(Arena):
    """The same, which remembers from when to when each array had its bytes."""

    def __init__(self):
        super().__init__()
        self._wanted: list[list[int]] = []  # bytes, and the numbers of the first and last request
        self._at: dict[int, int] = {}
        self._time = 0

    def take(self, size: int, fresh: bool = False) -> int:
        """An offset of so many bytes; ``fresh``: that nobody else has before or after."""
        start = super().take(size, fresh)
        self._time += 1
        self._at[start] = len(self._wanted)
        self._wanted.append([max(size, 1), 0 if fresh else self._time, FOREVER])
        return start

    def give(self, start: int, size: int) -> None:
        """Give bytes back."""
        super().give(start, size)
        self._time += 1
        self._wanted[self._at.pop(start)][2] = self._time

    def planned(self) -> "Planned":
        """The same requests, with offsets that were chosen when all of them were known.

        The largest arrays come first, each as low as those that live at the same time allow.
        """
        wanted = np.array(self._wanted, int).reshape(-1, 3)
        sizes = -(-wanted[:, 0] // ALIGNED) * ALIGNED
        starts, placed = np.zeros(len(wanted), int), np.zeros(len(wanted), bool)
        for k in np.argsort(-sizes, kind="stable"):
            at = 0
            beside = placed & (wanted[:, 1] < wanted[k, 2]) & (wanted[k, 1] < wanted[:, 2])
            for m in (found := np.flatnonzero(beside))[np.argsort(starts[found])]:
                if at + sizes[k] <= starts[m]:
                    break
                at = max(at, starts[m] + sizes[m])
            starts[k], placed[k] = at, True
        return Planned(wanted[:, 0].tolist(), starts.tolist(), int(max(starts + sizes, default=0)))


class Planned(Arena):
    """Memory for requests that are known beforehand."""

    def __init__(self, sizes: list[int], starts: list[int], size: int):
        super().__init__()
        self.size, self._following = size, iter(zip(sizes, starts, strict=True))

    def take(self, size: int, fresh: bool = False) -> int:
        """The offset that was planned."""
        wanted, start = next(self._following)
        if wanted != max(size, 1):
            raise AssertionError(f"{size} bytes are asked for, where {wanted} were planned")
        return start

    def give(self, start: int, size: int) -> None:
        """Nothing: who takes these bytes next is planned."""


class Memory(NamedTuple):
    """An array in memory: elements of a scalar each, or of a vector of samples."""

    base: str
    offset: int
    dtype: np.dtype
    wide: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: Sym | int = 0
    fixed: bool = False
    """Nothing writes to it while the function runs."""


def _differs(idx: tuple) -> bool:
    """Whether each sample reads at a place of its own."""
    for i in idx:
        if isinstance(i, Sym) and any(a.wide for a, _ in i.terms):
            return True
    return False


class Storage(Writer):
    """Writes a function that keeps arrays in memory."""

    def __init__(self, width: int):
        super().__init__(width)
        self.arena = Arena()
        self.tables: dict = {}

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype, wide: bool, fresh: bool = False
    ) -> Memory:
        """Memory of this function for an array."""
        size = self._bytes(dtype, wide) * int(np.prod(shape, dtype=int))
        offset = self.arena.take(size, fresh)
        return Memory("%scratch", offset, dtype, wide, tuple(shape), strides_of(tuple(shape)))

    def release(self, m: Memory) -> None:
        """Give it back."""
        self.arena.give(m.offset, self._bytes(m.dtype, m.wide) * int(np.prod(m.shape, dtype=int)))

    def _bytes(self, dtype: np.dtype, wide: bool) -> int:
        return dtype.itemsize * (self.width if wide else 1)

    def address(self, m: Memory, idx: tuple) -> str:
        """Pointer to an element."""
        flat = self._flat(m, idx)
        size = self._bytes(m.dtype, m.wide)
        offset = m.offset + size * (flat if isinstance(flat, int) else flat.const)
        base = m.base
        if isinstance(flat, Sym):
            value = self.register(Sym(flat.terms))
            kind = self.type(m.dtype, m.wide, memory=True)
            base = self.emit(f"getelementptr {kind}, ptr {base}, i64 {value.ref}", INT, False).ref
        if offset:
            base = self.emit(f"getelementptr i8, ptr {base}, i64 {offset}", INT, False).ref
        return base

    def _flat(self, m: Memory, idx: tuple) -> Sym | int:
        flat: Sym | int = m.start
        for i, s in zip(idx, m.strides, strict=True):
            flat = flat + i * s
        return flat

    def load(self, m: Memory, idx: tuple) -> Reg:
        """Read an element."""
        if _differs(idx):
            return self._load_apart(m, idx)
        at, kind = self.address(m, idx), self.type(m.dtype, m.wide, memory=True)
        out = self.name()
        note = ", !invariant.load !0" if m.fixed else ""
        self.line(f"{out} = load {kind}, ptr {at}, align {self._bytes(m.dtype, m.wide)}{note}")
        return self._from_memory(Reg(out, m.dtype, m.wide))

    def _from_memory(self, x: Reg) -> Reg:
        if x.dtype.kind != "b":
            return x
        kind, out = self.type(x.dtype, x.wide, memory=True), self.name()
        zero = "zeroinitializer" if x.wide and self.width > 1 else "0"
        self.line(f"{out} = icmp ne {kind} {x.ref}, {zero}")
        return Reg(out, x.dtype, x.wide)

    def to_memory(self, x: Elem, dtype: np.dtype, wide: bool) -> str:
        """A number as it is stored."""
        if isinstance(x, Reg) and x.dtype != dtype:
            raise Mismatch(f"a number of type {x.dtype} would be stored as {dtype}")
        ref = self.operand(x, dtype, wide)
        if dtype.kind != "b":
            return ref
        out = self.name()
        one, byte = self.type(dtype, wide), self.type(dtype, wide, memory=True)
        self.line(f"{out} = zext {one} {ref} to {byte}")
        return out

    def store(self, m: Memory, idx: tuple, x: Elem) -> None:
        """Write an element."""
        if _differs(idx):
            return self._store_apart(m, idx, x)
        ref, kind = self.to_memory(x, m.dtype, m.wide), self.type(m.dtype, m.wide, memory=True)
        at = self.address(m, idx)
        self.line(f"store {kind} {ref}, ptr {at}, align {self._bytes(m.dtype, m.wide)}")

    def _apart(self, m: Memory, idx: tuple) -> Iterator[tuple[int, str]]:
        """Addresses of an element that lies elsewhere for each sample."""
        place = self._flat(m, idx)
        assert isinstance(place, Sym)
        flat, kind = self.register(place), scalar_type(m.dtype, memory=True)
        base = self.emit(f"getelementptr i8, ptr {m.base}, i64 {m.offset}", INT, False).ref
        for lane in range(self.width):
            one = self.emit(f"extractelement {self.type(INT, True)} {flat.ref}, i32 {lane}", INT,
                            False) if self.width > 1 else flat  # fmt: skip
            if m.wide:
                one = self.arithmetic("mul", Reg(one.ref, INT, False), np.int64(self.width))
                one = self.arithmetic("add", one, np.int64(lane))
            yield (
                lane,
                self.emit(f"getelementptr {kind}, ptr {base}, i64 {one.ref}", INT, False).ref,
            )

    def _load_apart(self, m: Memory, idx: tuple) -> Reg:
        kind, vector = scalar_type(m.dtype, memory=True), self.type(m.dtype, True, memory=True)
        ref = "poison"
        for lane, at in self._apart(m, idx):
            one, out = self.name(), self.name()
            self.line(f"{one} = load {kind}, ptr {at}")
            if self.width == 1:
                ref = one
                continue
            self.line(f"{out} = insertelement {vector} {ref}, {kind} {one}, i32 {lane}")
            ref = out
        return self._from_memory(Reg(ref, m.dtype, True))

    def _store_apart(self, m: Memory, idx: tuple, x: Elem) -> None:
        kind, vector = scalar_type(m.dtype, memory=True), self.type(m.dtype, True, memory=True)
        ref = self.to_memory(x, m.dtype, True)
        for lane, at in self._apart(m, idx):
            one = ref
            if self.width > 1:
                one = self.name()
                self.line(f"{one} = extractelement {vector} {ref}, i32 {lane}")
            self.line(f"store {kind} {one}, ptr {at}")

    def table(self, array: np.ndarray) -> Memory:
        """A table of constants."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.tables:
            name = f"@table{len(self.tables)}"
            kind = scalar_type(array.dtype, memory=True)
            numbers = array.ravel()
            if array.dtype.kind == "b":
                numbers = numbers.astype(np.int8)
            body = ", ".join(f"{kind} {literal(x)}" for x in numbers)
            self.globals.append(
                f"{name} = internal unnamed_addr constant "
                f"[{array.size} x {kind}] [{body}], align 64"
            )
            self.tables[key] = Memory(
                name, 0, array.dtype, False, array.shape, strides_of(array.shape), fixed=True
            )
        return self.tables[key]
