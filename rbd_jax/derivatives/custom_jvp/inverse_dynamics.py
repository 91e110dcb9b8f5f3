"""Inverse dynamics with the rule ``δτ = ∂τ/∂q δq + ∂τ/∂v δv + M δa`` and its terms for the model.

The rule is linear in the tangents, so that reverse mode is its transpose. It is written with plain
operations, so that higher derivatives follow. Terms whose tangent is symbolically zero are left
out. The tangent of an ambient q is first mapped to the tangent space, which drops the change of a
quaternion's length.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import formulations, world_frame
from ...algorithms.passive import plus_springs, without_springs
from ...algorithms.rnea import newton_euler
from ...model import Model, Topology, velocity_from_rate
from ...model.arguments import algorithm
from ...spatial import linear
from ..linearization import (
    LinearizationPoint,
    joint_matrices,
    joint_operator,
    linearization_point,
)
from ..perturbation import model_torque
from .linear_map import LinearMap
from .mechanism import custom_jvp


@algorithm(project=(0,))
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of the motion (q, v, a), with a hand-written derivative rule in O(n).

    The value is that of :func:`rbd_jax.rnea`, whose derivatives are those of autodiff. Here they
    are those of a ``custom_jvp``, which is exact and costs less.

    Source: Kim, Table 2, for the value. On an accelerator, where loops are slow, and beside a
    derivative, it is computed by Singh, Algorithm 1, lines 1–10, in ground coordinates. The rule is
    Singh, Algorithm 1, in operator form, and Kim, Table 5, for the leaves of the model and f_ext.

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
    tau = inverse_dynamics_custom_jvp(without_springs(model), q, v, a, f_ext)
    return plus_springs(model, q, tau)


@custom_jvp
def inverse_dynamics_custom_jvp(model, q, v, a, f_ext):
    """The torques of a robot without springs, with the rule of this file."""
    torque = formulations.for_recursions(bodies=newton_euler, levels=_torque_in_world_frame)
    return torque(model, q, v, a, f_ext)


def _torque_in_world_frame(model, q, v, a, f_ext):
    g = world_frame.quantities(model, q)
    return world_frame.torque(model, g, world_frame.motion(model, g, v, a, f_ext), v, a)


@inverse_dynamics_custom_jvp.def_jvp
def _inverse_dynamics_jvp(primals, tangents):
    model, q, v, a, f_ext = primals
    g = world_frame.quantities(model, q)
    m = world_frame.motion(model, g, v, a, f_ext)
    tau = world_frame.torque(model, g, m, v, a)
    r = linearization_point(model, g, m)
    return tau, torque_tangent(model, q, v, a, g, r, *tangents)


def torque_tangent(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    g: world_frame.WorldQuantities,
    r: LinearizationPoint,
    dmodel: Model | None,
    dq: Float[Array, " nq"] | None,
    dv: Float[Array, " nv"] | None,
    da: Float[Array, " nv"] | None,
    df_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, " nv"] | None:
    """δτ along the tangents of all inputs. A tangent that is None is zero; so is a result."""
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


def _torque_operator(topology: Topology, r: LinearizationPoint, x: Array) -> Array:
    return joint_operator(topology, r, x.reshape(3, topology.nv))


def _torque_many(topology: Topology, r: LinearizationPoint, X: Array, transposed: bool) -> Array:
    A = jnp.concatenate(joint_matrices(topology, r), axis=1)
    return linear.matmul(X, A if transposed else A.T)


torque_map = LinearMap(
    "rbd_torque_derivative", _torque_operator, _torque_many, lambda topology: 3 * topology.nv
)
"""``(δq, δv, δa) ↦ ∂τ/∂q δq + ∂τ/∂v δv + M δa``, without armature and damping."""
