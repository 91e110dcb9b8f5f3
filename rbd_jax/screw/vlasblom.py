"""Vlasblom's recursive dynamics: everything from body Jacobians and their partial derivatives.

Source: Vlasblom 2015. The report has the linear part of twists first, and sums (1.12), (1.14),
(1.17) along one chain. Here the angular part is first, and the sums run over all bodies, so that
trees are covered. Letters: T is the pose of body i in its parent, S its joint twists, and J_i its
body Jacobian. Derivatives are those of autodiff.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.tree import root_to_leaf
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import inertia, linear, so3
from ..spatial.motion import cross_twist, to_child, turn
from .closed_form import momenta_of, project


def _own_twists(model: Model) -> Float[Array, "nb nv 6"]:
    """For each body the joint twists S in the rows of its own degrees of freedom, and else zero."""
    own = model.topology.dof_bodies[None] == np.arange(model.nb)[:, None]
    return jnp.where(own[:, :, None], motion_subspace(model)[None], 0)


def _broadcast(T, n: int):
    return jnp.broadcast_to(T[0], (n, 3, 3)), jnp.broadcast_to(T[1], (n, 3))


@checked
def body_jacobians(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nb 6 nv"]:
    """``J_i = Ad_{T⁻¹} J_λ + [0 … S_i … 0]``. Source: Vlasblom (1.11), (2.6), (2.8)."""

    def step(J, x):
        T, own = x
        return to_child(_broadcast(T, model.nv), J) + own

    rows = joint_placements(model, q), _own_twists(model)
    world = jnp.zeros((model.nv, 6), model.dtype)
    return so3.transpose(root_to_leaf(model.topology.tree, step, rows, world))


@checked
def body_jacobian_partials(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nb 6 nv nv"]:
    """``∂J_i/∂q_k`` along ``integrate(q, ε e_k)``, with k as the last axis. Cost: O(nb nv²).

    Source: Vlasblom (1.13), (2.20), (2.21): ``Ad ∂J_λ/∂q_k``, plus ``−ad_{S_k} Ad J_λ`` for the
    degrees of freedom k of joint i.
    """
    nv = model.nv

    def step(parent, x):
        T, own = x
        carried = to_child(_broadcast(T, nv), parent[0])
        turned = to_child(_broadcast(T, nv * nv), parent[1].reshape(-1, 6)).reshape(nv, nv, 6)
        return carried + own, turned - cross_twist(own[None], carried[:, None])

    rows = joint_placements(model, q), _own_twists(model)
    world = jnp.zeros((nv, 6), model.dtype), jnp.zeros((nv, nv, 6), model.dtype)
    partials = root_to_leaf(model.topology.tree, step, rows, world)[1]
    return jnp.moveaxis(partials, -1, 1)


@checked
def mass_matrix(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M = Σ_i J_iᵀ I_i J_i`` over all bodies, with the armature on the diagonal.

    Source: Vlasblom (1.12), (2.17)–(2.18), with the inertia about the body frame's origin.
    """
    J = body_jacobians(model, q)
    return project(J, momenta_of(model, J)) + jnp.diag(model.armature)


@checked
def mass_matrix_partials(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """``∂M_ij/∂q_k`` along ``integrate(q, ε e_k)``. Source: Vlasblom (1.14), (2.22)."""
    MJ = momenta_of(model, body_jacobians(model, q))
    half = linear.einsum("bcik,bcj->ijk", body_jacobian_partials(model, q), MJ)
    return half + jnp.swapaxes(half, 0, 1)


def _structure(model: Model) -> Float[Array, "nv nv nv"]:
    """The c with ``[S_a, S_b] = Σ_d c[a, b, d] S_d`` for degrees of freedom of one joint."""
    S, body = motion_subspace(model), model.topology.dof_bodies
    same = (body[:, None] == body[None])[:, :, None] & (body[:, None] == body[None])[:, None]
    c = linear.einsum("abx,dx->abd", cross_twist(S[:, None], S[None]), S)
    return jnp.where(same, c, 0)


@checked
def christoffel(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """``Γ_ijk = ½ (∂M_ij/∂q_k + ∂M_ik/∂q_j − ∂M_kj/∂q_i)``, equal to :func:`rbd_jax.christoffel`.

    The velocity of a joint of several degrees of freedom is not a rate of coordinates. For such
    joints Koszul's formula adds ``½ (⟨[k,j],i⟩ − ⟨[k,i],j⟩ − ⟨[j,i],k⟩)`` with the brackets of
    their joint twists. The armature does not enter this term.

    Source: Vlasblom (1.15).
    """
    dM = mass_matrix_partials(model, q)
    J = body_jacobians(model, q)
    M = project(J, momenta_of(model, J))
    b = linear.einsum("abd,dc->abc", _structure(model), M)  # ⟨[a, b], c⟩
    sym = dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, 2, 0)
    brackets = jnp.einsum("kji->ijk", b) - jnp.einsum("kij->ijk", b) - jnp.einsum("jik->ijk", b)
    return 0.5 * (sym + brackets)


@checked
def coriolis_matrix(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """``C_ij = Σ_k Γ_ijk v_k``. Source: Vlasblom (1.16)."""
    return linear.einsum("ijk,k->ij", christoffel(model, q), v)


@checked
def com_jacobians(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nb 6 nv"]:
    """Jacobians J^g at the centers of mass, in world axes: ``Ad_R Ad_{H_m⁻¹} J_i``.

    Source: Vlasblom (2.9), (2.13), (2.14).
    """
    R, _ = forward_kinematics(model, q)
    J = so3.transpose(body_jacobians(model, q))
    c = inertia.com(model.inertia)
    v = J[..., 3:] - so3.cross(c[:, None], J[..., :3])
    return so3.transpose(turn(R[:, None], jnp.concatenate([J[..., :3], v], axis=-1)))


@checked
def analytic_jacobians(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nb 3 nv"]:
    """``J^a``, which gives the velocities of the centers of mass in world axes: ``ċ_i = J_i^a v``
    (m/s).

    They are the linear rows of :func:`com_jacobians`.

    Source: Vlasblom (2.10)–(2.12), (2.15), (2.16). The derivative in (2.10) is by q, not by q̇.
    """
    return com_jacobians(model, q)[:, 3:]


@checked
def gravity_wrench(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """``G = Σ_i (J_i^a)ᵀ m_i g``: the generalized force of gravity, ``−gravity_torque`` (N m, N).

    It uses mass and center of mass, so it ignores the first moment of a body without mass.

    Source: Vlasblom (1.17), (2.23), (2.24), the latter with the transpose and three rows of J^a.
    """
    weight = inertia.mass(model.inertia)[:, None] * model.gravity[None]
    J = analytic_jacobians(model, q)
    return linear.einsum("bcj,bc->j", J, weight)
