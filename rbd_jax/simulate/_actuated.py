"""The accelerations of a robot whose torques are held, as integrators ask for them."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.torques import damping_torque
from ..constraints import (
    Constraints,
    acceleration,
    constrained_dynamics,
    driven_dynamics,
    jacobian,
    residual,
)
from ..derivatives.custom_jvp.forward_dynamics import forward_dynamics
from ..derivatives.custom_jvp.implicit_step import implicit_step_dynamics, implicitly_damped
from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model import Model
from ..spatial import linear


class ActuatedRobot(eqx.Module):
    """The accelerations of a robot under constant torques and wrenches, as a function."""

    model: Model
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None
    constraints: Constraints | None = None

    def implicitly_damped(self, dt: Array) -> "ActuatedRobot":
        """The accelerations that a step of ``dt`` seconds with implicit joint damping takes."""
        return replace(self, model=implicitly_damped(self.model, dt))

    def with_implicit_coriolis(self, q: Array, v: Array, dt: Array) -> Float[Array, " nv"]:
        """The accelerations of a step whose damping and Coriolis torques are those of its end.

        See :mod:`rbd_jax.derivatives.custom_jvp.implicit_step`.

        Raises:
            ValueError: if the robot has constraints.
        """
        if self.constraints is not None:
            raise ValueError(
                "implicit_coriolis moves robots without constraints; take 'implicit_damping' for "
                "a robot with constraints"
            )
        return implicit_step_dynamics(self.model, q, v, self.tau, dt, self.f_ext)

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The accelerations ``a(t, q, v)`` (rad/s², m/s²)."""
        if self.constraints is not None:
            c = self.constraints
            return constrained_dynamics(self.model, q, v, self.tau, c, self.f_ext).a
        return forward_dynamics(self.model, q, v, self.tau, self.f_ext)

    def closing(self, q: Array, v: Array, a: Array, gain: Array) -> Float[Array, " nv"]:
        """What ``a`` has to be so that the robot obeys its dynamics and its constraints hold at q.

        Constraint forces make ``J a⁺ = J a − gain c(q)``: a fixed point, ``a⁺ = a``, has no
        position error, ``c(q) = 0``.
        """
        c = self.constraints
        assert c is not None
        rates = acceleration(self.model, q, v, a, c) - gain * residual(self.model, q, c)
        return driven_dynamics(self.model, q, v, self.tau, c, rates, self.f_ext).a

    def force(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The sum of all generalized forces, ``M a + C v`` (N m, N).

        Without constraints it is computed without solving for the accelerations.
        """
        zero = jnp.zeros_like(v)
        weight = inverse_dynamics(self.model, q, zero, zero, self.f_ext)
        force = self.tau - weight - damping_torque(self.model, q, v)
        if self.constraints is None:
            return force
        held = constrained_dynamics(self.model, q, v, self.tau, self.constraints, self.f_ext)
        J = jacobian(self.model, q, self.constraints)
        return force + linear.matmul(J.T, held.forces)
