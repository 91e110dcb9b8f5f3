"""Programs of every operation that lanes compile."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from rbd_jax.lanes import (
    columns_of,
    common_rounds,
    factorized,
    factorized_solve,
    lanes,
    unfilled,
)

UNARY = [
    "neg", "abs", "sign", "floor", "ceil", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2", "log", "log1p",
    "expm1", "cbrt", "erf", "erfc", "lgamma", "logistic", "is_finite", "square",
]  # fmt: skip


BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2"]
TESTS = ["lt", "le", "gt", "ge", "eq", "ne"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def floats(x, y):
    out = {name: getattr(lax, name)(x) for name in UNARY}
    out |= {name: getattr(lax, name)(x, y) for name in [*BINARY, *TESTS]}
    out |= {f"power {k}": lax.integer_pow(x, k) for k in (-3, -1, 0, 1, 2, 5)}
    out["round"] = lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)
    out["even"] = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    out["clamp"] = lax.clamp(x.dtype.type(-1), x, x.dtype.type(2))
    out["clamp by y"] = lax.clamp(y, x, y + 1)
    out["select"] = lax.select(x > y, x, y)
    out["whole power"] = lax.pow(x, jnp.clip(jnp.nan_to_num(y), -3, 3).astype("int32"))
    out |= {f"to {d}": x.astype(d) for d in [*INTEGERS, "float32", "float64", "bool"]}
    out["log2"] = jnp.log2(x)
    out["precision"] = lax.reduce_precision(x, 11, 52)
    out["bits"] = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
    neighbor = lax.nextafter(x, y)
    neighbor = jnp.where(jnp.isnan(neighbor), 0, neighbor)
    out["neighbor"] = lax.bitcast_convert_type(neighbor, f"uint{8 * x.dtype.itemsize}")
    return out


def integers(x, y):
    names = ["add", "sub", "mul", "div", "rem", "max", "min", *TESTS, *BITS, *SHIFTS]
    out = {name: getattr(lax, name)(x, y) for name in names}
    out |= {"not": ~x, "abs": jnp.abs(x), "sign": lax.sign(x), "neg": lax.neg(x)}
    out |= {"power": lax.integer_pow(x, 3), "ones": lax.population_count(x), "clz": lax.clz(x)}
    out |= {f"to {d}": x.astype(d) for d in [*INTEGERS, "float32", "float64", "bool"]}
    out["by a constant"] = x // x.dtype.type(3) + x % x.dtype.type(4)
    out["select"] = lax.select_n(jnp.clip(y, 0, 2).astype("int32"), x, y, x + y)
    return out


def booleans(x, y):
    out = {name: getattr(lax, name)(x, y) for name in [*BITS, "eq", "ne", "lt", "max", "min"]}
    out |= {"not": ~x, "select": lax.select(x, y, ~y), "int": x.astype("int8") + y}
    rows = jnp.stack([x, y, ~x])
    out |= {"any": rows.any(), "all": rows.all(), "sum": rows.sum(), "arg": jnp.argmax(rows)}
    return out | {"float": jnp.where(x, 1.5, y.astype("float32")), "rows": rows}


# Programs of two arrays of several rows each. Nine rows are a loop, three are not.
def program(f):
    PROGRAMS[f.__name__] = f
    return f


PROGRAMS: dict = {}


@program
def slices(x, y):
    return (x[1:], x[::2], x[:, 1:3], x[::-1], x[..., ::-1], x[-1], x[:, 0], x[None], x[:0],
            jnp.split(x, [1, 2], axis=1), lax.rev(x, (0, 1)), *jnp.unstack(x, axis=1))  # fmt: skip


@program
def joined(x, y):
    a = jnp.concatenate([x, y, x[:1]])
    b = jnp.concatenate([x, y[:, :1], 2 * x], axis=1)
    return a, b, jnp.stack([x, y]), jnp.stack([x[0], y[0]], 1), a[::-1] * 2, jnp.sin(b).sum(0)


@program
def rolled(x, y):
    return jnp.roll(x, 1, 0) + y, jnp.roll(x, -2, 1), jnp.tile(x, (2, 1)), jnp.repeat(y, 2, 0)


@program
def transposed(x, y):
    return x.T, (x.T * 2).T + y, jnp.sum(x.T @ y), jnp.swapaxes(x[None] * y[:, None], 0, 2)


@program
def reshaped(x, y):
    n = x.shape[0]
    return (x.reshape(-1), (x + y).reshape(2 * n, 2).sum(1),
            x.reshape(n, 2, 2) * y.reshape(n, 2, 2), x.reshape(-1)[3:7] * 2,
            x.ravel().reshape(4, n) + y.T, (x * y).reshape(1, n, 1, 4),
            x[:0].reshape(0, 2, 2))  # fmt: skip


@program
def broadcast(x, y):
    return x + y[:1], x * y[:, :1], jnp.broadcast_to(x[0], x.shape), lax.broadcast(x, (2,)), x - 1


@program
def padded(x, y):
    zero = x.dtype.type(0)
    pad = lambda *c: lax.pad(x, zero, c)  # noqa: E731
    return (pad((1, 2, 0), (0, 1, 0)), pad((-1, 1, 0), (1, -1, 0)), pad((0, 0, 1), (1, 1, 2)),
            pad((-1, -1, 1), (-2, 0, 1)), lax.pad(y, y[0, 0], [(2, 0, 0), (0, 0, 0)]) * 2,
            lax.pad(x[:2, :1], zero, [(-3, 5, 0), (0, 0, 0)]))  # fmt: skip


@program
def reduced(x, y):
    out = [f(x, axis=a) for f in (jnp.sum, jnp.max, jnp.min) for a in (0, 1, None)]
    z = jnp.clip(x, -1, 1) + 1
    out += [jnp.prod(z, axis=a) for a in (0, 1)]
    out += [f(x > y, axis=a) for f in (jnp.all, jnp.any) for a in (0, 1, None)]
    i = jnp.clip(x * 10, -100, 100).astype("int32")
    out += [f(i, (0,)) for f in (lax.reduce_and, lax.reduce_or, lax.reduce_xor)]
    out += [jnp.sum((x * y)[:, None] * y[..., None], axis=a) for a in ((0, 2), (1,), (0, 1, 2))]
    return [*out, x[:0].sum(0), jnp.mean(x, 0), jnp.linalg.norm(x, axis=1)]


@program
def ranked(x, y):
    return [
        f(z, axis=a) for f in (jnp.argmax, jnp.argmin) for z in (x, (x * y) > 0) for a in (0, 1)
    ]


@program
def running(x, y):
    z = jnp.concatenate([x, y])
    out = [f(x, axis=a) for f in (lax.cumsum, lax.cummax, lax.cummin) for a in (0, 1)]
    return [
        *out,
        lax.cumsum(z, reverse=True),
        lax.cumprod(jnp.clip(z, -1, 1) + 1),
        lax.cumsum(x[:0]),
    ]


@program
def products(x, y):
    g = lambda a, b, c, d: lax.dot_general(a, b, (c, d))  # noqa: E731
    i = jnp.clip(jnp.nan_to_num(x), -3, 3).astype("int32")
    return [
        x @ y.T, x.T @ y, x @ y[0], x[:, 0] @ y, x[0] @ y[0], jnp.outer(x[0], y[:, 1]),
        g(x, y, ((), ()), ((0,), (0,))), g(x, y, ((1,), (1,)), ((0,), (0,))),
        g(x, y, ((0,), (0,)), ((1,), (1,))),
        g(x[:, :, None], y[:, None], ((2,), (1,)), ((0,), (0,))),
        jnp.einsum("ij,kj->ki", x, y), i @ i.T, lax.dot(i, i.T, preferred_element_type=x.dtype),
        x[:0].T @ y[:0], jnp.concatenate([x, y]) @ y.T,
    ]  # fmt: skip


@program
def chosen(x, y):
    i = jnp.clip(jnp.nan_to_num(x * 3), -9, 9).astype("int32")
    cases = lax.select_n(jnp.clip(i, 0, 2), x, y, x * y)
    return (
        cases,
        jnp.where(x[:, :1] > 0, x, y),
        lax.select_n(x[0, 0] > 0, x, y),
        jnp.where(x > y, x, 0),
    )


@program
def looked_up(x, y):
    """Places that are known, the same for all samples, or each sample's own, also outside."""
    n = x.shape[0]
    at = jnp.array([2, 0, -1, 1])
    own = jnp.clip(jnp.nan_to_num(y[:4, 0] * n), -50, 50).astype("int32")
    one = own[0]
    table = jnp.arange(n * 2.0, dtype=x.dtype).reshape(n, 2)
    out = [x[at], x[:, at], x[at, at], x[own], x[one], x[one, own % 4], x[:, own % 4], table[own],
           x.at[own].get(mode="clip"), x.at[own].get(mode="fill", fill_value=7),
           x.at[own].get(mode="fill"), x.at[own % 2].get(mode="promise_in_bounds"),
           lax.dynamic_slice(x, (one, own[1]), (2, 3)), lax.dynamic_index_in_dim(x, one, 1),
           jnp.take(x, own, axis=0, mode="wrap"), jnp.take_along_axis(x, jnp.argsort(x, 0), 0)
           if n < 9 else x, own.astype("uint8").at[jnp.array([3])].get(mode="fill"),
           jnp.concatenate([x, y])[own], x.T[own[:3] % 4, at[:3]]]  # fmt: skip
    return out


@program
def updated(x, y):
    n = x.shape[0]
    at = jnp.array([2, 0, 1])
    own = jnp.clip(jnp.nan_to_num(y[:3, 0] * n), -50, 50).astype("int32")
    one, new = own[0], y[:3] * 2
    z = x.at[0].set(1.0)
    out = [x.at[at].set(new), x.at[at].add(new), x.at[own].add(new),
           x.at[own].add(new, mode="clip"), x.at[:, at].multiply(y[:, :3]), x.at[own].min(new),
           x.at[own].max(new), x.at[one].set(new[0]),
           lax.dynamic_update_slice(x, new[:2], (one, one)), x.at[one, own[1]].add(3.0),
           z, z.at[1].set(x[0]), z.at[0].add(z[1]), x.at[1:].set(y[1:]).at[0].add(x[1]),
           x.at[own].subtract(new), x.at[own[:1]].set(new[:1]), x.at[own + 100].set(new),
           (x > 0).at[one].set(y[0] > 0),
           jnp.zeros_like(x).at[at, at].set(y[0, :3]) + x]  # fmt: skip
    w = x * 2
    for k in range(3):  # in place, one after the other
        w = w.at[own[k]].add(w[k] + y[k])
    return [*out, w]


@program
def views_of_views(x, y):
    z = jnp.concatenate([x[::-1].T, y.T])[::2].T
    v = jnp.pad(z, ((1, 1), (0, 0)))[1:-1][::-1]
    return v, v * 2, v.reshape(-1)[::3], jnp.concatenate([v, v[:1]]).T @ jnp.concatenate([z, z[:1]])


@program
def scans(x, y):
    def swap(c, row):
        a, b, k = c
        return (b, a + row, k + 1), (a * k, b[0])

    def keep(c, row):
        return c[::-1] + row, c  # a carry that reads itself the other way round

    def rows(c, k):
        c = c.at[k].add(c[k - 1])
        return c, c[k] * 2

    def inner(c, row):
        d, out = lax.scan(lambda a, b: (a + jnp.sin(b), a * b), c[0], row)
        return c.at[0].set(d), out.sum()

    zero = jnp.asarray(0, "int32")
    return [lax.scan(swap, (x[0], y[0], zero), x),
            lax.scan(swap, (x[0], y[0], zero), y, reverse=True),
            lax.scan(keep, x, y), lax.scan(rows, x, jnp.arange(1, x.shape[0])),
            lax.scan(inner, y[0], x), lax.scan(swap, (x[0], y[0], zero), x[:0]),
            lax.scan(lambda c, _: (c * 0.5 + 1, None), x, None, length=2),
            lax.scan(lambda c, r: ((c[1], c[0]), r[0] * 1), (x, y), (x, y[::-1]))[0],
            lax.scan(lambda c, r: (c, jnp.concatenate([c, r])), x[0], y[:, :2]),
            lax.scan(swap, (x[0], y[0], zero), x, unroll=2)]  # fmt: skip


@program
def whiles(x, y):
    few = jnp.clip(jnp.nan_to_num(jnp.abs(x[0, 0]) * 5), 0, 20).astype("int32")

    def body(c):
        k, a, b = c
        return k + 1, b + 0.5, a * 0.5

    own = lax.while_loop(lambda c: c[0] < few, body, (0, x, y))
    same = lax.while_loop(lambda c: c[0] < 4, body, (0, x, y))
    large = lax.while_loop(lambda c: c[0] < few % 4, lambda c: (c[0] + 1, c[1][::-1] + 1), (0, x))
    newton = lax.while_loop(
        lambda a: jnp.any(a > 1), lambda a: a * 0.5, jnp.abs(jnp.nan_to_num(y[0]))
    )
    # rows that stop at different times, and rows of rows; the test has one flag for each
    halved = lambda a, c: lax.while_loop(lambda s: s[0] > c, lambda s: (s[0] * 0.5, s[1] + a),  # noqa: E731
                                         (a, jnp.stack([a, c])))  # fmt: skip
    level = jnp.abs(jnp.nan_to_num(y)) + 0.1
    each = jax.vmap(jax.vmap(halved, (0, None)), (0, None))(jnp.nan_to_num(x), level[0, 0])
    return (own, same, large, newton, each, lax.fori_loop(0, few, lambda k, a: a + k, x[0]),
            lax.fori_loop(1, 5, lambda k, a: a.at[k % 3].add(a[0]), x),
            lax.while_loop(lambda a: False, lambda a: a + 1, x))  # fmt: skip


@program
def branches(x, y):
    k = jnp.clip(jnp.nan_to_num(x[0, 0] * 3), -9, 9).astype("int32")
    ways = [lambda a, b: a + b, lambda a, b: a * 2, lambda a, b: jnp.cumsum(b, 0)]
    c = x.at[1].set(0.0)
    return (lax.cond(x[0, 0] > 0, lambda: x, lambda: y), lax.switch(k, ways, x, y),
            lax.switch(1, ways, x, y),
            lax.cond(y[0, 0] > 0, lambda c: c.at[0].set(1), lambda c: c, c), c)  # fmt: skip


@program
def long_branches(x, y):
    """Loops, which only samples that take them should pay for."""
    k = jnp.clip(jnp.nan_to_num(x[0, 0] * 3), -9, 9).astype("int32")
    double = lambda a, b: (lax.fori_loop(0, 3, lambda _, a: a + a * b, a), a)  # noqa: E731
    other = lambda a, b: (b, lax.fori_loop(0, 2, lambda _, b: b - a, b))  # noqa: E731
    same = lambda a, b: (a, b)  # noqa: E731
    return (lax.cond(x[0, 0] > 0, double, same, x, y), lax.cond(x[0, 0] > 0, same, double, x, y),
            lax.cond(x[0, 0] > 0, double, other, x, y),
            lax.switch(k, [double, same, other], x, y), lax.switch(k, [double, other], x, y),
            lax.switch(k, [double, other, double, same], x[0], y[0]))  # fmt: skip


@program
def calls(x, y):
    f = jax.custom_jvp(lambda a: jnp.sin(a))
    f.defjvps(lambda t, out, a: t)
    g = jax.custom_vjp(lambda a: a * 2)
    g.defvjp(lambda a: (a, None), lambda _, t: (t,))
    solved = lax.custom_linear_solve(lambda a: 2 * a, x, lambda _, b: b / 2, symmetric=True)
    here = lax.platform_dependent(x, cpu=lambda a: a + 1, default=lambda a: a - 1)
    return (f(x), g(x), solved, here, jax.checkpoint(lambda a: jnp.exp(-a * a))(x), jax.jit(f)(y),
            lax.optimization_barrier(x), lax.stop_gradient(y), lax.map(jnp.sum, x),
            jax.vmap(lambda a, b: a @ b)(x, y), checkpoint_name(x, "x"),
            lanes(lambda a: a + 1)(x), jax.vmap(lanes(jnp.cumsum))(x), jnp.copy(x),
            jax.device_put(x), lax.associative_scan(jnp.add, x))  # fmt: skip


@program
def factors(x, y):
    x, n = jnp.tanh(x), x.shape[0]
    above = np.eye(n, dtype=bool)  # of a tree with two branches at each node
    for k in range(1, n):
        above[k] |= above[(k - 1) // 2]
    A = jnp.where(above | above.T, x @ x.T, 0) + 4 * n * jnp.eye(n, dtype=x.dtype)
    L = factorized(A, columns_of(above))
    return L, factorized_solve(L, y[:, 0], columns_of(above))


@program
def together(x, y):
    """Rows up to a number of each sample's own, in arrays that begin without numbers."""
    x, y = jnp.tanh(x), jnp.tanh(y)
    count = jnp.sum(y[:, 0] > 0, dtype=jnp.int32)
    size = x.shape

    def row(k):
        return jnp.where(k < count, 2 * x[k] * y[0], 0)

    kept = common_rounds(count, lambda k, z: z.at[k].set(row(k)), unfilled(size, x.dtype))

    def again(state):  # samples leave this loop at different times
        total, n = state
        add = common_rounds(
            count, lambda k, s: s + jnp.where(k < count, jnp.outer(kept[k], kept[k]), 0), total
        )
        return add, n + 1

    start = jnp.zeros((size[1], size[1]), x.dtype), jnp.int32(0)
    return lax.while_loop(lambda s: (s[1] < 5) & (jnp.sum(s[0]) < 2 * count), again, start)


@program
def neural(x, y):
    n = jax.nn
    fs = (n.relu, n.softplus, n.silu, n.gelu, n.softmax, n.log_softmax, n.elu, n.selu, n.hard_tanh)
    return [*(f(x) for f in fs), n.one_hot(jnp.arange(3), 4, dtype=x.dtype), n.logsumexp(x, axis=0)]


@program
def sorts(x, y):
    x, y = x[:, :4], y[:, :4]
    pairs = lax.sort((jnp.round(x), y), num_keys=1)
    return (jnp.sort(x), jnp.sort(x, 0), jnp.argsort(y), jnp.median(jnp.nan_to_num(x), 1), pairs,
            lax.sort((x > 0, jnp.round(y), x), num_keys=2), jnp.sort(x > 0),
            lax.top_k(x, 2))  # fmt: skip


@program
def counted(x, y):
    tables = jnp.arange(5), lax.iota("int32", 7) + 1, jnp.eye(9), jnp.arange(36.0).reshape(9, 4)
    return (*tables, jnp.eye(3, dtype=x.dtype) * x[0, 0], jnp.tri(4, dtype=x.dtype) @ y.T)
