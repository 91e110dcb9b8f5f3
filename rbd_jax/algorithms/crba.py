"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

import jax.numpy as jnp
import numpy as np
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
    product = jnp.matmul(inertia.apply(IC, S), S.T, precision="highest")
    mask = topology.dof_tree.ancestor_mask
    lower = product * jnp.asarray(mask, S.dtype)
    above = product.T * jnp.asarray(mask.T & ~np.eye(topology.nv, dtype=bool), S.dtype)
    return lower + above + jnp.diag(armature)


mass_matrix = crba
