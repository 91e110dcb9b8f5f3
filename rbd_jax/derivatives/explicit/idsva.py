"""Explicit derivatives of inverse dynamics. Source: Singh, Algorithm 1 (IDSVA).

The matrices of the algorithm, in the letters of the paper, are in
:mod:`rbd_jax.derivatives.linearization`. The custom_jvp rule of inverse dynamics assembles the same
matrices where many directions are asked for.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.passive import spring_matrix
from ...algorithms.rnea import rnea
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...model.coordinates import CoordinateMap
from ..linearization import LinearizationPoint, joint_matrices, linearization_point
from .coordinate_chain import torque_blocks


class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives of the torques τ; the one along a is the mass matrix M."""

    dtau_dq: Float[Array, "nv nv"]
    dtau_dv: Float[Array, "nv nv"]
    M: Float[Array, "nv nv"]


@algorithm(driven_joints=True)
def inverse_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> InverseDynamicsDerivatives:
    """``(∂τ/∂q, ∂τ/∂v, M)`` in the tangent space: column k is along ``integrate(q, ε e_k)``.

    Source: Singh, Algorithm 1, in ground coordinates, with joints of several degrees of freedom
    and composites of 28 numbers. External wrenches fixed in the body frame join ``f``. Armature
    and damping are added to the diagonals of M and ∂τ/∂v. The result's own derivatives are those
    of autodiff.

    Args:
        model: the robot.
        q: configuration. v: velocity. a: acceleration.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Derivatives of :func:`rbd_jax.inverse_dynamics`. Cost: O(n d), d the depth of the tree.
    """
    if isinstance(model, CoordinateModel):
        x = CoordinateMap(model, q)
        full = x.robot, x.q, x.velocity(v), x.acceleration(v, a), f_ext
        blocks = inverse_dynamics_derivatives(*full)
        return InverseDynamicsDerivatives(*torque_blocks(x, v, a, lambda: rnea(*full), *blocks))
    g = world_frame.quantities(model, q)
    r = linearization_point(model, g, world_frame.motion(model, g, v, a, f_ext))
    dq, dv, M = torque_matrices(model, r)
    dq = dq if model.stiffness is None else dq + spring_matrix(model, q)
    return InverseDynamicsDerivatives(dq, dv, M)


def torque_matrices(model: Model, r: LinearizationPoint) -> InverseDynamicsDerivatives:
    """``(∂τ/∂q, ∂τ/∂v, M)`` at a motion, with damping and armature on their diagonals."""
    dq, dv, M = joint_matrices(model.topology, r)
    return InverseDynamicsDerivatives(
        dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)
    )
