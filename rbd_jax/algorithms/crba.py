"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, Topology
from ..spatial import inertia
from . import ground
from ._tree import forward_substitution, of_bodies, subtree_sum


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


@jax.custom_jvp
def invert(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix, by Cholesky factorisation.

    M is scaled to unit diagonal first, which takes the condition number of real robots from
    1e4…1e10 to 30…1e4; without it single precision is hopeless. The factor is inverted row by
    row, since XLA's triangular solve with many right-hand sides is ten times slower on a CPU.
    Derivative: ``−M⁻¹ δM M⁻¹``, the factorisation is not differentiated.
    """
    n = M.shape[0]
    scale = jax.lax.rsqrt(jnp.diagonal(M))
    L = jnp.linalg.cholesky(M * scale[:, None] * scale[None, :])
    X = forward_substitution(L, jnp.diag(scale)) if n else M
    return jnp.matmul(X.T, X, precision="highest")


@invert.defjvp
def _invert_jvp(primals, tangents):
    X = invert(*primals)
    return X, -jnp.matmul(jnp.matmul(X, *tangents, precision="highest"), X, precision="highest")
