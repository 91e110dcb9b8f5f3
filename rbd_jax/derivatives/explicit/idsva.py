"""Explicit derivatives of inverse dynamics. Source: Singh, Algorithm 1 (IDSVA).

The matrices of the algorithm, in the letters of the paper, are in
:mod:`rbd_jax.derivatives.linearization`. The custom_jvp rule of inverse dynamics assembles the same
matrices where many directions are asked for.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.passive import spring_matrix
from ...algorithms.rnea import rnea
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...model.coordinates import CoordinateMap
from ..linearization import (
    LinearizationPoint,
    joint_entries,
    joint_matrices,
    linearization_point,
)
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
        Derivatives of :func:`rbd_jax.inverse_dynamics`. Cost: O(n d), d the depth of the tree, and
        three dense matrices, which take longer than the rest for trees of hundreds of bodies:
        :func:`rbd_jax.derivatives.sparse_inverse_dynamics_derivatives` has only what is not zero.
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


class TorqueDerivativeEntries(NamedTuple):
    """The entries of :class:`InverseDynamicsDerivatives` that may differ from zero.

    Their rows and columns are ``model.topology.coupled``.
    """

    dtau_dq: Float[Array, " entries"]
    dtau_dv: Float[Array, " entries"]
    M: Float[Array, " entries"]


@algorithm()
def sparse_inverse_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> TorqueDerivativeEntries:
    """``(∂τ/∂q, ∂τ/∂v, M)`` without the zeros of degrees of freedom on different branches.

    The same as :func:`rbd_jax.inverse_dynamics_derivatives`, for large trees. ``rows, columns =
    model.topology.coupled`` are known before any number is, so that
    ``jnp.zeros((nv, nv)).at[rows, columns].set(M)`` is the dense matrix, and a product with x is
    ``jnp.zeros(nv).at[rows].add(M * x[columns])``.

    Source: Singh, Algorithm 1, lines 17–20, whose entries these are.

    Args:
        model: the robot, without driven joints.
        q: configuration. v: velocity. a: acceleration.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Entries, as many as there are pairs on one branch. Cost: O(n d), d the depth of the tree, in
        memory too.
    """
    g = world_frame.quantities(model, q)
    r = linearization_point(model, g, world_frame.motion(model, g, v, a, f_ext))
    dq, dv, M = joint_entries(model.topology, r)
    rows, columns = model.topology.coupled
    if model.stiffness is not None:
        dq = dq + spring_matrix(model, q)[rows, columns]
    diagonal = np.flatnonzero(rows == columns)  # in the order of the degrees of freedom
    dv, M = dv.at[diagonal].add(model.damping), M.at[diagonal].add(model.armature)
    return TorqueDerivativeEntries(dq, dv, M)


def torque_matrices(model: Model, r: LinearizationPoint) -> InverseDynamicsDerivatives:
    """``(∂τ/∂q, ∂τ/∂v, M)`` at a motion, with damping and armature on their diagonals."""
    dq, dv, M = joint_matrices(model.topology, r)
    return InverseDynamicsDerivatives(
        dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)
    )
