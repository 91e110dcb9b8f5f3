"""Which operations of a block share a loop, and what has to be kept in memory.

Axes that are long, as the bodies of a robot are, become loops; the others are unrolled. Operations
whose loops agree and who read each other element by element are put into one loop (a *group*),
where what is used only inside never leaves the registers. Slices, transpositions and the like cost
nothing: they only say where an element is read.
"""

import math
from dataclasses import dataclass, field

from ._ir import ANY, Block, Op, Sym, Value

_LONGEST = 256  # elements that are unrolled at most
_ROW = 32  # elements of a row that are unrolled even if they could be a loop
_PRODUCT = 600  # multiplications of a product that are unrolled
_SHORTEST = 5  # the shortest axis that becomes a loop

VIEWS = ("view", "concat")
_BLOCKS = ("body", "test")


def inner_blocks(op: Op) -> list[Block]:
    """The blocks inside a loop or branch."""
    return [op.params[n] for n in _BLOCKS if n in op.params] + list(op.params.get("branches", ()))


class Axes:
    """Which axes of the arrays of one block are loops."""

    def __init__(self, block: Block):
        self.rows: set[int] = set()
        for op in block.ops:
            if op.name == "scan" and op.params["length"] >= _SHORTEST:
                self.rows.add(op.params["length"])
            for v in op.outs:
                if v.ndim >= 2 and v.shape[0] >= _SHORTEST and v.size > 24:
                    self.rows.add(v.shape[0])

    def looped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of an array of this shape that are loops."""
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

    def loop_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of those axes."""
        return tuple(shape[k] for k in self.looped(shape))

    def pattern(self, shape: tuple[int, ...]) -> tuple:
        """The index of an element in the loops of its own array."""
        axes = self.looped(shape)
        return tuple(loop_token(axes.index(k)) if k in axes else ANY for k in range(len(shape)))


_TOKENS = [Sym(((f"loop{k}", 1),)) for k in range(8)]
_OTHER = Sym((("other", 1),))


def loop_token(k: int) -> Sym:
    """The variable of the k-th loop of a group, while planning."""
    return _TOKENS[k]


class _Abstract:
    """Follows indices without emitting code."""

    def lookup(self, table: Value, idx: tuple):
        if all(isinstance(i, int) or i is ANY for i in idx) and table.const is not None:
            return ANY
        return _OTHER

    def clamped(self, table: Value, idx: tuple, limit: int):
        return self.lookup(table, idx)

    def divmod(self, flat, n: int):
        if isinstance(flat, int):
            return divmod(flat, n)
        return (ANY, ANY) if flat is ANY else (_OTHER, _OTHER)

    def inside(self, table, places):
        return None


_ABSTRACT = _Abstract()


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
            at.append((_OTHER if k in looped else ANY) if k in gone else next(own))
        return [(x, tuple(at))]
    if op.name == "dot" and is_large(op, axes):
        return [(v, tuple(_OTHER for _ in v.shape)) for v in op.ins]
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
                idx[k] = _OTHER if k in looped else ANY
            found.append((x, tuple(idx)))
        return found
    if op.name == "scan":
        nk = op.params["carry"]
        start = [(v, axes.pattern(v.shape)) for v in op.ins[:nk]]
        return start + [(v, (_OTHER, *[ANY] * (v.ndim - 1))) for v in op.ins[nk:]]
    if op.name == "cumulate":
        return [(v, tuple(_OTHER for _ in v.shape)) for v in op.ins]
    if op.name == "scatter":
        x, table, update, *starts = op.ins
        return [(x, axes.pattern(x.shape)), (table, tuple(_OTHER for _ in table.shape)),
                (update, axes.pattern(update.shape)), *((s, ()) for s in starts)]  # fmt: skip
    return [(v, axes.pattern(v.shape)) for v in op.ins]


def bases(v: Value, idx: tuple) -> list[tuple[Value, tuple]]:
    """Through views, the arrays in memory or registers that are read, and where."""
    op = v.op
    if v.const is not None:
        return []
    if op is None or op.name not in VIEWS and not op.params.get("lazy"):
        return [(v, idx)]
    if op.name == "view":
        x, *tables = op.ins
        found = bases(x, op.params["index"](_ABSTRACT, idx))
        for t in tables:
            found += bases(t, tuple(_OTHER for _ in t.shape))
        return found
    if op.name == "concat" and not isinstance(idx[op.params["axis"]], int):
        return [b for part in op.ins for b in bases(part, idx)]
    if op.name == "concat":
        k = op.params["axis"]
        at = idx[k]
        for part in op.ins:
            if at < part.shape[k]:
                return bases(part, (*idx[:k], at, *idx[k + 1 :]))
            at -= part.shape[k]
    return [b for x in op.ins for b in bases(x, idx)]


def assemble(block: Block) -> None:
    """Mark joined arrays that are read at the index of a loop: those are copied into memory."""
    axes = Axes(block)
    for op in block.ops:
        for inner in inner_blocks(op):
            assemble(inner)
    mark_lazy(block)
    for op in block.ops:
        if op.name not in VIEWS and not op.params.get("lazy"):
            for v, idx in reads(op, axes):
                _assemble_at(v, idx)
            if inner_blocks(op):
                for v in op.params["consts"]:
                    _assemble_at(v, tuple(_OTHER for _ in v.shape))
    for v in block.outputs:
        _assemble_at(v, axes.pattern(v.shape))


def _assemble_at(v: Value, idx: tuple) -> None:
    op = v.op
    if v.const is not None or op is None:
        return
    if op.params.get("lazy"):
        for x in op.ins:
            _assemble_at(x, idx)
    elif op.name == "view":
        x, *tables = op.ins
        _assemble_at(x, op.params["index"](_ABSTRACT, idx))
        for t in tables:
            _assemble_at(t, tuple(_OTHER for _ in t.shape))
    elif op.name == "concat" and isinstance(idx[op.params["axis"]], Sym):
        op.name = "assemble"
        axes = tuple(_OTHER for _ in v.shape)
        for part in op.ins:
            _assemble_at(part, axes)
    elif op.name == "concat":
        for part in op.ins:
            _assemble_at(part, idx)


@dataclass(eq=False)
class Step:
    """One operation by itself, or a group of them in one nest of loops."""

    ops: list[Op]
    loops: tuple[int, ...] | None = None  # None: an operation that writes its own code
    stored: list[Value] = field(default_factory=list)


class Plan:
    """The steps of a block, and after which of them each value is not needed any more."""

    def __init__(self, block: Block):
        self.axes = Axes(block)
        self.block = block
        ops = [op for op in block.ops if op.name not in VIEWS]
        self._order = {id(op): k for k, op in enumerate(ops)}
        mark_lazy(block)
        ops = [op for op in ops if not op.params.get("lazy")]
        self._needs: dict[int, list[tuple[Op, tuple, Value]]] = {}
        self.readers: dict[Value, list[Op]] = {}
        for op in ops:
            self._needs[id(op)] = self._effective(op, ops)
        self.in_place = self._find_in_place(ops)
        self.steps = self._schedule(ops)
        self._find_stored()
        self.last_use = self._find_last_use()

    def _effective(self, op: Op, ops: list[Op]):
        found = [b for v, idx in reads(op, self.axes) for b in bases(v, idx)]
        taken: list[Value] = []
        for inner in inner_blocks(op):
            taken += _taken(inner)
        found += [b for v in taken for b in bases(v, tuple(_OTHER for _ in v.shape))]
        needs = []
        for v, idx in found:
            self.readers.setdefault(v, []).append(op)
            if v.op is not None and id(v.op) in self._order:
                needs.append((v.op, idx, v))
        return needs

    def _find_in_place(self, ops: list[Op]) -> set[int]:
        """Updates that may overwrite the array they change, since nobody reads it afterwards."""
        kept = {id(b[0]) for v in self.block.outputs
                for b in bases(v, self.axes.pattern(v.shape))}  # fmt: skip
        found: set[int] = set()
        local = set() if self.block.keeps_inputs else set(map(id, self.block.inputs))
        for op in ops:
            if op.name != "scatter":
                continue
            x = op.ins[0]
            own = id(x) in local or (x.op is not None and id(x.op) in self._order
                                     and x.op.name in ("scatter", "scan", "while"))  # fmt: skip
            if x.const is not None or not own or id(x) in kept or x.uniform != op.outs[0].uniform:
                continue
            mine = self._order[id(op)]
            others = [r for r in self.readers.get(x, []) if r is not op]
            reads_self = [b for v in op.ins[1:] for b in
                          bases(v, self.axes.pattern(v.shape)) if b[0] is x]  # fmt: skip
            if not reads_self and all(self._order[id(r)] < mine for r in others):
                found.add(id(op))
                self._needs[id(op)] += [(r, (), x) for r in others]
        return found

    def _schedule(self, ops: list[Op]) -> list[Step]:
        steps, done, waiting = [], set(), list(ops)

        def ready(op: Op, group: dict | None = None) -> bool:
            for producer, idx, _ in self._needs[id(op)]:
                if id(producer) in done:
                    continue
                if group is None or id(producer) not in group:
                    return False
                if not self._aligned(producer, idx):
                    return False
            return True

        while waiting:
            first = next(op for op in waiting if ready(op))
            loops = self.loops(first)
            if not loops:
                steps.append(Step([first], loops))
                done.add(id(first))
                waiting.remove(first)
                continue
            members, group, rest = [], {}, []
            for op in waiting:
                own = self.loops(op)
                if own == loops and ready(op, group):
                    members.append(op)
                    group[id(op)] = op
                elif own == () and ready(op):
                    steps.append(Step([op], ()))
                    done.add(id(op))
                else:
                    rest.append(op)
            steps.append(Step(members, loops))
            done.update(group)
            waiting = rest
        return steps

    def loops(self, op: Op) -> tuple[int, ...] | None:
        """The loops of an operation on elements; none (``()``) if it is unrolled."""
        if op.name in ("map", "reduce", "arg", "dot"):
            if op.name != "map" and any(
                i is _OTHER for _, idx in reads(op, self.axes) for i in idx
            ):
                return None
            return self.axes.loop_shape(op.outs[0].shape)
        return None

    def _aligned(self, producer: Op, idx: tuple) -> bool:
        """Whether it is read in the same round of the loops in which it is made."""
        return idx == () or idx == self._normal(producer.outs[0].shape, idx)

    def _normal(self, shape: tuple[int, ...], idx: tuple) -> tuple:
        own = self.axes.pattern(shape)
        free = [i if o is ANY and not isinstance(i, Sym) else o for i, o in
                zip(idx, own, strict=True)]  # fmt: skip
        return tuple(free)

    def _find_stored(self) -> None:
        where = {id(op): k for k, step in enumerate(self.steps) for op in step.ops}
        outputs = {id(b[0]) for v in self.block.outputs
                   for b in bases(v, self.axes.pattern(v.shape))}  # fmt: skip
        for k, step in enumerate(self.steps):
            if not step.loops:
                continue
            for op in step.ops:
                v = op.outs[0]
                outside = any(where[id(r)] != k for r in self.readers.get(v, []))
                if outside or id(v) in outputs:
                    step.stored.append(v)

    def _find_last_use(self) -> dict[Value, int]:
        where = {id(op): k for k, step in enumerate(self.steps) for op in step.ops}
        last = {}
        for k, step in enumerate(self.steps):
            for op in step.ops:
                for v in op.outs:
                    last[v] = k
        for v, ops in self.readers.items():
            if v in last:
                last[v] = max(last[v], *(where[id(op)] for op in ops))
        for v in self.block.outputs:
            for b, _ in bases(v, self.axes.pattern(v.shape)):
                if b in last:
                    last[b] = len(self.steps)
        return last


def is_large(op: Op, axes: Axes) -> bool:
    """Whether a product of matrices has loops of its own."""
    out, x = op.outs[0], op.ins[0]
    looped = axes.looped(out.shape)
    work = math.prod(n for k, n in enumerate(out.shape) if k not in looped)
    work *= math.prod(x.shape[k] for k in op.params["contract"][0])
    inner = any(k in axes.looped(v.shape) for v, c in zip(op.ins, op.params["contract"],
                                                          strict=True) for k in c)  # fmt: skip
    return inner or len(looped) > 1 or work > _PRODUCT


def _taken(block: Block) -> list[Value]:
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
            for inner in inner_blocks(op):
                own.update(map(id, inner.inputs))
                visit(inner)
        for v in b.outputs:
            found[id(v)] = v

    visit(block)
    return [v for k, v in found.items() if k not in own and v.const is None]


def mark_lazy(block: Block) -> None:
    """Operations on elements that one other takes once each are computed where it takes them."""
    consumers: dict[Value, list[tuple[Op, Value]]] = {}
    for op in block.ops:
        for v in op.ins:
            consumers.setdefault(v, []).append((op, v))
        for inner in inner_blocks(op):
            for v in _taken(inner):
                consumers.setdefault(v, []).extend([(op, v), (op, v)])
    outputs = set(map(id, block.outputs))
    axes = Axes(block)
    for op in reversed(block.ops):
        v = op.outs[0]
        users = consumers.get(v, [])
        if op.name != "map" or len(users) != 1 or id(v) in outputs or not axes.looped(v.shape):
            continue
        user = users[0][0]
        if user.outs[0].uniform != v.uniform:
            continue
        final = user.params.get("lazy") if user.name == "map" else user
        once = (
            final is not None
            and final.name == "reduce"
            and any(k in axes.looped(final.ins[0].shape) for k in final.params["axes"])
        )
        if final is not None and final.name == "scatter":
            update = user is not final or user.ins[2] is v
            once = update and not any(_sees(x, final.ins[0]) for x in op.ins)
        if once:
            op.params["lazy"] = final


def _sees(v: Value, x: Value) -> bool:
    """Whether a value is read through views of another."""
    if v is x:
        return True
    return v.op is not None and v.op.name in VIEWS and any(_sees(y, x) for y in v.op.ins)
