"""Collecting the operations of one block while a jaxpr is followed.

The files of rules, which ``_read_program`` lists, say what each operation of JAX becomes;
:func:`rule` adds one to the table ``RULES``.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core as jcore

from .._failures import Mismatch, Unsupported, blamed
from .._jax_internals import jaxpr_and_consts, literal
from ..ir._blocks import Block, Op, Value, constant, converted, reshape_map
from ._cse import CommonSubexpressions

_MOST_VIEWS = 16  # views of views, before they are copied
_FOLD_LIMIT = 1 << 18  # elements of a table that is computed while compiling

RULES: dict[str, Callable] = {}


def rule(*names: str):
    """Register how operations of JAX are written with those of ``ir``."""

    def register(f):
        for name in names:
            RULES[name] = f
        return f

    return register


IDLE = {
    *("branches_platforms", "ctx_mesh", "donated_invars", "in_layouts", "in_shardings", "name"),
    *("out_layouts", "out_shardings", "inline", "keep_unused", "compiler_options_kvs"),  # of jit
    *("differentiated", "prevent_cse", "policy", "jvp_jaxpr_fun", "num_consts", "symbolic_zeros"),
    *("fwd_jaxpr_thunk", "bwd", "out_trees", "sharding", "out_sharding", "memory_space"),
    *("new_sizes", "shape", "dtype", "new_dtype", "preferred_element_type"),
    *("weak_type", "precision", "accuracy", "unroll", "is_stable", "fill_value", "update_jaxpr"),
    *("indices_are_sorted", "unique_indices", "devices", "srcs", "copy_semantics"),
    *("ft_in", "ft_out"),  # how JAX 0.11 and newer tell the parts of a loop's operands
}
"""Parameters that change no result, or that the shapes and types of the results tell again. All
sorting is stable, and sums of single numbers have the full precision."""


class Parameters(dict):
    """The parameters of an operation, which know what a rule has read of them.

    A parameter that a rule does not look at may change the result: ``reshape`` once was read
    without its order of axes. So it has to be one of those that change nothing, ``IDLE``.
    """

    def __init__(self, params: dict):
        super().__init__(params)
        self._unread = set(params)

    def __getitem__(self, name):
        self._unread.discard(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self._unread.discard(name)
        return super().__contains__(name)

    def get(self, name, default=None):
        """As of a dictionary."""
        self._unread.discard(name)
        return super().get(name, default)

    def check(self) -> None:
        """Refuse a parameter that no rule knows and that is not off.

        Raises:
            Mismatch: there is one; without ``strict``, a warning tells of it.
        """
        for name in self._unread - IDLE:
            value = super().__getitem__(name)
            if value is not None and value is not False and value != ():
                raise Mismatch(f"no rule knows its parameter {name!r}")


FOLD: dict[str, Callable] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "sqrt": np.sqrt, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "convert": lambda x: x,
    "select": lambda c, f, t: np.where(c, t, f), "copy": lambda x: x, "is_finite": np.isfinite,
    "div": np.true_divide,
}  # fmt: skip


CALLS = ("jit", "closed_call", "eval_jaxpr", "remat2", "custom_jvp_call", "custom_vjp_call")
"""Calls, of whose parameters only the jaxpr says what is computed."""


def called(params: dict):
    """What a call calls."""
    return next(params[name] for name in ("jaxpr", "call_jaxpr") if name in params)


class Expansions:
    """The jaxprs of primitives that say themselves which functions they are.

    Such a primitive has the function ``expand(*operands, **params)``. If its jaxpr is the parameter
    ``closed``, it is taken from there. Otherwise it is traced, once for each equation.
    """

    def __init__(self):
        self._found: dict[int, tuple] = {}

    def of(self, eqn, operands: list):
        """The jaxpr for which an equation stands; the operands tell shapes and dtypes."""
        if id(eqn) not in self._found:
            p = eqn.params
            if "program" in p and not p["sizes"]:  # lanes inside lanes, of one sample
                closed = p["program"].closed
            elif "closed" in p:
                closed = p["closed"]
            else:
                closed = _traced(lambda *xs: eqn.primitive.expand(*xs, **p), operands)
            self._found[id(eqn)] = eqn, closed  # as long as it is kept, its id is its own
        return self._found[id(eqn)][1]


class Reader:
    """Collects the operations of one block."""

    def __init__(
        self, expansions: Expansions | None = None, cse: CommonSubexpressions | None = None
    ):
        self.ops: list[Op] = []
        self._expansions = expansions or Expansions()
        self._cse = cse or CommonSubexpressions()
        self._read: dict = {}
        self._eqn: Any = None

    def run(self, jaxpr, consts, inputs: list[Value]) -> list[Value]:
        """Append the operations of a jaxpr; returns its outputs."""

        def known(c, aval) -> Value:
            return self._cse.constant(_known(c, aval))

        env: dict = {v: known(c, v.aval) for v, c in zip(jaxpr.constvars, consts, strict=True)}
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom) -> Value:
            return known(literal(atom), atom.aval) if isinstance(atom, jcore.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            ins = [read(v) for v in eqn.invars]
            key = self._cse.equation(eqn, ins)
            _, outs = self._read.get(key, (ins, None))
            if outs is None:
                outs = [self._cse.constant(v) for v in self._of(eqn, ins)]
                if key is not None:
                    self._read[key] = ins, outs  # the key holds ids of what has to stay alive
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _of(self, eqn, ins: list[Value]) -> list[Value]:
        """Append the operations of one equation; returns its outputs."""
        around, self._eqn = self._eqn, eqn
        with blamed(eqn):
            if eqn.primitive.name in RULES:
                noted = Parameters(eqn.params)
                outs = RULES[eqn.primitive.name](self, eqn.replace(params=noted), *ins)
                noted.check()
            elif hasattr(eqn.primitive, "expand"):
                outs = self._expand(eqn, ins)
            else:
                raise Unsupported("there is no rule for it")
            outs = [outs] if isinstance(outs, Value) else list(outs)
            _compare(eqn.outvars, outs)
        self._eqn = around
        return outs

    def inline(self, f: Callable, *ins: Value) -> list[Value]:
        """Append the operations of a function of JAX arrays."""
        closed = _traced(f, ins)
        return self.run(closed.jaxpr, closed.consts, list(ins))

    def _expand(self, eqn, ins: list[Value]) -> list[Value]:
        """Inline a primitive that says itself which function it is."""
        closed = self._expansions.of(eqn, ins)
        return self.run(closed.jaxpr, closed.consts, ins)

    def block(self, closed, inputs: list[Value]) -> Block:
        """The inside of a loop or branch, or a whole program, as a block of its own."""
        reader = Reader(self._expansions, self._cse)
        jaxpr, consts = jaxpr_and_consts(closed)
        outputs = reader.run(jaxpr, consts, inputs)
        _compare(jaxpr.outvars, outputs)
        return Block(inputs, outputs, live_operations(reader.ops, outputs))

    # --- building operations ---

    def op(self, name: str, ins, shape, dtype, **params) -> Value:
        """Append an operation with one output."""
        if name in ("view", "concat"):
            ins = [self.copy(v) if v.views >= _MOST_VIEWS else v for v in ins]
        out = Value(shape, dtype, all(v.uniform for v in ins))
        out.op = Op(name, list(ins), [out], params, self._eqn)
        if name in ("view", "concat"):
            out.views = 1 + max(v.views for v in ins)
        self.ops.append(out.op)
        return out

    def map(self, fn: str, *ins: Value, dtype=None) -> Value:
        """An operation on each element; scalars are broadcast."""
        shape = np.broadcast_shapes(*(v.shape for v in ins))
        dtype = ins[-1].dtype if dtype is None else np.dtype(dtype)
        known = all(v.const is not None for v in ins) and fn in FOLD
        if known and (fn != "div" or dtype.kind == "f"):
            with np.errstate(all="ignore"):
                folded = np.asarray(FOLD[fn](*(v.const for v in ins)))
                return constant(np.broadcast_to(converted(folded, dtype), shape))
        ins = tuple(v if v.shape == shape else self.stretch(v, shape) for v in ins)
        for k, x in enumerate(ins):
            if x.dtype == dtype and _leaves(fn, ins, k):
                return x
        return self.op("map", ins, shape, dtype, fn=fn)

    def view(self, x: Value, shape, index: Callable, fold=None, starts=()) -> Value:
        """The same elements at other places: out[idx] = x[index(idx)]."""
        if x.const is not None and fold is not None and not starts:
            return constant(fold(x.const))
        return self.op("view", [x, *starts], shape, x.dtype, index=index)

    def broadcast(self, x: Value, shape, dims) -> Value:
        """``jax.lax.broadcast_in_dim``."""

        def index(_, idx):
            return tuple(0 if x.shape[k] == 1 else idx[d] for k, d in enumerate(dims))

        def fold(c):
            inner = [x.shape[dims.index(i)] if i in dims else 1 for i in range(len(shape))]
            return np.broadcast_to(c.reshape(inner), shape)

        small = np.prod(shape, dtype=int) <= _FOLD_LIMIT
        return self.view(x, shape, index, fold if small else None)

    def stretch(self, x: Value, shape) -> Value:
        """A scalar, or an array with axes of length one, in the shape of the other operand."""
        return self.broadcast(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))

    def reshape(self, x: Value, shape) -> Value:
        """The same elements in another shape."""
        if tuple(shape) == x.shape:
            return x
        return self.view(x, shape, reshape_map(x.shape, tuple(shape)), lambda c: c.reshape(shape))

    def concat(self, parts: list[Value], axis: int) -> Value:
        """Arrays one after the other along an axis."""
        parts = [p for p in parts if p.shape[axis]] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        known = [p.const for p in parts if p.const is not None]
        if len(known) == len(parts):
            return constant(np.concatenate(known, axis))
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.op("concat", parts, shape, parts[0].dtype, axis=axis)

    def slice(self, x: Value, start, limit, stride) -> Value:
        """A static slice."""
        start, limit, stride = ([int(n) for n in ns] for ns in (start, limit, stride))
        steps = tuple(slice(*z) for z in zip(start, limit, stride, strict=True))
        shape = tuple(len(range(*z)) for z in zip(start, limit, stride, strict=True))
        if shape == x.shape:
            return x

        def index(_, idx):
            return tuple(i * s + b for i, s, b in zip(idx, stride, start, strict=True))

        return self.view(x, shape, index, lambda c: c[steps])

    def solid(self, xs) -> list[Value]:
        """The same, but copied if they are joined of parts: for loops, which read anywhere."""
        return [self.copy(x) if _is_joined(x) else x for x in xs]

    def copy(self, x: Value) -> Value:
        """The same, as an array of its own."""
        return self.op("map", [x], x.shape, x.dtype, fn="copy")


def _traced(f: Callable, ins):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in ins))


def live_operations(ops: list[Op], outputs: list[Value]) -> list[Op]:
    """The operations that the outputs need."""
    wanted, kept = set(map(id, outputs)), []
    for op in reversed(ops):
        if any(id(v) in wanted for v in op.outs):
            wanted.update(map(id, op.ins))
            for block in op.blocks:
                wanted.update(_outside(block))
            kept.append(op)
    return kept[::-1]


def _outside(block: Block) -> set[int]:
    """Values that a block takes from around it."""
    found = set(map(id, block.outputs))
    for op in block.ops:
        found.update(map(id, op.ins))
        for inner in op.blocks:
            found.update(_outside(inner))
    return found


def _leaves(fn: str, ins: tuple[Value, ...], k: int) -> bool:
    """Whether the result is this operand: a product with ones, or a choice that is known."""
    first = ins[0].const
    if fn == "mul":
        other = ins[1 - k].const
        return other is not None and bool(np.all(other == 1))
    if fn == "select" and first is not None and first.dtype == bool and len(ins) == 3:
        return k > 0 and bool(np.all(first == (k == 2)))
    return False


def _is_joined(x: Value) -> bool:
    if x.op is None or x.op.name not in ("view", "concat"):
        return False
    return x.op.name == "concat" or _is_joined(x.op.ins[0])


def _known(c, aval) -> Value:
    """A constant, in the dtype of its variable."""
    dtype = dtype_of(aval)
    try:
        found = np.asarray(c, dtype)
    except TypeError:
        raise Unsupported(f"a constant of type {jax.typeof(c)}") from None
    if found.shape != tuple(aval.shape):
        raise Mismatch(f"a constant of shape {found.shape} where JAX has {aval.str_short(True)}")
    return constant(found)


def _compare(outvars, outs: list[Value]) -> None:
    """Refuse results of another dtype or shape than JAX has: they would not fit their memory."""
    for v, out in zip(outvars, outs, strict=True):
        if (out.shape, out.dtype) != (tuple(v.aval.shape), np.dtype(v.aval.dtype)):
            raise Mismatch(
                f"the result {out.dtype}{list(out.shape)} where JAX has {v.aval.str_short(True)}"
            )


def dtype_of(aval) -> np.dtype:
    """The dtype of an array, if lanes can compute with it."""
    try:
        dtype = np.dtype(aval.dtype)
    except TypeError:
        raise Unsupported(f"an array of type {aval.dtype}") from None
    return _check(dtype)


def _check(dtype: np.dtype) -> np.dtype:
    if dtype.kind not in "fiub" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
        raise Unsupported(f"an array of type {dtype}")
    return dtype
