"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, Topology
from ..model.arguments import algorithm
from ..spatial import inertia
from ..spatial.motion import shift
from . import world_frame
from .factor import entry_places
from .tree import ancestor_matrices, ancestor_rows, per_dof, subtree_sum_about


@algorithm(project=(0, 1))
def crba(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The mass matrix M(q), symmetric, with the armature on its diagonal (kg m², kg m, kg).

    Source: Singh, Algorithm 1, line 13: ``t1 = I^C S``, and ``M_ij = t1_iᵀ S_j`` for every j at or
    above i. Here all are in the world's axes about the origin of body i. Cost: O(n d). Its
    derivatives are those of autodiff.
    """
    g = world_frame.quantities(model, q)
    return composite_mass_matrix(model.topology, g.p, g.S_own, g.I_own, model.armature)


class _Row(NamedTuple):
    """A degree of freedom: the origin of its body, S, and ``t1 = I^C S`` about that origin."""

    p: Float[Array, "3"]
    S: Float[Array, "6"]
    t1: Float[Array, "6"]


def composite_mass_matrix(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
) -> Float[Array, "nv nv"]:
    """``M_ij = t1_iᵀ S_j`` for j at or above i, and mirrored. S and I are about the origins p.

    S_j is measured at the origin of body i. About the root, the inertia of a finger would be a
    small difference of large numbers, and M⁻¹ in single precision would have three or four correct
    digits instead of six or seven.
    """

    def entry(i: _Row, j: _Row):
        M = _coupling(i, j)
        return ((M, M),)

    rows = _rows(topology, p, S, I)
    (M,) = ancestor_matrices(topology.dof_tree.ancestor_mask, entry, rows)
    return M + jnp.diag(armature)


def composite_mass_pairs(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
) -> tuple[Float[Array, " pairs"], Float[Array, " nv"]]:
    """The same matrix as its entries at pairs of :func:`ancestor_rows`, and on its diagonal.

    All other entries below the diagonal are zero.
    """
    rows = _rows(topology, p, S, I)
    pairs = ancestor_rows(topology.dof_tree, _coupling, rows)
    return pairs, jnp.sum(rows.t1 * rows.S, axis=-1) + armature


def composite_mass_entries(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
) -> Float[Array, " entries"]:
    """The same matrix as its entries in the order of :func:`.factor.entry_places`."""
    i, j = entry_places(topology)
    rows = _rows(topology, p, S, I)
    entries = jax.vmap(_coupling)(*(jax.tree.map(lambda x, k=k: x[k], rows) for k in (i, j)))
    return entries + jnp.where(i == j, armature[i], 0)


def _rows(topology: Topology, p: Array, S: Array, I: Array) -> _Row:
    IC = per_dof(topology, subtree_sum_about(topology.tree, inertia.translate, p, I))
    return _Row(per_dof(topology, p), S, inertia.apply(IC, S))


def _coupling(i: _Row, j: _Row) -> Float[Array, ""]:
    return jnp.sum(i.t1 * shift(j.p - i.p, j.S))


mass_matrix = crba
