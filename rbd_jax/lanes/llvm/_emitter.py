"""From the steps of a plan to LLVM code: reading elements, groups of operations, whole blocks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import numpy as np

from .._failures import Unsupported, blamed
from ..ir._blocks import Block, Op, Sym, Value
from ..ir._loop_fusion import Plan, Step
from . import _elementwise as elementwise
from ._llvm_writer import Elem, Reg, number
from ._memory import Memory, Storage


def elements(shape: tuple[int, ...], axes: tuple[int, ...], loops: tuple) -> Iterator[tuple]:
    """Indices of an array in one round of the loops over some of its axes."""
    return product(*([loops[axes.index(k)]] if k in axes else range(n)
                     for k, n in enumerate(shape)))  # fmt: skip


class Emitter(Storage):
    """Writes a function that carries out blocks of operations."""

    def __init__(self, width: int):
        super().__init__(width)
        self.places: dict[Value, Memory] = {}
        self.targets: dict[Value, Memory] = {}
        self.borrowed: set[Value] = set()
        self._even: dict[Value, bool] = {}

    def planned(self) -> "Emitter | None":
        """An emitter that writes the same with less memory, now that it is known what is needed."""
        return None

    def is_wide(self, v: Value) -> bool:
        """Whether the samples have their own."""
        return not v.uniform and self.width > 1

    def pointer(self, table: str, k: int) -> str:
        """Where an operand of the table ``args`` or a result of ``rets`` begins."""
        at, out = self.name(), self.name("arg")
        self.line(f"{at} = getelementptr ptr, ptr %{table}, i64 {k}")
        self.line(f"{out} = load ptr, ptr {at}, !invariant.load !0")
        return out

    # --- reading ---

    def read(self, v: Value, idx: tuple) -> Elem:
        """An element, computed where it is not in memory."""
        if v.const is not None:
            return self._constant(v, v.const, idx)
        key = (v, idx)
        if (old := self.remembered(key)) is not None:
            return old
        place = self.places.get(v)
        if place is not None:
            return self.remember(key, self.load(place, idx))
        if v.op is None:
            raise AssertionError(f"{v} is nowhere")
        if self.remembered(("made", v)) is not None:
            return self.load(self._spill(v), idx)
        return self.remember(key, self.compute(v.op, v, idx))

    def _constant(self, v: Value, const: np.ndarray, idx: tuple) -> Elem:
        if all(isinstance(i, int) for i in idx):
            return const[idx]  # type: ignore[return-value]
        if v not in self._even:
            self._even[v] = bool(const.size and np.all(const == const.flat[0]))
        if self._even[v]:
            return const.flat[0]
        key = (v, idx)
        old = self.remembered(key)
        return old if old is not None else self.remember(key, self.load(self.table(const), idx))

    def _spill(self, v: Value) -> Memory:
        """Put an unrolled array into memory, because somebody reads it at the index of a loop."""
        with self.before_scope_of(("made", v)):
            m = self.allocate(v.shape, v.dtype, self.is_wide(v), fresh=True)
            for idx in np.ndindex(v.shape):
                self.store(m, idx, self.read(v, idx))
        self.places[v] = m
        self.borrowed.add(v)
        return m

    def lookup(self, table: Value, idx: tuple) -> int | Sym:
        """A whole number of a table, as an index."""
        x = self.read(table, idx)
        if not isinstance(x, Reg):
            return int(x)
        x = elementwise.convert(self, x, np.dtype(np.int64))
        return Sym(((x, 1),))

    def clamped(self, table: Value, idx: tuple, limit: int) -> int | Sym:
        """The same, brought between 0 and a limit."""
        x = self.read(table, idx)
        if not isinstance(x, Reg):
            return min(max(int(x), 0), limit)
        x = elementwise.convert(self, x, np.dtype(np.int64))
        x = self.intrinsic("smin", x.dtype, self.intrinsic("smax", x.dtype, x, np.int64(0)),
                           np.int64(limit))  # fmt: skip
        return Sym(((x, 1),))

    def inside(self, table: Value, places: list) -> Elem:
        """Whether numbers of a table lie between 0 and their limits."""
        out: Elem = np.True_
        for idx, limit in places:
            x = elementwise.convert(self, self.read(table, idx), np.dtype(np.int64))
            for name, bound in (("ge", 0), ("le", limit)):
                fits = elementwise.compare(self, name, x, np.int64(bound))
                out = fits if not isinstance(out, Reg) else elementwise.MAPS["and"](
                    self, out, fits, out.dtype)  # fmt: skip
        return out

    def divmod(self, flat, n: int):
        """Quotient and remainder of an index."""
        if isinstance(flat, int):
            return divmod(flat, n)
        x = self.register(flat)
        q, r = (self.arithmetic(name, x, np.int64(n)) for name in ("udiv", "urem"))
        return Sym(((q, 1),)), Sym(((r, 1),))

    # --- computing an element ---

    def compute(self, op: Op, v: Value, idx: tuple) -> Elem:
        """An element of the output of a view or of an operation on elements."""
        p = op.params
        if op.name == "map":
            return elementwise.apply(self, p["fn"], [self.read(x, idx) for x in op.ins], v.dtype)
        if op.name == "view":
            return self._view(op, v, idx)
        if op.name == "concat":
            at, axis = idx[p["axis"]], p["axis"]
            if isinstance(at, Sym):
                raise Unsupported("joined arrays that are read at a computed place")
            for part in op.ins:
                if at < part.shape[axis]:
                    return self.read(part, (*idx[:axis], at, *idx[axis + 1 :]))
                at -= part.shape[axis]
        if op.name == "reduce":
            return self._reduce(op, v, idx)
        if op.name == "arg":
            return self._arg(op, v, idx)
        if op.name == "dot":
            return self._dot(op, v, idx)
        if op.name == "flag":
            return op.params["register"]
        raise AssertionError(f"{op.name} has no elements that can be computed one by one")

    def _view(self, op: Op, v: Value, idx: tuple) -> Elem:
        p, x = op.params, op.ins[0]
        out = self.read(x, p["index"](self, idx))
        if "valid" not in p:
            return out
        fill = p["fill"]
        if fill is None:  # as jax.lax.gather says
            fill = np.nan if v.dtype.kind == "f" else elementwise.neutral("max", v.dtype)
            fill = elementwise.neutral("min", v.dtype) if v.dtype.kind in "ub" else fill
        return elementwise.select(self, p["valid"](self, idx), out, number(fill, v.dtype), v.dtype)

    def _gone(self, op: Op, idx: tuple):
        """Indices of the input of a reduction, unrolled."""
        x, axes = op.ins[0], op.params["axes"]
        for gone in product(*(range(x.shape[a]) for a in axes)):
            own, at = iter(idx), dict(zip(axes, gone, strict=True))
            yield tuple(at[k] if k in at else next(own) for k in range(x.ndim))

    def _reduce(self, op: Op, v: Value, idx: tuple) -> Elem:
        fn, total = op.params["fn"], None
        for at in self._gone(op, idx):
            x = self.read(op.ins[0], at)
            total = x if total is None else elementwise.COMBINE[fn](self, total, x, v.dtype)
        return elementwise.neutral(fn, v.dtype) if total is None else total

    def _arg(self, op: Op, v: Value, idx: tuple) -> Elem:
        x, (axis,) = op.ins[0], op.params["axes"]
        best, where = None, v.dtype.type(0)
        for k in range(x.shape[axis]):
            new = self.read(x, (*idx[:axis], k, *idx[axis:]))
            if best is None:
                best = new
                continue
            best, where = self.better(op, (new, v.dtype.type(k)), (best, where))
        return where

    def better(self, op: Op, new: tuple[Elem, Elem], old: tuple[Elem, Elem]) -> tuple[Elem, Elem]:
        """The larger or smaller of two numbers, with its place; the first NaN wins."""
        better = elementwise.compare(self, op.params["fn"], new[0], old[0])
        dtype = op.ins[0].dtype
        if dtype.kind == "f":
            odd = elementwise.compare(self, "ne", new[0], new[0])
            even = elementwise.compare(self, "eq", old[0], old[0])
            odd = elementwise.MAPS["and"](self, odd, even, elementwise.BOOL)
            better = elementwise.MAPS["or"](self, better, odd, elementwise.BOOL)
        kinds = dtype, op.outs[0].dtype
        best, where = (elementwise.select(self, better, n, o, d)
                       for n, o, d in zip(new, old, kinds, strict=True))  # fmt: skip
        return best, where

    def dot_indices(self, op: Op, idx: tuple, k: tuple) -> tuple[tuple, tuple]:
        """Where the factors of a product lie."""
        batch, found = op.params["batch"], []
        split = len(op.params["order"][0])
        parts = idx[:split], (*idx[:batch], *idx[split:])
        for x, order, contract, part in zip(op.ins, op.params["order"], op.params["contract"],
                                            parts, strict=True):  # fmt: skip
            at: list = [0] * x.ndim
            for axis, i in zip((*order, *contract), (*part, *k), strict=True):
                at[axis] = i
            found.append(tuple(at))
        return found[0], found[1]

    def _dot(self, op: Op, v: Value, idx: tuple) -> Elem:
        total: Elem = v.dtype.type(0)
        lengths = [op.ins[0].shape[k] for k in op.params["contract"][0]]
        for k in np.ndindex(*lengths):
            a, b = self.dot_indices(op, idx, k)
            term = elementwise.mul(self, self.read(op.ins[0], a), self.read(op.ins[1], b), v.dtype)
            total = elementwise.add(self, total, term, v.dtype)
        return total

    # --- blocks ---

    def run(self, block: Block, place: Callable[[Value, int], Memory] | None = None) -> Plan:
        """Write a block; afterwards its outputs can be read.

        If ``place`` gives the memory of each result, they are written there as soon as they are
        known, and their own memory can be used again.
        """
        plan = Plan(block, place is not None)
        results: dict[int, list[int]] = {}
        if place is not None:
            direct = plan.only_results()
            self.targets.update({v: place(v, k) for v, k in direct.items()})
            for k, step in enumerate(plan.complete):
                if k not in direct.values():
                    results.setdefault(step, []).append(k)
        dying: dict[int, list[Value]] = {}
        for v, last in plan.last_use.items():
            dying.setdefault(last, []).append(v)
        for k, step in enumerate(plan.steps):
            with blamed(step.ops[0].eqn):
                if step.loops is None:
                    self.opaque(step.ops[0], plan)
                elif step.loops == ():
                    self._unrolled(step.ops[0])
                else:
                    self._group(step, plan)
            self._hand_over(block, results.pop(k, ()), place, plan)
            for v in dying.get(k, ()):
                self._drop(v)
        for ks in results.values():  # of a block without steps
            self._hand_over(block, ks, place, plan)
        return plan

    def _hand_over(self, block: Block, results, place, plan: Plan) -> None:
        for k in results:
            v = block.outputs[k]
            self.fill(v, place(v, k), plan)

    def end(self, plan: Plan) -> None:
        """Give back the memory that the outputs of a block took."""
        for v, last in plan.last_use.items():
            if last == len(plan.steps):
                self._drop(v)

    def _drop(self, v: Value) -> None:
        if v in self.places and v not in self.borrowed:
            self.release(self.places[v])
            self.borrowed.add(v)

    def _unrolled(self, op: Op) -> None:
        v = op.outs[0]
        for idx in np.ndindex(v.shape):
            self.read(v, idx)
        self.remember(("made", v), True)

    def _group(self, step: Step, plan: Plan) -> None:
        stores = [(v, self.place_for(v)) for v in step.stored]

        def body(loops: tuple):
            for v in plan.marks(step):  # else a long chain of operations were a deep recursion
                for idx in elements(v.shape, plan.axes.looped(v.shape), loops):
                    self.read(v, idx)
            for v, place in stores:
                for idx in elements(v.shape, plan.axes.looped(v.shape), loops):
                    self.store(place, idx, self.read(v, idx))

        self.nest(step.loops or (), body)
        for v, place in stores:
            self.places[v] = place

    def nest(self, lengths: tuple[int, ...], body) -> None:
        """Loops inside each other."""
        self.nested(lengths, body)

    def nested(self, lengths: tuple[int, ...], body, loops: tuple = ()) -> None:
        """Loops inside each other, one round after the other."""
        if not lengths:
            body(loops)
            return

        def inside(k, _):
            self.nested(lengths[1:], body, (*loops, k))
            return []

        self.loop(lengths[0], inside)

    def nest_in_order(self, lengths: tuple[int, ...], body, free: Callable) -> None:
        """Loops inside each other; only the rounds of those that ``free()`` names may be mixed."""
        self.nest(lengths, body)

    def forget(self) -> None:
        """Called where numbers that were read before should be read again: registers are few."""

    @contextmanager
    def apart(self, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[Callable[..., Elem]]:
        """Called around the loops of a nest whose rounds have two parts that read the same.

        Yields a function for the place between both parts. It takes an element that the second
        part needs, and the indices of the round, and returns the element. See :meth:`forget`.
        """
        yield lambda x, _: x

    def turn(self) -> None:
        """Called where a loop of unknown length begins anew, and where branches part and join."""

    def place_for(self, v: Value) -> Memory:
        """Memory for a value: where it is wanted, or new."""
        place = self.targets.get(v)
        if place is None:
            return self.allocate(v.shape, v.dtype, self.is_wide(v))
        self.borrowed.add(v)
        return place

    def fill(self, v: Value, place: Memory, plan: Plan, offset: tuple = ()) -> None:
        """Write all elements of a value to memory, perhaps at an offset."""
        axes = plan.axes.looped(v.shape)
        offset = offset or (0,) * v.ndim

        def body(loops: tuple):
            for idx in elements(v.shape, axes, loops):
                at = tuple(i + o for i, o in zip(idx, offset, strict=True))
                self.store(place, at, self.read(v, idx))

        if v.size:
            self.nest(tuple(v.shape[k] for k in axes), body)

    def opaque(self, op: Op, plan: Plan) -> None:
        """An operation that writes code of its own."""
        WRITERS[op.name](self, op, plan)


WRITERS: dict[str, Callable[[Emitter, Op, Plan], None]] = {}
"""Name of an operation -> the function that writes its loops; :func:`writes` adds one."""


def writes(name: str):
    """Register the function that writes an operation with loops or blocks of its own."""

    def register(f):
        WRITERS[name] = f
        return f

    return register
