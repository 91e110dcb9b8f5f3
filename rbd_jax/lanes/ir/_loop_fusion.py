"""Loop fusion: which operations of a block share a loop, and what has to be kept in memory.

Axes that are long, as the bodies of a robot are, become loops; the others are unrolled. Operations
whose loops agree and who read each other element by element are put into one loop (a *group*),
where what is used only inside never leaves the registers. Slices, transpositions and the like cost
nothing: they only say where an element is read.
"""

import heapq
from dataclasses import dataclass, field

from ._access_analysis import UNKNOWN, VIEWS, Axes, anywhere, bases, captured, reads, seen_through
from ._blocks import ANY, Block, Op, Sym, Value

_STORED = ("scatter", "scan", "while", "map", "dot", "reduce", "assemble")
"""Operations whose results may lie in memory of their own."""
_WRITTEN = ("factorized_solve", "dot", "reduce")
"""Operations with code of their own that write each element once and read none of them again."""
_DEEPEST = 32  # operations that are computed inside each other at most


@dataclass(eq=False)
class Step:
    """One operation by itself, or a group of them in one nest of loops."""

    ops: list[Op]
    loops: tuple[int, ...] | None = None  # None: an operation that writes its own code
    stored: list[Value] = field(default_factory=list)


class _Ready:
    """Operations that wait for nothing, by their loops, in the order of the program."""

    def __init__(self):
        self._queues: dict[tuple[int, ...] | None, list[tuple[int, Op]]] = {}

    def add(self, loops: tuple[int, ...] | None, place: int, op: Op) -> None:
        heapq.heappush(self._queues.setdefault(loops, []), (place, op))

    def take(self, *loops: tuple[int, ...]) -> Op | None:
        """The first operation, of those with one of these loops if some are given."""
        queues = [q for key in loops or self._queues if (q := self._queues.get(key))]
        return heapq.heappop(min(queues, key=lambda q: q[0][0]))[1] if queues else None


class Plan:
    """The steps of a block, and after which of them each value is not needed any more.

    Args:
        block: the operations.
        handed: whether each result is handed over as soon as it is known, or at the end.
    """

    def __init__(self, block: Block, handed: bool = False):
        self.axes = Axes(block)
        self.block = block
        ops = _matrices_late(block) if self.axes.team > 1 else block.ops
        ops = [op for op in ops if op.name not in VIEWS]
        self._order = {id(op): k for k, op in enumerate(ops)}
        mark_lazy(block)
        ops = [op for op in ops if not op.params.get("lazy")]
        self._needs: dict[int, list[tuple[Op, tuple, Value]]] = {}
        self.readers: dict[Value, list[Op]] = {}
        for op in ops:
            self._needs[id(op)] = self._effective(op)
        self.in_place = self._find_in_place(ops)
        self.steps = self._schedule(ops)
        self._find_stored()
        self.complete = self._find_complete() if handed else [len(self.steps)] * len(block.outputs)
        """For each result of the block, after which step it is known."""
        self.last_use = self._find_last_use()

    def _effective(self, op: Op) -> list[tuple[Op, tuple, Value]]:
        found = [b for v, idx in reads(op, self.axes) for b in bases(v, idx)]
        for inner in op.blocks:
            found += [b for v in captured(inner) for b in bases(v, anywhere(v))]
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
                                     and x.op.name in _STORED)  # fmt: skip
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
        """Steps in the order of the program.

        A group takes every operation with its loops that reads only what is done, or what is made
        in the same round of these loops. Unrolled operations that wait for nothing come before it.
        Each operation is looked at once for each of its readers.
        """
        loops_of = {id(op): self.loops(op) for op in ops}
        producers = {id(op): {id(p) for p, _, _ in self._needs[id(op)]} for op in ops}
        missing = {id(op): len(producers[id(op)]) for op in ops}
        takers: dict[int, list[Op]] = {id(op): [] for op in ops}
        ready = _Ready()
        for op in ops:
            for producer in producers[id(op)]:
                takers[producer].append(op)
            if not missing[id(op)]:
                ready.add(loops_of[id(op)], self._order[id(op)], op)
        steps: list[Step] = []
        while op := ready.take():
            loops = loops_of[id(op)]
            group: dict[int, Op] = {}
            later: list[Op] = []  # they wait for the whole of the group
            while op:
                if loops and loops_of[id(op)] == loops:
                    group[id(op)] = op
                else:
                    steps.append(Step([op], loops_of[id(op)]))
                for taker in takers[id(op)]:
                    missing[id(taker)] -= 1
                    if missing[id(taker)]:
                        continue
                    inside = [(p, idx) for p, idx, _ in self._needs[id(taker)] if id(p) in group]
                    joins = loops_of[id(taker)] == loops and all(self._aligned(*i) for i in inside)
                    if joins or not inside:
                        ready.add(loops_of[id(taker)], self._order[id(taker)], taker)
                    else:
                        later.append(taker)
                op = ready.take(loops, ()) if loops else None
            if group:
                steps.append(Step(list(group.values()), loops))
            for op in later:
                ready.add(loops_of[id(op)], self._order[id(op)], op)
        return steps

    def loops(self, op: Op) -> tuple[int, ...] | None:
        """The loops of an operation on elements; none (``()``) if it is unrolled."""
        if op.name not in ("map", "reduce", "arg", "dot"):
            return None
        at = [] if op.name == "map" else [i for _, idx in reads(op, self.axes) for i in idx]
        if any(i is UNKNOWN for i in at):
            return None
        return self.axes.loop_shape(op.outs[0].shape)

    def _aligned(self, producer: Op, idx: tuple) -> bool:
        """Whether it is read in the same round of the loops in which it is made."""
        own = self.axes.pattern(producer.outs[0].shape) if idx else ()
        return all(i == o or (o is ANY and not isinstance(i, Sym))
                   for i, o in zip(idx, own, strict=True))  # fmt: skip

    def marks(self, step: Step) -> list[Value]:
        """Values of a group so near to each other that few operations lie between them."""
        found, depth = [], {}
        for op in step.ops:
            far = max((depth.get(id(p), 0) for p, _, _ in self._needs[id(op)]), default=0)
            far += 1 + max((v.views for v in op.ins), default=0)
            if far > _DEEPEST:
                far = 0
                found.append(op.outs[0])
            depth[id(op)] = far
        return found

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
        for v, k in zip(self.block.outputs, self.complete, strict=True):
            for b, _ in bases(v, self.axes.pattern(v.shape)):
                if b in last:
                    last[b] = max(last[b], k)
        return last

    def _find_complete(self) -> list[int]:
        made = {v: k for k, step in enumerate(self.steps) for op in step.ops for v in op.outs}
        return [max((made.get(b, 0) for b, _ in bases(v, self.axes.pattern(v.shape))), default=0)
                for v in self.block.outputs]  # fmt: skip

    def only_results(self) -> dict[Value, int]:
        """Results that nobody reads, and that one step writes element by element: their numbers."""
        outputs = self.block.outputs
        once = {id(v): sum(w is v for w in outputs) == 1 for v in outputs}
        numbers = {v: k for k, v in enumerate(outputs) if once[id(v)]}
        seen = {b for v in outputs if v.op and v.op.name in VIEWS
                for b, _ in bases(v, self.axes.pattern(v.shape))}  # fmt: skip
        written = [v for step in self.steps if step.loops for v in step.stored]
        written += [v for step in self.steps if step.loops is None for op in step.ops
                    for v in op.outs if op.name in _WRITTEN]  # fmt: skip
        return {v: numbers[v] for v in written
                if v in numbers and v not in seen and not self.readers.get(v)}  # fmt: skip


def _matrices_late(block: Block) -> list[Op]:
    """Arrays that are known but for few places wait as these places, until somebody takes them."""
    held: dict[Value, Op] = {}
    found: list[Op] = []

    def take(v: Value) -> None:
        if v in held:
            op = held.pop(v)
            for x in op.ins:
                take(x)
            found.append(op)

    for op in block.ops:
        x = op.ins[0] if op.name == "scatter" else None
        if x is not None and (x.const is not None or x in held):
            held[op.outs[0]] = op
            continue
        for v in (*op.ins, *(v for inner in op.blocks for v in captured(inner))):
            take(v)
        found.append(op)
    for v in (*block.outputs, *list(held)):
        take(v)
    return found


# --- before planning ---------------------------------------------------------------------


def assemble(block: Block) -> None:
    """Mark joined arrays that are read at the index of a loop: those are copied into memory."""
    axes = Axes(block)
    for op in block.ops:
        for inner in op.blocks:
            assemble(inner)
    mark_lazy(block)
    waiting = [(v, axes.pattern(v.shape)) for v in block.outputs]
    for op in block.ops:
        if op.name not in VIEWS and not op.params.get("lazy"):
            waiting += reads(op, axes)
            if op.blocks:
                waiting += [(v, anywhere(v)) for v in op.params["consts"]]
    done: set[tuple[Value, tuple]] = set()
    while waiting:
        v, idx = place = waiting.pop()
        if v.const is not None or v.op is None or place in done:
            continue
        done.add(place)
        if v.op.name == "concat" and isinstance(idx[v.op.params["axis"]], Sym):
            v.op.name = "assemble"
            waiting += [(part, anywhere(part)) for part in v.op.ins]
        elif v.op.name in VIEWS or v.op.params.get("lazy"):
            waiting += seen_through(v, idx)


def mark_lazy(block: Block) -> None:
    """Operations on elements that one other takes once each are computed where it takes them."""
    consumers: dict[Value, list[tuple[Op, Value]]] = {}
    for op in block.ops:
        for v in op.ins:
            consumers.setdefault(v, []).append((op, v))
        for inner in op.blocks:
            for v in captured(inner):
                consumers.setdefault(v, []).extend([(op, v), (op, v)])
    outputs = set(map(id, block.outputs))
    axes, depth = Axes(block), {}
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
        if final is not None and final.name == "factorized_solve" and final.outs[0].ndim > 1:
            once = user is not final or user.ins[0] is not v
        depth[v] = depth.get(user.outs[0], 0) + 1
        if once and depth[v] < _DEEPEST:
            op.params["lazy"] = final


def _sees(v: Value, x: Value) -> bool:
    """Whether a value is read through views of another."""
    waiting, done = [v], set()
    while waiting:
        v = waiting.pop()
        if v is x:
            return True
        if v not in done and v.op is not None and v.op.name in VIEWS:
            waiting += v.op.ins
        done.add(v)
    return False
