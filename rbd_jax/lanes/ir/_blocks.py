"""The intermediate representation: values, operations, blocks of them, and symbolic indices.

A :class:`Value` is an array of one sample. It is *uniform* if all samples share it, as they
usually share the robot. An :class:`Op` is one operation of a :class:`Block`, whose operations
stand in an order in which they can be carried out.

Elements are addressed by tuples of indices. An index is an ``int``, a :class:`Sym` (an affine
expression in loop variables and in numbers read from tables), or :data:`ANY`, which stands for
"some int" while a program is planned.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Value:
    """An array of one sample, or of all samples if it is uniform."""

    __slots__ = ("const", "dtype", "op", "shape", "uniform", "views")

    def __init__(self, shape, dtype, uniform=False, const=None, op=None):
        self.shape: tuple[int, ...] = tuple(map(int, shape))
        self.dtype = np.dtype(dtype)
        self.uniform: bool = uniform
        self.const: np.ndarray | None = const
        self.op: Op | None = op
        self.views = 0
        """So many views lie over each other here."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        kind = "const" if self.const is not None else "uniform" if self.uniform else "varying"
        return f"<{kind} {self.dtype}{list(self.shape)}>"


def constant(x) -> Value:
    """A value that is known while the program is compiled."""
    x = np.asarray(x)
    return Value(x.shape, x.dtype, True, x)


def converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers in another dtype; as in XLA, too large ones become the largest."""
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        out = np.where(np.isnan(x), 0, x).astype(dtype)
    out = np.where(x <= float(info.min), info.min, out)
    return np.where(x >= float(info.max), info.max, out).astype(dtype)


@dataclass(eq=False)
class Op:
    """One operation: its name, the values it takes and makes, and its parameters."""

    name: str
    ins: list[Value]
    outs: list[Value]
    params: dict[str, Any] = field(default_factory=dict)
    eqn: Any = None
    """The equation that it stands for, to name in an error."""

    @property
    def blocks(self) -> list["Block"]:
        """The blocks inside a loop or branch."""
        if self.name not in ("scan", "while", "cond"):
            return []
        return [b for key in ("test", "body") if (b := self.params.get(key))] + list(
            self.params.get("branches", ())
        )

    def __repr__(self) -> str:
        name = " ".join(filter(None, (self.name, self.params.get("fn"))))
        return f"{self.outs} = {name}({self.ins})"


@dataclass(eq=False)
class Block:
    """A list of operations with inputs and outputs."""

    inputs: list[Value]
    outputs: list[Value]
    ops: list[Op]
    keeps_inputs: bool = False
    """The memory of the inputs must not be written to: somebody still needs them afterwards."""


# --- indices ------------------------------------------------------------------


class _Any:
    """Some int that is not looked at. Sums and multiples of it are the same."""

    def __add__(self, other):
        return self if isinstance(other, int | _Any) else other + self

    def __mul__(self, other):
        return self

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()


class Sym:
    """``const + Σ coefficient · atom``; an atom is a loop variable or a number from a table."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: tuple, const: int = 0):
        self.terms, self.const = terms, const

    def __add__(self, other):
        if isinstance(other, _Any):
            return self
        if isinstance(other, int):
            return Sym(self.terms, self.const + other)
        total = dict(self.terms)
        for atom, factor in other.terms:
            total[atom] = total.get(atom, 0) + factor
        return Sym(tuple((a, f) for a, f in total.items() if f), self.const + other.const)

    def __mul__(self, factor: int):
        if factor == 0:
            return 0
        return Sym(tuple((a, f * factor) for a, f in self.terms), self.const * factor)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other) -> bool:
        return isinstance(other, Sym) and (self.terms, self.const) == (other.terms, other.const)

    def __hash__(self) -> int:
        return hash((self.terms, self.const))

    def __repr__(self) -> str:
        return " + ".join([*(f"{f}·{a}" for a, f in self.terms), str(self.const)])


Index = int | Sym | _Any
Map = Callable[[Any, tuple], tuple]
"""``(reader, index of the output) -> index of the input``; the reader looks up tables."""


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def reshape_map(old: tuple[int, ...], new: tuple[int, ...]) -> Map:
    """Where the elements of a reshaped array lie in the old one."""
    if math.prod(old) == 0:
        return lambda reader, idx: (0,) * len(old)
    groups = _reshape_groups(old, new)

    def index(reader, idx):
        out: list = [0] * len(old)
        for left, right in groups:
            moving = [k for k in left if old[k] != 1]
            flat: Any = 0
            for k in right:
                flat = flat * new[k] + idx[k]
            for k in reversed(moving[1:]):
                flat, out[k] = reader.divmod(flat, old[k])
            if moving:
                out[moving[0]] = flat
        return tuple(out)

    return index


def _reshape_groups(old, new) -> list[tuple[list[int], list[int]]]:
    """Runs of axes of the old and the new shape that hold the same elements."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        if i < len(old):
            left.append(i)
            a, i = old[i], i + 1
        if j < len(new):
            right.append(j)
            b, j = new[j], j + 1
        while a != b:
            if a < b and i < len(old):
                left.append(i)
                a, i = a * old[i], i + 1
            else:
                right.append(j)
                b, j = b * new[j], j + 1
        groups.append((left, right))
    return groups
