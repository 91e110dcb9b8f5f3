"""Explicit derivatives of dynamics under constraints."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms.gravity import base_acceleration
from ..derivatives.constrained import motion_of
from ..derivatives.idsva import torque_matrices
from ..derivatives.operator import residual
from ..lanes import lanes
from ..model import CoordinateModel, Model, integrate
from ..model.arguments import checked, takes_coordinates
from . import _blocks as blocks, _motion as motion
from ._dynamics import Held, constrained_dynamics
from ._jacobian import transmitted, world_wrenches
from ._set import Constraints, check


class ConstrainedDerivatives(NamedTuple):
    """Derivatives of accelerations a and constraint forces f, in the tangent space."""

    da_dq: Float[Array, "nv nv"]
    da_dv: Float[Array, "nv nv"]
    da_dtau: Float[Array, "nv nv"]
    df_dq: Float[Array, "m nv"]
    df_dv: Float[Array, "m nv"]
    df_dtau: Float[Array, "m nv"]


@checked
@lanes
@takes_coordinates
def constrained_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    constraints: Constraints,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ConstrainedDerivatives:
    """All first derivatives of :func:`rbd_jax.constrained_dynamics`, as matrices.

    Source: ``[M Jᵀ; J 0] [∂a; −∂λ] = −[∂(ID − Jᵀ λ); ∂(J a + γ)]`` with ∂ID by Singh, Algorithm 1,
    multiplied by the inverse of the matrix, ``K = M⁻¹ − Y G⁺ Yᵀ`` with ``Y = M⁻¹ Jᵀ`` and so on;
    Budhiraja et al., Humanoids 2018. Column k is along ``integrate(q, ε e_k)``.

    Arguments and errors as :func:`rbd_jax.constrained_dynamics`.

    Returns:
        ``(da_dq, da_dv, da_dtau, df_dq, df_dv, df_dtau)``. Cost: O(n² (d + m)), d the depth of the
        tree.
    """
    check("constrained_dynamics_derivatives", model, constraints)
    if isinstance(model, CoordinateModel):
        return _by_rule(model, q, v, tau, constraints, f_ext)
    return with_motion(model, q, v, tau, constraints, f_ext)[1]


def _by_rule(model: Model, q, v, tau, constraints: Constraints, f_ext) -> ConstrainedDerivatives:
    """The same for a robot with driven joints, column by column from the rule."""

    def moved(dq, v, tau):
        at = integrate(model, q, dq)
        return constrained_dynamics(model, at, v, tau, constraints, f_ext)

    a, forces = jax.jacfwd(moved, (0, 1, 2))(jnp.zeros_like(v), v, tau)
    return ConstrainedDerivatives(*a, *forces)


def with_motion(model: Model, q, v, tau, constraints: Constraints, f_ext):
    """``(a, forces)`` and all derivatives."""
    c, topology = constraints, model.topology
    law = Held(c)
    a, forces, g, s = motion_of(model, q, v, tau, f_ext, law)
    o = motion.ground_origins(model, q)
    W, _ = transmitted(model, c, g, o, forces)
    m = ground.motion(model, g, v, a, W if f_ext is None else W + f_ext)
    A = m.a - base_acceleration(model)[None]
    b = motion.bodies_at(g, o, m.v, A)
    C_q, C_v = blocks.law_blocks(model, c, b, blocks.screws(topology, g, m.v, A))
    T_q, T_v, _ = torque_matrices(model, residual(model, g, m))
    if c.pairs:
        F = world_wrenches(c, b, forces)
        turning = blocks.force_block(model, c, b, g.S, F)
        T_q = T_q if turning is None else T_q - turning
    active = law.active()[:, None]
    C_q, C_v = jnp.where(active, C_q, 0), jnp.where(active, C_v, 0)
    A = _times(s.inverse, s.Y.T)
    inverse = s.solver.columns(model.topology, jnp.eye(model.nv, dtype=T_q.dtype))
    K = inverse - _times(s.Y, A)
    K = 0.5 * (K + K.T)  # accelerations along torques, with J K = 0
    dq, dv = (-_times(K, T) - _times(A.T, C) for T, C in ((T_q, C_q), (T_v, C_v)))
    fq, fv = (_times(A, T) - _times(s.inverse, C) for T, C in ((T_q, C_q), (T_v, C_v)))

    def least_norm(df_dq):
        z = _times(s.Y, _times(s.inverse, forces))
        V = motion.twists(model, g, z)
        at = motion.bodies_at(g, o, V, jnp.zeros_like(V))
        x = blocks.screws(topology, g, V, jnp.zeros_like(V))
        change = jnp.where(active, blocks.velocity_block(model, c, at, x), 0)
        return df_dq + _times(s.null, change)

    deficient = jnp.any(jnp.diagonal(s.null) > 0)
    fq = jax.lax.cond(deficient, least_norm, lambda x: x, fq)
    return (a, forces), ConstrainedDerivatives(dq, dv, K, fq, fv, -A)


def _times(A: Array, B: Array) -> Array:
    return jnp.matmul(A, B, precision="highest")
