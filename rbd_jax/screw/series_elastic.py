"""Robots with series-elastic joints: flatness, feedforward, feedback. Source: Müller §6.3 [26, 68].

In the model of Spong, a spring of stiffness K connects each motor, with angle θ and rotor inertia
B, to its joint:

    M a + h = K (θ − q),    B θ̈ + K (θ − q) = τ_m.

The stiffness may vary, as in [68]: then K is given together with its first and second rates. A
joint of infinite stiffness is rigid, as in [26].
"""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ..algorithms.passive import at_rest
from ..derivatives.custom_jvp.forward_dynamics import hybrid_dynamics
from ..model import Model
from ..model.arguments import checked
from .torque_rates import inverse_dynamics_rates


def _check_joints(function: str, model: Model) -> None:
    if model.nq != model.nv:
        raise ValueError(
            f"{function}: springs act on joints without quaternions, but robot "
            f"{model.topology.name!r} has joints of the kinds {sorted(set(model.topology.kinds))}"
        )


def _stiffness(function: str, model: Model, stiffness: Array) -> tuple[Array, Array, Array]:
    """``(K, K̇, K̈)``, with the check of shape and sign."""
    shape = jnp.shape(stiffness)
    if shape not in ((model.nv,), (3, model.nv)):
        raise ValueError(
            f"{function}: stiffness has shape {shape}, expected (nv,) = ({model.nv},) if it is "
            f"constant, or (3, nv) = (3, {model.nv}): the stiffness and its first and second rates"
        )
    K, *rates = jnp.broadcast_to(stiffness, (3, model.nv)) if len(shape) == 2 else (stiffness,)
    if not isinstance(K, Tracer) and not np.all(np.asarray(K) > 0):
        raise ValueError(
            f"{function}: stiffness must be positive, and is infinite for a rigid joint; got "
            f"{np.asarray(K)}"
        )
    still = jnp.zeros_like(K)
    return (K, *rates) if rates else (K, still, still)


def _bodies_of(model: Model, rigid: Bool[Array, " nv"]) -> Bool[Array, " nb"]:
    """The bodies that rigid joints move."""
    owner = model.topology.dof_bodies
    bodies = jnp.zeros((model.nb,), bool).at[owner].max(rigid)
    if not isinstance(rigid, Tracer):
        mixed = np.asarray(bodies)[owner] != np.asarray(rigid)
        if mixed.any():
            names = sorted({model.joint_names[b] for b in owner[mixed]})
            raise ValueError(
                f"series_elastic_feedback: joints {names} are rigid along some of their axes and "
                "elastic along others; make all of them of one kind, or take a chain of joints of "
                "one degree of freedom"
            )
    return bodies


@checked
def series_elastic_feedforward(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    rates: Float[Array, "3 nv"],
    stiffness: Float[Array, "*k nv"],
    rotor: Float[Array, " nv"],
) -> tuple[Float[Array, " nv"], Float[Array, " nv"], Float[Array, " nv"]]:
    """Motor positions, velocities and torques that make the links follow a motion exactly.

    The robot is differentially flat in q: ``θ = q + K⁻¹ τ``. So θ̈ needs τ̈ and hence the fourth
    derivative of q. Derivatives are those of autodiff.

    Source: Müller §6.3; with variable stiffness [68], whose flat outputs are q and K.

    Args:
        model: the robot, without spherical and free joints.
        q: configuration of the links.
        v: velocity of the links.
        rates: acceleration, jerk and snap.
        stiffness: stiffness K of the springs (N m/rad, N/m), (nv,); infinite for rigid joints. If
            it varies, (3, nv): K, K̇ and K̈.
        rotor: inertia B of the motors, reflected to the joint (kg m², kg). ``model.armature`` is
            inertia on the side of the links and is added separately.

    Returns:
        ``(θ, θ̇, τ_m)``.

    Raises:
        ValueError: for a wrong shape, a joint with a quaternion, or a stiffness that is not
            positive.
    """
    _check_joints("series_elastic_feedforward", model)
    if jnp.shape(rates) != (3, model.nv):
        raise ValueError(
            f"series_elastic_feedforward: rates has shape {jnp.shape(rates)}, expected (3, nv) = "
            f"(3, {model.nv}): acceleration, jerk and snap"
        )
    K, dK, ddK = _stiffness("series_elastic_feedforward", model, stiffness)
    tau, dtau, ddtau = inverse_dynamics_rates(model, q, v, rates)
    twist = tau / K  # θ − q, and its rates by τ = K (θ − q)
    dtwist = (dtau - dK * twist) / K
    ddtwist = (ddtau - ddK * twist - 2 * dK * dtwist) / K
    return q + twist, v + dtwist, tau + rotor * (rates[0] + ddtwist)


@checked
def series_elastic_feedback(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    theta: Float[Array, " nv"],
    dtheta: Float[Array, " nv"],
    reference: Float[Array, "5 nv"],
    gains: Float[Array, "4 *n"],
    stiffness: Float[Array, "*k nv"],
    rotor: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """Motor torques that make the deviation from a motion obey a linear equation (N m, N).

    The springs determine the accelerations and jerks of the links, by ``M a + h = K (θ − q)`` and
    its time derivative. So q, v, θ and θ̇ are the whole state. With ``e = q − q_d`` the motors
    enforce

        e⁗ + k₃ e⃛ + k₂ ë + k₁ ė + k₀ e = 0

    exactly, and without coupling between the joints. A rigid joint, of infinite stiffness, has no
    spring that holds its acceleration and jerk, so that they cannot be part of its state. It obeys

        k₂ ë + k₁ ė + k₀ e = 0,

    the slow part of the same equation, also exactly and without coupling; its θ and θ̇ are not used.
    Derivatives follow the analytical rule of hybrid dynamics, and else autodiff.

    Source: Müller §6.3: feedback linearization by time derivatives of the equations of motion.
    De Luca, "Decoupling and feedback linearization of robots with mixed rigid/elastic joints"
    (1998),
    asks for fourth order in rigid joints too, and needs a controller with a state of its own.
    Variable stiffness: Palli, Melchiorri, De Luca [68].

    Args:
        model: the robot, without spherical and free joints.
        q: measured configuration of the links.
        v: measured velocity of the links.
        theta: measured positions of the motors, reflected to the joints.
        dtheta: measured velocities of the motors, reflected to the joints.
        reference: position, velocity, acceleration, jerk and snap of the planned motion.
        gains: k₀ (1/s⁴) … k₃ (1/s), for all joints or one column for each joint.
        stiffness: stiffness K of the springs (N m/rad, N/m), (nv,); infinite for rigid joints. If
            it varies, (3, nv): K and K̇ as measured, and K̈ as its own actuator makes it.
        rotor: inertia B of the motors, as in :func:`series_elastic_feedforward`.

    Raises:
        ValueError: for a wrong shape, a joint with a quaternion, a stiffness that is not positive,
            or a joint of several degrees of freedom of which only some are rigid.
    """
    _check_joints("series_elastic_feedback", model)
    if jnp.shape(reference) != (5, model.nv):
        raise ValueError(
            f"series_elastic_feedback: reference has shape {jnp.shape(reference)}, expected "
            f"(5, nv) = (5, {model.nv}): position, velocity, acceleration, jerk and snap"
        )
    K, dK, _ = _stiffness("series_elastic_feedback", model, stiffness)
    rigid = jnp.isinf(K)
    K = jnp.where(rigid, 0, K)  # rigid joints have no springs, but given accelerations
    k = jnp.broadcast_to(gains.reshape(4, -1), (4, model.nv))
    soft = jnp.where(rigid, k[2], 1)
    slow = lambda e, de: jnp.where(rigid, -(k[0] * e + k[1] * de) / soft, 0)  # noqa: E731
    twist = jnp.where(rigid, 0, theta - q)
    spring, dspring = K * twist, K * (dtheta - v) + dK * twist
    e, de = q - reference[0], v - reference[1]
    held = _bodies_of(model, rigid)
    a = hybrid_dynamics(model, q, v, reference[2] + slow(e, de), spring, held)[0]
    dde = a - reference[2]
    without_jerk = inverse_dynamics_rates(model, q, v, jnp.stack([a, jnp.zeros_like(a)]))[1]
    still, plain = jnp.zeros_like(v), at_rest(model)
    jerk = reference[3] + slow(de, dde)
    jerk = hybrid_dynamics(plain, q, still, jerk, dspring - without_jerk, held)[0]
    ddde = jerk - reference[3]
    snap = -jnp.sum(k * jnp.stack([e, de, dde, ddde]), axis=0)
    snap = reference[4] + jnp.where(rigid, slow(dde, ddde), snap)
    return series_elastic_feedforward(model, q, v, jnp.stack([a, jerk, snap]), stiffness, rotor)[2]
