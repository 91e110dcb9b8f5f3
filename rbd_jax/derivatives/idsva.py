"""Explicit derivatives of inverse dynamics. Source: Singh, Algorithm 1 (IDSVA)."""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms.springs import spring_matrix
from ..algorithms.tree import ancestor_matrices, per_dof
from ..lanes import lanes
from ..model import Model, Topology
from ..model.arguments import checked
from ..spatial import inertia
from ..spatial.motion import cross_twist, cross_wrench
from .operator import Residual, composites, parents, residual

dot = partial(jnp.dot, precision="highest")


@checked
@lanes
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
        Derivatives of :func:`rbd_jax.inverse_dynamics`. Cost: O(n d), d the depth of the tree.
    """
    g = ground.pose(model, q)
    r = residual(model, g, ground.motion(model, g, v, a, f_ext))
    dq, dv, M = torque_matrices(model, r)
    return dq if model.stiffness is None else dq + spring_matrix(model, q), dv, M


class _Row(NamedTuple):
    """A degree of freedom, in ground coordinates; t4 and the twists beside it are angular parts.

    ``dS`` is Ṡ + Ψ̇, ``dPsi`` is Ψ̇, ``ddPsi`` is Ψ̈ of the paper.
    """

    S: Float[Array, "6"]
    dS: Float[Array, "6"]
    dPsi: Float[Array, "6"]
    ddPsi: Float[Array, "6"]
    t1: Float[Array, "6"]
    t2: Float[Array, "6"]
    t3: Float[Array, "6"]
    t4: Float[Array, "3"]


def torque_matrices(
    model: Model, r: Residual
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂τ/∂q, ∂τ/∂v, M)`` from the residual, damping and armature on their diagonals."""
    dq, dv, M = joint_matrices(model.topology, r)
    return dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)


def joint_matrices(
    topology: Topology, r: Residual
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂τ/∂q, ∂τ/∂v, M)`` without armature and damping. Source: Singh, Algorithm 1.

    The composites of a subtree are 28 numbers: I (10), the non-zero blocks of 2B (12), f (6).
    Degree of freedom j moves the body of i or one above it (lines 17–20).
    """
    pick, S = lambda x: per_dof(topology, x), r.S
    v_up, a_up = parents(topology, r)
    dPsi = cross_twist(pick(v_up), S)
    dS = cross_twist(pick(r.v), S) + dPsi
    ddPsi = cross_twist(pick(a_up), S) + cross_twist(pick(v_up), dPsi)
    C = composites(topology, r)
    t1 = inertia.apply(C.I, S)
    t2 = C.two_B(S[:, :3]) + inertia.apply(C.I, dS)
    t3 = C.two_B(dPsi[:, :3]) + inertia.apply(C.I, ddPsi) + cross_wrench(S, pick(r.F))
    rows = _Row(S, dS, dPsi, ddPsi, t1, t2, t3, C.two_B_transposed(S))

    def motion(i: _Row, j: _Row):
        dq_ij = dot(i.t4, j.dPsi[:3]) + dot(i.t1, j.ddPsi)
        dv_ij = dot(i.t4, j.S[:3]) + dot(i.t1, j.dS)
        return (dq_ij, dot(j.S, i.t3)), (dv_ij, dot(j.S, i.t2))

    def mass(i: _Row, j: _Row):
        M_ij = dot(i.t1, j.S)
        return ((M_ij, M_ij),)

    dq, dv = ancestor_matrices(topology.dofs_above, motion, rows)
    (M,) = ancestor_matrices(topology.dof_tree.ancestor_mask, mass, rows)
    return dq, dv, M
