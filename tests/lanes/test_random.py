"""Random programs over the operations that lanes compile, against XLA.

All numbers are small whole numbers, which every operation keeps, so that both agree exactly.
"""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jax import lax
from support.lane_programs import agree, numbers

pytest.importorskip("llvmlite")

BOUND = 8
SHAPES = [(9, 4), (3,), (4, 9), (2, 6, 3), (36,), (7, 7), (1, 5), (12, 2), (6, 3, 2), (280,)]


def small(x):
    """Numbers brought back between bounds."""
    return jnp.clip(x, -BOUND, BOUND)


def fit(x, shape):
    """The elements of an array, repeated or cut, in another shape."""
    size = 1
    for n in shape:
        size *= n
    x = jnp.ravel(x)
    while x.size < size:
        x = jnp.concatenate([x, x[::-1]])
    return x[:size].reshape(shape)


def whole(x, k):
    """One number of an array as an integer."""
    return jnp.ravel(x)[k % x.size].astype("int32")


def table(k, n, size):
    """A table of indices."""
    return jnp.array([(k * j + j * j + k // 3) % n for j in range(size)])


def elementwise(a, b, c, k):
    b = fit(b, a.shape)
    way = k % 8
    if way < 5:
        return [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum][way](a, b)
    return (
        jnp.where(a > b, b, a - 1) if way < 7 else jnp.abs(jnp.floor(b / 2)) + lax.rem(a, 3 + b * 0)
    )


def sliced(a, b, c, k):
    axis = k % a.ndim
    n = a.shape[axis]
    start, step = k % n, 1 + k % 3
    a = lax.slice_in_dim(a, start, n, step, axis)
    return jnp.flip(a, axis) if k % 2 else a


def moved(a, b, c, k):
    a = jnp.transpose(a, [(j + k) % a.ndim for j in range(a.ndim)])
    return a if k % 3 else fit(a, SHAPES[k % len(SHAPES)])


def joined(a, b, c, k):
    axis = k % a.ndim
    parts = [a, fit(b, a.shape)]
    if k % 3 == 0:
        parts.append(lax.slice_in_dim(fit(c, a.shape), 0, 1 + k % a.shape[axis], axis=axis))
    return jnp.concatenate(parts, axis) if k % 4 else jnp.stack(parts[:2], axis)


def gathered(a, b, c, k):
    axis, n = k % a.ndim, a.shape[k % a.ndim]
    known = table(k, n, 1 + k % 6)
    own = fit(b, (4,)).astype("int32") + k % 3
    mode = ["clip", "fill", "wrap"][k % 3]
    at = [known, own, own[0], lax.rem(own, jnp.int32(n))][k % 4]
    return jnp.take(a, at, axis=axis, mode=mode, fill_value=5 if mode == "fill" else None)


def scattered(a, b, c, k):
    n = a.shape[0]
    at = jnp.array(sorted({(k * j) % n for j in range(3)})) if k % 2 else whole(b, k)[None] % n
    if k % 5 == 0:
        at = at + n // 2
    new = fit(c, (len(at), *a.shape[1:]))
    old = a.at[at]
    return [old.set, old.add, old.max, old.min][k % 4](new)


def chain(a, b, c, k):
    for j in range(3):
        a = small(a.at[(k + j) % a.shape[0]].add(a[(k * j) % a.shape[0]]))
    return a.at[whole(b, k)].set(fit(c, a.shape[1:]))


def reduced(a, b, c, k):
    axis = k % a.ndim
    f = [jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.argmin, jnp.any][k % 6]
    out = f(a, axis=axis).astype(a.dtype)
    return jnp.sum(a) + out if k % 7 == 0 else out


def running(a, b, c, k):
    return [lax.cumsum, lax.cummax, lax.cummin][k % 3](a, k % a.ndim, reverse=k % 2 == 0)


def product(a, b, c, k):
    a = a.reshape(a.shape[0], -1)
    way = k % 4
    if way == 0:
        return a @ fit(b, (a.shape[1], 1 + k % 9))
    if way == 1:
        return fit(b, (a.shape[0], 5)).T @ a
    if way == 2:
        return jnp.einsum("ij,ij->i", a, fit(b, a.shape))
    return jnp.einsum("ij,ijk->ik", a, fit(b, (*a.shape, 2)))


def scan(a, b, c, k):
    start = fit(b, a.shape[1:])

    def plain(s, row):
        return small(s + row), s * row

    def swapped(s, row):
        p, q = s
        return (small(q - row), p), jnp.stack([p, q])

    def changing(s, row):
        m, j = s
        m = m.at[j % m.shape[0]].set(small(m[0] + row))
        return (m[::-1] if k % 2 else m, j + 1), m[j % m.shape[0]]

    def nested(s, row):
        rows = fit(c, (3, *row.shape))
        s, out = lax.scan(lambda t, r: (small(t + r * row), t), s, rows, reverse=k % 3 == 0)
        return s, out.sum(0)

    reverse = k % 2 == 0
    way = k % 5
    if way == 0:
        s, out = lax.scan(plain, start, a, reverse=reverse)
        return small(out) + s
    if way == 1:
        s, out = lax.scan(swapped, (start, start * 2), a)
        return out
    if way == 2:
        (m, _), out = lax.scan(changing, (fit(c, a.shape), 0), a, reverse=reverse)
        return jnp.concatenate([m, out])
    if way == 3:
        s, out = lax.scan(nested, start, a, reverse=reverse)
        return small(out) - s
    return lax.scan(lambda s, _: (small(s[::-1] + fit(b, s.shape)), None), a, None, length=k % 4)[0]


def loop(a, b, c, k):
    steps = abs(whole(b, k)) % 5

    def body(s):
        j, x, y = s
        x = x.at[j % x.shape[0]].add(1) if k % 2 else small(x + y)
        return j + 1, y, small(x[::-1])

    return lax.while_loop(lambda s: s[0] < steps, body, (0, a, fit(c, a.shape)))[1]


def branch(a, b, c, k):
    c = fit(c, a.shape)
    ways = [lambda x, y: x + y, lambda x, y: x.at[0].set(y[-1]), lambda x, y: lax.cumsum(y, 0)]
    if k % 2:
        return lax.cond(whole(b, k) > 0, ways[k % 3], ways[(k + 1) % 3], a, c) - a
    return lax.switch(whole(b, k), ways, a, c)


def deep(a, b, c, k):
    """Branches and loops of each sample's own inside loops."""
    steps, rows = abs(whole(b, k)) % 3, fit(c, (3, *a.shape))

    def inner(t, row):
        t = lax.cond(whole(row, k) > 0, lambda t: small(t + row), lambda t: t[::-1], t)
        more = abs(whole(t, k)) % 3
        t = lax.fori_loop(0, more, lambda j, t: small(t.at[j % t.shape[0]].add(1)), t)
        return t, t[0]

    def outer(s):
        x, out = lax.scan(inner, s[1], rows)
        return s[0] + 1, small(x + out.sum(0).astype(a.dtype))

    return lax.while_loop(lambda s: s[0] < steps, outer, (0, a))[1]


def windows(a, b, c, k):
    at = [whole(b, k + j) for j in range(a.ndim)]
    sizes = [1 + (k + j) % n for j, n in enumerate(a.shape)]
    if k % 2:
        return lax.dynamic_slice(a, at, sizes)
    return lax.dynamic_update_slice(a, fit(c, sizes), at)


def widened(a, b, c, k):
    way = k % 5
    if way == 0:
        return jnp.pad(a, [(j % 2, k % 3) for j in range(a.ndim)], constant_values=2)
    if way == 1:
        return jnp.roll(a, k % 7 - 3, k % a.ndim)
    if way == 2:
        return jnp.repeat(a, 2, axis=k % a.ndim)
    if way == 3:
        return jnp.broadcast_to(a[..., None], (*a.shape, 3)) - fit(b, (3,))
    return lax.pad(a, a.dtype.type(1), [(k % 3 - 1, -(k % 2), j % 2) for j in range(a.ndim)])


STEPS = [elementwise, sliced, moved, joined, gathered, scattered, chain, reduced, running, product,
         scan, loop, branch, deep, windows, widened]  # fmt: skip


def program(steps, outputs):
    def f(x, y, shared):
        pool = [x, y, shared]
        for way, *operands, k in steps:
            a, b, c = (pool[-1 - n % len(pool)] for n in operands)
            with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
                out = small(STEPS[way](a, b, c, k).astype(x.dtype))
            if out.ndim == 0 or out.size == 0 or out.ndim > 3:
                out = fit(jnp.append(out, k % 5), SHAPES[k % len(SHAPES)])
            pool.append(out if out.size <= 600 else out[tuple(slice(0, 6) for _ in out.shape)])
        return pool[-outputs:]

    return f


step = st.tuples(st.integers(0, len(STEPS) - 1), *[st.integers(0, 9)] * 3, st.integers(0, 60))
X64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
programs = {
    "steps": st.lists(step, min_size=2, max_size=10),
    "outputs": st.integers(1, 3),
    "samples": st.sampled_from([1, 9]),
    "dtype": st.sampled_from(["float32", "float64", "int32"] if X64 else ["float32", "int32"]),
    "rows": st.sampled_from([3, 9]),
}


def check(steps, outputs, samples, dtype, rows):
    x, y, shared = (
        jnp.round(numbers((rows, 4), "float64", seed, samples) * 2) for seed in range(3)
    )
    x, y, shared = (z.astype(dtype) for z in (x, y, shared[0]))
    agree(
        program(steps, outputs), x, y, shared, axes=(0, 0, None), sizes=(samples,), tolerance=1e-9
    )


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(**programs)
def test_random_programs(steps, outputs, samples, dtype, rows):
    check(steps, outputs, samples, dtype, rows)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(**programs)
def test_many_random_programs(steps, outputs, samples, dtype, rows):
    check(steps, outputs, samples, dtype, rows)
