"""The mass matrix of a robot with driven joints, factorized along the branches of its coordinates.

``M_y = Φᵀ M Φ`` couples two coordinates if bodies that they move lie on one branch. Eliminating a
coordinate couples all coordinates that it was coupled with. The tree in which the parent of each
coordinate is the first of them to be eliminated next has all these couplings between nodes and
their ancestors (the elimination tree of sparse matrices), so that the factorization along branches
of :mod:`rbd_jax.algorithms.tree` applies as it stands.
"""

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import CoordinateModel, Topology, Tree
from ..model.coordinates import CoordinateMap, Places, places_of
from . import world_frame
from .crba import composite_mass_pairs
from .tree import factor_along_branches, solve_along_branches


class Factor(NamedTuple):
    """``L`` and ``Ψ`` of ``M_y = Lᵀ Ψ⁻¹ L``, in the order of elimination."""

    L: Float[Array, " pairs"]
    psi: Float[Array, " nv"]


def factorize(model: CoordinateModel, q: Float[Array, " nq"]) -> Factor:
    """The factor of the mass matrix.

    Source: Featherstone, Rigid Body Dynamics Algorithms, §6.5, on the elimination tree. Cost:
    O(n d²), d the depth of that tree.
    """
    expansion, table = CoordinateMap(model, q), branches(model)
    robot, topology = expansion.robot, model.topology
    g = world_frame.quantities(robot, expansion.q)
    M = composite_mass_pairs(topology, g.p, g.S_own, g.I_own, robot.armature)
    M = jnp.concatenate(M)
    depth = int(table.tree.depths.max(initial=-1)) + 1
    plain, mapped = table.plain, table.mapped
    rows = jnp.zeros((model.nv * depth,), M.dtype).at[plain.place].add(M[plain.entry])
    if len(mapped.place):
        Phi = jnp.concatenate([jnp.ones((1,), M.dtype), *expansion.entries])
        terms = M[mapped.entry] * Phi[mapped.left] * Phi[mapped.right]
        rows = rows.at[mapped.place].add(terms * jnp.asarray(mapped.times, M.dtype))
    return Factor(*factor_along_branches(table.tree, rows.reshape(model.nv, depth)))


def solve(model: CoordinateModel, factor: Factor, B: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
    """``M_y⁻¹ B``. Source: Featherstone §6.5."""
    table = branches(model)
    X = solve_along_branches(table.tree, factor.L, factor.psi, B[table.order])
    return X[np.argsort(table.order)]


class _Terms(NamedTuple):
    """Terms of entries of M_y: the entry of M, what it is multiplied by, and where it is added."""

    entry: np.ndarray
    place: np.ndarray
    left: np.ndarray
    right: np.ndarray
    times: np.ndarray


class Branches(NamedTuple):
    """The elimination tree of M_y."""

    tree: Tree
    order: np.ndarray
    """The coordinates in the order of the nodes; the last node is eliminated first."""
    plain: _Terms
    """Entries of M that are entries of M_y."""
    mapped: _Terms
    """Entries of M that are multiplied by two entries of Φ."""


def branches(model: CoordinateModel) -> Branches:
    """The elimination tree and the terms of M_y."""
    patterns = tuple(law.pattern for law in model.laws)
    named = tuple((law.driven.joint_names, law.by) for law in model.laws)
    return _branches(model.topology, model.space, named, patterns)


@lru_cache(maxsize=256)
def _branches(topology: Topology, space: Topology, named: tuple, patterns: tuple) -> Branches:
    columns = entries_of_rows(topology, places_of(topology, space, named), patterns)
    first = [min(i for i, c in enumerate(columns) if any(y == k for y, _ in c))
             for k in range(space.nv)]  # fmt: skip
    order = np.argsort(first, kind="stable")  # bodies above others are eliminated after them
    node = np.argsort(order)
    terms = _terms(topology, columns, node)
    tree = _elimination_tree(space.nv, {(i, j) for _, i, j, *_ in terms if i != j})
    depth = int(tree.depths.max(initial=-1)) + 1
    groups = [], []
    for entry, i, j, left, right, times in terms:
        mapped = left + right > 0 or times > 1
        groups[mapped].append((entry, i * depth + tree.depths[j], left, right, times))
    plain, mapped = (_Terms(*np.array(g, dtype=np.int32).reshape(-1, 5).T) for g in groups)
    return Branches(tree, order, plain, mapped)


def entries_of_rows(
    topology: Topology, places: Places, patterns: tuple
) -> list[list[tuple[int, int]]]:
    """For each row of Φ its entries, as coordinate and number of the entry; number 0 is one."""
    columns: list[list[tuple[int, int]]] = [[] for _ in range(topology.nv)]
    for row, y in zip(*places.kept_v, strict=True):
        columns[row].append((int(y), 0))
    number = 1
    for law, (rows, ys) in zip(places.laws, patterns, strict=True):
        for row, y in zip(rows, ys, strict=True):
            columns[law.v[row]].append((int(law.by_v[y]), number))
            number += 1
    return columns


def _terms(topology: Topology, columns: list, node: np.ndarray) -> list[tuple[int, ...]]:
    """``(entry of M, node i, node j ≤ i, entries of Φ, times)`` of all terms of M_y."""
    i, j = topology.dof_tree.pairs
    entries = [*zip(i, j, strict=True), *((k, k) for k in range(topology.nv))]
    found = []
    for entry, (row, column) in enumerate(entries):
        for a, left in columns[row]:
            for b, right in columns[column]:
                x, y = int(node[a]), int(node[b])
                if row == column and x < y:
                    continue  # the same term the other way round
                times = 2 if row != column and x == y else 1
                found.append((entry, max(x, y), min(x, y), left, right, times))
    return found


def _elimination_tree(n: int, coupled: set[tuple[int, int]]) -> Tree:
    """The tree of the factor of a symmetric matrix, eliminated from the last row on."""
    below = [{j for i, j in coupled if i == k} for k in range(n)]
    parents = [-1] * n
    for k in reversed(range(n)):
        if below[k]:
            parents[k] = max(below[k])
            below[parents[k]] |= below[k] - {parents[k]}
    return Tree(tuple(parents))
