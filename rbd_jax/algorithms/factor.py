"""The mass matrix as an operator: its product with a vector, and solves with its factor.

The articulated-body algorithm (:mod:`rbd_jax.algorithms.aba`) leaves the factor behind. For one
vector, ``solve`` is Singh's ABA-zero algorithm (34): the rest of Kim's Table 4 at rest, O(n) and
linear in its input. For many vectors, ``solve_columns`` visits the ancestors of each degree of
freedom, or the bodies if the ancestors are many. Where many threads share the work of one robot,
``M = Lᵀ L`` is factorized instead (:class:`Entries`).
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lanes import columns_of, factorized, factorized_solve
from ..model import Topology
from ..spatial import inertia
from ..spatial.motion import shift, to_child, turn, wrench_to_parent
from ..spatial.se3 import Pose
from . import formulations
from .tree import (
    ancestor_rows,
    ancestor_sum,
    leaf_to_root,
    per_dof,
    root_to_leaf,
    solve_along_branches,
    some_columns_at_once,
    subtree_sum,
    sum_dofs,
)


class Factor(NamedTuple):
    """``U = Î S`` and ``Ψ = 1 / (Sᵀ Î S + armature)`` of each degree of freedom.

    Each is in the frame of its body. T is the placement of that frame in the parent's. Ψ is zero
    where the acceleration is prescribed.
    """

    S: Float[Array, "nv 6"]
    U: Float[Array, "nv 6"]
    psi: Float[Array, " nv"]
    T: Pose


class Entries(NamedTuple):
    """The entries of ``M = Lᵀ L``, see :func:`rbd_jax.lanes.factorized`."""

    L: Float[Array, " entries"]


def factorized_entries(topology: Topology, M: Float[Array, " entries"]) -> Entries:
    """The factor of a matrix that couples each degree of freedom with its ancestors and itself.

    Its entries are given in the order of :func:`entry_places`. Source: Featherstone, Table 6.3.
    """
    return Entries(factorized(M, _columns(topology)))


def entry_places(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries on and below the diagonal that may not be zero."""
    i, j = np.nonzero(topology.dof_tree.ancestor_mask)
    return i, j


def solve_entries(
    topology: Topology, factor: Entries, B: Float[Array, "nv *m"]
) -> Float[Array, "nv *m"]:
    """``M⁻¹ B`` for one vector or many columns."""
    return factorized_solve(factor.L, B, _columns(topology))


def unit_entries(
    topology: Topology, factor: Entries
) -> tuple[Float[Array, " pairs"], Float[Array, " nv"]]:
    """``(L, Ψ)`` of ``M = Lᵀ Ψ⁻¹ L`` with a unit diagonal, as :func:`couplings` has L."""
    i, j = entry_places(topology)
    inverse = factor.L[i == j]
    return factor.L[i != j] * inverse[i[i != j]], inverse**2


def _columns(topology: Topology):
    return columns_of(topology.dof_tree.ancestor_mask)


def solve(topology: Topology, factor: Factor, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``M⁻¹ b``, zero at prescribed degrees of freedom. Source: Singh (34), ``ABA(q, 0, b, 0)``."""

    def up(x, F):
        T, S, U, psi, b = x
        u = b - jnp.sum(S * F)
        return wrench_to_parent(T, F + U * (psi * u)), u

    rows = factor.T, factor.S, factor.U, factor.psi
    zero = jnp.zeros((6,), b.dtype)
    u = leaf_to_root(topology.dof_tree, up, (*rows, b), zero)

    def down(above, x):
        T, S, U, psi, u = x
        A = to_child(T, above[0])
        a = psi * (u - jnp.sum(U * A))
        return A + S * a, a

    return root_to_leaf(topology.dof_tree, down, (*rows, u), (zero, zero[0]))[1]


def solve_columns(
    topology: Topology,
    factor: Factor,
    R: Float[Array, "nb 3 3"],
    p: Float[Array, "nb 3"],
    B: Float[Array, "nv m"],
) -> Float[Array, "nv m"]:
    """``M⁻¹ B`` for many columns.

    A column takes two passes over the bodies, or two over the pairs of a degree of freedom and an
    ancestor, by the factorization ``M = Lᵀ Ψ⁻¹ L``. A body costs as much as about twenty pairs, so
    that the first is for long chains. Source: Singh, §IV-E, the ABA-zero algorithm (34) for many
    columns; Featherstone §6.5.

    Args:
        topology: the robot's.
        factor: the factor, in body frames.
        R: rotations of the bodies.
        p: origins of the bodies (m), in the same axes.
        B: columns of generalized forces.
    """

    def along_branches(B):
        L = couplings(topology, factor, R, p)
        return solve_along_branches(topology.dof_tree, L, factor.psi, B)

    def by_bodies(B):
        return some_columns_at_once(partial(_solve_by_bodies, topology, factor), B, 4)

    tree = topology.dof_tree
    chosen = formulations.for_column(tree, branches=along_branches, bodies=by_bodies)
    return chosen(B)


def _solve_by_bodies(
    topology: Topology, factor: Factor, B: Float[Array, "nv m"]
) -> Float[Array, "nv m"]:
    """:func:`solve` for a few columns, which share what a step reads of its body."""

    def up(x, F):
        T, S, U, psi, b = x
        u = b - jnp.sum(S[None] * F, axis=-1)
        return wrench_to_parent(T, F + U[None] * (psi * u)[:, None]), u

    T = factor.T[0][:, None], factor.T[1][:, None]
    rows = T, factor.S, factor.U, factor.psi
    zero = jnp.zeros((B.shape[1], 6), B.dtype)
    u = leaf_to_root(topology.dof_tree, up, (*rows, B), zero)

    def down(above, x):
        T, S, U, psi, u = x
        A = to_child(T, above[0])
        a = psi * (u - jnp.sum(U[None] * A, axis=-1))
        return A + S[None] * a[:, None], a

    return root_to_leaf(topology.dof_tree, down, (*rows, u), (zero, zero[:, 0]))[1]


def couplings(
    topology: Topology, factor: Factor, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]
) -> Float[Array, " pairs"]:
    """``L`` of ``M = Lᵀ Ψ⁻¹ L`` at the pairs of a degree of freedom and an ancestor.

    Eliminating i leaves ``L_ij = Ψ_i U_iᵀ S_j`` at its ancestors j, with S_j measured at body i.
    Source: Singh, §IV-E. Poses as for :func:`solve_columns`.
    """
    axes, origin = per_dof(topology, R), per_dof(topology, p)
    rows = origin, turn(axes, factor.S), turn(axes, factor.psi[:, None] * factor.U)

    def entry(i, j):
        return jnp.sum(i[2] * shift(j[0] - i[0], j[1]))

    return ancestor_rows(topology.dof_tree, entry, rows)


def product(
    topology: Topology,
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
    a: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """``M a``: inverse dynamics at rest. Source: Singh, Algorithm 1, lines 3–10 with v = g = 0."""
    A = ancestor_sum(topology.tree, sum_dofs(topology, S * a[:, None]))
    F = subtree_sum(topology.tree, inertia.apply(I, A))
    return jnp.sum(S * per_dof(topology, F), axis=-1) + armature * a
