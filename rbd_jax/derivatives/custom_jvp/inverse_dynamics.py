"""The derivative rule of inverse dynamics: ``δτ = ∂τ/∂q δq + ∂τ/∂v δv + M δa + (model, f_ext)``.

See :mod:`rbd_jax.derivatives.custom_jvp.forward_dynamics` for what all rules have in common.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import formulations, world_frame
from ...algorithms.rnea import rnea
from ...algorithms.springs import plus_springs, unsprung
from ...lanes import lanes
from ...model import Model, velocity_from_rate
from ...model.arguments import checked
from ...model.expansion import projected
from ..linearization import Residual, residual
from ..perturbation import model_torque
from .mass_matrix_solver import torque_map
from .mechanism import ruled


def torque_tangent(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    g: world_frame.Placed,
    r: Residual,
    dmodel: Model | None,
    dq: Float[Array, " nq"] | None,
    dv: Float[Array, " nv"] | None,
    da: Float[Array, " nv"] | None,
    df_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, " nv"] | None:
    """δτ along the tangents of all inputs, of which None are zero; None if all are zero."""
    total = model_torque(model, dmodel, df_ext, q, v, a, g, r)
    if dq is None and dv is None and da is None:
        return total
    tangent = None if dq is None else velocity_from_rate(model, q, dq)
    parts = [jnp.zeros_like(v) if t is None else t for t in (tangent, dv, da)]
    part = torque_map(model.topology, r, jnp.concatenate(parts))
    if dv is not None:
        part = part + model.damping * dv
    if da is not None:
        part = part + model.armature * da
    return part if total is None else total + part


@ruled
def _inverse_dynamics(model, q, v, a, f_ext):
    if formulations.current().recursions == "bodies":
        return rnea(model, q, v, a, f_ext)
    g = world_frame.pose(model, q)
    return world_frame.torque(model, g, world_frame.motion(model, g, v, a, f_ext), v, a)


@_inverse_dynamics.def_jvp
def _inverse_dynamics_jvp(primals, tangents):
    model, q, v, a, f_ext = primals
    dmodel, dq, dv, da, df_ext = tangents
    g = world_frame.pose(model, q)
    m = world_frame.motion(model, g, v, a, f_ext)
    tau = world_frame.torque(model, g, m, v, a)
    r = residual(model, g, m)
    return tau, torque_tangent(model, q, v, a, g, r, dmodel, dq, dv, da, df_ext)


@checked
@lanes
@projected(0)
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of the motion (q, v, a), with exact analytical derivatives in O(n).

    Source: the value is that of :func:`rbd_jax.rnea` (Kim, Table 2). On an accelerator, where loops
    are slow, and beside a derivative, it is computed by Singh, Algorithm 1, lines 1–10, in ground
    coordinates. The derivative is an analytical rule: Singh, Algorithm 1, in operator form, and
    Kim, Table 5, for the model's leaves and f_ext.

    Args:
        model: the robot; the rule covers every leaf that the dynamics depends on.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: acceleration.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Generalized forces (N m, N). A jvp or vjp costs O(n), a Jacobian O(n²).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    return plus_springs(model, q, _inverse_dynamics(unsprung(model), q, v, a, f_ext))
