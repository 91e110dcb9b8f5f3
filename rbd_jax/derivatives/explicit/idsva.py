"""Explicit derivatives of inverse dynamics. Source: Singh, Algorithm 1 (IDSVA).

Letters of the paper, for degree of freedom k on body b with parent λ, all in ground coordinates
(:mod:`rbd_jax.algorithms.world_frame`); C marks sums over the subtree of b:

==== ==================================== ==== =============================================
S    motion subspace                      t1   I^C S                               (line 13)
Ṡ    v_b × S                              t2   2B^C S + I^C (Ṡ + Ψ̇)               (line 14)
Ψ̇    v_λ × S                              t3   2B^C Ψ̇ + I^C Ψ̈ + S ×* f^C          (line 15)
Ψ̈    a_λ × S + v_λ × Ψ̇                   t4   2B^Cᵀ S                             (line 16)
B    Coriolis matrix of a body (line 9)   f    wrench that a body takes            (line 10)
==== ==================================== ==== =============================================
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.rnea import rnea
from ...algorithms.springs import spring_matrix
from ...algorithms.tree import ancestor_matrices, per_dof, subtree_sum
from ...lanes import lanes
from ...model import CoordinateModel, Model, Topology
from ...model.arguments import checked, takes_coordinates
from ...model.expansion import Expansion
from ...spatial import inertia, so3
from ...spatial.motion import cross_twist, cross_wrench
from ..linearization import Residual, coriolis_block, parents, residual
from .coordinate_chain import torque_blocks

dot = partial(jnp.dot, precision="highest")


class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives of the torques τ; the one along a is the mass matrix M."""

    dtau_dq: Float[Array, "nv nv"]
    dtau_dv: Float[Array, "nv nv"]
    M: Float[Array, "nv nv"]


@checked
@lanes
@takes_coordinates
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
        x = Expansion(model, q)
        full = x.robot, x.q, x.velocity(v), x.acceleration(v, a), f_ext
        blocks = inverse_dynamics_derivatives(*full)
        return InverseDynamicsDerivatives(*torque_blocks(x, v, a, lambda: rnea(*full), *blocks))
    g = world_frame.pose(model, q)
    r = residual(model, g, world_frame.motion(model, g, v, a, f_ext))
    dq, dv, M = torque_matrices(model, r)
    dq = dq if model.stiffness is None else dq + spring_matrix(model, q)
    return InverseDynamicsDerivatives(dq, dv, M)


def torque_matrices(model: Model, r: Residual) -> InverseDynamicsDerivatives:
    """``(∂τ/∂q, ∂τ/∂v, M)`` from the residual, with damping and armature on their diagonals."""
    dq, dv, M = joint_matrices(model.topology, r)
    return InverseDynamicsDerivatives(
        dq, dv + jnp.diag(model.damping), M + jnp.diag(model.armature)
    )


class _Row(NamedTuple):
    """A degree of freedom. ``dS`` is Ṡ + Ψ̇, ``dPsi`` Ψ̇ and ``ddPsi`` Ψ̈; of t4 the angular part."""

    S: Float[Array, "6"]
    dS: Float[Array, "6"]
    dPsi: Float[Array, "6"]
    ddPsi: Float[Array, "6"]
    t1: Float[Array, "6"]
    t2: Float[Array, "6"]
    t3: Float[Array, "6"]
    t4: Float[Array, "3"]


def joint_matrices(topology: Topology, r: Residual) -> InverseDynamicsDerivatives:
    """``(∂τ/∂q, ∂τ/∂v, M)`` without armature and damping. Source: Singh, Algorithm 1."""
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

    def motion(i: _Row, j: _Row):  # lines 17–20, where j moves the body of i or one above it
        dq_ij = dot(i.t4, j.dPsi[:3]) + dot(i.t1, j.ddPsi)
        dv_ij = dot(i.t4, j.S[:3]) + dot(i.t1, j.dS)
        return (dq_ij, dot(j.S, i.t3)), (dv_ij, dot(j.S, i.t2))

    def mass(i: _Row, j: _Row):
        M_ij = dot(i.t1, j.S)
        return ((M_ij, M_ij),)

    dq, dv = ancestor_matrices(topology.dofs_above, motion, rows)
    (M,) = ancestor_matrices(topology.dof_tree.ancestor_mask, mass, rows)
    return InverseDynamicsDerivatives(dq, dv, M)


class Composites(NamedTuple):
    """Sums over the subtree at each degree of freedom, 28 numbers with f^C of the residual.

    ``2B^C = [[Γ, 0], [−2 h×, 0]]`` with the linear momentum h: the linear part of a twist does not
    enter.
    """

    I: Float[Array, "nv 10"]
    Gamma: Float[Array, "nv 3 3"]
    h: Float[Array, "nv 3"]

    def two_B(self, w: Array) -> Array:
        """``2B^C`` times twists with angular part w."""
        return jnp.concatenate([so3.rotate(self.Gamma, w), -2 * so3.cross(self.h, w)], axis=-1)

    def two_B_transposed(self, S: Array) -> Array:
        """The angular part of ``2B^Cᵀ S``; the linear part is zero."""
        return so3.rotate_inverse(self.Gamma, S[:, :3]) + 2 * so3.cross(self.h, S[:, 3:])


def composites(topology: Topology, r: Residual) -> Composites:
    """The composites of all subtrees. Source: Singh, Algorithm 1, lines 9 and 21–23."""
    h = inertia.apply(r.I, r.v)
    Gamma = coriolis_block(r.I, r.v, h).reshape(topology.nb, 9)
    rows = jnp.concatenate([r.I, Gamma, h[:, 3:]], axis=-1)
    total = per_dof(topology, subtree_sum(topology.tree, rows))
    return Composites(total[:, :10], total[:, 10:19].reshape(-1, 3, 3), total[:, 19:])
