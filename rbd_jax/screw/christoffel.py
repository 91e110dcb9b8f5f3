"""Christoffel symbols of the first kind in closed form, summed over the bodies.

Source: Müller (85)–(87). Letters: J_lj column j of the body-fixed Jacobian of body l. Of two
degrees of freedom, s is the one nearer to the root, r the other; for those of one joint s is the
second index of C = Γ q̇ and r the first, which gives the symbols of :func:`rbd_jax.christoffel`
(the Levi-Civita connection) for joints of several degrees of freedom too.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import checked
from ..spatial import inertia, so3
from ..spatial.motion import cross_twist
from .closed_form import momenta_of
from .representations import jacobians

Symbols = Float[Array, "nv nv nv"]


def _in_order(model: Model, x: Symbols) -> Symbols:
    """``y[i, j, k] = x[i, s, r]``: the pair (j, k) ordered from the root to the leaves."""
    body = model.topology.dof_bodies
    depth = model.topology.tree.depths[body]
    beyond = np.asarray(depth[None, :] > depth[:, None])[None]  # k is further out than j
    return jnp.where(beyond, x, jnp.swapaxes(x, 1, 2))


@checked
def christoffel_by_brackets(model: Model, q: Float[Array, " nq"]) -> Symbols:
    """``Γ_ijk = ½ Σ_l (J_kᵀ M [J_i, J_j] + J_jᵀ M [J_i, J_k] + J_iᵀ M [J_s, J_r])``.

    Source: Müller (86), where r and s are misprinted as the greater and the lesser of i and j;
    they are those of j and k. Cost: O(nb nv³).

    Returns:
        The symbols with ``C_ij = Σ_k Γ_ijk q̇_k``, as :func:`rbd_jax.christoffel`.
    """
    J = jacobians(model, q)
    MJ, rows = momenta_of(model, J), so3.transpose(J)
    brackets = cross_twist(rows[:, :, None], rows[:, None])  # [l, i, j]: [J_li, J_lj]
    G = jnp.einsum("lck,lijc->kij", MJ, brackets, precision="highest")
    # G[k, i, j] = Σ_l J_kᵀ M [J_i, J_j]
    first = jnp.moveaxis(G, 0, 2)
    return 0.5 * (first + jnp.swapaxes(first, 1, 2) + _in_order(model, G))


@checked
def christoffel_by_binet(model: Model, q: Float[Array, " nq"]) -> Symbols:
    """``Γ_ijk = Σ_l tr(Ĵ_s Ĵ_r P_l Ĵ_iᵀ)`` with Binet's inertia in the 4×4 matrix P.

    Source: Müller (87) in its tensor form. As printed, with 6×6 matrices and a factor ½, it does
    not hold: the bracket of se(3) has a term that the product of the matrices Ĵ (4×4, of se(3))
    has not. P_l is the second moment of the body's mass, with Binet's tensor
    ``ϑ = ½ tr(Θ) 1 − Θ`` as its 3×3 block. Cost: O(nb nv³).

    Returns:
        As :func:`christoffel_by_brackets`.
    """
    J = so3.transpose(jacobians(model, q))
    w, P = J[..., :3], inertia.pseudo(model.inertia)
    rows = jnp.concatenate([so3.hat(w), J[..., 3:, None]], axis=-1)  # of Ĵ; its fourth is zero
    moments = jnp.einsum("lrbc,lcd->lrbd", rows, P, precision="highest")
    N = jnp.einsum("lrbd,liad->lriba", moments, rows, precision="highest")  # Ĵ_r P Ĵ_iᵀ
    # Ĵ_s acts on vectors here, so by its rotation alone: tr(ω̂ N) = −2 ω · vee(N)
    return _in_order(model, jnp.einsum("lsc,lric->isr", w, -2 * so3.vee(N), precision="highest"))
