"""The derivative of inverse dynamics as a linear operator on perturbations, O(n), and its assembly.

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
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.gravity import base_acceleration
from ..algorithms.tree import ancestor_sum, per_dof, subtree_sum, sum_dofs
from ..model import Model, Topology
from ..spatial import inertia, so3
from ..spatial.motion import cross_twist, cross_wrench


class Residual(NamedTuple):
    """The state of a moving robot that the operator needs, in ground coordinates: O(n) numbers."""

    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    v: Float[Array, "nb 6"]
    a: Float[Array, "nb 6"]
    F: Float[Array, "nb 6"]
    a0: Float[Array, "6"]


def residual(model: Model, g: world_frame.Placed, m: world_frame.Motion) -> Residual:
    """Collect the residual; ``F`` are the wrenches through the joints."""
    return Residual(g.S, g.I, m.v, m.a, m.F, base_acceleration(model))


def parents(topology: Topology, r: Residual) -> tuple[Array, Array]:
    """Twist and acceleration of each body's parent."""
    rows = topology.tree.parent_rows
    v = jnp.concatenate([r.v, jnp.zeros_like(r.a0)[None]])
    a = jnp.concatenate([r.a, r.a0[None]])
    return v[rows], a[rows]


def _two_B(I: Array, v: Array, u: Array) -> Array:
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
    r: Residual,
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
    force = inertia.apply(r.I, x) + _two_B(r.I, r.v, w)
    if phi is not None:
        force = force + phi
    carried = cross_wrench(eta, r.F)
    Y = subtree_sum(topology.tree, force + carried) - carried
    return jnp.sum(r.S * per_dof(topology, Y), axis=-1)


def joint_operator(
    topology: Topology, r: Residual, dqva: Float[Array, "3 nv"]
) -> Float[Array, " nv"]:
    """``∂τ/∂q δq + ∂τ/∂v δv + M δa`` (without armature and damping), O(n)."""
    nv = topology.nv
    columns = dqva[:, :, None] * r.S[None]
    stacked = sum_dofs(topology, jnp.moveaxis(columns, 0, 1).reshape(nv, 18))
    return body_operator(topology, r, *jnp.split(stacked, 3, axis=-1))


def coriolis_block(I: Array, v: Array, h: Array) -> Float[Array, "nb 3 3"]:
    """The block Γ of 2B, see :func:`_two_B`, with ``h = I v``."""
    Ibar, C = inertia.rotational(I), so3.hat(I[..., 1:4])
    W, L = so3.hat(v[..., :3]), so3.hat(v[..., 3:])
    WI, LC = so3.matmul(W, Ibar), so3.matmul(L, C)
    # (ω× Ī)ᵀ = −Ī ω× and (v× mc×)ᵀ = mc× v×
    return WI + so3.transpose(WI) - LC - so3.transpose(LC) - so3.hat(h[..., :3])
