"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

import jax
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


def inverse_factor(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular X with ``M⁻¹ = Xᵀ X``, of a symmetric positive definite matrix.

    M is scaled to unit diagonal first, which takes the condition number of real robots from
    1e4…1e10 to 30…1e4; without it single precision is hopeless. By halves and products alone: XLA's
    triangular solves are ten times slower on a CPU, and in jaxlib 0.10 two of its factorisations of
    batches in one program can wait for each other forever.
    """
    scale = jax.lax.rsqrt(jnp.diagonal(M))
    return _inverse_cholesky(M * scale[:, None] * scale[None, :]) * scale[None, :]


def _inverse_cholesky(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``L⁻¹`` of ``A = L Lᵀ``, from that of the upper left block and of the Schur complement."""
    n = A.shape[0]
    if n <= 1:
        return jax.lax.rsqrt(A)
    h = n // 2
    X1 = _inverse_cholesky(A[:h, :h])
    L21 = _product(A[h:, :h], X1.T)
    X2 = _inverse_cholesky(A[h:, h:] - _product(L21, L21.T))
    X21 = -_product(X2, _product(L21, X1))
    top = jnp.concatenate([X1, jnp.zeros_like(L21.T)], axis=1)
    return jnp.concatenate([top, jnp.concatenate([X21, X2], axis=1)], axis=0)


def _product(A: Float[Array, "n k"], B: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """``A B``; elementwise where that is faster than calling a routine for every sample."""
    if max(*A.shape, B.shape[1]) > 4:
        return jnp.matmul(A, B, precision="highest")
    return sum(A[:, k, None] * B[None, k, :] for k in range(A.shape[1]))  # pyright: ignore


def solve(X: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """``M⁻¹ b`` by the factor X of :func:`inverse_factor`."""
    return jnp.matmul(jnp.matmul(X, b, precision="highest"), X, precision="highest")


def inverse(X: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` by the factor X of :func:`inverse_factor`."""
    return jnp.matmul(X.T, X, precision="highest")
