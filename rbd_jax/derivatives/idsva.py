"""Explicit derivatives of inverse dynamics. Source: Singh, Algorithm 1 (IDSVA)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..algorithms import ground
from ..model import Model
from ._operator import Residual, joint_matrices, residual


@checked
def inverse_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂τ/∂q, ∂τ/∂v, M)`` in the tangent space: column k is along ``integrate(q, ε e_k)``.

    Source: Singh, Algorithm 1, in ground coordinates, with joints of several degrees of freedom
    and composites of 28 numbers; external wrenches fixed in the body frame join ``f``; armature
    and damping on the diagonals of M and ∂τ/∂v.

    Args:
        model: the robot.
        q: configuration. v: velocity. a: acceleration.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Derivatives of :func:`rbd_jax.inverse_dynamics`. Cost: O(n²).
    """
    g = ground.pose(model, q)
    r = residual(model, g, ground.motion(model, g, v, a, f_ext))
    return torque_matrices(model, r)


def torque_matrices(
    model: Model, r: Residual
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂τ/∂q, ∂τ/∂v, M)`` from the residual, damping and armature on their diagonals."""
    dq, dv, M = joint_matrices(model.topology, r)
    return dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)
