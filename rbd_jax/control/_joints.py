"""Controllers in the space of the joints: torques from a state and from what is wanted."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.torques import gravity_torque
from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model import Model, difference
from ..model.arguments import algorithm


@algorithm(driven_joints=True)
def gravity_compensation(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Torques that hold the robot at rest against gravity and its joint springs (N m, N).

    Source: Kim, Table 2, at rest: ``τ = g(q)``. The robot then floats.
    """
    return gravity_torque(model, q)


@algorithm(driven_joints=True)
def computed_torque(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    q_wanted: Float[Array, " nq"],
    v_wanted: Float[Array, " nv"] | None = None,
    a_wanted: Float[Array, " nv"] | None = None,
    *,
    stiffness: Any = 100.0,
    damping: Any = 20.0,
) -> Float[Array, " nv"]:
    """Torques with which the error of a joint motion obeys ``ë + K_d ė + K_p e = 0``.

    Source: Featherstone, Rigid Body Dynamics Algorithms, §1.2: inverse dynamics of
    ``a* + K_p (q* ⊖ q) + K_d (v* − v)``. Velocities are compared in the coordinates of each joint,
    which for free and spherical joints is exact to first order in the error.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        q_wanted: wanted configuration. v_wanted: its velocity; zero if None.
        a_wanted: its acceleration; zero if None.
        stiffness: K_p (1/s²), a number or one for each degree of freedom.
        damping: K_d (1/s); ``2 √K_p`` is critical.
    """
    zero = jnp.zeros_like(v)
    v_wanted, a_wanted = (zero if x is None else x for x in (v_wanted, a_wanted))
    a = a_wanted + _gain(model, stiffness) * difference(model, q, q_wanted)
    return inverse_dynamics(model, q, v, a + _gain(model, damping) * (v_wanted - v))


@algorithm(driven_joints=True)
def joint_impedance(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    q_wanted: Float[Array, " nq"],
    v_wanted: Float[Array, " nv"] | None = None,
    *,
    stiffness: Any = 100.0,
    damping: Any = 20.0,
) -> Float[Array, " nv"]:
    """Torques of springs and dampers between the joints and a wanted motion, and against gravity.

    Source: Hogan, "Impedance control" (1985), without shaping of the inertia:
    ``τ = K (q* ⊖ q) + D (v* − v) + g(q)``. The robot keeps its own inertia, so that the closed loop
    is passive.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        q_wanted: wanted configuration. v_wanted: its velocity; zero if None.
        stiffness: K (N m/rad, N/m), a number or one for each degree of freedom.
        damping: D (N m s/rad, N s/m).
    """
    v_wanted = jnp.zeros_like(v) if v_wanted is None else v_wanted
    spring = _gain(model, stiffness) * difference(model, q, q_wanted)
    return spring + _gain(model, damping) * (v_wanted - v) + gravity_torque(model, q)


def _gain(model: Model, x) -> Array:
    """A gain for each degree of freedom."""
    x = jnp.asarray(x, model.dtype)
    if x.shape not in ((), (model.nv,)):
        raise ValueError(
            f"control: a gain of robot {model.topology.name!r} must be a number or have shape "
            f"({model.nv},), got {x.shape}"
        )
    return jnp.broadcast_to(x, (model.nv,))
