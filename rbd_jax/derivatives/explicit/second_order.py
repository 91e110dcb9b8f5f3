"""Second derivatives of inverse and forward dynamics: full tensors, and contracted for DDP.

They are second derivatives of the chart ``(δq, δv, δa) ↦ ID(integrate(q, δq), v + δv, a + δa)`` at
zero, and hence symmetric. Terms in v and in M have closed forms. The others are forward-mode
derivatives of the analytical first derivatives, which cost as much as closed forms would: O(n³) for
the tensors and O(n²) contracted. Third derivatives are those of autodiff.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.crba import crba
from ...algorithms.tree import per_dof, subtree_sum
from ...model import CoordinateModel, Model, integrate
from ...model.arguments import algorithm
from ...spatial import inertia, linear
from ...spatial.motion import cross_twist, cross_wrench
from ..custom_jvp.forward_dynamics import forward_dynamics
from ..custom_jvp.inverse_dynamics import inverse_dynamics
from .coriolis import christoffel
from .fdsva import forward_dynamics_derivatives
from .idsva import inverse_dynamics_derivatives


class SecondDerivatives(NamedTuple):
    """``qq[i, j, k] = ∂²y_i/∂q_j∂q_k``, likewise qv and vv, and the derivative of M or M⁻¹ along q.

    For inverse dynamics y = τ and ``uq[i, j, k] = ∂M_ij/∂q_k``; for forward dynamics y = a and
    ``uq[i, j, k] = ∂(M⁻¹)_ij/∂q_k``. All other second derivatives are zero.
    """

    qq: Float[Array, "nv nv nv"]
    qv: Float[Array, "nv nv nv"]
    vv: Float[Array, "nv nv nv"]
    uq: Float[Array, "nv nv nv"]


class Hessian(NamedTuple):
    """``λᵀ`` times the second derivatives: qq, qv, vv and ``uq[j, k] = Σ_i λ_i ∂²y_i/∂u_j∂q_k``.

    The input u is a for inverse dynamics and τ for forward dynamics.
    """

    qq: Float[Array, "nv nv"]
    qv: Float[Array, "nv nv"]
    vv: Float[Array, "nv nv"]
    uq: Float[Array, "nv nv"]


@algorithm(driven_joints=True)
def mass_matrix_derivative(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """``∂M_ij/∂q_k`` along ``integrate(q, ε e_k)``, in closed form.

    Source: Vlasblom (1.14), (2.22), for trees. With ``M_ij = S_iᵀ I^C_j S_j`` for j below i, a
    joint k above i changes nothing. A joint k between them turns S_j and I^C_j under S_i. A joint k
    below j turns the part I^C_k of the composite. Cost: O(n³). With driven joints: by autodiff.
    """
    if isinstance(model, CoordinateModel):
        zero = jnp.zeros((model.nv,), model.dtype)
        return jax.jacfwd(lambda d: crba(model, integrate(model, q, d)))(zero)
    topology, g = model.topology, world_frame.quantities(model, q)
    b, above = topology.dof_bodies, topology.tree.ancestor_mask
    IC = per_dof(topology, subtree_sum(topology.tree, g.I))
    S, t1 = g.S, inertia.apply(IC, g.S)
    # (k, i): S_k × S_i
    turned = cross_twist(S[:, None], jnp.broadcast_to(S, (model.nv, *S.shape)))
    # (k, j): (S_k ×* I^C_k − I^C_k S_k ×) S_j
    IS = inertia.apply(IC[:, None], jnp.broadcast_to(S, turned.shape))
    rate = cross_wrench(S[:, None], IS) - inertia.apply(IC[:, None], turned)
    upper = above.T  # upper[x, y]: y is x or below it
    strict = upper & ~np.eye(topology.nb, dtype=bool)
    i, j, k = b[:, None, None], b[None, :, None], b[None, None, :]
    between = jnp.asarray(strict[i, k] & upper[k, j], S.dtype)
    below = jnp.asarray(upper[i, j] & strict[j, k], S.dtype)
    first = -linear.einsum("kin,jn->ijk", turned, t1)
    second = linear.einsum("in,kjn->ijk", S, rate)
    half = between * first + below * second
    # pairs of one joint (i, j on one body) stand complete; others are mirrored
    same = jnp.asarray((b[:, None] == b[None, :])[:, :, None], S.dtype)
    return half + (1 - same) * jnp.swapaxes(half, 0, 1)


def _symmetric(x: Array) -> Array:
    return 0.5 * (x + jnp.swapaxes(x, -1, -2))


@algorithm(driven_joints=True)
def inverse_dynamics_second_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> SecondDerivatives:
    """All second derivatives of inverse dynamics as tensors.

    Source: qq and qv by forward-mode differentiation of Singh, Algorithm 1; vv from the Christoffel
    symbols (Vlasblom (1.15)); ∂M/∂q by :func:`mass_matrix_derivative`. Cost: O(n³).
    """
    zero = jnp.zeros_like(v)

    def first(d):
        return inverse_dynamics_derivatives(model, integrate(model, q, d), v, a, f_ext)[:2]

    qq, qv = jax.jacfwd(first)(zero)
    G = christoffel(model, q)
    vv = G + jnp.swapaxes(G, 1, 2)
    uq = mass_matrix_derivative(model, q)
    return SecondDerivatives(_symmetric(qq), jnp.swapaxes(qv, 1, 2), vv, uq)


@algorithm(driven_joints=True)
def inverse_dynamics_hessian(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    lam: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Hessian:
    """Second derivatives of ``λᵀ ID(q, v, a)``, without forming tensors.

    Source: forward-mode differentiation of the transposed operator (Singh, Algorithm 1 in
    operator form). Cost: O(n²).
    """
    zero = jnp.zeros_like(v)

    def gradient(dq, dv):
        def torque(dq, v, a):
            return inverse_dynamics(model, integrate(model, q, dq), v, a, f_ext)

        return jax.vjp(torque, dq, v + dv, a)[1](lam)

    gq, gv, ga = jax.jacfwd(gradient, (0, 1))(zero, zero)
    return Hessian(_symmetric(gq[0]), gq[1], _symmetric(gv[1]), ga[0])


@algorithm(driven_joints=True)
def forward_dynamics_second_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> SecondDerivatives:
    """All second derivatives of forward dynamics as tensors.

    Source: differentiating ``ID(q, v, FD(q, v, τ)) = τ`` twice. With x, y among (q, v):
    ``M a_xy = −(τ_xy + M_x a_y + M_y a_x)`` and ``∂M⁻¹ = −M⁻¹ ∂M M⁻¹``. Cost: O(n⁴) in products.
    """
    a = forward_dynamics(model, q, v, tau, f_ext)
    aq, av, Minv = forward_dynamics_derivatives(model, q, v, tau, f_ext)
    qq, qv, vv, Mq = inverse_dynamics_second_derivatives(model, q, v, a, f_ext)

    def times(spec, *args):
        return linear.einsum(spec, *args)

    cross = times("imk,mj->ijk", Mq, aq)  # M_{q_k} a_{q_j}
    qq = -times("im,mjk->ijk", Minv, qq + cross + jnp.swapaxes(cross, 1, 2))
    qv = -times("im,mjk->ijk", Minv, qv + times("imj,mk->ijk", Mq, av))
    vv = -times("im,mjk->ijk", Minv, vv)
    uq = -times("im,mnk,nj->ijk", Minv, Mq, Minv)
    return SecondDerivatives(qq, qv, vv, uq)


@algorithm(driven_joints=True)
def forward_dynamics_hessian(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    lam: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Hessian:
    """Second derivatives of ``λᵀ FD(q, v, τ)``, as differential dynamic programming needs them.

    Source: with ``μ = M⁻¹ λ`` and H the Hessian of ``μᵀ ID`` at the acceleration of τ,
    ``−(H_xy + H_xa a_y + a_xᵀ H_ay)``; no tensor is formed. Cost: O(n²) and products of matrices.
    """
    a = forward_dynamics(model, q, v, tau, f_ext)
    aq, av, Minv = forward_dynamics_derivatives(model, q, v, tau, f_ext)
    mu = linear.matmul(Minv, lam)
    H = inverse_dynamics_hessian(model, q, v, a, mu, f_ext)

    def times(A, B):
        return linear.matmul(A, B)

    cross = times(H.uq.T, aq)  # (q_j, q_k)
    qq = -(H.qq + cross + cross.T)
    return Hessian(qq, -(H.qv + times(H.uq.T, av)), -H.vv, -times(Minv, H.uq))
