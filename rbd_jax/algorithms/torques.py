"""Named special cases of inverse dynamics."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import algorithm, projected
from .passive import without_springs
from .rnea import rnea


@algorithm(driven_joints=True)
def bias_torque(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """``h = C v + g + damping·v − Jᵀ f_ext`` and springs: the torques for a = 0 (N m, N).

    Source: Kim, Table 2, with q̈ = 0. Derivatives are those of autodiff.
    """
    return rnea(model, q, v, jnp.zeros_like(v), f_ext)


@projected(0)
def damping_torque(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``damping · v`` of all joints (N m, N)."""
    return model.damping * v


@algorithm(driven_joints=True)
def gravity_torque(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """``g(q) = ∂V/∂q``: the torques that hold the robot still against gravity (N m, N).

    Source: Kim, Table 2, with q̇ = q̈ = 0. Derivatives are those of autodiff.
    """
    zero = jnp.zeros((model.nv,), model.dtype)
    return rnea(without_springs(model), q, zero, zero)
