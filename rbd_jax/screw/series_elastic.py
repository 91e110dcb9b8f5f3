"""Robots with series-elastic joints: flatness, feedforward, feedback. Source: Müller §6.3 [26, 68].

In the model of Spong, a spring of stiffness K connects each motor, with angle θ and rotor inertia
B, to its joint:

    M a + h = K (θ − q),    B θ̈ + K (θ − q) = τ_m.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.rules import forward_dynamics, mass_matrix_solve
from ..model import Model
from ..model.arguments import checked
from .torque_rates import inverse_dynamics_rates


def _check_joints(function: str, model: Model) -> None:
    if model.nq != model.nv:
        raise ValueError(
            f"{function}: springs act on joints without quaternions, but robot "
            f"{model.topology.name!r} has joints of the kinds {sorted(set(model.topology.kinds))}"
        )


@checked
def series_elastic_feedforward(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    rates: Float[Array, "3 nv"],
    stiffness: Float[Array, " nv"],
    rotor: Float[Array, " nv"],
) -> tuple[Float[Array, " nv"], Float[Array, " nv"], Float[Array, " nv"]]:
    """Motor positions, velocities and torques that make the links follow a motion exactly.

    The robot is differentially flat in q: ``θ = q + K⁻¹ τ``. So θ̈ needs τ̈ and hence the fourth
    derivative of q. Derivatives are those of autodiff.

    Source: Müller §6.3.

    Args:
        model: the robot, without spherical and free joints.
        q: configuration of the links.
        v: velocity of the links.
        rates: acceleration, jerk and snap.
        stiffness: stiffness K of the springs (N m/rad, N/m).
        rotor: inertia B of the motors, reflected to the joint (kg m², kg). ``model.armature`` is
            inertia on the side of the links and is added separately.

    Returns:
        ``(θ, θ̇, τ_m)``.

    Raises:
        ValueError: for a wrong shape, or a joint with a quaternion.
    """
    _check_joints("series_elastic_feedforward", model)
    if jnp.shape(rates) != (3, model.nv):
        raise ValueError(
            f"series_elastic_feedforward: rates has shape {jnp.shape(rates)}, expected (3, nv) = "
            f"(3, {model.nv}): acceleration, jerk and snap"
        )
    tau, dtau, ddtau = inverse_dynamics_rates(model, q, v, rates)
    theta, dtheta = q + tau / stiffness, v + dtau / stiffness
    acceleration = rates[0] + ddtau / stiffness
    return theta, dtheta, tau + rotor * acceleration


@checked
def series_elastic_feedback(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    theta: Float[Array, " nv"],
    dtheta: Float[Array, " nv"],
    reference: Float[Array, "5 nv"],
    gains: Float[Array, "4 *n"],
    stiffness: Float[Array, " nv"],
    rotor: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """Motor torques that make the deviation from a motion obey a linear equation (N m, N).

    The springs determine the accelerations and jerks of the links, by ``M a + h = K (θ − q)`` and
    its time derivative. So q, v, θ and θ̇ are the whole state. With ``e = q − q_d`` the motors
    enforce

        e⁗ + k₃ e⃛ + k₂ ë + k₁ ė + k₀ e = 0

    exactly, and without coupling between the joints. Derivatives follow the analytical rules of
    forward dynamics and of the mass matrix solve, and else autodiff.

    Source: Müller §6.3: feedback linearization by time derivatives of the equations of motion.

    Args:
        model: the robot, without spherical and free joints.
        q: measured configuration of the links.
        v: measured velocity of the links.
        theta: measured positions of the motors, reflected to the joints.
        dtheta: measured velocities of the motors, reflected to the joints.
        reference: position, velocity, acceleration, jerk and snap of the planned motion.
        gains: k₀ (1/s⁴) … k₃ (1/s), for all joints or one column for each joint.
        stiffness: stiffness K of the springs (N m/rad, N/m).
        rotor: inertia B of the motors, as in :func:`series_elastic_feedforward`.

    Raises:
        ValueError: for a wrong shape, or a joint with a quaternion.
    """
    _check_joints("series_elastic_feedback", model)
    if jnp.shape(reference) != (5, model.nv):
        raise ValueError(
            f"series_elastic_feedback: reference has shape {jnp.shape(reference)}, expected "
            f"(5, nv) = (5, {model.nv}): position, velocity, acceleration, jerk and snap"
        )
    spring, dspring = stiffness * (theta - q), stiffness * (dtheta - v)
    a = forward_dynamics(model, q, v, spring)
    without_jerk = inverse_dynamics_rates(model, q, v, jnp.stack([a, jnp.zeros_like(a)]))[1]
    jerk = mass_matrix_solve(model, q, dspring - without_jerk)
    deviation = jnp.stack([q, v, a, jerk]) - reference[:4]
    snap = reference[4] - jnp.sum(gains.reshape(4, -1) * deviation, axis=0)
    return series_elastic_feedforward(model, q, v, jnp.stack([a, jerk, snap]), stiffness, rotor)[2]
