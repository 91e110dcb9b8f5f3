"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, Topology
from ..spatial import inertia
from . import ground
from ._tree import of_bodies, subtree_sum


@checked
def crba(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The mass matrix M(q), symmetric, with the armature on its diagonal (kg m², kg m, kg).

    Source: Singh, Algorithm 1, line 13: ``t1 = I^C S`` and ``M = t1ᵀ S`` on ancestors, in ground
    coordinates centred on the root body. Cost: O(n²). Raw: derivatives are those of autodiff.
    """
    g = ground.pose(model, q)
    return composite_mass_matrix(model.topology, g.S, g.I, model.armature)


def composite_mass_matrix(
    topology: Topology,
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
) -> Float[Array, "nv nv"]:
    """``M = E ∘ (t1ᵀ S)``, mirrored, of S and I in ground coordinates."""
    IC = of_bodies(topology, subtree_sum(topology.tree, I))
    t1, E = inertia.apply(IC, S), topology.dof_tree.ancestor_mask
    M = jnp.zeros((topology.nv, topology.nv), S.dtype)
    for t, s in zip(t1.T, S.T, strict=True):  # six terms in one loop of XLA's, instead of a product
        M = M + jnp.where(E, t[:, None] * s[None, :], s[:, None] * t[None, :])
    return jnp.where(E | E.T, M, 0) + jnp.diag(armature)


mass_matrix = crba
