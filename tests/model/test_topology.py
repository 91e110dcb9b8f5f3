"""The static arrays of a tree: numbering, levels, jumps, equality."""

import dataclasses
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.descriptions import joint, merged, robot, samples

import rbd_jax as rbd
from rbd_jax import RobotSpec, build_model


def test_a_chain_of_1500_links_is_built_without_recursion():
    start = time.perf_counter()
    model = samples.chain(1500)
    assert time.perf_counter() - start < 20.0
    topo = model.topology
    assert topo.nb == 1500 and topo.tree.depths[-1] == 1499
    assert np.array_equal(topo.tree.ancestor_mask, np.tri(1500, dtype=bool))


def test_equal_descriptions_have_equal_topologies_and_share_compiled_code():
    other = dataclasses.replace(merged(), name="another")  # a name alone makes no other robot
    a, b = build_model(merged()), build_model(other, gravity=(0.0, 0.0, 0.0))
    assert a.topology == b.topology and hash(a.topology) == hash(b.topology)
    assert a.topology is not b.topology

    @jax.jit
    @chex.assert_max_traces(1)
    def weight(model):
        return jnp.sum(model.inertia[:, 0]) * model.gravity[2]

    assert weight(a) < 0 and weight(b) == 0
    fleet = jax.tree.map(lambda *x: jnp.stack(x), a, b)
    assert jax.vmap(rbd.total_mass)(fleet).shape == (2,)


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(merged(), joints=merged().joints[:-1], links=merged().links[:-1]),
        RobotSpec("robot", merged().links, (*merged().joints[:3],
                  dataclasses.replace(merged().joints[3], kind="prismatic"), merged().joints[4])),
    ],
    ids=["frames", "kinds"],
)  # fmt: skip
def test_other_descriptions_have_other_topologies(other):
    assert build_model(other).topology != build_model(merged()).topology


def test_static_arrays_of_a_branching_tree():
    edges = [("base", "a"), ("a", "b"), ("b", "c"), ("a", "d"), ("base", "e"), ("e", "f")]
    names = ("free", "revolute", "spherical", "translation", "helical", "prismatic")
    kinds = dict(zip("abcdef", names, strict=True))
    topo = build_model(robot(*(joint(f"to_{c}", kinds[c], p, c) for p, c in edges))).topology
    assert topo.parents == (-1, 0, 1, 0, -1, 4)
    assert topo.tree.depths.tolist() == [0, 1, 2, 1, 0, 1]
    assert topo.tree.roots.tolist() == [0, 0, 0, 0, 4, 4]
    assert topo.tree.parent_rows.tolist() == [6, 0, 1, 0, 6, 4]
    assert topo.q_starts.tolist() == [0, 7, 8, 12, 15, 16, 17]
    assert topo.v_starts.tolist() == [0, 6, 7, 10, 13, 14, 15]
    assert topo.dof_bodies.tolist() == [0] * 6 + [1] + [2] * 3 + [3] * 3 + [4] + [5]
    ancestors = [{0}, {0, 1}, {0, 1, 2}, {0, 3}, {4}, {4, 5}]
    assert [set(np.flatnonzero(row)) for row in topo.tree.ancestor_mask] == ancestors
    assert topo.bodies_of("helical", "free").tolist() == [0, 4]


@pytest.mark.parametrize("seed", range(5))
def test_static_arrays_of_random_trees_by_walking_up(seed):
    topo = samples.random_tree(seed, n=12).topology
    for i in range(topo.nb):
        path, j = [], i
        while j >= 0:
            path.append(j)
            j = topo.parents[j]
        assert path == sorted(path, reverse=True)
        assert np.flatnonzero(topo.tree.ancestor_mask[i]).tolist() == path[::-1]
        assert topo.tree.depths[i] == len(path) - 1 and topo.tree.roots[i] == path[-1]


def test_tree_of_degrees_of_freedom():
    edges = [("base", "a"), ("a", "b"), ("a", "c")]
    kinds = {"a": "spherical", "b": "revolute", "c": "translation"}
    topo = build_model(robot(*(joint(f"to_{c}", kinds[c], p, c) for p, c in edges))).topology
    assert topo.dof_tree.parents == (-1, 0, 1, 2, 2, 4, 5)


@pytest.mark.parametrize("seed", range(5))
def test_levels_and_jumps_of_random_trees(seed):
    tree = samples.random_tree(seed, n=12).topology.tree
    levels, n = tree.levels, tree.n
    depths = tree.depths
    slots = {}
    for i in range(n):
        level, slot = divmod(int(levels.position[i]), levels.shape[1])
        assert level == depths[i] and levels.nodes[level, slot] == i
        slots[i] = slot
    for i, p in enumerate(tree.parents):
        if p >= 0:
            assert levels.parent_slots[depths[i], slots[i]] == slots[p]
            assert levels.gather[depths[p], slots[p], slots[i]] == 1
    for k, up in enumerate(tree.jumps):
        ancestors = [np.flatnonzero(row)[::-1] for row in tree.ancestor_mask]
        expected = [int(a[2**k]) if len(a) > 2**k else -1 for a in ancestors]
        assert up.tolist() == expected
    assert 2 ** len(tree.jumps) > depths.max()
