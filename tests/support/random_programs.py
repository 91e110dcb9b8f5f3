"""Random programs as users write them, to be compared sample by sample with JAX's own operations.

A program is a list of steps. Each step takes arrays from a pool, and puts its result there. The
steps use numbers of Python wherever a user may: as operands, carries, results of branches, and
results of the program. Numbers are small multiples of 1/2 and stay so, as far as possible, so that
results are exact and no comparison depends on rounding. Some are NaN, infinite or −0.0. Constants
that multiply are not zero, as lanes leave out such products.

The right values come from JAX without compilation, one sample at a time (``jax.disable_jit``). So
neither XLA's fusion nor its batching of branches and loops takes part in them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from rbd_jax.lanes import lanes

FLOATS = ("float32",)
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
WIDE = {"floats": ("float64",), "integers": ("int64", "uint64")}
"""Types that exist only where x64 is on."""
SHAPES = ((), (3,), (2, 3), (4,), (3, 2))
MODES = ("clip", "fill", "wrap")


def small(x):
    """Numbers of an array brought back between bounds; NaN stays."""
    return jnp.clip(x, -8, 8) if jnp.issubdtype(x.dtype, jnp.floating) else x


def fit(x, shape):
    """The elements of an array, repeated or cut, in another shape."""
    size = int(np.prod(shape, dtype=int))
    x = jnp.ravel(x)
    x = jnp.tile(x, -(-size // max(x.size, 1)) if x.size else 1)
    return (x[:size] if x.size else jnp.zeros(size, x.dtype)).reshape(shape)


def number(x, k: int):
    """One number of an array."""
    return jnp.ravel(x)[k % x.size]


def real(pool, k: int):
    """An array of floating-point numbers from the pool."""
    found = [x for x in pool if jnp.issubdtype(x.dtype, jnp.floating)]
    return found[-1 - k % len(found)]


def whole(pool, k: int):
    """An array of integers from the pool."""
    found = [x for x in pool if jnp.issubdtype(x.dtype, jnp.integer)]
    return found[-1 - k % len(found)]


def index(pool, k: int):
    """A number that may lie outside of an array, as an int32."""
    return jnp.clip(number(whole(pool, k), k).astype(jnp.float32), -5, 9).astype(jnp.int32)


# --- steps: (pool, i, j, k) -> array or tuple of arrays ---------------------------


def arithmetic(pool, i, j, k):
    a = real(pool, i)
    b = fit(real(pool, j), a.shape).astype(a.dtype)
    ways = [
        lambda: a * 0.5, lambda: 2 + a, lambda: a - 1, lambda: a / 2, lambda: 1.5 - a, lambda: -a,
        lambda: a * b, lambda: a + b, lambda: a - b, lambda: jnp.maximum(a, 0),
        lambda: jnp.minimum(a, 2.0), lambda: jnp.where(a > 0, 1.0, a),
        lambda: jnp.where(a > b, a, 0), lambda: a**2, lambda: jnp.abs(a), lambda: jnp.floor(a),
        lambda: jnp.sign(a), lambda: jnp.where(jnp.isnan(a), 0.5, a), lambda: jnp.abs(b) - 1,
        lambda: (a > 0) * 2.0 + b, lambda: jnp.where(a == b, 3, b), lambda: a * jnp.float32(2),
        lambda: jnp.maximum(a, b), lambda: jnp.minimum(b, a), lambda: jnp.round(a * 1.5),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def integers(pool, i, j, k):
    a = whole(pool, i)
    b = fit(whole(pool, j), a.shape).astype(a.dtype)
    ways = [
        lambda: a + 1, lambda: a * 2, lambda: lax.div(a, b), lambda: lax.rem(a, b), lambda: a // 3,
        lambda: a % 3, lambda: a & b, lambda: a | b, lambda: a ^ b, lambda: ~a,
        lambda: lax.shift_left(a, b), lambda: lax.shift_right_arithmetic(a, b),
        lambda: lax.shift_right_logical(a, b), lambda: jnp.maximum(a, b), lambda: jnp.sign(a),
        lambda: jnp.where(a > b, a, 1), lambda: a - b, lambda: a * b, lambda: jnp.abs(a),
        lambda: jnp.minimum(a, 5), lambda: lax.population_count(a), lambda: lax.clz(a), lambda: -a,
    ]  # fmt: skip
    return ways[k % len(ways)]()


def converted(pool, i, j, k):
    kinds = [x.dtype for x in pool]
    kind = kinds[j % len(kinds)]
    a = pool[-1 - i % len(pool)]
    if k % 3 == 0:
        return (a > 0).astype(kind)
    return a.astype(kind)


def gathered(pool, i, j, k):
    a, n = pool[-1 - i % len(pool)], index(pool, j)
    if not a.ndim:
        return a
    mode = MODES[k % 3]
    where = [n, jnp.stack([n, n + 1, -n]), jnp.array([0, -1, a.shape[0]]), 0, slice(None, None, 2)]
    at = where[k % len(where)]
    if k % 7 == 0:
        return a[at] if not isinstance(at, slice) else a[::-1]
    if isinstance(at, slice):
        return jnp.flip(a)[at]
    fill = 5 if mode == "fill" and k % 2 else None
    return jnp.take(a, at, axis=k % a.ndim, mode=mode, fill_value=fill)


def scattered(pool, i, j, k):
    a, n = pool[-1 - i % len(pool)], index(pool, j)
    if not a.ndim:
        return a + 1 if a.dtype != bool else ~a
    one = k % 2 == 0
    at = n if one else jnp.stack([n, n + 1])
    old = a.at[at]
    new = [1, fit(pool[-1 - j % len(pool)], a.shape[1:]).astype(a.dtype)][k % 4 < 2]
    mode = [None, "drop", "clip", "promise_in_bounds"][k % 3]
    if a.dtype == bool:
        return old.set(True, mode=mode)
    ways = [old.add, old.max, old.min]
    if one or mode != "clip":  # else two may be set at one place
        ways += [old.set, old.multiply]
    return ways[k % len(ways)](new, mode=mode)


def scanned(pool, i, j, k):
    rows = real(pool, i)
    rows = fit(rows, (3, *rows.shape[1:])) if rows.ndim else fit(rows, (3,))
    c = fit(real(pool, j), rows.shape[1:]).astype(rows.dtype)
    back = k % 2 == 0
    ways = [
        lambda: lax.scan(lambda s, r: (s + r, None), 0.0, jnp.sum(rows.reshape(3, -1), 1))[0],
        lambda: lax.scan(lambda s, r: (small(s + r), s * r), c, rows, reverse=back),
        lambda: lax.scan(lambda s, _: (small(s * 2), 0.0), c, None, length=3),
        lambda: lax.scan(lambda s, r: ((small(s[0] + r), s[1] + 1), s[1]), (c, 0), rows),
        lambda: lax.scan(lambda s, r: ((s[1], s[0] + 0.5, r), True), (1.0, 2.0, c), rows)[0],
        lambda: lax.scan(lambda s, r: (s, (r, 1, s[0])), (c, 2.5), rows, reverse=back)[1],
        lambda: lax.scan(lambda s, r: (jnp.where(jnp.any(r > 0), s + 1, s), s), 0, rows),
        lambda: lax.scan(
            lambda s, r: lax.scan(lambda t, q: (small(t + q), t * 2.0), s, jnp.stack([r, r - 1])),
            c, rows, reverse=back,
        ),
        lambda: lax.scan(lambda s, r: (s + 1, r[::-1] if r.ndim else r), 0, rows)[1],
        lambda: lax.scan(lambda s, _: (s, s), c, None, length=0 if back else 2),
        lambda: lax.scan(lambda s, r: (lax.cond(s > 1, lambda: 0.0, lambda: s + 0.5), r), 0.0,
                         rows)[0],
        lambda: lax.fori_loop(0, 3, lambda n, s: small(s + n * 0.5), c),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def looped(pool, i, j, k):
    a = real(pool, i)
    steps = jnp.abs(index(pool, j)) % 5
    limit = jnp.clip(jnp.where(jnp.isnan(a), 0, a).max() if a.size else 0.0, -8, 8)  # for it ends
    ways = [
        lambda: lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] * 0.5), (0, 1.0)),
        lambda: lax.while_loop(
            lambda c: c[0] < steps, lambda c: (c[0] + 1, small(c[1] + c[2]), c[1]), (0, a, a)
        ),
        lambda: lax.fori_loop(0, steps, lambda n, s: small(s - 1), a),
        lambda: lax.while_loop(
            lambda c: (c[0] < steps) & c[1], lambda c: (c[0] + 1, c[0] < 2, 0.5), (0, True, 1.0)
        ),
        lambda: lax.while_loop(
            lambda c: c[1] < steps,
            lambda c: (lax.fori_loop(0, c[1], lambda n, s: small(s + 0.5), c[0]), c[1] + 1),
            (a, 0),
        ),
    ]
    return ways[k % len(ways)]()


def decided(pool, i, j, k):
    a, n = real(pool, i), index(pool, j)
    b = fit(real(pool, j), a.shape).astype(a.dtype)
    ways = [
        lambda: lax.cond(n > 0, lambda: 1.0, lambda: 0.0),
        lambda: lax.cond(n > 0, lambda x, y: (x, 1), lambda x, y: (x * y, 2), a, b),
        lambda: lax.switch(n, [lambda: a, lambda: b, lambda: small(a + b)]),
        lambda: lax.cond(n % 2 == 0, lambda x: looped([*pool, x], 0, j, k), lambda x: looped(
            [*pool, x * 2], 0, j, k), a),
        lambda: lax.cond(True, lambda: a, lambda: b),
        lambda: lax.cond(n > 1, lambda: scanned(pool, i, j, k), lambda: jax.tree.map(
            jnp.zeros_like, scanned(pool, i, j, k))),
        lambda: lax.select_n(jnp.clip(n, 0, 2), a, b, a * 2),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def reduced(pool, i, j, k):
    a = pool[-1 - i % len(pool)]
    if a.dtype == bool:
        return [jnp.any, jnp.all, lambda a: jnp.sum(a)][k % 3](a)
    axis = k % a.ndim if a.ndim and j % 2 else None
    ways = [jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.argmin, jnp.prod]
    if jnp.issubdtype(a.dtype, jnp.floating):
        ways.append(jnp.mean)
    if a.ndim and k % 3 == 0:
        running = [jnp.cumsum, jnp.cumprod, lambda a, axis: lax.cummax(a, axis or 0)]
        return small(running[j % 3](a, axis=k % a.ndim))
    return ways[k % len(ways)](a, axis=axis)


def multiplied(pool, i, j, k):
    a = real(pool, i)
    b = fit(real(pool, j), (3, 2)).astype(a.dtype)
    a = fit(a, (2, 3))
    ways = [
        lambda: a @ b, lambda: a @ b[:, 0], lambda: jnp.einsum("ij,ji->i", a, b),
        lambda: jnp.outer(a[0], b[:, 1]), lambda: jnp.dot(a[1], jnp.array([1.0, 2.0, -1.0])),
        lambda: lax.dot_general(a, b, (((0,), (1,)), ((), ()))), lambda: jnp.vdot(a, b),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def shaped(pool, i, j, k):
    a = pool[-1 - i % len(pool)]
    b = fit(pool[-1 - j % len(pool)], a.shape).astype(a.dtype)
    line = jnp.ravel(a)
    ways = [
        lambda: jnp.concatenate([line, jnp.ones(2, a.dtype)]), lambda: jnp.append(line, b),
        lambda: jnp.stack([a, b]), lambda: a.T, lambda: jnp.flip(a), lambda: line[1:],
        lambda: jnp.pad(line, (1, 2), constant_values=1), lambda: jnp.roll(line, 1),
        lambda: jnp.repeat(line, 2), lambda: jnp.broadcast_to(a, (2, *a.shape)), lambda: a[None],
        lambda: jnp.where(jnp.arange(line.size) % 2 == 0, line, jnp.ravel(b)),
        lambda: lax.dynamic_slice_in_dim(fit(a, (6,)), index(pool, k), 3),
        lambda: lax.dynamic_update_slice_in_dim(fit(a, (6,)), fit(b, (2,)), index(pool, k), 0),
        lambda: jnp.sort(line), lambda: jnp.argsort(line), lambda: jnp.tril(fit(a, (3, 3))),
        lambda: lax.top_k(fit(a, (4,)), 2)[0] if a.dtype != bool else a,
        lambda: jnp.atleast_1d(a)[..., ::2], lambda: jnp.array([0.5, 1.0])[jnp.array([1, 0])],
        lambda: jnp.linspace(1.0, 2.0, 5), lambda: jnp.arange(1, 5), lambda: jnp.full((2, 2), 2.0),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def wrapped(pool, i, j, k):
    a = real(pool, i)
    f = lambda x: small(x * 2 - 1)  # noqa: E731
    ways = [
        lambda: jax.checkpoint(f)(a), lambda: jax.jit(f)(a), lambda: _ruled(a), lambda: lanes(f)(a),
        lambda: jax.vmap(f)(jnp.atleast_1d(a)), lambda: lax.stop_gradient(a) * a,
        lambda: jax.jvp(f, (a,), (a,))[1], lambda: jax.grad(lambda x: jnp.sum(f(x)))(a),
        lambda: jax.vmap(lanes(lambda x: x * 0.5))(jnp.atleast_1d(a)),
        lambda: jax.jit(lambda x: (x, 1.0))(a)[1], lambda: jax.checkpoint(lambda x: 2.0)(a),
        lambda: jax.vmap(lambda x, n: lax.fori_loop(0, n, lambda _, y: y + 0.5, x))(
            fit(a, (3,)), jnp.array([0, 2, 1])),
    ]  # fmt: skip
    return ways[k % len(ways)]()


@jax.custom_jvp
def _ruled(x):
    return x * 3


@_ruled.defjvp
def _ruled_jvp(primals, tangents):
    return _ruled(primals[0]), tangents[0] * 3.0


STEPS = (arithmetic, integers, converted, gathered, scattered, scanned, looped, decided, reduced,
         multiplied, shaped, wrapped)  # fmt: skip


class Drawn(NamedTuple):
    """What hypothesis draws: a program and the way in which it is called."""

    steps: list[tuple[int, int, int, int]]
    """Number of a step, two choices of arrays, and a choice of the variant."""
    results: int
    """So many arrays of the end of the pool are results."""
    constants: bool
    """Whether numbers of Python are results, too."""
    integer: int
    """Which of the integer types is used."""
    odd: bool
    """Whether there are NaN, infinities and −0.0."""
    samples: int
    way: int
    """Which transformation of the program is compared."""
    seed: int


def drawn(most: int = 7) -> st.SearchStrategy[Drawn]:
    """Programs of up to so many steps."""
    step = st.tuples(st.integers(0, len(STEPS) - 1), *[st.integers(0, 5)] * 2, st.integers(0, 400))
    return st.builds(
        Drawn, st.lists(step, min_size=1, max_size=most), st.integers(1, 4), st.booleans(),
        st.integers(0, 7), st.booleans(), st.sampled_from([1, 3, 8, 9, 20, 1000]),
        st.integers(0, 47), st.integers(0, 10**6),
    )  # fmt: skip


def program(case: Drawn, steps=STEPS) -> Callable:
    """The function of one sample: two arrays of numbers, one of integers, and a shared array."""

    def f(x, m, n, shared):
        pool = [shared, n, m, x]
        for way, i, j, k in case.steps:
            out = steps[way % len(steps)](pool, i, j, k)
            for y in jax.tree.leaves(out):
                y = small(jnp.asarray(y))
                pool.append(y if y.size <= 12 else jnp.ravel(y)[:12])
        more = (2.0, 1, True, x) if case.constants else ()
        return tuple(pool[-case.results :]), more

    return f


def arguments(case: Drawn, base: int) -> tuple:
    """Samples of the arguments, of which so many differ; the others repeat them."""
    rng = np.random.default_rng(case.seed)
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    kind = (FLOATS + WIDE["floats"] * x64)[case.seed % (1 + x64)]
    whole = INTEGERS + WIDE["integers"] * x64
    whole = np.dtype(whole[case.integer % len(whole)])

    def floats(*shape):
        a = rng.integers(-8, 9, shape) / 2
        odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], shape)
        return np.where(case.odd & (rng.random(shape) < 0.15), odd, a).astype(kind)

    n = rng.integers(0 if whole.kind == "u" else -4, 6, (base, 3)).astype(whole)
    if case.odd:
        ends = np.array([np.iinfo(whole).min, np.iinfo(whole).max], whole)
        n = np.where(rng.random(n.shape) < 0.15, rng.choice(ends, n.shape), n)
    at = np.arange(case.samples) % base
    args = floats(base, 3)[at], floats(base, 2, 3)[at], n[at], floats(4)
    return tuple(map(jnp.asarray, args))
