"""Access analysis: which axes of arrays are loops, and which elements operations read."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from ._blocks import ANY, Block, Op, Sym, Value

_LONGEST = 256  # elements that are unrolled at most
_ROW = 32  # elements of a row that are unrolled even if they could be a loop
_PRODUCT = 600  # multiplications of a product that are unrolled
_SHORTEST = 5  # the shortest axis that becomes a loop

VIEWS = ("view", "concat")

_team: ContextVar[int] = ContextVar("team", default=1)


@contextmanager
def threads_a_sample(team: int) -> Iterator[None]:
    """Plan loops for so many threads that divide the rounds of each among them."""
    token = _team.set(team)
    try:
        yield
    finally:
        _team.reset(token)


class Axes:
    """Which axes of the arrays of one block are loops."""

    def __init__(self, block: Block):
        self.team = _team.get()
        self.rows: set[int] = set()
        self._found: dict[tuple[int, ...], tuple[int, ...]] = {}
        for op in block.ops:
            if op.name == "scan" and op.params["length"] >= _SHORTEST:
                self.rows.add(op.params["length"])
            for v in op.outs:
                if v.ndim >= 2 and v.shape[0] >= _SHORTEST and v.size > 24:
                    self.rows.add(v.shape[0])

    def looped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of an array of this shape that are loops."""
        if shape not in self._found:
            self._found[shape] = self._looped(shape)
        return self._found[shape]

    def _looped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.team > 1:
            return self._divided(shape)
        axes: list[int] = []
        rest = math.prod(shape)
        for k, n in enumerate(shape):
            if axes and rest <= _ROW:
                break
            if n in self.rows:
                axes.append(k)
                rest //= n
        while rest > _LONGEST:
            k = max((k for k in range(len(shape)) if k not in axes), key=lambda k: shape[k])
            axes.append(k)
            rest //= shape[k]
        return tuple(sorted(axes))

    def _divided(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Axes from the first one on, until their rounds keep a team at work."""
        axes: list[int] = []
        rounds, rest = 1, math.prod(shape)
        for k, n in enumerate(shape):
            if rest <= 2 or (2 * rounds >= self.team and rest <= _ROW):
                break
            if n > 1:
                axes.append(k)
                rounds, rest = rounds * n, rest // n
        return tuple(axes)

    def unknown(self, row: tuple[int, ...]) -> tuple:
        """Where loops of another block read the elements of a row that it takes."""
        axes = self._divided(row) if self.team > 1 else ()
        return tuple(UNKNOWN if k in axes else ANY for k in range(len(row)))

    def loop_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of those axes."""
        return tuple(shape[k] for k in self.looped(shape))

    def pattern(self, shape: tuple[int, ...]) -> tuple:
        """The index of an element in the loops of its own array."""
        axes = self.looped(shape)
        return tuple(loop_token(axes.index(k)) if k in axes else ANY for k in range(len(shape)))


_TOKENS = [Sym(((f"loop{k}", 1),)) for k in range(8)]
UNKNOWN = Sym((("other", 1),))
_WHOLE = ("cumulate", "factorized", "factorized_solve", "cholesky", "triangular_solve")
"""Operations that read their operands at places of their own."""


def loop_token(k: int) -> Sym:
    """The variable of the k-th loop of a group, while planning."""
    return _TOKENS[k]


def anywhere(v: Value) -> tuple:
    """Places in an array that nothing is known about."""
    return tuple(UNKNOWN for _ in v.shape)


class _Abstract:
    """Follows indices without emitting code."""

    def lookup(self, table: Value, idx: tuple):
        if all(isinstance(i, int) or i is ANY for i in idx) and table.const is not None:
            return ANY
        return UNKNOWN

    def clamped(self, table: Value, idx: tuple, limit: int):
        return self.lookup(table, idx)

    def divmod(self, flat, n: int):
        if isinstance(flat, int):
            return divmod(flat, n)
        return (ANY, ANY) if flat is ANY else (UNKNOWN, UNKNOWN)

    def inside(self, table, places):
        return None


ABSTRACT = _Abstract()


def reads(op: Op, axes: Axes) -> list[tuple[Value, tuple]]:
    """What an operation reads: arrays, and at which indices of its loops."""
    out = op.outs[0]
    if op.name == "map":
        at = axes.pattern(out.shape)
        return [(v, at) for v in op.ins]
    if op.name in ("reduce", "arg"):
        (x,) = op.ins
        gone = op.params["axes"]
        own, at = iter(axes.pattern(out.shape)), []
        looped = axes.looped(x.shape)
        for k in range(x.ndim):
            at.append((UNKNOWN if k in looped else ANY) if k in gone else next(own))
        return [(x, tuple(at))]
    if op.name == "dot" and is_large(op, axes):
        return [(v, anywhere(v)) for v in op.ins]
    if op.name == "dot":
        found, at = [], axes.pattern(out.shape)
        batch = op.params["batch"]
        split = len(op.params["order"][0])
        parts = at[:split], (*at[:batch], *at[split:])
        for x, order, contract, part in zip(op.ins, op.params["order"], op.params["contract"],
                                            parts, strict=True):  # fmt: skip
            looped = axes.looped(x.shape)
            idx: list = [ANY] * x.ndim
            for k, i in zip(order, part, strict=True):
                idx[k] = i
            for k in contract:
                idx[k] = UNKNOWN if k in looped else ANY
            found.append((x, tuple(idx)))
        return found
    if op.name == "scan":
        nk = op.params["carry"]
        start = [(v, axes.pattern(v.shape)) for v in op.ins[:nk]]
        return start + [(v, (UNKNOWN, *axes.unknown(v.shape[1:]))) for v in op.ins[nk:]]
    if op.name in _WHOLE:
        return [(v, anywhere(v)) for v in op.ins]
    if op.name == "scatter":
        x, table, update, *starts = op.ins
        if repeated(op, axes) is not None:
            return [(x, anywhere(x)), (update, anywhere(update))]
        return [(x, axes.pattern(x.shape)), (table, anywhere(table)),
                (update, axes.pattern(update.shape)), *((s, ()) for s in starts)]  # fmt: skip
    return [(v, axes.pattern(v.shape)) for v in op.ins]


class Rows(NamedTuple):
    """Where an update at known places puts its rows, each of which is whole along some axes."""

    places: np.ndarray
    """The place of the first element of each row, one after the other."""
    lead: tuple[int, ...]
    """The lengths of the axes of the update that count the rows."""
    along: tuple[int, ...]
    """The axes of the array that are changed along which rows lie."""


def repeated(op: Op, axes: Axes) -> Rows | None:
    """The rows of an update that adds several to one place, if a team divides it by these places.

    Rows that are added one after the other would keep a team waiting after each of them.
    """
    x, _, update, *_ = op.ins
    if axes.team == 1 or op.params["fn"] == "set" or "rows" not in op.params:
        return None
    if not axes.looped(update.shape) or not axes.looped(x.shape):
        return None
    rows = op.params["rows"]()
    if rows is None or len(np.unique(rows.places, axis=0)) == len(rows.places):
        return None
    return rows


def bases(v: Value, idx: tuple) -> list[tuple[Value, tuple]]:
    """Through views, the arrays in memory or registers that are read, and where."""
    found: dict[tuple[Value, tuple], bool] = {}  # whether it is a base, each looked at once
    waiting = [(v, idx)]
    while waiting:
        place = waiting.pop()
        if place in found or place[0].const is not None:
            continue
        op = place[0].op
        found[place] = op is None or op.name not in VIEWS and not op.params.get("lazy")
        if not found[place]:
            waiting += reversed(seen_through(*place))
    return [place for place, base in found.items() if base]


def read_anywhere(block: Block) -> set[Value]:
    """The inputs of a block of which it reads elements at places that are not known beforehand."""
    axes = Axes(block)
    found = [(v, axes.pattern(v.shape)) for v in block.outputs]
    for op in block.ops:
        if op.name not in VIEWS:
            found += reads(op, axes)
        for inner in op.blocks:
            found += [(v, anywhere(v)) for v in captured(inner)]
    inputs = set(block.inputs)
    return {v for place in found for v, idx in bases(*place) if v in inputs
            and any(isinstance(i, Sym) for i in idx)}  # fmt: skip


def seen_through(v: Value, idx: tuple) -> list[tuple[Value, tuple]]:
    """What an element of a view, or of an operation that is computed where it is taken, reads."""
    op = v.op
    assert op is not None
    if op.name == "view":
        x, *tables = op.ins
        return [(x, op.params["index"](ABSTRACT, idx)), *((t, anywhere(t)) for t in tables)]
    if op.name == "concat" and isinstance(at := idx[op.params["axis"]], int):
        k = op.params["axis"]
        for part in op.ins:
            if at < part.shape[k]:
                return [(part, (*idx[:k], at, *idx[k + 1 :]))]
            at -= part.shape[k]
    return [(x, idx) for x in op.ins]


def is_large(op: Op, axes: Axes) -> bool:
    """Whether a product of matrices has loops of its own."""
    out, x = op.outs[0], op.ins[0]
    looped = axes.looped(out.shape)
    work = math.prod(n for k, n in enumerate(out.shape) if k not in looped)
    work *= math.prod(x.shape[k] for k in op.params["contract"][0])
    inner = any(k in axes.looped(v.shape) for v, c in zip(op.ins, op.params["contract"],
                                                          strict=True) for k in c)  # fmt: skip
    return inner or len(looped) > 1 or work > _PRODUCT


def captured(block: Block) -> list[Value]:
    """Values that a block and the blocks inside it take from around them."""
    own = set(map(id, block.inputs))
    found: dict[int, Value] = {}

    def visit(b: Block):
        for op in b.ops:
            for v in op.outs:
                own.add(id(v))
        for op in b.ops:
            for v in op.ins:
                found[id(v)] = v
            for inner in op.blocks:
                own.update(map(id, inner.inputs))
                visit(inner)
        for v in b.outputs:
            found[id(v)] = v

    visit(block)
    return [v for k, v in found.items() if k not in own and v.const is None]
