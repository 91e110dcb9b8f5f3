"""Explicit derivatives of dynamics under constraints."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..algorithms import world_frame
from ..algorithms.block_columns import times
from ..algorithms.passive import at_rest, base_acceleration, spring_matrix
from ..algorithms.rnea import rnea
from ..derivatives.custom_jvp.constrained_dynamics import (
    ConstraintSystem,
    Saddle,
    motion_of,
    prepared,
)
from ..derivatives.explicit.coordinate_chain import row_blocks, torque_blocks
from ..derivatives.explicit.idsva import torque_matrices
from ..derivatives.linearization import linearization_point
from ..model import CoordinateModel, Model
from ..model.arguments import algorithm
from ..model.coordinates import CoordinateMap
from ..spatial import linear
from . import _blocks as blocks, _motion as motion
from ._dynamics import Held, Struck
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
    T_q = _with_turning_forces(robot, c, b, g, forces, T_q)
    active = law.active()[:, None]
    C_q, C_v = jnp.where(active, C_q, 0), jnp.where(active, C_v, 0)
    if x is not None:
        J = jacobian_rows(robot, c, g, o)
        torque = lambda: rnea(robot, at, rates, accelerations, pushed) - coupled  # noqa: E731
        T_q, T_v, _ = torque_blocks(x, v, a, torque, T_q, T_v, M)
        C_q, C_v, _ = row_blocks(x, v, a, C_q, C_v, J)
    r = _Response.of(own, law, s, inverse)
    dq, dv, fq, fv = (f(T, C) for f in (r.motion, r.forces) for T, C in ((T_q, C_q), (T_v, C_v)))
    fq = _least_norm(c, law, s, _Rows(robot, x, g, o), forces, fq)
    return (a, forces), ConstrainedDerivatives(dq, dv, r.K, fq, fv, -r.A)


class ImpactDerivatives(NamedTuple):
    """Derivatives of velocities v⁺ and impulses Λ after an impact, in the tangent space.

    Velocities are in rad/s and m/s, impulses in N m s and N s, tangents of q in rad and m. Those of
    a free joint are in its body's frame.
    """

    dv_dq: Float[Array, "nv nv"]
    dv_dv: Float[Array, "nv nv"]
    dimpulses_dq: Float[Array, "m nv"]
    dimpulses_dv: Float[Array, "m nv"]


@algorithm(driven_joints=True)
def impact_derivatives(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], constraints: Constraints
) -> ImpactDerivatives:
    """All first derivatives of :func:`rbd_jax.constraints.impact`, as matrices.

    Source: those of :func:`rbd_jax.constrained_dynamics_derivatives` for a robot at rest without
    gravity, whose acceleration is the jump ``v⁺ − v``, with the law ``J v⁺ + e J v = 0``. Column k
    is along ``integrate(q, ε e_k)``.

    Arguments and errors as :func:`rbd_jax.constraints.impact`.

    Returns:
        ``(dv_dq, dv_dv, dimpulses_dq, dimpulses_dv)``. Cost: O(n² (d + m)), d the depth of the
        tree.
    """
    check("impact_derivatives", model, constraints)
    c, resting, still = constraints, at_rest(model), jnp.zeros_like(v)
    x = CoordinateMap(resting, q) if isinstance(resting, CoordinateModel) else None
    law = Struck(c, v if x is None else x.velocity(v))
    own, free_tau, law = prepared(resting, q, still, law)
    change, impulses, g, inverse, s = motion_of(own, q, still, free_tau, None, law)
    robot, at, jump = resting, q, change
    if x is not None:
        robot, at, jump = x.robot, x.q, x.acceleration(still, change)
        g = world_frame.quantities(robot, at)
    o = motion.ground_origins(robot, at)
    W, coupled = transmitted(robot, c, g, o, impulses)
    m = world_frame.motion(robot, g, jnp.zeros_like(jump), jump, W)
    rows = _Rows(robot, x, g, o)
    T_q, T_v, M = torque_matrices(robot, linearization_point(robot, g, m))
    T_q = _with_turning_forces(robot, c, motion.bodies_at(g, o, m.v, m.v), g, impulses, T_q)
    if x is not None:
        torque = lambda: rnea(robot, at, jnp.zeros_like(jump), jump, W) - coupled  # noqa: E731
        T_q, *_ = torque_blocks(x, still, change, torque, T_q, T_v, M)
    e, active = c.per_row(c.restitution)[:, None], law.active()[:, None]
    C_q = jnp.where(active, rows.velocity_block(c, v + change) + e * rows.velocity_block(c, v), 0)
    r = _Response.of(own, law, s, inverse)
    C_v, none = (1 + e) * s.J, jnp.zeros_like(inverse)
    fq = _least_norm(c, law, s, rows, impulses, r.forces(T_q, C_q))
    dv = jnp.eye(len(v), dtype=v.dtype) + r.motion(none, C_v)
    return ImpactDerivatives(r.motion(T_q, C_q), dv, fq, r.forces(none, C_v))


class _Response(NamedTuple):
    """How motion and forces answer to torques and to rows of the law."""

    K: Float[Array, "nv nv"]
    """Accelerations along torques, with ``J K = 0``."""
    A: Float[Array, "m nv"]
    """``G⁺ Yᵀ``: minus the forces along torques."""
    inverse: Float[Array, "m m"]
    """``G⁺``."""
    rows: Bool[np.ndarray, "m nv"]
    pairs: Bool[np.ndarray, "nv nv"]
    """Where rows of the law, and derivatives of torques, may differ from zero."""

    @classmethod
    def of(cls, own: Model, law: ConstraintSystem, s: Saddle, inverse: Array) -> "_Response":
        A = linear.matmul(s.inverse, s.Y.T)
        K = inverse - linear.matmul(s.Y, A)
        return cls(0.5 * (K + K.T), A, s.inverse, law.support(own), _coupled(own, law))

    def motion(self, T: Float[Array, "nv k"], C: Float[Array, "m k"]) -> Float[Array, "nv k"]:
        """The tangents of motion, from those of the torques and of the rows at fixed motion."""
        return -times(self.K, T, self.pairs) - times(self.A.T, C, self.rows)

    def forces(self, T: Float[Array, "nv k"], C: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """The tangents of forces, likewise."""
        return times(self.A, T, self.pairs) - times(self.inverse, C, self.rows)


class _Rows(NamedTuple):
    """The rows ``J v`` of a robot at a configuration."""

    robot: Model
    x: CoordinateMap | None
    g: world_frame.WorldQuantities
    origins: Array

    def velocity_block(self, c: Constraints, v: Float[Array, " nv"]) -> Float[Array, "m nv"]:
        """``∂(J v)/∂q`` at fixed v, of independent coordinates where joints are driven."""
        robot, x, g, o = self
        V = motion.twists(robot, g, v if x is None else x.velocity(v))
        still = jnp.zeros_like(V)
        screws = blocks.screws(robot.topology, g, V, still)
        block = blocks.velocity_block(robot, c, motion.bodies_at(g, o, V, still), screws)
        if x is None:
            return block
        J = jacobian_rows(robot, c, g, o)
        return row_blocks(x, v, jnp.zeros_like(v), block, J, jnp.zeros_like(J))[0]


def _with_turning_forces(robot: Model, c: Constraints, b, g, forces: Array, T_q: Array) -> Array:
    """``∂(ID − Jᵀ λ)/∂q`` from the one for forces that are fixed in their bodies."""
    if not c.pairs:
        return T_q
    turning = blocks.force_block(robot, c, b, g.S, world_wrenches(c, b, forces))
    return T_q if turning is None else T_q - turning


def _least_norm(
    c: Constraints, law: ConstraintSystem, s: Saddle, rows: _Rows, forces: Array, df_dq: Array
) -> Float[Array, "m nv"]:
    """``∂λ/∂q`` of the forces of least norm, where rows depend on each other."""

    def more(df_dq):
        z = linear.matmul(s.Y, linear.matmul(s.inverse, forces))
        change = jnp.where(law.active()[:, None], rows.velocity_block(c, z), 0)
        return df_dq + linear.matmul(s.null, change)

    return jax.lax.cond(jnp.any(jnp.diagonal(s.null) > 0), more, lambda x: x, df_dq)


def _coupled(model: Model, law: ConstraintSystem) -> Bool[np.ndarray, "nv nv"]:
    """Where derivatives of torques may differ from zero: on branches, or tied by a row."""
    if isinstance(model, CoordinateModel):
        return np.ones((model.nv, model.nv), dtype=bool)
    above, tied = model.topology.dof_tree.ancestor_mask > 0, law.support(model).astype(int)
    return above | above.T | (tied.T @ tied > 0)
