"""Matrices with known zeros, half of a solve with the mass matrix, and where Jacobians are zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.algorithms.block_columns import (
    block_columns,
    half_solve,
    half_solve_by_inverse,
    inner,
    times,
)
from rbd_jax.algorithms.formulations import formulation
from rbd_jax.algorithms.tree import down_along_branches
from rbd_jax.constraints import _jacobian
from rbd_jax.model import Tree
from rbd_jax.model.coordinates import CoordinateMap
from rbd_jax.spatial.linear import cholesky, solve_lower

RNG = np.random.default_rng(3)


def close(x, y):
    np.testing.assert_allclose(x, y, atol=1e-10 * max(1.0, np.abs(y).max(initial=0)))


@pytest.mark.float64
@pytest.mark.parametrize("m", [0, 1, 7])
def test_products(m):
    """A product leaves out nothing but zeros; a matrix is put together as it was."""
    A, nonzero = RNG.normal(size=(4, 6)), RNG.random((6, m)) < 0.4
    B = np.where(nonzero, RNG.normal(size=(6, m)), 0)
    both = jax.jit(lambda A, B: (times(A, B, nonzero), block_columns(B, nonzero).dense(6)))
    with formulation("lanes"):
        product, again = both(A, B)
    close(product, A @ B)
    close(again, B)


@pytest.mark.float64
@pytest.mark.parametrize("m", [0, 1, 5])
def test_halves_of_a_solve(m):
    """Both factors of ``Bᵀ M⁻¹ B``, and the way down to ``M⁻¹ B``, for a tree of two branches."""
    tree = Tree((-1, 0, 1, 2, 1, 4, -1))
    i, j = tree.pairs
    L, psi = RNG.normal(size=len(i)), 1 + RNG.random(tree.n)
    dense = np.eye(tree.n)
    dense[i, j] = L
    inverse = np.linalg.inv(dense.T @ np.diag(1 / psi) @ dense)
    nonzero = tree.ancestor_mask[[3, 5, 3, 6, 5]].T[:, :m] & (RNG.random((tree.n, m)) < 0.7)
    B, x, plus = np.where(nonzero, RNG.normal(size=(tree.n, m)), 0), RNG.normal(size=m), jnp.ones(m)

    @jax.jit
    def found(L, psi, B, x, inverse):
        W, X = half_solve(tree, L, psi, B, nonzero)
        P, Y = half_solve_by_inverse(inverse, B)
        down = down_along_branches(tree, L, X.dense(tree.n))
        return inner(W, X, plus), inner(P, Y, plus), down, X.times(x, tree.n), X.dense(tree.n) @ x

    G, same, solved, *products = found(L, psi, B, x, inverse)
    close(G, B.T @ inverse @ B + np.eye(m))
    close(same, G)
    close(solved, inverse @ B)
    close(*products)


@pytest.mark.float64
@pytest.mark.parametrize("n", [0, 3, 37])
def test_triangular_solve(n):
    """Entry by entry, and by blocks if it is large."""
    L = np.tril(RNG.normal(size=(n, n)) / max(n, 1)) + np.eye(n)
    B = RNG.normal(size=(n, 2))
    close(L @ np.asarray(jax.jit(solve_lower)(L, B)), B)
    if n < 10:
        close(jax.jit(cholesky)(L @ L.T), np.linalg.cholesky(L @ L.T))


def test_where_jacobians_are_zero():
    """Both sides of a loop, points at the world and couplings: no entry outside of the support."""
    m = rbd.samples.tree(5, 2, floating_base=True)
    frames, joints = m.frame_names, m.joint_names
    c = constraints.join(
        constraints.point(m, frames[-1], at=[0.3, 0.1, 0.2]),
        constraints.frame(m, frames[-1], frames[-2], rows=(1, 4), name="loop"),
        constraints.coupling(m, {joints[-1]: 1.0}, 0.3),
    )
    jacobian = quick_jit(constraints.jacobian)
    J = np.asarray(jacobian(m, rbd.random_configuration(m, jax.random.key(0)), c))
    support = _jacobian.support(m.topology, c)
    assert support.shape == J.shape and not J[~support].any()
    assert not support.all() and (J[:3][support[:3]] != 0).mean() > 0.5
    assert not jacobian(m, rbd.neutral(m), c.with_active(jnp.zeros(3, bool))).any()


def test_where_the_map_of_driven_joints_is_zero():
    m = rbd.samples.chain(4)
    joints = m.joint_names
    law = lambda u: jnp.stack([2 * u[0], u[0] * u[1]])  # noqa: E731
    driven = rbd.with_coordinates(m, law, joints[1:3], by=[joints[0], "motor"])
    x = CoordinateMap(driven, jnp.asarray([0.3, 0.2, 0.1]))
    full = np.asarray(jax.jit(x.velocity)(jnp.eye(3)))
    assert x.pattern.shape == full.shape and not full[~x.pattern].any()
    assert x.pattern.sum() < full.size
