"""Programs of which a team of threads computes each sample: against JAX, and in any order.

The threads run on the CPU in random order between their meetings, see ``support.lane_crew``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.lane_programs import close, numbers

pytest.importorskip("llvmlite")

from support.lane_threads import functions, run  # noqa: E402

from rbd_jax.lanes import columns_of, factorized, factorized_solve  # noqa: E402
from rbd_jax.lanes.gpu import _team  # noqa: E402

DTYPES = ["float32", pytest.param("float64", marks=pytest.mark.float64)]
TEAMS = (1, 2, 4, 8, 16, 32, 128)
COUNT = 3


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def sweeps(x, a):
    """Scans over rows with looped axes, forth and back, with branches and a loop inside."""

    def step(carry, row):
        wide, line = carry
        own, factor = row
        line = line[::-1] * 0.5 + own[:, 0]
        wide = lax.cond(factor > 0, lambda w: w + jnp.outer(line, own[0]), lambda w: w.T, wide)
        line = lax.fori_loop(0, 3, lambda k, y: jnp.sin(y)[::-1] + wide[k], line)
        return (wide * 0.5, line), (wide[::-1] @ line, jnp.max(line))

    start = jnp.zeros((6, 6), x.dtype), x[0, :, 0]
    ends = lax.scan(step, start, (x, a), reverse=False)
    return ends, lax.scan(lambda s, r: (jnp.roll(s, 1) + r, s), x[0], x, reverse=True)


def searches(x, n):
    """Loops whose lengths differ between samples, one in the other, with swapped carries."""

    def inner(state):
        k, y, z = state
        return k + 1, z[::-1] * 0.9, y + jnp.cumsum(z) * 0.1

    def outer(state):
        y, m = state
        y = lax.while_loop(lambda s: s[0] < m, inner, (jnp.int32(0), y, y * 0.5))[2]
        return y, m - 1

    end = lax.while_loop(lambda s: s[1] > 0, outer, (x, n))
    table = jnp.where(x > 0, jnp.arange(x.size), 0).astype(jnp.int32)
    halved = lax.while_loop(lambda t: jnp.any(t > 1), lambda t: t[::-1] // 2, table)
    return end, halved, lax.switch(n, [jnp.sin, jnp.cos, lambda x: x[::-1]], x)


PLACES = np.array([3, 0, 3, 5, 0, 0, 7, 3])


def updates(x, k):
    """Updates at places that repeat, of constants and of the sample, also out of bounds."""
    grid = jnp.outer(x, x[::-1])
    places = (k + jnp.arange(8)) % 5
    added = grid.at[PLACES].add(x[:, None]).at[places, PLACES].add(1.5)
    put = grid.at[places].set(grid[::-1]).at[PLACES].multiply(0.5)
    out = x.at[jnp.stack([k + 5, k, 2 * k])].set(x[:3], mode="drop").at[PLACES].max(x[::-1])
    moved = lax.dynamic_update_slice(grid, grid[2:5, 1:7], (k, k - 1))
    unique = x.at[jnp.arange(8) + k].add(x[::-1], mode="drop", unique_indices=True)
    ends = x.at[jnp.stack([k * 0 + 9, k * 0 + 7])].set(x[:2], mode="drop", unique_indices=True)
    windows = jnp.concatenate([added, put])[k + jnp.arange(6)] + moved[0]
    return added, put, out, moved, unique, ends, windows, lax.dynamic_slice(grid, (k, k), (5, 4))


def sums(x, i, b):
    """Reductions of several kinds of numbers, products, running sums."""
    parts = [f(x, axis=k) for f in (jnp.sum, jnp.max, jnp.min, jnp.argmax) for k in (None, 0, 1)]
    parts += [f(i, axis=k) for f in (jnp.sum, jnp.max, jnp.argmin) for k in (None, 1)]
    parts += [jnp.prod(x[0]), jnp.prod(1 + x * 0.1, axis=0), jnp.prod(i[:, :3])]
    parts += [jnp.any(b), jnp.all(b, axis=0), jnp.any(b & (x > 0), axis=1), jnp.sum(b)]
    parts += [jnp.vdot(x, x[::-1]), x @ x[0], x[:2] @ x.T, jnp.einsum("ij,ij->i", x, x * 2)]
    parts += [jnp.cumsum(x, axis=0), jnp.cumsum(x, axis=1), jnp.cumsum(i[0]), lax.cummax(x[:, 1])]
    total = jnp.sum(x) + jnp.max(x[0]) * jnp.sum(jnp.where(b, x, 0))
    parts += [x / (1 + total**2), x[:0], jnp.sum(x[:0], axis=0), x[1:2, 2:3], jnp.sum(x[:1, :1])]
    return parts, ~b[::-1], b.T | b.T[0], i.T * 3


def tree_of(n):
    return [max(k // 2 - 1, -1) if k % 3 else k - 1 for k in range(n)]


def systems(A, b):
    """Factors with zeros and their solutions, one of them in a scan; one of a single unknown."""
    columns = columns_of(tree_of(b.size))
    spread = A @ A.T
    mask = np.zeros(A.shape, bool)
    for k, c in enumerate(columns):
        mask[k, list(c)] = mask[list(c), k] = True
    M = jnp.where(mask, spread * 0.1, 0) + 8 * jnp.eye(b.size, dtype=b.dtype)
    L = factorized(M, columns)

    def step(y, scale):
        other = factorized(M * (2 + scale), columns)
        return factorized_solve(other, y[::-1], columns), other

    alone = factorized(M[:1, :1], columns_of([-1]))
    tail = factorized_solve(alone, b[:1], columns_of([-1]))
    return L, factorized_solve(L, b, columns), lax.scan(step, b, jnp.abs(b[:3])), alone, tail


def squares(A, b):
    """A dense Cholesky factor and triangular systems, by squares."""
    L = jnp.linalg.cholesky(A @ A.T + 9 * jnp.eye(9, dtype=A.dtype), symmetrize_input=False)
    y = lax.linalg.triangular_solve(L, b, left_side=True, lower=True)
    x = lax.linalg.triangular_solve(L, y[:, :1], left_side=True, lower=True, transpose_a=True)
    return L, y, x, jnp.linalg.cholesky(-L @ L.T, symmetrize_input=False)


def alike(x, a, n):
    """What all samples share, of a scan, a search and updates, and what is made of it."""
    end, rows = lax.scan(lambda s, r: (s[::-1] * 0.5 + r, jnp.outer(s, r)), a[0], a)
    found = lax.while_loop(lambda s: s[1] < n, lambda s: (s[0][::-1] + rows[s[1]], s[1] + 1),
                           (rows[0], jnp.int32(0)))[0]  # fmt: skip
    changed = rows.at[n, PLACES[:6] % 5].add(found[:, 0]) if a.ndim else rows
    return x * jnp.sum(found) + changed[n, 0], changed, jnp.max(rows), jnp.cumsum(end)


def float_(shape, dtype="float64", seed=0):
    return numbers(shape, dtype, seed, COUNT)


def int_(values, dtype="int32"):
    return jnp.asarray(values, dtype)


CASES = {  # name -> (function, arguments, numbers of those that all samples share)
    "sweeps": (sweeps, lambda d: (float_((5, 6, 6), d), float_((5,), d, 1)), ()),
    "searches": (searches, lambda d: (float_((8,), d), int_([2, 4, 1])), ()),
    "updates": (updates, lambda d: (float_((8,), d), int_([2, 0, 4])), ()),
    "sums": (sums, lambda d: (float_((6, 7), d), float_((6, 7), "int64" if d == "float64" else
                              "int8"), float_((6, 7), "bool")), ()),
    "systems": (systems, lambda d: (float_((9, 9), d), float_((9,), d)), ()),
    "squares": (squares, lambda d: (float_((9, 9), d), float_((9, 6), d)), ()),
    "alike": (alike, lambda d: (float_((6,), d), float_((5, 6), d)[0], jnp.int32(3)), (1, 2)),
}  # fmt: skip


def written(name, dtype, team):
    f, arguments, shared = CASES[name]
    args = arguments(dtype)
    return *functions(f, *args, shared=shared, team=team), args, shared


def wanted(name, dtype):
    f, arguments, shared = CASES[name]
    args = arguments(dtype)
    axes = tuple(None if k in shared else 0 for k in range(len(args)))
    return jax.tree.leaves(jax.jit(jax.vmap(lambda *xs: f(*xs), axes))(*args))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_teams_agree_with_jax_in_any_order(name, dtype):
    right = wanted(name, dtype)
    for team in TEAMS if dtype == "float32" else (4, 32):
        made, shapes, args, shared = written(name, dtype, team)
        first, second = (run(made, shapes, COUNT, *args, shared=shared, seed=k) for k in (0, 1))
        for k, (x, y, z) in enumerate(zip(first, second, right, strict=True)):
            close(x, z, f"result {k} of a team of {team}", 500 * np.finfo(dtype).eps)
            np.testing.assert_array_equal(x, y, f"result {k} of a team of {team}")


@pytest.mark.parametrize("name", CASES)
def test_without_meetings_threads_race(name, monkeypatch):
    """The oracle itself: without the check of what was touched, threads race or wait forever."""
    monkeypatch.setattr(_team._Touched, "collides", lambda *_: False)
    made, shapes, args, shared = written(name, "float32", 8)
    with pytest.raises(AssertionError, match="threads race|some threads wait"):
        run(made, shapes, COUNT, *args, shared=shared)


def test_without_meetings_results_depend_on_the_order(monkeypatch):
    monkeypatch.setattr(_team._Touched, "collides", lambda *_: False)
    wrong = []
    for name in CASES:
        made, shapes, args, shared = written(name, "float32", 8)
        found, right = [], wanted(name, "float32")
        try:
            for seed in range(4):
                found.append(run(made, shapes, COUNT, *args, shared=shared, seed=seed, watch=False))
        except AssertionError:  # threads wait for others that have ended
            wrong.append(name)
            continue
        wrong += [name] * any(
            not np.allclose(x, y, rtol=1e-3, atol=1e-3, equal_nan=True)
            for out in found for x, y in zip(out, right, strict=True)
        )  # fmt: skip
    assert len(wrong) >= 4, wrong
