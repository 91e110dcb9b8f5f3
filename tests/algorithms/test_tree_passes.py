"""Passes over the tree in every formulation, against plain loops."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, computed_as, jit
from support.physical_facts import robot

import rbd_jax as rbd
from rbd_jax.algorithms import tree as passes
from rbd_jax.spatial import inertia, se3, so3


def _random_parents(seed: int, n: int, reach: int) -> rbd.model.topology.Tree:
    """Nodes numbered parents first, several of them roots."""
    rng = np.random.default_rng(seed)
    parents = [-1] + [int(rng.integers(max(-1, i - reach), i)) for i in range(1, n)]
    return rbd.model.topology.Tree(tuple(parents))


TREES = {
    "bushy": _random_parents(0, 17, 17),
    "lean": _random_parents(1, 17, 3),
    "large": _random_parents(2, 200, 9),  # above the limit of the dense mask
    "chain": rbd.model.topology.Tree(tuple(range(-1, 8))),
    "roots": rbd.model.topology.Tree((-1, -1, -1)),
    "one": rbd.model.topology.Tree((-1,)),
    "none": rbd.model.topology.Tree(()),
}


SIMILAR = ("lean", "chain", "roots")  # to others of the trees


@pytest.fixture(
    params=[pytest.param(n, marks=pytest.mark.slow) if n in SIMILAR else n for n in TREES]
)
def tree(request):
    return TREES[request.param]


def _poses(n: int, seed: int = 0):
    w, p = np.random.default_rng(seed).normal(size=(2, n, 3))
    return np.asarray(jit(so3.exp)(w)), p


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_root_to_leaf_is_the_loop_over_parents(tree, formulation):
    T = _poses(tree.n)
    world = jnp.array([0.3, -0.2, 0.5]), jnp.array(0.7)

    @jax.jit
    def step(parent, x):
        (R, p), w = x
        return so3.rotate(R, parent[0]) + p * parent[1], parent[1] * w + p[0]

    w = np.linspace(0.5, 1.5, tree.n)
    down = lambda *x: passes.root_to_leaf(tree, step, x, world)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(down)(T, w))
    values = []
    for i, parent in enumerate(tree.parents):
        above = values[parent] if parent >= 0 else world
        values.append(step(above, ((T[0][i], T[1][i]), w[i])))
    assert got[0].shape == (tree.n, 3) and got[1].shape == (tree.n,)
    for k in range(2):
        for i in range(tree.n):
            assert_close(got[k][i], values[i][k])


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_leaf_to_root_is_the_loop_over_children(tree, formulation):
    T = _poses(tree.n)

    @jax.jit
    def step(x, below):
        R, p = x
        total = p + below[0]
        return (0.5 * so3.rotate(R, total), below[1] + total[0]), (total, below[1] * 2)

    zero = jnp.zeros(3), jnp.zeros(())
    up = lambda *x: passes.leaf_to_root(tree, step, x, zero)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(up)(*T))
    sums, outs = [zero] * tree.n, [None] * tree.n
    for i in reversed(range(tree.n)):
        up, outs[i] = step((T[0][i], T[1][i]), sums[i])
        parent = tree.parents[i]
        if parent >= 0:
            sums[parent] = jax.tree.map(np.add, sums[parent], up)
    assert got[0].shape == (tree.n, 3) and got[1].shape == (tree.n,)
    for k in range(2):
        for i in range(tree.n):
            assert_close(got[k][i], outs[i][k])


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_ancestor_product_is_the_product_along_the_chain(tree, formulation):
    T, one = _poses(tree.n), se3.identity(jnp.zeros(()).dtype)
    product = lambda *x: passes.ancestor_product(tree, se3.compose, x, one)  # noqa: E731
    with computed_as(formulation):
        got = jax.tree.map(np.asarray, jax.jit(product)(*T))
    values = []
    for i, parent in enumerate(tree.parents):
        own = T[0][i], T[1][i]
        values.append(jit(se3.compose)(values[parent], own) if parent >= 0 else own)
        assert_close((got[0][i], got[1][i]), values[i], atol=1e-11)


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_sums_along_the_tree_are_the_loops(tree, formulation):
    x = _poses(tree.n)[1]
    up, down = np.array(x), np.array(x)
    for i, parent in enumerate(tree.parents):
        down[i] += down[parent] if parent >= 0 else 0
    for i in reversed(range(tree.n)):
        if tree.parents[i] >= 0:
            up[tree.parents[i]] += up[i]
    sums = jax.jit(lambda x: (passes.ancestor_sum(tree, x), passes.subtree_sum(tree, x)))
    with computed_as(formulation):
        assert_close(sums(x), (down, up))


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_sums_about_points_of_the_nodes_are_those_about_one(tree, formulation):
    p = np.asarray(_poses(tree.n)[1])
    I = np.random.default_rng(0).normal(size=(tree.n, 10))
    about = lambda p, I: passes.subtree_sum_about(tree, inertia.translate, p, I)  # noqa: E731
    total = np.array(jax.jit(inertia.translate)(p, I))  # about the one origin of all points
    for i in reversed(range(tree.n)):
        if tree.parents[i] >= 0:
            total[tree.parents[i]] += total[i]
    with computed_as(formulation):
        sums = jax.jit(about)(p, I)
    assert_close(jax.jit(inertia.translate)(p, sums), total, atol=1e-11)


def test_sums_over_degrees_of_freedom_are_the_loops():
    topology = robot("random_tree0").topology
    x = jax.random.normal(jax.random.key(0), (topology.nv, 6))
    y = jax.random.normal(jax.random.key(1), (topology.nb, 6))
    bodies = [b for b, k in enumerate(topology.kinds) for _ in range(rbd.model.topology.NV[k])]
    sums = np.zeros((topology.nb, 6))
    np.add.at(sums, bodies, np.asarray(x))
    assert_close(passes.sum_dofs(topology, x), sums, atol=1e-15)
    assert_close(passes.per_dof(topology, y), y[np.array(bodies)], atol=0)


@pytest.mark.parametrize("formulation", ["lanes", "accelerator"])
def test_pairs_of_nodes_and_ancestors_are_the_double_loop(tree, formulation):
    """Entries of a node with itself and those above it, their mirror image; a triangular solve."""
    x = np.random.default_rng(0).normal(size=(tree.n, 2))
    above = tree.ancestor_mask
    entries = lambda a, b: ((a[0] * b[1], a[1] - b[0]),)  # noqa: E731
    expected = np.zeros((tree.n, tree.n))
    for i, j in zip(*np.nonzero(above), strict=True):
        expected[j, i] = x[i, 1] - x[j, 0]
    for i, j in zip(*np.nonzero(above), strict=True):
        expected[i, j] = x[i, 0] * x[j, 1]
    with computed_as(formulation):
        (found,) = jax.jit(lambda x: passes.ancestor_matrices(above, entries, x))(x)
    assert_close(found, expected)

    L, psi = np.eye(tree.n), 0.5 + np.abs(x[:, 0])
    values = 0.3 * np.sin(np.arange(len(tree.pairs[0])))
    L[tree.pairs] = values
    B = np.random.default_rng(1).normal(size=(tree.n, 3))
    solved = jax.jit(partial(passes.solve_along_branches, tree))(values, psi, B)
    assert_close(L.T @ np.diag(1 / psi) @ L @ solved, B, atol=1e-8)
