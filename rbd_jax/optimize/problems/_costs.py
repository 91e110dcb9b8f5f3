"""The costs that most problems use, as residuals on the manifold."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms.kinematics import frame_placement
from ...model import Model, difference
from ...spatial import so3


class StateCost(eqx.Module):
    """``½ |w ∘ (x ⊖ x_target)|²`` of the state, and in a stage cost also of the controls.

    Weights multiply residuals, so a weight w costs ``½ w² error²``.
    """

    q: Float[Array, " nq"]
    """Target configuration."""
    q_weight: Float[Array, " nv"]
    """Weights of ``difference(q_target, q)`` (1/rad, 1/m)."""
    v_weight: Float[Array, " nv"]
    """Weights of the velocity, whose target is zero."""
    u_weight: Float[Array, " nu"] | None = None
    """Weights of the controls; None for a final cost."""
    u: Float[Array, " nu"] | None = None
    """Target of the controls, zero if None."""

    def __call__(self, model: Model, *state) -> Float[Array, " r"]:
        """Residuals at ``(t, q, v, u)``, or at ``(q, v)`` without weights of controls."""
        if (len(state) == 2) != (self.u_weight is None):
            problem = "a final cost has no controls; leave u_weight out"
            if self.u_weight is None:
                problem = "a stage cost needs u_weight, the weights of the controls"
            raise ValueError(f"StateCost: {problem}")
        q, v = state if self.u_weight is None else state[1:3]
        parts = [self.q_weight * difference(model, self.q, q), self.v_weight * v]
        if self.u_weight is not None:
            parts.append(self.u_weight * (state[3] if self.u is None else state[3] - self.u))
        return jnp.concatenate(parts)


class FrameCost(eqx.Module):
    """``½ |w_p (p − p_target)|² + ½ |w_R log(R_targetᵀ R)|²`` of a frame, as a final cost."""

    p: Float[Array, "3"]
    """Target position in the world (m)."""
    p_weight: Float[Array, ""]
    R: Float[Array, "3 3"]
    """Target orientation."""
    R_weight: Float[Array, ""]
    v_weight: Float[Array, " nv"]
    """Weights of the joint velocities, whose target is zero."""
    frame: str = eqx.field(static=True)

    def __call__(self, model: Model, q: Array, v: Array) -> Float[Array, " r"]:
        """Residuals of the last state."""
        R, p = frame_placement(model, q, self.frame)
        turn = so3.log(so3.matmul(so3.transpose(self.R), R))
        parts = self.p_weight * (p - self.p), self.R_weight * turn, self.v_weight * v
        return jnp.concatenate(parts)
