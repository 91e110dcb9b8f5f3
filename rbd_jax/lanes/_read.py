"""From a jaxpr to the small program of ``_ir``: the one file that knows JAX's program format.

Calls are inlined, tables are folded with NumPy, and the parameters that changed between versions
of JAX are looked up in both forms. A jaxpr was chosen over StableHLO because it keeps what a
compiler wants to know and StableHLO loses: which loops have a fixed length, which arrays are
constants, and which functions are linear solves. The table ``RULES`` at the end says what is
supported; :func:`rule` adds an operation.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.extend import core as jcore

from ._ir import Block, Op, Unsupported, Value, constant, reshape_map

_FOLD_LIMIT = 1 << 18  # elements of a table that is computed while compiling


class Reader:
    """Collects the operations of one block."""

    def __init__(self):
        self.ops: list[Op] = []

    def run(self, jaxpr, consts, inputs: list[Value]) -> list[Value]:
        """Append the operations of a jaxpr; returns its outputs."""
        env: dict = dict(zip(jaxpr.constvars, [_known(c) for c in consts], strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom) -> Value:
            return _known(atom.val) if isinstance(atom, jcore.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            found = RULES.get(name)
            if found is not None:
                outs = found(self, eqn, *map(read, eqn.invars))
            elif hasattr(eqn.primitive, "expand"):
                outs = self.expand(eqn, list(map(read, eqn.invars)))
            else:
                raise Unsupported(f"operation {name!r}{_place(eqn)}")
            outs = [outs] if isinstance(outs, Value) else outs
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def expand(self, eqn, ins: list[Value]) -> list[Value]:
        """Inline a primitive that is a function of other operations."""

        def call(*args):
            return eqn.primitive.expand(*args, **eqn.params)

        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        closed = jax.make_jaxpr(call)(*avals)
        return self.run(closed.jaxpr, closed.consts, ins)

    # --- building operations ---

    def op(self, name: str, ins, shape, dtype, **params) -> Value:
        """Append an operation with one output."""
        out = Value(shape, dtype, all(v.uniform for v in ins))
        out.op = Op(name, list(ins), [out], params)
        self.ops.append(out.op)
        return out

    def map(self, fn: str, *ins: Value, dtype=None) -> Value:
        """An operation on each element; scalars are broadcast."""
        shape = np.broadcast_shapes(*(v.shape for v in ins))
        dtype = ins[-1].dtype if dtype is None else np.dtype(dtype)
        if all(v.const is not None for v in ins) and fn in FOLD:
            return constant(FOLD[fn](*(v.const for v in ins)).astype(dtype))
        ins = tuple(v if v.shape == shape else self.stretch(v, shape) for v in ins)
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
        if all(p.const is not None for p in parts):
            return constant(np.concatenate([p.const for p in parts], axis))
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.op("concat", parts, shape, parts[0].dtype, axis=axis)

    def slice(self, x: Value, start, limit, stride) -> Value:
        """A static slice."""
        steps = tuple(slice(*z) for z in zip(start, limit, stride, strict=True))
        shape = tuple(len(range(*z)) for z in zip(start, limit, stride, strict=True))
        if shape == x.shape:
            return x

        def index(_, idx):
            return tuple(i * s + b for i, s, b in zip(idx, stride, start, strict=True))

        return self.view(x, shape, index, lambda c: c[steps])

    def solid(self, xs) -> list[Value]:
        """The same, but copied if they are joined of parts: for loops, which read anywhere."""
        return [
            self.op("map", [x], x.shape, x.dtype, fn="copy") if _is_joined(x) else x for x in xs
        ]


def read_program(closed, uniform: list[bool]) -> Block:
    """The program of a closed jaxpr, whose inputs are uniform or not."""
    reader, avals = Reader(), [v.aval for v in closed.jaxpr.invars]
    inputs = [Value(a.shape, _dtype(a), u) for a, u in zip(avals, uniform, strict=True)]
    outputs = reader.run(closed.jaxpr, closed.consts, inputs)
    return Block(inputs, outputs, _alive(reader.ops, outputs))


def _alive(ops: list[Op], outputs: list[Value]) -> list[Op]:
    """The operations that the outputs need."""
    wanted, kept = set(map(id, outputs)), []
    for op in reversed(ops):
        if any(id(v) in wanted for v in op.outs):
            wanted.update(map(id, op.ins))
            for name in ("body", "test"):
                if name in op.params:
                    wanted.update(_outside(op.params[name]))
            for block in op.params.get("branches", ()):
                wanted.update(_outside(block))
            kept.append(op)
    return kept[::-1]


def _outside(block: Block) -> set[int]:
    """Values that a block takes from around it."""
    taken = set(map(id, block.outputs))
    for op in block.ops:
        taken.update(map(id, op.ins))
        for name in ("body", "test"):
            if name in op.params:
                taken.update(_outside(op.params[name]))
        for branch in op.params.get("branches", ()):
            taken.update(_outside(branch))
    return taken


def _is_joined(x: Value) -> bool:
    if x.op is None or x.op.name not in ("view", "concat"):
        return False
    return x.op.name == "concat" or _is_joined(x.op.ins[0])


def _known(c) -> Value:
    c = np.asarray(c)
    if c.dtype.kind not in "fiub":
        raise Unsupported(f"a constant of type {c.dtype}")
    return constant(c)


def _dtype(aval) -> np.dtype:
    try:
        dtype = np.dtype(aval.dtype)
    except TypeError:
        raise Unsupported(f"an array of type {aval.dtype}") from None
    if dtype.kind not in "fiub" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
        raise Unsupported(f"an array of type {dtype}")
    return dtype


def _place(eqn) -> str:
    """Where an operation comes from, as far as JAX tells."""
    try:
        frame = eqn.source_info.traceback.frames[0]
        return f" (at {frame.file_name}:{frame.line_num})"
    except Exception:
        return ""


def _parts(closed):
    """Jaxpr and constants of what is a ``ClosedJaxpr`` in one version, a ``Jaxpr`` in another."""
    inner = getattr(closed, "jaxpr", closed)
    return inner, getattr(closed, "consts", ())


# --- the table of operations ----------------------------------------------------

RULES: dict[str, Callable] = {}


def rule(*names: str):
    """Register how operations of JAX are written with those of ``_ir``."""

    def register(f):
        for name in names:
            RULES[name] = f
        return f

    return register


def _round(x):
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


FOLD: dict[str, Callable] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "sqrt": np.sqrt, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "convert": lambda x: x,
    "select": lambda c, f, t: np.where(c, t, f), "copy": lambda x: x, "is_finite": np.isfinite,
    "div": lambda x, y: np.true_divide(x, y) if np.asarray(x).dtype.kind == "f" else x // y,
}  # fmt: skip

_SAME = {
    "add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div", "rem": "rem",
    "max": "max", "min": "min", "neg": "neg", "abs": "abs", "sign": "sign", "floor": "floor",
    "ceil": "ceil", "sqrt": "sqrt", "rsqrt": "rsqrt", "pow": "pow", "and": "and", "or": "or",
    "xor": "xor", "not": "not", "shift_left": "shl", "shift_right_logical": "lshr",
    "shift_right_arithmetic": "ashr", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "exp": "exp",
    "exp2": "exp2", "log": "log", "log1p": "log1p", "expm1": "expm1", "cbrt": "cbrt",
    "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "logistic": "logistic",
}  # fmt: skip


def _register_maps() -> None:
    for name, fn in _SAME.items():
        rule(name)(lambda r, e, *ins, fn=fn: r.map(fn, *ins))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "is_finite"):
        rule(name)(lambda r, e, *ins, fn=name: r.map(fn, *ins, dtype=bool))
    for name in ("stop_gradient", "copy", "copy_p", "reduce_precision", "name", "pvary", "pcast"):
        rule(name)(lambda r, e, x: x)
    for name in ("optimization_barrier", "device_put"):
        rule(name)(lambda r, e, *ins: list(ins))
    for name in ("sum", "max", "min", "prod", "and", "or"):
        rule(f"reduce_{name}")(lambda r, e, x, fn=name: _reduce(r, x, fn, e.params["axes"]))
    for name in ("sum", "prod", "max", "min"):
        rule(f"cum{name}")(lambda r, e, x, fn=name: _cumulate(r, e, x, fn))
    for name, fn in (("argmax", "gt"), ("argmin", "lt")):
        rule(name)(lambda r, e, x, fn=fn: _arg(r, e, x, fn))


_register_maps()


@rule("jit", "pjit", "closed_call", "core_call", "core_closed_call", "remat2", "remat",
      "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
      "custom_lin")  # fmt: skip
def _call(r: Reader, eqn, *ins):
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    jaxpr, consts = _parts(next(eqn.params[n] for n in names if n in eqn.params))
    return r.run(jaxpr, consts, list(ins))


@rule("custom_linear_solve")
def _linear_solve(r: Reader, eqn, *ins):
    counts, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    skip = counts.matvec + counts.vecmat
    consts = ins[skip : skip + counts.solve]
    jaxpr, own = _parts(jaxprs.solve)
    return r.run(jaxpr, own, [*consts, *ins[sum(counts) :]])


@rule("platform_index")
def _platform(r: Reader, eqn):
    kinds = eqn.params["platforms"]
    chosen = (k for k, p in enumerate(kinds) if p is None or "cpu" in p)
    return constant(np.int32(next(chosen, len(kinds) - 1)))


@rule("square")
def _square(r: Reader, eqn, x):
    return r.map("mul", x, x)


@rule("integer_pow")
def _integer_pow(r: Reader, eqn, x):
    y, power, out = abs(eqn.params["y"]), x, None
    while y:
        if y & 1:
            out = power if out is None else r.map("mul", out, power)
        y >>= 1
        power = r.map("mul", power, power) if y else power
    one = constant(x.dtype.type(1))
    out = r.broadcast(one, x.shape, ()) if out is None else out
    return r.map("div", one, out) if eqn.params["y"] < 0 else out


@rule("clamp")
def _clamp(r: Reader, eqn, low, x, high):
    return r.map("min", high, r.map("max", low, x))


@rule("round")
def _round_rule(r: Reader, eqn, x):
    even = "EVEN" in str(eqn.params["rounding_method"])
    return r.map("rint" if even else "round", x)


@rule("convert_element_type")
def _convert(r: Reader, eqn, x):
    dtype = np.dtype(eqn.params["new_dtype"])
    if dtype.kind == "b":
        return r.map("ne", x, constant(x.dtype.type(0)), dtype=bool)
    return x if dtype == x.dtype else r.map("convert", x, dtype=_dtype(eqn.outvars[0].aval))


@rule("select_n")
def _select(r: Reader, eqn, which, *cases):
    if len(cases) == 1:
        return cases[0]
    if which.const is not None and which.size and np.all(which.const == which.const.flat[0]):
        return cases[int(which.const.flat[0])]
    if which.dtype != np.bool_:
        out = cases[-1]
        for k in reversed(range(len(cases) - 1)):
            here = r.map("eq", which, constant(which.dtype.type(k)), dtype=bool)
            out = r.map("select", here, out, cases[k])
        return out
    return r.map("select", which, *cases)


@rule("broadcast_in_dim")
def _broadcast(r: Reader, eqn, x, *dynamic):
    p = eqn.params
    return r.broadcast(x, tuple(p["shape"]), tuple(p["broadcast_dimensions"]))


@rule("reshape", "squeeze", "expand_dims")
def _reshape(r: Reader, eqn, x, *dynamic):
    return r.reshape(x, eqn.outvars[0].aval.shape)


@rule("transpose")
def _transpose(r: Reader, eqn, x):
    perm = tuple(eqn.params["permutation"])
    back = np.argsort(perm)
    return r.view(x, [x.shape[p] for p in perm], lambda _, i: tuple(i[k] for k in back),
                  lambda c: c.transpose(perm))  # fmt: skip


@rule("rev")
def _reverse(r: Reader, eqn, x):
    axes = eqn.params["dimensions"]

    def index(_, idx):
        return tuple(i * -1 + (x.shape[k] - 1) if k in axes else i for k, i in enumerate(idx))

    return r.view(x, x.shape, index, lambda c: np.flip(c, axes))


@rule("slice")
def _slice(r: Reader, eqn, x):
    p = eqn.params
    return r.slice(x, p["start_indices"], p["limit_indices"], p["strides"] or (1,) * x.ndim)


@rule("split")
def _split(r: Reader, eqn, x):
    axis, ends = eqn.params["axis"], np.cumsum(eqn.params["sizes"])
    one, out = (1,) * x.ndim, []
    for end, size in zip(ends, eqn.params["sizes"], strict=True):
        start, limit = [0] * x.ndim, list(x.shape)
        start[axis], limit[axis] = int(end - size), int(end)
        out.append(r.slice(x, start, limit, one))
    return out


@rule("concatenate")
def _concatenate(r: Reader, eqn, *parts):
    return r.concat(list(parts), eqn.params["dimension"])


@rule("stack")
def _stack(r: Reader, eqn, *parts):
    axis, shape = eqn.params["axis"], parts[0].shape
    return r.concat([r.reshape(x, (*shape[:axis], 1, *shape[axis:])) for x in parts], axis)


@rule("unstack")
def _unstack(r: Reader, eqn, x):
    axis, out = eqn.params["axis"], []
    for k in range(x.shape[axis]):
        start, limit = [0] * x.ndim, list(x.shape)
        start[axis], limit[axis] = k, k + 1
        row = r.slice(x, start, limit, (1,) * x.ndim)
        out.append(r.reshape(row, (*x.shape[:axis], *x.shape[axis + 1 :])))
    return out


@rule("pad")
def _pad(r: Reader, eqn, x, fill):
    config = eqn.params["padding_config"]
    if any(inner for _, _, inner in config):
        return _pad_inside(r, eqn, x, fill)
    start = [max(0, -low) for low, _, _ in config]
    limit = [n - max(0, -high) for n, (_, high, _) in zip(x.shape, config, strict=True)]
    x = r.slice(x, start, [max(a, b) for a, b in zip(start, limit, strict=True)], (1,) * x.ndim)
    for axis, (low, high, _) in enumerate(config):
        rows = []
        for n in (low, high):
            shape = list(x.shape)
            shape[axis] = max(0, n)
            rows.append(r.broadcast(fill, tuple(shape), ()))
        x = r.concat([rows[0], x, rows[1]], axis)
    return x


def _pad_inside(r: Reader, eqn, x, fill):
    """Padding between the elements: a scatter at known places."""
    config, shape = eqn.params["padding_config"], eqn.outvars[0].aval.shape
    rows = [np.arange(n) * (i + 1) + low for n, (low, _, i) in zip(x.shape, config, strict=True)]
    at = np.stack(np.meshgrid(*rows, indexing="ij"), axis=-1)
    inside = np.all((at >= 0) & (at < np.array(shape)), axis=-1)
    base = r.broadcast(fill, shape, ())

    def index(reader, table, idx):
        return tuple(reader.lookup(table, (*idx, k)) for k in range(len(shape)))

    if not inside.all():
        raise Unsupported("padding between elements with negative edges")
    return r.op("scatter", [base, constant(at), x], shape, x.dtype, index=index, fn="set",
                limits=None)  # fmt: skip


@rule("iota")
def _iota(r: Reader, eqn):
    p = eqn.params
    shape, axis = tuple(p["shape"]), p["dimension"]
    line = np.arange(shape[axis], dtype=p["dtype"])
    return constant(np.broadcast_to(line.reshape([-1 if k == axis else 1 for k in
                                                  range(len(shape))]), shape))  # fmt: skip


def _reduce(r: Reader, x: Value, fn: str, axes) -> Value:
    axes = tuple(a % x.ndim for a in axes) if x.ndim else ()
    shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    if x.const is not None and x.size and fn in ("sum", "max", "min"):
        return constant(getattr(np, fn)(x.const, axis=axes).astype(x.dtype))
    return r.op("reduce", [x], shape, x.dtype, fn=fn, axes=axes)


def _arg(r: Reader, eqn, x: Value, fn: str) -> Value:
    (axis,) = eqn.params["axes"]
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    if x.dtype.kind == "b":
        x = r.map("convert", x, dtype=np.int32)
    return r.op("arg", [x], shape, eqn.params["index_dtype"], fn=fn, axis=axis)


def _cumulate(r: Reader, eqn, x: Value, fn: str) -> Value:
    axis, back = eqn.params["axis"], eqn.params["reverse"]
    return r.op("cumulate", [x], x.shape, x.dtype, fn=fn, axis=axis, reverse=back)


@rule("dot_general")
def _dot(r: Reader, eqn, x, y):
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    if x.dtype.kind != "f" or x.dtype != y.dtype:
        raise Unsupported(f"a product of {x.dtype} and {y.dtype}")
    free = [[k for k in range(v.ndim) if k not in (*c, *b)] for v, c, b in
            ((x, lc, lb), (y, rc, rb))]  # fmt: skip
    order = (*lb, *free[0]), (*rb, *free[1])
    return r.op("dot", [x, y], out.shape, _dtype(out), order=order, contract=(lc, rc),
                batch=len(lb))  # fmt: skip


# --- places that are computed -----------------------------------------------------


@rule("dynamic_slice")
def _dynamic_slice(r: Reader, eqn, x, *starts):
    sizes = tuple(eqn.params["slice_sizes"])
    starts = starts[: x.ndim]
    if all(s.const is not None for s in starts):
        at = [min(max(int(s.const), 0), n - k) for s, n, k in
              zip(starts, x.shape, sizes, strict=True)]  # fmt: skip
        return r.slice(x, at, [a + k for a, k in zip(at, sizes, strict=True)], (1,) * x.ndim)

    def index(reader, idx):
        return tuple(
            i if n == k else reader.clamped(s, (), n - k) + i
            for i, s, n, k in zip(idx, starts, x.shape, sizes, strict=True)
        )

    return r.view(x, sizes, index, starts=starts)


@rule("dynamic_update_slice")
def _dynamic_update(r: Reader, eqn, x, update, *starts):
    if update.shape == x.shape:
        return update

    def index(reader, table, idx):
        return tuple(
            i if n == k else reader.clamped(s, (), n - k) + i
            for i, s, n, k in zip(idx, starts, x.shape, update.shape, strict=True)
        )

    return r.op("scatter", [x, constant(np.int32(0)), update, *starts], x.shape, x.dtype,
                index=index, fn="set", limits=None)  # fmt: skip


def _checks(eqn, indices: Value, sizes: list[int]):
    """How places out of bounds are treated: (clamp, drop) of a gather or scatter."""
    mode = str(eqn.params.get("mode"))
    if indices.const is not None:
        c = indices.const
        if c.size == 0 or bool(np.all((c >= 0) & (c <= np.array(sizes)))):
            return False, False
    if "CLIP" in mode or "ONE_HOT" in mode or mode in ("0", "1.clip"):
        return True, False
    return (True, True) if "FILL" in mode else (True, False)


@rule("gather")
def _gather(r: Reader, eqn, x, indices):
    d, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = eqn.outvars[0].aval.shape
    batch = [k for k in range(len(shape)) if k not in d.offset_dims]
    limits = [x.shape[a] - sizes[a] for a in d.start_index_map]
    clamp, drop = _checks(eqn, indices, limits)
    windows = [a for a in range(x.ndim)
               if a not in d.collapsed_slice_dims and a not in d.operand_batching_dims]  # fmt: skip

    def starts(reader, idx):
        at = tuple(idx[k] for k in batch)
        for k, axis in enumerate(d.start_index_map):
            place = (*at, k)
            yield axis, (reader.clamped(indices, place, limits[k]) if clamp
                         else reader.lookup(indices, place))  # fmt: skip

    def index(reader, idx):
        out: list = [0] * x.ndim
        for axis, k in zip(windows, d.offset_dims, strict=True):
            out[axis] = idx[k]
        for axis, k in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
            out[axis] = idx[batch[k]]
        for axis, start in starts(reader, idx):
            out[axis] = start + out[axis]
        return tuple(out)

    def valid(reader, idx):
        at = tuple(idx[k] for k in batch)
        return reader.inside(indices, [((*at, k), n) for k, n in enumerate(limits)])

    params = {"index": index}
    if drop:
        params |= {"valid": valid, "fill": eqn.params.get("fill_value")}
    return r.op("view", [x, indices], shape, x.dtype, **params)


@rule("scatter", "scatter-add", "scatter_add")
def _scatter(r: Reader, eqn, x, indices, updates):
    d = eqn.params["dimension_numbers"]
    window = d.update_window_dims
    batch = [k for k in range(updates.ndim) if k not in window]
    inner = [a for a in range(x.ndim)
             if a not in d.inserted_window_dims and a not in d.operand_batching_dims]  # fmt: skip
    width = dict(zip(inner, (updates.shape[k] for k in window), strict=True))
    limits = [x.shape[a] - width.get(a, 1) for a in d.scatter_dims_to_operand_dims]
    clamp, drop = _checks(eqn, indices, limits)

    def index(reader, table, idx):
        at, out = tuple(idx[k] for k in batch), [0] * x.ndim
        for axis, k in zip(inner, window, strict=True):
            out[axis] = idx[k]
        for axis, k in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True):
            out[axis] = idx[batch[k]]
        for k, axis in enumerate(d.scatter_dims_to_operand_dims):
            start = (reader.clamped(table, (*at, k), limits[k]) if clamp
                     else reader.lookup(table, (*at, k)))  # fmt: skip
            out[axis] = start + out[axis]
        return tuple(out)

    def valid(reader, idx):
        at = tuple(idx[k] for k in batch)
        return reader.inside(indices, [((*at, k), n) for k, n in enumerate(limits)])

    fn = "set" if eqn.primitive.name == "scatter" else "add"
    return r.op("scatter", [x, indices, updates], x.shape, x.dtype, index=index, fn=fn,
                limits=valid if drop else None)  # fmt: skip


# --- loops and branches -------------------------------------------------------------


def _block(closed, inputs: list[Value]) -> Block:
    """The inside of a loop or branch as a block of its own."""
    reader = Reader()
    jaxpr, consts = _parts(closed)
    outputs = reader.run(jaxpr, consts, inputs)
    return Block(inputs, outputs, _alive(reader.ops, outputs))


def _like(v: Value, uniform: bool) -> Value:
    return Value(v.shape, v.dtype, uniform)


@rule("scan")
def _scan(r: Reader, eqn, *ins):
    p, ins = eqn.params, r.solid(ins)
    if "num_consts" in p:
        nc, nk = p["num_consts"], p["num_carry"]
    else:  # from JAX 0.11 on
        nc, nk = (len(jax.tree.leaves(x, is_leaf=lambda y: y is None)) for x in p["ft_in"][:2])
    consts, start, rows = ins[:nc], ins[nc : nc + nk], ins[nc + nk :]
    length, outs = p["length"], [v.aval for v in eqn.outvars]
    if length == 0:
        zero = [constant(np.zeros(a.shape, _dtype(a))) for a in outs[nk:]]
        return [*start, *zero]
    uniform = [v.uniform for v in start]
    while True:  # a carry is uniform if it starts so and every step leaves it so
        carry = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
        each = [Value(v.shape[1:], v.dtype, v.uniform) for v in rows]
        block = _block(p["jaxpr"], [*consts, *carry, *each])
        now = [u and v.uniform for u, v in zip(uniform, block.outputs, strict=False)]
        if now == uniform:
            break
        uniform = now
    block.inputs = [*carry, *each]
    uniform = [*uniform, *(v.uniform for v in block.outputs[nk:])]
    made = [Value(a.shape, _dtype(a), u) for a, u in zip(outs, uniform, strict=True)]
    # the outputs of a loop without varying inputs are uniform, else its memory is each sample's own
    op = Op("scan", [*start, *rows], made,
            {"body": block, "carry": nk, "length": length, "reverse": p["reverse"],
             "consts": list(consts)})  # fmt: skip
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


@rule("while")
def _while(r: Reader, eqn, *ins):
    p, ins = eqn.params, r.solid(ins)
    nt, nb = p["cond_nconsts"], p["body_nconsts"]
    tests, consts, start = ins[:nt], ins[nt : nt + nb], ins[nt + nb :]
    uniform = [v.uniform for v in start]
    while True:
        carry = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
        test = _block(p["cond_jaxpr"], [*tests, *carry])
        body = _block(p["body_jaxpr"], [*consts, *carry])
        all_stop = test.outputs[0].uniform  # else a sample that has finished keeps its values
        now = [u and v.uniform and all_stop for u, v in zip(uniform, body.outputs, strict=True)]
        if now == uniform:
            break
        uniform = now
    test.inputs = body.inputs = carry
    made = [_like(v, u) for v, u in zip(start, uniform, strict=True)]
    op = Op("while", list(start), made,
            {"test": test, "body": body, "consts": [*tests, *consts]})  # fmt: skip
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


@rule("cond")
def _cond(r: Reader, eqn, which, *ins):
    branches = eqn.params["branches"]
    if which.const is not None:
        chosen = min(max(int(which.const), 0), len(branches) - 1)
        jaxpr, consts = _parts(branches[chosen])
        return r.run(jaxpr, consts, list(ins))
    if not which.uniform:
        return _choose(r, eqn, which, ins)
    ins = r.solid(ins)
    blocks = [_block(b, list(ins)) for b in branches]
    uniform = [all(b.outputs[k].uniform for b in blocks) for k in range(len(eqn.outvars))]
    avals = [v.aval for v in eqn.outvars]
    made = [Value(a.shape, _dtype(a), u) for a, u in zip(avals, uniform, strict=True)]
    op = Op("cond", [which], made, {"branches": blocks, "consts": list(ins)})
    for v in made:
        v.op = op
    r.ops.append(op)
    return made


def _choose(r: Reader, eqn, which: Value, ins):
    """Samples that go different ways: all branches are computed, each sample takes its own."""
    results = [r.run(*_parts(b), list(ins)) for b in eqn.params["branches"]]
    zero = constant(which.dtype.type(0)) if which.dtype.kind != "b" else constant(False)
    outs = []
    for cases in zip(*results, strict=True):
        out = cases[-1]
        for k in reversed(range(len(cases) - 1)):
            if k == 0 and which.dtype.kind == "b":
                here = r.map("eq", which, zero, dtype=bool)
            elif k == 0:
                here = r.map("le", which, zero, dtype=bool)
            else:
                here = r.map("eq", which, constant(which.dtype.type(k)), dtype=bool)
            out = r.map("select", here, out, cases[k])
        outs.append(out)
    return outs
