"""Rules for operations on elements, shapes, sums and products, and for calls, which are inlined."""

import jax
import jax.numpy as jnp
import numpy as np

from .._failures import Unsupported
from .._jax_internals import jaxpr_and_consts
from ..ir._blocks import Value, constant
from ._reader import CALLS, Reader, called, dtype_of, rule

_SAME = {
    "sub": "sub", "mul": "mul", "div": "div", "rem": "rem",
    "max": "max", "min": "min", "neg": "neg", "abs": "abs", "sign": "sign", "floor": "floor",
    "ceil": "ceil", "sqrt": "sqrt", "rsqrt": "rsqrt", "and": "and", "or": "or",
    "xor": "xor", "not": "not", "shift_left": "shl", "shift_right_logical": "lshr",
    "shift_right_arithmetic": "ashr", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "exp": "exp",
    "exp2": "exp2", "log": "log", "log1p": "log1p", "expm1": "expm1", "cbrt": "cbrt",
    "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "logistic": "logistic",
    "population_count": "ctpop", "clz": "ctlz",
}  # fmt: skip


def _register_maps() -> None:
    for name, fn in _SAME.items():
        rule(name)(lambda r, e, *ins, fn=fn: r.map(fn, *ins))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "is_finite"):
        rule(name)(lambda r, e, *ins, fn=name: r.map(fn, *ins, dtype=bool))
    for name in ("stop_gradient", "copy", "name"):
        rule(name)(lambda r, e, x: x)
    for name in ("optimization_barrier", "device_put", "pvary", "pcast"):
        rule(name)(lambda r, e, *ins: list(ins))
    for name in ("sum", "max", "min", "prod", "and", "or", "xor"):
        rule(f"reduce_{name}")(lambda r, e, x, fn=name: _reduce(r, x, fn, e.params["axes"]))
    for name in ("sum", "prod", "max", "min"):
        rule(f"cum{name}")(lambda r, e, x, fn=name: _cumulate(r, e, x, fn))
    for name, fn in (("argmax", "gt"), ("argmin", "lt")):
        rule(name)(lambda r, e, x, fn=fn: _arg(r, e, x, fn))


_register_maps()


@rule(*CALLS)
def _call(r: Reader, eqn, *ins):
    jaxpr, consts = jaxpr_and_consts(called(eqn.params))
    return r.run(jaxpr, consts, list(ins))


@rule("custom_linear_solve")
def _linear_solve(r: Reader, eqn, *ins):
    counts, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    skip = counts.matvec + counts.vecmat
    consts = ins[skip : skip + counts.solve]
    jaxpr, own = jaxpr_and_consts(jaxprs.solve)
    return r.run(jaxpr, own, [*consts, *ins[sum(counts) :]])


@rule("platform_index")
def _platform(r: Reader, eqn):
    kinds = eqn.params["platforms"]
    chosen = (k for k, p in enumerate(kinds) if p is None or "cpu" in p)
    return constant(np.int32(next(chosen, len(kinds) - 1)))


@rule("reduce_precision")
def _reduce_precision(r: Reader, eqn, x):
    info = np.finfo(x.dtype)
    if eqn.params["exponent_bits"] < info.nexp or eqn.params["mantissa_bits"] < info.nmant:
        raise Unsupported("fewer digits than the array has")
    return x


@rule("bitcast_convert_type")
def _bitcast(r: Reader, eqn, x):
    dtype = dtype_of(eqn.outvars[0].aval)
    if dtype.itemsize != x.dtype.itemsize or "b" in (dtype.kind, x.dtype.kind):
        raise Unsupported(f"{x.dtype} as {dtype}")
    return r.map("bitcast", x, dtype=dtype)


@rule("pow")
def _pow(r: Reader, eqn, x, y):
    return r.map("pow", x, y if y.dtype == x.dtype else r.map("convert", y, dtype=x.dtype))


@rule("nextafter")
def _nextafter(r: Reader, eqn, x, y):
    info = np.iinfo(f"int{8 * x.dtype.itemsize}")

    def function(x, y):
        a, b = (jax.lax.bitcast_convert_type(v, info.dtype) for v in (x, y))
        size, other = a & info.max, b & info.max  # without the signs
        toward_zero = ((a ^ b) < 0) | (size > other)
        bits = a + jnp.where(toward_zero, -1, 1).astype(info.dtype)
        bits = jnp.where(size == 0, (b & info.min) | 1, bits)
        bits = jnp.where((a == b) | ((size == 0) & (other == 0)), b, bits)
        numbers = jax.lax.bitcast_convert_type(bits, x.dtype)
        return [jnp.where((x != x) | (y != y), x + y, numbers)]

    return r.inline(function, x, y)


@rule("square")
def _square(r: Reader, eqn, x):
    return r.map("mul", x, x)


@rule("one_minus_square")
def _one_minus_square(r: Reader, eqn, x):
    return r.map("sub", constant(x.dtype.type(1)), r.map("mul", x, x))


@rule("log2")
def _log2(r: Reader, eqn, x):
    return r.map("mul", constant(x.dtype.type(1 / np.log(2))), r.map("log", x))


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
    even = eqn.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return r.map("rint" if even else "round", x)


@rule("convert_element_type")
def _convert(r: Reader, eqn, x):
    dtype = np.dtype(eqn.params["new_dtype"])
    if dtype.kind == "b":
        return r.map("ne", x, constant(x.dtype.type(0)), dtype=bool)
    return x if dtype == x.dtype else r.map("convert", x, dtype=dtype_of(eqn.outvars[0].aval))


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


@rule("reshape", "squeeze")
def _reshape(r: Reader, eqn, x, *dynamic):
    order = eqn.params["dimensions"]  # of a squeeze, the axes that go
    if eqn.primitive.name == "reshape" and order is not None:
        x = _turned(r, x, order)
    return r.reshape(x, eqn.outvars[0].aval.shape)


@rule("tile")
def _tile(r: Reader, eqn, x):
    pairs = tuple(k for pair in zip(eqn.params["reps"], x.shape, strict=True) for k in pair)
    many = r.broadcast(x, pairs, tuple(range(1, 2 * x.ndim, 2)))
    return r.reshape(many, eqn.outvars[0].aval.shape)


@rule("transpose")
def _transpose(r: Reader, eqn, x):
    return _turned(r, x, eqn.params["permutation"])


def _turned(r: Reader, x: Value, order) -> Value:
    """The array with its axes in another order."""
    perm, back = tuple(order), np.argsort(order)
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
    config = [tuple(map(int, c)) for c in eqn.params["padding_config"]]
    shape = eqn.outvars[0].aval.shape
    if any(inner for _, _, inner in config):
        x = _spread(r, x, fill, [inner for _, _, inner in config])
    for axis, (low, high, _) in enumerate(config):
        start, limit = [0] * x.ndim, list(x.shape)
        start[axis], limit[axis] = max(0, -low), x.shape[axis] - max(0, -high)
        if start[axis] > limit[axis]:  # nothing of the array is left
            return r.broadcast(fill, shape, ())
        x = r.slice(x, start, limit, (1,) * x.ndim)
        rows = []
        for n in (low, high):
            edge = (*x.shape[:axis], max(0, n), *x.shape[axis + 1 :])
            rows.append(r.broadcast(fill, edge, ()))
        x = r.concat([rows[0], x, rows[1]], axis)
    return x


def _spread(r: Reader, x: Value, fill: Value, gaps: list[int]) -> Value:
    """Put gaps between the elements: a scatter to known places."""
    shape = tuple(max(0, n + (n - 1) * g) for n, g in zip(x.shape, gaps, strict=True))
    base = r.broadcast(fill, shape, ())

    def index(reader, table, idx):
        return tuple(i * (g + 1) for i, g in zip(idx, gaps, strict=True))

    return r.op("scatter", [base, constant(np.int32(0)), x], shape, x.dtype, index=index,
                fn="set", limits=None, free=lambda: range(x.ndim))  # fmt: skip


@rule("iota")
def _iota(r: Reader, eqn):
    p = eqn.params
    shape, axis = tuple(p["shape"]), p["dimension"]
    line = np.arange(shape[axis], dtype=p["dtype"])
    return constant(np.broadcast_to(line.reshape([-1 if k == axis else 1 for k in
                                                  range(len(shape))]), shape))  # fmt: skip


@rule("empty", "empty2")
def _empty(r: Reader, eqn):
    return constant(np.zeros(eqn.outvars[0].aval.shape, dtype_of(eqn.outvars[0].aval)))


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
    return r.op("arg", [x], shape, eqn.params["index_dtype"], fn=fn, axes=(axis,))


def _cumulate(r: Reader, eqn, x: Value, fn: str) -> Value:
    axis, back = eqn.params["axis"], eqn.params["reverse"]
    return r.op("cumulate", [x], x.shape, x.dtype, fn=fn, axis=axis, reverse=back)


@rule("dot_general")
def _dot(r: Reader, eqn, x, y):
    (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    dtype = dtype_of(out)
    x, y = (v if v.dtype == dtype else r.map("convert", v, dtype=dtype) for v in (x, y))
    free = [[k for k in range(v.ndim) if k not in (*c, *b)] for v, c, b in
            ((x, lc, lb), (y, rc, rb))]  # fmt: skip
    order = (*lb, *free[0]), (*rb, *free[1])
    return r.op("dot", [x, y], out.shape, dtype, order=order, contract=(lc, rc),
                batch=len(lb))  # fmt: skip
