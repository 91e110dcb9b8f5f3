"""Rules for sorting, factorizations and triangular systems, which are decomposed into others.

The functions are ordinary JAX code, unrolled over rows and columns, and inlined.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._failures import Unsupported
from ..ir._blocks import Value
from ._reader import Reader, rule

LARGEST = 16
"""Rows that are sorted or eliminated at most; larger arrays are left to XLA."""
WRITTEN_OUT = 6
"""Rows of a Cholesky factor and of a triangular system up to which each element is written out."""


def _fits(n: int) -> None:
    if n > LARGEST:
        raise Unsupported(f"{n} rows; up to {LARGEST} are written out")


def _less(x, y):
    """The order of ``jax.lax.sort``: NaN comes last."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x < y if x.dtype != bool else ~x & y
    return (x < y) | ((y != y) & (x == x))


def _less_of_all(x, y):
    """The order of ``jax.lax.top_k``: −0 comes before 0, too."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return _less(x, y)
    bits = f"int{8 * x.dtype.itemsize}"
    low, high = (jax.lax.bitcast_convert_type(z, bits) < 0 for z in (x, y))
    return _less(x, y) | ((x == y) & low & ~high)


def _before(xs, ys):
    """Whether the keys ``xs`` come before ``ys``, the first key first."""
    out = _less(xs[-1], ys[-1])
    for x, y in zip(reversed(xs[:-1]), reversed(ys[:-1]), strict=True):
        out = _less(x, y) | (~_less(y, x) & out)
    return out


def _sorted(rows: list, keys: int) -> list:
    """Sort rows of several arrays by exchanges of neighbors, which keeps equal ones in order."""
    for end in reversed(range(1, len(rows))):
        for k in range(end):
            a, b = rows[k], rows[k + 1]
            swap = _before(b[:keys], a[:keys])
            rows[k] = [jnp.where(swap, y, x) for x, y in zip(a, b, strict=True)]
            rows[k + 1] = [jnp.where(swap, x, y) for x, y in zip(a, b, strict=True)]
    return rows


@rule("sort")
def _sort(r: Reader, eqn, *ins: Value):
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    n = ins[0].shape[axis]
    _fits(n)

    def function(*arrays):
        rows = _sorted([[jnp.take(x, k, axis) for x in arrays] for k in range(n)], keys)
        return [jnp.stack(xs, axis) for xs in zip(*rows, strict=True)]

    return r.inline(function, *ins) if n > 1 else list(ins)


@rule("top_k")
def _top_k(r: Reader, eqn, x: Value):
    k, axis = eqn.params["k"], eqn.params.get("axis", x.ndim - 1) % x.ndim
    n, dtype = x.shape[axis], eqn.outvars[1].aval.dtype
    _fits(n)

    def function(x):
        rows = [[jnp.take(x, j, axis), jnp.full(x.shape[:axis] + x.shape[axis + 1 :], j, dtype)]
                for j in range(n)]  # fmt: skip
        for start in range(k):  # the largest of the rest moves up
            for j in reversed(range(start, n - 1)):
                a, b = rows[j], rows[j + 1]
                swap = _less_of_all(a[0], b[0])
                rows[j] = [jnp.where(swap, q, p) for p, q in zip(a, b, strict=True)]
                rows[j + 1] = [jnp.where(swap, p, q) for p, q in zip(a, b, strict=True)]
        return [jnp.stack(xs, axis) for xs in zip(*rows[:k], strict=True)]

    return r.inline(function, x)


@rule("cholesky")
def _cholesky(r: Reader, eqn, x: Value):
    if x.shape[-1] > WRITTEN_OUT:
        return r.op("cholesky", [x], x.shape, x.dtype)
    return r.inline(_small_factor, x) if x.shape[-1] else [x]


def _small_factor(x):
    n = x.shape[-1]
    rows: list[list] = [[] for _ in range(n)]
    fine = jnp.ones(x.shape[:-2], bool)
    for j in range(n):
        for i in range(n):
            total = x[..., i, j]
            for k in range(j if i >= j else 0):
                total = total - rows[i][k] * rows[j][k]
            if i < j:
                total = jnp.zeros_like(total)
            elif i == j:
                fine = fine & (total > 0)
                total = jnp.sqrt(total)
            else:
                total = total / rows[j][j]
            rows[i].append(total)
    lower = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
    return [jnp.where(fine[..., None, None], lower, jnp.nan)]


@rule("triangular_solve")
def _triangular_solve(r: Reader, eqn, a: Value, b: Value):
    p, n = eqn.params, a.shape[-1]
    if not n:
        return [b]
    transposed = p["transpose_a"] == p["left_side"]  # a row of what remains is a column of a
    down = p["lower"] != transposed
    if not p["left_side"]:
        (b,) = r.inline(lambda b: [b.mT], b)
    if n > WRITTEN_OUT:
        kinds = {"down": down, "transposed": transposed, "unit": p["unit_diagonal"]}
        x = r.op("triangular_solve", [a, b], b.shape, b.dtype, **kinds)
    else:
        (x,) = r.inline(
            lambda a, b: [_solved(a.mT if transposed else a, b, down, p["unit_diagonal"])], a, b
        )
    return [x] if p["left_side"] else r.inline(lambda x: [x.mT], x)


def _solved(a, b, down: bool, unit: bool):
    """The unknowns of a triangular matrix, from the first or the last one on."""
    n = a.shape[-1]
    rows: dict = {}
    for i in range(n) if down else reversed(range(n)):
        total = b[..., i, :]
        for k, row in rows.items():
            total = total - a[..., i, k, None] * row
        rows[i] = total if unit else total / a[..., i, i, None]
    return jnp.stack([rows[i] for i in range(n)], -2)


@rule("lu")
def _lu(r: Reader, eqn, x: Value):
    m, n = x.shape[-2:]
    _fits(max(m, n))

    def function(x):
        order = jnp.broadcast_to(jnp.arange(m, dtype=jnp.int32), x.shape[:-1])
        pivots = []
        for k in range(min(m, n)):
            pivot = k + jnp.argmax(jnp.abs(x[..., k:, k]), -1).astype(jnp.int32)
            here = jnp.arange(m, dtype=jnp.int32) == pivot[..., None]
            x, order = _exchanged(x, k, here[..., None], -2), _exchanged(order, k, here, -1)
            pivots.append(pivot)
            top = x[..., k, None, k]
            factor = x[..., k + 1 :, k] / jnp.where(top == 0, 1, top)
            rest = x[..., k + 1 :, k + 1 :] - factor[..., None] * x[..., k, None, k + 1 :]
            low = jnp.concatenate([x[..., k + 1 :, :k], factor[..., None], rest], -1)
            x = jnp.concatenate([x[..., : k + 1, :], low], -2)
        return x, jnp.stack(pivots, -1), order

    if not m or not n:
        raise Unsupported("a matrix without elements")
    return r.inline(function, x)


def _exchanged(x, k: int, here, axis: int):
    """Exchange row ``k`` with the row where ``here`` is true."""
    row = jax.lax.slice_in_dim(x, k, k + 1, axis=axis)
    pivot = jnp.sum(jnp.where(here, x, 0), axis, keepdims=True).astype(x.dtype)
    first = np.arange(x.shape[axis]) == k
    first = first[:, None] if axis == -2 else first
    return jnp.where(first, pivot, jnp.where(here, row, x))
