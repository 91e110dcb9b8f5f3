"""What an integrator asks of a robot under given torques."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..constraints import Constraints, constrained_dynamics, jacobian
from ..derivatives.rules import forward_dynamics, inverse_dynamics
from ..model import Model


class Actuated(eqx.Module):
    """The accelerations of a robot under constant torques and wrenches, as a function."""

    model: Model
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None
    constraints: Constraints | None = None

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """``a(t, q, v)``."""
        if self.constraints is not None:
            c = self.constraints
            return constrained_dynamics(self.model, q, v, self.tau, c, self.f_ext).a
        return forward_dynamics(self.model, q, v, self.tau, self.f_ext)

    def force(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """All generalized forces ``M a + C v``; without constraints, known without solving."""
        still = jnp.zeros_like(v)
        weight = inverse_dynamics(self.model, q, still, still, self.f_ext)
        force = self.tau - weight - self.model.damping * v
        if self.constraints is None:
            return force
        held = constrained_dynamics(self.model, q, v, self.tau, self.constraints, self.f_ext)
        J = jacobian(self.model, q, self.constraints)
        return force + jnp.matmul(J.T, held.forces, precision="highest")
