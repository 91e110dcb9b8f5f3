"""Explicit derivatives of dynamics under constraints."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..algorithms import world_frame
from ..algorithms.block_columns import times
from ..algorithms.passive import base_acceleration, spring_matrix
from ..algorithms.rnea import rnea
from ..derivatives.custom_jvp.constrained_dynamics import ConstraintSystem, motion_of, prepared
from ..derivatives.explicit.coordinate_chain import row_blocks, torque_blocks
from ..derivatives.explicit.idsva import torque_matrices
from ..derivatives.linearization import linearization_point
from ..model import CoordinateModel, Model
from ..model.arguments import algorithm
from ..model.coordinates import CoordinateMap
from ..spatial import linear
from . import _blocks as blocks, _motion as motion
from ._dynamics import Held
from ._jacobian import jacobian_rows, transmitted, world_wrenches
from ._set import Constraints, check


class ConstrainedDerivatives(NamedTuple):
    """Derivatives of accelerations a and constraint forces f, in the tangent space."""

    da_dq: Float[Array, "nv nv"]
    da_dv: Float[Array, "nv nv"]
    da_dtau: Float[Array, "nv nv"]
    df_dq: Float[Array, "m nv"]
    df_dv: Float[Array, "m nv"]
    df_dtau: Float[Array, "m nv"]


@algorithm(driven_joints=True)
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
    return with_motion(model, q, v, tau, constraints, f_ext)[1]


def with_motion(model: Model, q, v, tau, constraints: Constraints, f_ext):
    """``(a, forces)`` and all derivatives."""
    c, x = constraints, CoordinateMap(model, q) if isinstance(model, CoordinateModel) else None
    own, free_tau, law = prepared(model, q, tau, Held(c))
    a, forces, g, inverse, s = motion_of(own, q, v, free_tau, f_ext, law)
    robot, at, rates, accelerations = model, q, v, a
    if x is not None:  # all joints of the robot, of which some are driven
        robot, at, rates, accelerations = x.robot, x.q, x.velocity(v), x.acceleration(v, a)
        g = world_frame.quantities(robot, at)
    o = motion.ground_origins(robot, at)
    W, coupled = transmitted(robot, c, g, o, forces)
    pushed = W if f_ext is None else W + f_ext
    m = world_frame.motion(robot, g, rates, accelerations, pushed)
    b = motion.bodies_at(g, o, m.v, m.a - base_acceleration(robot)[None])
    C_q, C_v = blocks.law_blocks(robot, c, b, blocks.screws(robot.topology, g, m.v, b.A[:-1]))
    T_q, T_v, M = torque_matrices(robot, linearization_point(robot, g, m))
    if model.stiffness is not None:
        T_q = T_q + spring_matrix(robot, at)
    if c.pairs:
        turning = blocks.force_block(robot, c, b, g.S, world_wrenches(c, b, forces))
        T_q = T_q if turning is None else T_q - turning
    active = law.active()[:, None]
    C_q, C_v = jnp.where(active, C_q, 0), jnp.where(active, C_v, 0)
    J = s.J
    if x is not None:
        J = jacobian_rows(robot, c, g, o)
        torque = lambda: rnea(robot, at, rates, accelerations, pushed) - coupled  # noqa: E731
        T_q, T_v, _ = torque_blocks(x, v, a, torque, T_q, T_v, M)
        C_q, C_v, _ = row_blocks(x, v, a, C_q, C_v, J)
    A = linear.matmul(s.inverse, s.Y.T)
    K = inverse - linear.matmul(s.Y, A)
    K = 0.5 * (K + K.T)  # accelerations along torques, with J K = 0
    rows, pairs = law.support(own), _coupled(own, law)
    dq, dv = (-times(K, T, pairs) - times(A.T, C, rows) for T, C in ((T_q, C_q), (T_v, C_v)))
    fq, fv = (times(A, T, pairs) - times(s.inverse, C, rows) for T, C in ((T_q, C_q), (T_v, C_v)))

    def least_norm(df_dq):
        z = linear.matmul(s.Y, linear.matmul(s.inverse, forces))
        V = motion.twists(robot, g, z if x is None else x.velocity(z))
        still = jnp.zeros_like(V)
        there = motion.bodies_at(g, o, V, still)
        screws = blocks.screws(robot.topology, g, V, still)
        change = jnp.where(active, blocks.velocity_block(robot, c, there, screws), 0)
        if x is not None:
            change = row_blocks(x, z, jnp.zeros_like(z), change, J, jnp.zeros_like(J))[0]
        return df_dq + linear.matmul(s.null, change)

    deficient = jnp.any(jnp.diagonal(s.null) > 0)
    fq = jax.lax.cond(deficient, least_norm, lambda x: x, fq)
    return (a, forces), ConstrainedDerivatives(dq, dv, K, fq, fv, -A)


def _coupled(model: Model, law: ConstraintSystem) -> Bool[np.ndarray, "nv nv"]:
    """Where derivatives of torques may differ from zero: on branches, or tied by a row."""
    if isinstance(model, CoordinateModel):
        return np.ones((model.nv, model.nv), dtype=bool)
    above, tied = model.topology.dof_tree.ancestor_mask > 0, law.support(model).astype(int)
    return above | above.T | (tied.T @ tied > 0)
