"""Programs of which a team of threads computes each sample: against JAX, and in any order.

The threads run on the CPU in random order between their meetings, see ``support.lane_crew``.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.lane_programs import close, numbers

from benchmarks import _ptxas

pytest.importorskip("llvmlite")

from support.lane_threads import functions, run  # noqa: E402

from rbd_jax.lanes import columns_of, factorized, factorized_solve  # noqa: E402
from rbd_jax.lanes.gpu import _ptx, _team, _team_loops  # noqa: E402
from rbd_jax.lanes.llvm._memory import Recorded  # noqa: E402

DTYPES = ["float32", pytest.param("float64", marks=pytest.mark.float64)]
TEAMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
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


MANY = np.array([2, 5, 2, 2, 0, 2, 2, 7, 2, 2, 2, 5, 2, 2])
FIRST, SECOND = np.array([[0, 1, 0], [2, 0, 0]]), np.array([[1, 1, 1], [0, 1, 3]])


def repeated(x, rows, k):
    """Rows that are added to known places: many to one, into zeros, in place, over two axes."""
    total = x.at[MANY].add(rows).at[MANY[::-1]].add(jnp.sin(rows))  # one after the other
    less = jnp.zeros_like(x).at[MANY].subtract(rows * 2) + x[::-1]
    columns = x.T.at[:, MANY].add(rows.T)
    least = x.at[MANY].min(rows).at[MANY].max(rows[::-1] * 0.5)
    wide = x.reshape(4, 2, 6)
    wide = wide.at[FIRST, SECOND % 2].add(rows[:6].reshape(2, 3, 6)).at[k].multiply(2)
    apart = x.reshape(4, 12).at[FIRST, SECOND].multiply(rows[:6, 0].reshape(2, 3))
    return total, less, columns, least, wide, apart, x[0]


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
    """Parents in a forest of several trees."""
    return [max(k // 2 - 1, -1) if k % 3 else k - 1 for k in range(n)]


def ancestors(parents):
    """Who is an ancestor in a forest, and each its own."""
    mask = np.eye(len(parents), dtype=bool)
    for k, parent in enumerate(parents):
        if parent >= 0:
            mask[k] |= mask[parent]
    return mask


def systems(A, b):
    """Factors with zeros and their solutions, one of them in a scan; one of a single unknown."""
    mask, single = ancestors(tree_of(b.size)), np.ones((1, 1), bool)
    columns, alone = columns_of(mask), columns_of(single)
    M = jnp.where(mask | mask.T, 0.1 * A @ A.T, 0) + 8 * jnp.eye(b.size, dtype=b.dtype)
    L = factorized(M, columns)

    def step(y, scale):
        other = factorized(M * (2 + scale), columns)
        return factorized_solve(other, y[::-1], columns), other

    one = factorized(M[:1, :1], alone)
    tail = factorized_solve(one, b[:1], alone)
    return L, factorized_solve(L, b, columns), lax.scan(step, b, jnp.abs(b[:3])), one, tail


def hessian(M, J, w, b):
    """A symmetric system that is made of a matrix, a diagonal and squares of a few columns."""
    n = b.size
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) < 9
    columns = columns_of(near)
    H = jnp.where(near, 0.1 * (M + M.T), 0) + 40 * jnp.eye(n, dtype=b.dtype) + jnp.diag(jnp.abs(b))
    H = H.at[:6, :6].add(J[:, :6].T @ (w[:, None] * J[:, :6]))
    H = H.at[np.ix_(SPREAD, SPREAD)].add(J[:, 6:].T @ (w[:, None] * J[:, 6:]))
    return factorized_solve(factorized(H, columns), b, columns)


SPREAD = np.array([8, 10, 11, 14])


def branched():
    """Who is an ancestor in a tree: a chain of three, with nine branches of different lengths."""
    parents = [-1, 0, 1]
    for length in (5, 5, 5, 4, 4, 4, 3, 2, 1):
        parents += [2, *range(len(parents), len(parents) + length - 1)]
    return ancestors(parents)


def branches(M, b):
    """Systems of a tree with branches, one of them in a scan."""
    mask = branched()
    columns, n = columns_of(mask), len(mask)
    S = jnp.where(mask | mask.T, 0.2 * (M + M.T), 0) + 9 * jnp.eye(n, dtype=b.dtype)
    L = factorized(S, columns)

    def step(y, scale):
        return 0.1 * factorized_solve(factorized(S * (2 + scale), columns), y, columns), y

    many = lax.scan(step, b, jnp.abs(b[:3]))
    return factorized_solve(L, b, columns), L, many


def trail(x, A):
    """A long loop whose states a second one reads from the end, and a sum over all of them."""

    def step(x, k):
        x = jnp.tanh(A @ x) + 0.01 * k
        return x, (x, jnp.outer(x, x[:2]))

    def back(y, row):
        x, outer = row
        y = 0.5 * (A.T @ y) + (1 - x**2) * outer[::-1, 0]
        return y, y

    last, (every, outers) = lax.scan(step, x, jnp.arange(40.0, dtype=x.dtype))
    before = jnp.concatenate([x[None], every[:-1]])
    end, ys = lax.scan(back, x, (before, outers), reverse=True)
    return last, end, ys * before, jnp.sum(every, axis=0)


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
    "repeated": (repeated, lambda d: (float_((8, 6), d), float_((14, 6), d, 1),
                                      int_([2, 0, 3])), ()),
    "sums": (sums, lambda d: (float_((6, 7), d), float_((6, 7), "int64" if d == "float64" else
                              "int8"), float_((6, 7), "bool")), ()),
    "systems": (systems, lambda d: (float_((9, 9), d), float_((9,), d)), ()),
    "hessian": (hessian, lambda d: (float_((20, 20), d), float_((7, 10), d, 1),
                                    jnp.abs(float_((7,), d, 2)), float_((20,), d, 3)), ()),
    "branches": (branches, lambda d: (float_((36, 36), d), float_((36,), d, 1)), ()),
    "trail": (trail, lambda d: (float_((12,), d), 0.2 * float_((12, 12), d, 1)), ()),
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


def test_rows_that_are_added_to_one_place_need_no_meeting_each():
    """Each place is one thread's, which adds its rows in the order of the program."""
    x, rows = float_((8, 6), "float32"), float_((200, 6), "float32", 1)
    at = np.arange(200) % 8
    made, shapes = functions(lambda x, r: x.at[at].add(r), x, rows, team=32)
    assert made.text.count("call void @lanes.meet.team()") <= 2
    (found,) = run(made, shapes, COUNT, x, rows)
    wanted = np.array(x)
    for k, place in enumerate(at):
        wanted[:, place] += np.asarray(rows)[:, k]
    np.testing.assert_array_equal(found, wanted)


def test_results_are_not_kept_on_the_chip():
    """They are written as soon as they are known, and the memory of one does for the next."""

    def matrices(x):
        found = [x]
        for k in range(4):
            found.append(jnp.cumsum(jnp.outer(x, jnp.sin(k * x)), axis=0))
            x = found[-1][-1] * 0.1 + x
        return [*found, jnp.outer(x, x) * 2]

    x = float_((20,), "float32")
    made, shapes = functions(matrices, x, team=32)
    assert made.scratch_bytes < 2 * 20 * 20 * 4 + 600
    for y, z in zip(run(made, shapes, COUNT, x), jax.vmap(matrices)(x), strict=True):
        close(y, z)


def test_what_a_long_loop_leaves_behind_lies_far():
    """A loop of forty steps leaves more than a kilobyte of each array; one of ten leaves less."""
    made, *_ = written("trail", "float32", 32)
    assert made.far_bytes >= 40 * (12 + 24) * 4 and made.far_bytes % 64 == 0
    assert made.scratch_bytes < 1000
    short, *_ = written("sweeps", "float32", 32)
    assert short.far_bytes == 0


def test_rows_of_a_tree_that_do_not_change_each_other_are_eliminated_together():
    """36 rows in eight levels; a solution meets twice for a level, down and up."""
    columns = columns_of(branched())
    M, b = float_((36, 36), "float32"), float_((36,), "float32")
    M = 9 * jnp.eye(36, dtype=M.dtype) + 0.05 * (M + jnp.transpose(M, (0, 2, 1)))
    made, shapes = functions(
        lambda M, b: factorized_solve(factorized(M, columns), b, columns), M, b, team=32
    )
    assert made.text.count("call void @lanes.meet.team()") < 3 * 8 + 4 * 8 + 6
    (found,) = run(made, shapes, COUNT, M, b)
    mask = branched()
    right = [np.linalg.solve(np.where(mask | mask.T, S, 0), y) for S, y in zip(M, b, strict=True)]
    np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-6)


def test_a_factor_is_read_again_where_each_thread_solves_for_columns():
    """Its 820 entries would not fit into registers; something of a column goes through memory."""
    columns = columns_of(np.tri(40, dtype=bool))
    M, B = 0.1 * float_((40, 40), "float32"), float_((40, 40), "float32")
    M = 9 * jnp.eye(40, dtype=M.dtype) + M + jnp.transpose(M, (0, 2, 1))
    made, shapes = functions(
        lambda M, B: factorized_solve(factorized(M, columns), B, columns), M, B, team=32
    )
    through = r"store float %\w+, ptr (%\w+), align 4\n  %\w+ = load float, ptr \1,"
    assert re.search(through, made.text)
    (found,) = run(made, shapes, COUNT, M, B)
    np.testing.assert_allclose(found, np.linalg.solve(M, B), rtol=2e-5, atol=2e-6)
    if _ptxas.path():
        ptx = _ptx.ptx_of(made)
        assert _ptxas.assemble(ptx.text, ptx.entry).spill_loads < 820


@pytest.mark.parametrize("team", [1, 2, 8, 32, 64])
def test_elements_with_many_terms_have_several_threads(team):
    counts = {0: 44, 1: 44, 2: 13, 3: 1, 4: 1, 5: 1}
    rounds = _team_loops._balanced(counts, team)
    assert sorted(t for x in rounds for t, *_ in x.parts) == sorted(counts)
    for steps, parts in rounds:
        assert sum(p for _, p, _ in parts) <= team
        at = 0
        for target, threads, count in parts:
            assert count == counts[target] and threads * steps >= count
            assert at % threads == 0 and (team <= 32 or threads == 1)
            at += threads
    if team == 32:
        assert sum(steps for steps, _ in rounds) < 10


def test_an_array_that_is_gone_through_in_order_needs_no_division():
    x = float_((12, 5, 7), "float32")
    for team in (2, 8, 32):
        made, shapes = functions(lambda x: x * 2 + jnp.sin(x), x, team=team)
        assert "udiv" not in made.text.split("@sample(")[1]
        close(run(made, shapes, COUNT, x)[0], x * 2 + jnp.sin(x))
        turned, shapes = functions(lambda x: x.T * 2, x, team=team)
        assert "udiv" in turned.text.split("@sample(")[1]
        close(run(turned, shapes, COUNT, x)[0], jnp.transpose(x, (0, 3, 2, 1)) * 2)


def test_memory_is_planned_from_all_requests():
    """Arrays that live at the same time lie apart; a fresh one lies apart from all others."""
    rng, arena, living, lives = np.random.default_rng(0), Recorded(), [], []
    for k in range(300):
        if living and rng.random() < 0.5:
            start, size, entry = living.pop(rng.integers(len(living)))
            arena.give(start, size)
            entry[1] = k
        size, fresh = int(rng.integers(1, 500)), rng.random() < 0.02
        entry = [-1 if fresh else k, 1000]
        start = arena.take(size, fresh)
        lives.append((size, entry))
        if not fresh:
            living.append((start, size, entry))
    planned = arena.planned()
    places = [(planned.take(size), size, entry) for size, entry in lives]
    most = max(sum(n for _, n, (a, b) in places if a <= k < b) for k in range(300))
    assert most <= planned.size < arena.size and planned.size < 1.3 * most
    for k, (a, n, (begin, end)) in enumerate(places):
        assert a % 8 == 0 and a + n <= planned.size
        for b, m, (first, last) in places[:k]:
            assert end <= first or last <= begin or a + n <= b or b + m <= a


def test_of_a_matrix_that_is_only_factorized_few_entries_are_made():
    f, arguments, _ = CASES["hessian"]
    args = arguments("float32")
    made, _ = functions(f, *args, team=32)
    whole, _ = functions(lambda M, J, w, b: (f(M, J, w, b), jnp.linalg.cholesky(M)), *args, team=32)
    assert made.scratch_bytes < 20 * 20 * 4 + 1200 < whole.scratch_bytes
