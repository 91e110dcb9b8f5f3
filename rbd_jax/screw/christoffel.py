"""Christoffel symbols of the first kind in closed form, summed over the bodies.

Source: Müller (85)–(87). Letters: J_lj is column j of the body-fixed Jacobian of body l. s is the
index of j and k that is nearer to the root, and r is the other one. If both belong to one joint, s
is k and r is j. With this rule joints of several degrees of freedom also have the symbols of
:func:`rbd_jax.christoffel`, which are those of the Levi-Civita connection.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import checked
from ..spatial import inertia, linear, so3
from ..spatial.motion import cross_twist
from .closed_form import momenta_of
from .representations import jacobians

Symbols = Float[Array, "nv nv nv"]


def _in_order(model: Model, x: Symbols) -> Symbols:
    """``y[i, j, k] = x[i, s, r]``, where (s, r) is the pair (j, k) in the order root to leaves."""
    body = model.topology.dof_bodies
    depth = model.topology.tree.depths[body]
    beyond = np.asarray(depth[None, :] > depth[:, None])[None]  # k is farther from the root than j
    return jnp.where(beyond, x, jnp.swapaxes(x, 1, 2))


@checked
def christoffel_by_brackets(model: Model, q: Float[Array, " nq"]) -> Symbols:
    """``Γ_ijk = ½ Σ_l (J_kᵀ M [J_i, J_j] + J_jᵀ M [J_i, J_k] + J_iᵀ M [J_s, J_r])``.

    Derivatives are those of autodiff. Cost: O(nb nv³).

    Source: Müller (86). There r and s are misprinted as the greater and the lesser of i and j. They
    are the greater and the lesser of j and k.

    Returns:
        The symbols with ``C_ij = Σ_k Γ_ijk q̇_k``, which equal those of
        :func:`rbd_jax.christoffel`.
    """
    J = jacobians(model, q)
    MJ, rows = momenta_of(model, J), so3.transpose(J)
    brackets = cross_twist(rows[:, :, None], rows[:, None])  # [l, i, j]: [J_li, J_lj]
    G = linear.einsum("lck,lijc->kij", MJ, brackets)
    # G[k, i, j] = Σ_l J_kᵀ M [J_i, J_j]
    first = jnp.moveaxis(G, 0, 2)
    return 0.5 * (first + jnp.swapaxes(first, 1, 2) + _in_order(model, G))


@checked
def christoffel_by_binet(model: Model, q: Float[Array, " nq"]) -> Symbols:
    """``Γ_ijk = Σ_l tr(Ĵ_s Ĵ_r P_l Ĵ_iᵀ)`` with Binet's inertia in the 4×4 matrix P.

    P_l holds the second moments of the body's mass. Its 3×3 block is Binet's tensor
    ``ϑ = ½ tr(Θ) 1 − Θ``. Derivatives are those of autodiff. Cost: O(nb nv³).

    Source: Müller (87) in its tensor form. As printed, with 6×6 matrices and a factor ½, it does
    not hold, because the bracket of se(3) has a term that the product of the 4×4 matrices Ĵ lacks.

    Returns:
        The same symbols as :func:`christoffel_by_brackets`.
    """
    J = so3.transpose(jacobians(model, q))
    w, P = J[..., :3], inertia.pseudo(model.inertia)
    rows = jnp.concatenate([so3.hat(w), J[..., 3:, None]], axis=-1)  # of Ĵ; row 4 is zero
    moments = linear.einsum("lrbc,lcd->lrbd", rows, P)
    N = linear.einsum("lrbd,liad->lriba", moments, rows)  # Ĵ_r P Ĵ_iᵀ
    # Ĵ_s acts on vectors here, so only its rotation counts: tr(ω̂ N) = −2 ω · vee(N).
    return _in_order(model, linear.einsum("lsc,lric->isr", w, -2 * so3.vee(N)))
