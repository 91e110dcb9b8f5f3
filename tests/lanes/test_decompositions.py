"""Cholesky factors and triangular systems, written out and by squares, against JAX itself."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rbd_jax.lanes import lanes
from rbd_jax.lanes.frontend._decompositions import WRITTEN_OUT

SIZES = (WRITTEN_OUT, WRITTEN_OUT + 1, 8, 18)
COUNT = 9


def positive(shape, dtype="float32"):
    B = np.random.default_rng(0).normal(size=shape)
    A = B @ np.swapaxes(B, -1, -2) + shape[-1] * np.eye(shape[-1])
    return jnp.asarray(A, dtype)


def factors(*matrices):
    return [lax.linalg.cholesky(A, symmetrize_input=False) for A in matrices]


def test_factors():
    """What stands above the diagonal is not read, and matrices may be stacked."""
    matrices = [jnp.tril(positive((COUNT, n, n))) for n in SIZES] + [positive((COUNT, 2, 3, 9, 9))]
    blind = [jnp.where(np.tri(A.shape[-1], dtype=bool), A, jnp.nan) for A in matrices]
    found = jax.jit(jax.vmap(lanes(factors, strict=True)))(*blind)
    for L, A in zip(found, matrices, strict=True):
        np.testing.assert_allclose(L, np.linalg.cholesky(np.float64(A)), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", SIZES)
def test_a_matrix_that_is_not_positive_definite_gives_nan(n):
    A = positive((COUNT, n, n))
    A = A.at[2, n - 1, n - 1].set(-1).at[4, 0, 0].set(0).at[5, 2, 2].set(-1)
    (L,) = jax.jit(jax.vmap(lanes(factors, strict=True)))(A)
    bad = np.isnan(L[:, *np.tril_indices(n)]).all(1)
    np.testing.assert_array_equal(np.flatnonzero(bad), [2, 4, 5])
    assert np.isfinite(L[~bad]).all()


MODES = list(product((True, False), repeat=4))
NAMES = ("left_side", "lower", "transpose_a", "unit_diagonal")


def systems(As, bs):
    return [
        lax.linalg.triangular_solve(A, b if mode[0] else b.mT, **dict(zip(NAMES, mode, strict=True)))
        for A, b in zip(As, bs, strict=True)
        for mode in MODES
    ]  # fmt: skip


def test_triangular_systems():
    """From both sides, of both halves, and as they are or transposed."""
    As = [positive((COUNT, n, n)) / (2 * n) for n in SIZES] + [positive((COUNT, 2, 9, 9)) / 18]
    bs = [jnp.asarray(np.random.default_rng(1).normal(size=(*A.shape[:-1], m)), A.dtype)
          for A, m in zip(As, (3, 1, 4, 6, 5), strict=True)]  # fmt: skip
    found = jax.jit(jax.vmap(lanes(systems, strict=True)))(As, bs)
    for x, y in zip(found, jax.jit(jax.vmap(systems))(As, bs), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_derivatives_of_a_solution():
    """The rules of JAX give programs of the same operations."""

    def f(A, b):
        return jnp.sum(jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(A), True), b) ** 2)

    A, b = positive((COUNT, 11, 11)), jnp.ones((COUNT, 11), "float32")
    for g in (jax.grad(f, (0, 1)), jax.jacfwd(jax.grad(f, 1), 1)):
        found, wanted = jax.jit(jax.vmap(lanes(g, strict=True)))(A, b), jax.jit(jax.vmap(g))(A, b)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
