"""Inverse dynamics linearized about a motion: Singh's Algorithm 1, as an operator and as matrices.

Everything is in ground coordinates (:mod:`rbd_jax.algorithms.world_frame`). A perturbation of the
robot is, for each body b with parent λ (Kim (64), carried to the ground frame):

- ``eta``:   the twist by which its placement in the parent moves, Kim's ``∂h`` (= S δq);
- ``zeta``:  the change of its joint twist ``S q̇`` at fixed placement (= S δv);
- ``alpha``: the change of ``S q̈`` at fixed placement (= S δa);
- ``phi``:   the change of its own wrench at fixed motion (from inertia and external wrench).

Let w and x be the changes of twist and acceleration seen from the moving body, x in a form that
telescopes along the tree. Then Kim's Table 5, which is Singh's Algorithm 1 for eta = S δq, becomes

    w = Σ_anc (v_λ × η + ζ)
    x = Σ_anc (a_λ × η + v_λ × (v_λ × η) + (v_b + v_λ) × ζ + α) + δa₀
    δτ = Sᵀ [ Σ_subtree (I x + 2B w + φ) + Σ_below η ×* F ]

This operator costs O(n) for one perturbation. The matrices of all perturbations of the joints have
the letters of Singh's Algorithm 1, for degree of freedom k on body b with parent λ; C marks sums
over the subtree of b:

==== ==================================== ==== =============================================
S    motion subspace                      t1   I^C S                               (line 13)
Ṡ    v_b × S                              t2   2B^C S + I^C (Ṡ + Ψ̇)               (line 14)
Ψ̇    v_λ × S                              t3   2B^C Ψ̇ + I^C Ψ̈ + S ×* f^C          (line 15)
Ψ̈    a_λ × S + v_λ × Ψ̇                   t4   2B^Cᵀ S                             (line 16)
B    Coriolis matrix of a body (line 9)   f    wrench that a body takes            (line 10)
==== ==================================== ==== =============================================
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.passive import base_acceleration
from ..algorithms.tree import (
    ancestor_entries,
    ancestor_matrices,
    ancestor_sum,
    per_dof,
    subtree_sum,
    sum_dofs,
)
from ..model import Model, Topology
from ..spatial import inertia, linear, so3
from ..spatial.motion import cross_twist, cross_wrench


class LinearizationPoint(NamedTuple):
    """The motion about which inverse dynamics is linearized, in ground coordinates: O(n) numbers.

    S are the motion subspaces, I the inertias of the bodies, v and a their twists and
    accelerations, F the wrenches through their joints. a0 is the acceleration of the world that
    replaces gravity.
    """

    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    v: Float[Array, "nb 6"]
    a: Float[Array, "nb 6"]
    F: Float[Array, "nb 6"]
    a0: Float[Array, "6"]


def linearization_point(
    model: Model, g: world_frame.WorldQuantities, m: world_frame.Motion
) -> LinearizationPoint:
    """The point of linearization for a robot that moves."""
    return LinearizationPoint(g.S, g.I, m.v, m.a, m.F, base_acceleration(model))


def parents(topology: Topology, r: LinearizationPoint) -> tuple[Array, Array]:
    """Twist and acceleration of each body's parent."""
    rows = topology.tree.parent_rows
    v = jnp.concatenate([r.v, jnp.zeros_like(r.a0)[None]])
    a = jnp.concatenate([r.a, r.a0[None]])
    return v[rows], a[rows]


def two_B(I: Array, v: Array, u: Array) -> Array:
    """``2B w`` for a twist w with angular part u. Source: Singh, Algorithm 1, line 9.

    ``2B = [[Γ, 0], [−2 h_lin ×, 0]]`` with ``h = I v``: the linear part of w does not enter.
    """
    Ibar, mc = inertia.rotational(I), I[..., 1:4]
    h = inertia.apply(I, v)
    w, l = v[..., :3], v[..., 3:]
    n = (
        so3.cross(w, so3.rotate(Ibar, u))
        - so3.rotate(Ibar, so3.cross(w, u))
        - so3.cross(l, so3.cross(mc, u))
        - so3.cross(mc, so3.cross(l, u))
        - so3.cross(h[..., :3], u)
    )
    return jnp.concatenate([n, -2 * so3.cross(h[..., 3:], u)], axis=-1)


def body_operator(
    topology: Topology,
    r: LinearizationPoint,
    eta: Float[Array, "nb 6"],
    zeta: Float[Array, "nb 6"],
    alpha: Float[Array, "nb 6"],
    phi: Float[Array, "nb 6"] | None = None,
    da0: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """``δτ`` of perturbations of the bodies; linear in them. Source: Kim, Table 5."""
    v_up, a_up = parents(topology, r)
    turned = cross_twist(v_up, eta)
    dx = cross_twist(a_up, eta) + cross_twist(v_up, turned) + cross_twist(r.v + v_up, zeta) + alpha
    wx = ancestor_sum(topology.tree, jnp.concatenate([(turned + zeta)[:, :3], dx], axis=-1))
    w, x = wx[:, :3], wx[:, 3:]
    if da0 is not None:
        x = x + da0[None]
    force = inertia.apply(r.I, x) + two_B(r.I, r.v, w)
    if phi is not None:
        force = force + phi
    carried = cross_wrench(eta, r.F)
    Y = subtree_sum(topology.tree, force + carried) - carried
    return jnp.sum(r.S * per_dof(topology, Y), axis=-1)


def joint_operator(
    topology: Topology, r: LinearizationPoint, dqva: Float[Array, "3 nv"]
) -> Float[Array, " nv"]:
    """``∂τ/∂q δq + ∂τ/∂v δv + M δa`` (without armature and damping), O(n)."""
    nv = topology.nv
    columns = dqva[:, :, None] * r.S[None]
    stacked = sum_dofs(topology, jnp.moveaxis(columns, 0, 1).reshape(nv, 18))
    return body_operator(topology, r, *jnp.split(stacked, 3, axis=-1))


def coriolis_block(I: Array, v: Array, h: Array) -> Float[Array, "nb 3 3"]:
    """The block Γ of 2B, see :func:`two_B`, with ``h = I v``."""
    Ibar, C = inertia.rotational(I), so3.hat(I[..., 1:4])
    W, L = so3.hat(v[..., :3]), so3.hat(v[..., 3:])
    WI, LC = so3.matmul(W, Ibar), so3.matmul(L, C)
    # (ω× Ī)ᵀ = −Ī ω× and (v× mc×)ᵀ = mc× v×
    return WI + so3.transpose(WI) - LC - so3.transpose(LC) - so3.hat(h[..., :3])


# --- the matrices ---------------------------------------------------------------------------------


class Composites(NamedTuple):
    """Sums over the subtree at each degree of freedom: 28 numbers, with f^C of the point.

    ``2B^C = [[Γ, 0], [−2 h×, 0]]`` with the linear momentum h. The linear part of a twist does not
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


def composites(topology: Topology, r: LinearizationPoint) -> Composites:
    """The composites of all subtrees. Source: Singh, Algorithm 1, lines 9 and 21–23."""
    h = inertia.apply(r.I, r.v)
    Gamma = coriolis_block(r.I, r.v, h).reshape(topology.nb, 9)
    rows = jnp.concatenate([r.I, Gamma, h[:, 3:]], axis=-1)
    total = per_dof(topology, subtree_sum(topology.tree, rows))
    return Composites(total[:, :10], total[:, 10:19].reshape(-1, 3, 3), total[:, 19:])


class _Row(NamedTuple):
    """A degree of freedom: ``dS`` is Ṡ + Ψ̇, ``dPsi`` Ψ̇ and ``ddPsi`` Ψ̈; t4 is its angular part."""

    S: Float[Array, "6"]
    dS: Float[Array, "6"]
    dPsi: Float[Array, "6"]
    ddPsi: Float[Array, "6"]
    t1: Float[Array, "6"]
    t2: Float[Array, "6"]
    t3: Float[Array, "6"]
    t4: Float[Array, "3"]


def joint_matrices(
    topology: Topology, r: LinearizationPoint
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂τ/∂q, ∂τ/∂v, M)`` without armature and damping. Source: Singh, Algorithm 1."""
    rows = _rows(topology, r)
    dq, dv = ancestor_matrices(topology.dofs_above, _motion_entries, rows)
    (M,) = ancestor_matrices(topology.dof_tree.ancestor_mask, _mass_entries, rows)
    return dq, dv, M


def joint_entries(
    topology: Topology, r: LinearizationPoint
) -> tuple[Float[Array, " entries"], Float[Array, " entries"], Float[Array, " entries"]]:
    """The same at the places of ``topology.coupled``; all others are zero."""
    rows = _rows(topology, r)
    dq, dv = ancestor_entries(topology.dofs_above, _motion_entries, rows)
    (M,) = ancestor_entries(topology.dofs_above, _mass_entries, rows)
    return dq, dv, M


def _rows(topology: Topology, r: LinearizationPoint) -> _Row:
    """Singh, Algorithm 1, lines 5–8 and 13–16."""
    pick, S = lambda x: per_dof(topology, x), r.S
    v_up, a_up = parents(topology, r)
    dPsi = cross_twist(pick(v_up), S)
    dS = cross_twist(pick(r.v), S) + dPsi
    ddPsi = cross_twist(pick(a_up), S) + cross_twist(pick(v_up), dPsi)
    C = composites(topology, r)
    t1 = inertia.apply(C.I, S)
    t2 = C.two_B(S[:, :3]) + inertia.apply(C.I, dS)
    t3 = C.two_B(dPsi[:, :3]) + inertia.apply(C.I, ddPsi) + cross_wrench(S, pick(r.F))
    return _Row(S, dS, dPsi, ddPsi, t1, t2, t3, C.two_B_transposed(S))


def _motion_entries(i: _Row, j: _Row) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Entries of ∂τ/∂q and ∂τ/∂v where j moves the body of i or one above it; lines 17–20."""
    dq_ij = linear.matmul(i.t4, j.dPsi[:3]) + linear.matmul(i.t1, j.ddPsi)
    dv_ij = linear.matmul(i.t4, j.S[:3]) + linear.matmul(i.t1, j.dS)
    return (dq_ij, linear.matmul(j.S, i.t3)), (dv_ij, linear.matmul(j.S, i.t2))


def _mass_entries(i: _Row, j: _Row) -> tuple[tuple[Array, Array]]:
    M_ij = linear.matmul(i.t1, j.S)
    return ((M_ij, M_ij),)
