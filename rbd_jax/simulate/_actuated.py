"""What an integrator asks of a robot under given torques."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.rules import forward_dynamics, inverse_dynamics
from ..model import Model


class Actuated(eqx.Module):
    """The accelerations of a robot under constant torques and wrenches, as a function."""

    model: Model
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """``a(t, q, v)``."""
        return forward_dynamics(self.model, q, v, self.tau, self.f_ext)

    def force(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """All generalized forces ``M a + C v``, known without solving for the accelerations."""
        still = jnp.zeros_like(v)
        weight = inverse_dynamics(self.model, q, still, still, self.f_ext)
        return self.tau - weight - self.model.damping * v
