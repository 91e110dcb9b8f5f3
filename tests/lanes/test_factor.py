"""Symmetric systems with known zeros against NumPy, in lanes and through XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rbd_jax.lanes import columns_of, factorized, factorized_solve, lanes


def tree(n: int) -> np.ndarray:
    """Which unknowns lie above each in a tree of three branches."""
    above = np.eye(n, dtype=bool)
    for k in range(1, n):
        above[k] |= above[(k - 1) // 3]
    return above


def chained(n: int) -> np.ndarray:
    """A tree whose last leaf touches another branch, which fills the factor in."""
    pattern = tree(n)
    pattern[n - 1, 2] = True
    return pattern


def solved(A, b, columns):
    return factorized_solve(factorized(A, columns), b, columns)


CASES = [(tree, 13), (chained, 13), (lambda n: np.ones((n, n), bool), 6), (tree, 1)]
LARGE = (lambda n: np.ones((n, n), bool), 45)  # more products than are written out


@pytest.mark.float64
@pytest.mark.parametrize(("pattern", "n"), [*CASES, pytest.param(*LARGE, marks=pytest.mark.slow)])
def test_solutions(pattern, n):
    rng, there = np.random.default_rng(0), pattern(n)
    B = rng.normal(size=(5, n, n))
    A = np.where(there | there.T, B @ B.transpose(0, 2, 1), 0) + 8 * n * np.eye(n)
    b = rng.normal(size=(5, n))
    columns = columns_of(there)
    expected = np.linalg.solve(A, b[..., None])[..., 0]

    read = np.array([[k in columns[max(i, k)] and i in columns[max(i, k)] for k in range(n)]
                     for i in range(n)])  # fmt: skip

    def one(A, b):
        return solved(jnp.where(read, A, jnp.nan), b, columns)  # zeros of the factor are not read

    found = jax.jit(jax.vmap(lanes(one, strict=True)))(jnp.array(A), jnp.array(b))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    plain = jax.jit(jax.vmap(lambda A, b: solved(A, b, columns)))(jnp.array(A), jnp.array(b))
    np.testing.assert_allclose(plain, expected, rtol=1e-12, atol=1e-14)
    many = jax.jit(lambda A, b: solved(A, b, columns))(jnp.array(A[0]), jnp.array(b.T))
    np.testing.assert_allclose(many, np.linalg.solve(A[0], b.T), rtol=1e-12, atol=1e-14)


def test_a_tree_has_no_other_entries_and_a_bridge_has():
    assert sum(map(len, columns_of(tree(13)))) == tree(13).sum()
    filled = columns_of(chained(13))
    assert filled[12] == (0, 2, 3, 12) and filled[3] == (0, 2, 3) and filled[2] == (0, 2)


@pytest.mark.parametrize("shape", [(3,), (3, 2), ()])
def test_a_pattern_that_is_not_square_is_refused(shape):
    with pytest.raises(ValueError, match="columns_of: the pattern has the shape"):
        columns_of(np.ones(shape, bool))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c, L: factorized(jnp.eye(4), c), ValueError),
        (lambda c, L: factorized(jnp.eye(2), c), ValueError),
        (lambda c, L: factorized(jnp.ones(5), c), ValueError),
        (lambda c, L: factorized(jnp.eye(3, dtype=int), c), TypeError),
        (lambda c, L: factorized_solve(L[:4], L[:3], c), ValueError),
        (lambda c, L: factorized_solve(L, L[:4], c), ValueError),
        (lambda c, L: factorized_solve(L, L[:2], c), ValueError),
        (lambda c, L: factorized_solve(L, L[:3].astype(jnp.float16), c), TypeError),
    ],
)
def test_arrays_that_do_not_fit_the_pattern_are_refused(call, error):
    columns = columns_of(np.ones((3, 3), bool))
    entries = factorized(2 * jnp.eye(3), columns)
    with pytest.raises(error, match=r"^factorized(_solve)?: "):
        call(columns, entries)
