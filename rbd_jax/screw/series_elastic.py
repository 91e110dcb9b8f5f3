"""Flatness of robots with series-elastic joints. Source: Müller §6.3 [26, 68]."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model
from .torque_rates import inverse_dynamics_rates


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

    Source: Müller §6.3; the model of Spong: a spring between each motor θ and its joint,

        M a + h = K (θ − q),    B θ̈ + K (θ − q) = τ_m,

    is flat in q: ``θ = q + K⁻¹ τ``, so that θ̈ takes τ̈ and hence the fourth derivative of q.

    Args:
        model: the robot, without spherical and free joints.
        q: configuration of the links. v: velocity.
        rates: acceleration, jerk and snap.
        stiffness: K of the springs (N m/rad, N/m).
        rotor: B, inertia of the motors seen from the joint (kg m², kg);
            ``model.armature`` is inertia on the side of the links and counts besides.

    Returns:
        ``(θ, θ̇, τ_m)``.

    Raises:
        ValueError: for a wrong shape, or a joint with a quaternion.
    """
    if model.nq != model.nv:
        raise ValueError(
            "series_elastic_feedforward: a spring needs joints whose q has the length of v, robot "
            f"{model.topology.name!r} has {sorted(set(model.topology.kinds))}"
        )
    if jnp.shape(rates) != (3, model.nv):
        raise ValueError(
            f"series_elastic_feedforward: rates has shape {jnp.shape(rates)}, expected (3, nv) = "
            f"(3, {model.nv}): acceleration, jerk and snap"
        )
    tau, dtau, ddtau = inverse_dynamics_rates(model, q, v, rates)
    theta, dtheta = q + tau / stiffness, v + dtau / stiffness
    acceleration = rates[0] + ddtau / stiffness
    return theta, dtheta, tau + rotor * acceleration
