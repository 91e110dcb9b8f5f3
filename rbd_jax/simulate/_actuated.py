"""The accelerations of a robot whose torques are held, as integrators ask for them."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.rules import forward_dynamics, inverse_dynamics
from ..model import Model


class ActuatedRobot(eqx.Module):
    """The accelerations of a robot under constant torques and wrenches, as a function."""

    model: Model
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The accelerations ``a(t, q, v)`` (rad/s², m/s²)."""
        return forward_dynamics(self.model, q, v, self.tau, self.f_ext)

    def force(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """The sum of all generalized forces, ``M a + C v`` (N m, N).

        It is computed from the applied forces, without solving for the accelerations.
        """
        zero = jnp.zeros_like(v)
        weight = inverse_dynamics(self.model, q, zero, zero, self.f_ext)
        return self.tau - weight - self.model.damping * v
