"""Derivatives of forward dynamics by the articulated bodies themselves, without derivatives of τ.

Source: Kim, Table 6, along all coordinates and velocities at once, at known accelerations. Then the
recursions of ∂Î, ∂Ψ and ∂Π are not needed: the equations of motion of Table 2 are linearized, and
the articulated inertias of Table 3 solve them, column by column, as ABA-zero does in Singh, §IV-E.

The other two methods of FDSVA make ∂τ first and multiply it by M⁻¹. A torque is a sum over the
whole robot behind the joint, so that its rounding error is that of the large sum, and M⁻¹ magnifies
it by the condition of M. Here all quantities are of single articulated bodies, in body frames, and
no such sum is made. The errors stay those of the accelerations.

Letters as in :mod:`rbd_jax.algorithms.aba`. ``dX`` has a row for each column of the result, and A
is V̇. ``D`` of a body has the joint screws in the rows of its own degrees of freedom: it is ∂h along
the coordinates and ``∂(S q̇)`` along the velocities.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.aba import articulated_dynamics
from ...algorithms.factor import solve
from ...algorithms.passive import base_acceleration, minus_springs, spring_matrix
from ...algorithms.tree import (
    at_first_dof,
    at_last_dof,
    leaf_to_root,
    root_to_leaf,
    sum_dofs,
)
from ...model import Model, Topology, joint_placements, motion_subspace
from ...spatial import articulated, inertia, so3
from ...spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent


def articulated_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[Float[Array, " nv"], Float[Array, "nv nv"], Float[Array, "nv nv"], Array]:
    """``(a, ∂a/∂q, ∂a/∂v, M⁻¹)``. Cost: O(n²)."""
    topology, I, nv = model.topology, model.inertia, model.nv
    T, S = joint_placements(model, q), motion_subspace(model)
    still, sprung = jnp.zeros_like(v), minus_springs(model, q, tau)
    a, _, factor = articulated_dynamics(model, q, v, still, sprung, None, f_ext)
    Sv, Sa = (sum_dofs(topology, S * x[:, None]) for x in (v, a))
    screws, columns = _joint_rows(topology, S)

    def forward(parent, x):
        """Motion of a body, ∂V along q and q̇, and the parts of ∂A and ∂F that are its own."""
        T, Sv, Sa, screws, columns = x
        V_up, A_up = (to_child(T, X) for X in parent[:2])
        dV_q, dV_v = (to_child((T[0][None], T[1][None]), X) for X in parent[2:4])
        V, D = V_up + Sv, _joint_columns(screws, columns, nv)
        dV_q, dV_v = dV_q + cross_twist(V_up[None], D), dV_v + D
        return V, A_up + cross_twist(V, Sv) + Sa, dV_q, dV_v

    zero, many = jnp.zeros((6,), S.dtype), jnp.zeros((nv, 6), S.dtype)
    world = zero, base_acceleration(model), many, many
    V, A, *dV = root_to_leaf(topology.tree, forward, (T, Sv, Sa, screws, columns), world)
    h = inertia.apply(I, V)
    F_own = inertia.apply(I, A) + cross_wrench(V, h)
    F_own = F_own if f_ext is None else F_own - f_ext

    def gather(x, below):
        T, F = x
        F = F + below
        return wrench_to_parent(T, F), F

    F = leaf_to_root(topology.tree, gather, (T, F_own), zero)
    A_up = A - cross_twist(V, Sv) - Sa

    first = partial(at_first_dof, topology)
    last = partial(at_last_dof, topology)
    eye = jnp.eye(3, dtype=S.dtype)[None]
    T = first(T[0], eye), first(T[1])
    begins = jnp.asarray(topology.first_dofs, S.dtype)
    dtau = -jnp.concatenate([jnp.zeros((nv, nv), S.dtype), jnp.diag(model.damping)], axis=1)
    if model.stiffness is not None:
        dtau = dtau.at[:, :nv].add(-spring_matrix(model, q))
    own = last(I), last(V), last(h), last(dV[0]), last(dV[1])
    joint = begins, first(screws), first(columns, -1.0), first(A_up), first(V), first(Sv)
    joint = *joint, first(dV[0]), first(dV[1]), first(F)

    def own_wrench(x):
        I, V, h, *dV = x
        dV = jnp.concatenate(dV)
        return cross_wrench(dV, h[None]) + cross_wrench(V[None], inertia.apply(I[None], dV))

    def joint_terms(x):
        """``∂η`` and ``∂h ×* F`` of a joint, at its first node."""
        begins, screws, columns, A_up, V, Sv, dV_q, dV_v, F = x
        D = _joint_columns(screws, columns, nv)
        eta = cross_twist(dV_q, Sv[None]) + cross_twist(A_up[None], D)
        eta_v = cross_twist(dV_v, Sv[None]) + cross_twist(V[None], D)
        turned = jnp.concatenate([cross_wrench(D, F[None]), jnp.zeros_like(D)])
        return begins * jnp.concatenate([eta, eta_v]), begins * turned

    def backward(x, below):
        T, S, armature, own, joint, dtau = x
        Ia = jax.tree.map(jnp.add, articulated.from_inertia(own[0]), below[0])
        B = own_wrench(own) + below[1]
        U, psi, Pi = articulated.eliminate(Ia, S, armature, jnp.zeros_like(armature))
        eta, turned = joint_terms(joint)
        u = dtau - _along(S, B)
        beta = B + _apply(Pi, eta) + (psi * u)[:, None] * U[None] + turned
        up = wrench_to_parent((T[0][None], T[1][None]), beta)
        return (articulated.to_parent(T, Pi), up), u

    nothing = articulated.from_inertia(jnp.zeros((10,), S.dtype)), jnp.zeros((2 * nv, 6), S.dtype)
    rows = T, S, model.armature, own, joint, dtau
    u = leaf_to_root(topology.dof_tree, backward, rows, nothing)

    def down(above, x):
        T, S, U, psi, u, joint = x
        dA = to_child((T[0][None], T[1][None]), above[0]) + joint_terms(joint)[0]
        da = psi * (u - _along(U, dA))
        return dA + da[:, None] * S[None], da

    start = nothing[1], jnp.zeros((2 * nv,), S.dtype)
    rows = T, S, factor.U, factor.psi, u, joint
    by_q, by_v = jnp.split(root_to_leaf(topology.dof_tree, down, rows, start)[1], 2, axis=1)
    unit = jnp.eye(nv, dtype=S.dtype)
    Minv = jax.vmap(lambda b: solve(topology, factor, b), out_axes=1)(unit)
    return a, by_q, by_v, Minv


def _along(S: Float[Array, "6"], X: Float[Array, "m 6"]) -> Float[Array, " m"]:
    return jnp.sum(S[None] * X, axis=-1)


def _apply(Pi: articulated.Articulated, X: Float[Array, "m 6"]) -> Float[Array, "m 6"]:
    """``Π X`` of rows."""
    A, B, C = (x[None] for x in Pi)
    w, v = X[:, :3], X[:, 3:]
    top = so3.rotate(A, w) + so3.rotate(B, v)
    return jnp.concatenate([top, so3.rotate_inverse(B, w) + so3.rotate(C, v)], axis=-1)


def _joint_rows(
    topology: Topology, S: Float[Array, "nv 6"]
) -> tuple[Float[Array, "nb w 6"], Float[Array, "nb w"]]:
    """The screws of each joint and their columns, padded to the joint with the most of them."""
    counts = np.diff(topology.v_starts)
    slots = np.arange(counts.max(initial=1))
    has = slots[None] < counts[:, None]
    dofs = np.where(has, topology.v_starts[:-1, None] + slots[None], 0)
    screws = jnp.where(has[..., None], S[dofs], 0)
    return screws, jnp.asarray(np.where(has, dofs, -1), S.dtype)


def _joint_columns(
    screws: Float[Array, "w 6"], columns: Float[Array, " w"], nv: int
) -> Float[Array, "nv 6"]:
    """The screws of a joint in the rows of its degrees of freedom, zeros in the others."""
    here = columns[None, :] == jnp.arange(nv, dtype=columns.dtype)[:, None]
    return jnp.sum(jnp.where(here[:, :, None], screws[None], 0), axis=1)
