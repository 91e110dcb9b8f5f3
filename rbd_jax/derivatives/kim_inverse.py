"""Derivative of recursive inverse dynamics along a scalar. Source: Kim, Table 5."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..algorithms._tree import leaf_to_root, of_bodies, root_to_leaf, sum_dofs
from ..algorithms.gravity import base_acceleration
from ..lanes import lanes
from ..model import Model, joint_placements, motion_subspace
from ..spatial import inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .kim import Perturbation, complete


@checked
@lanes
def kim_inverse_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """``(τ, ∂τ/∂p)``: inverse dynamics and its derivative along any scalar p, in body frames.

    Source: Kim, Tables 2 and 5 in one pass, with rotor inertia and viscous damping added. Letters:
    ``dX`` is ∂X/∂p, A is V̇, T placement in the parent, V twist, F wrench through the joint,
    ``X_up`` is X of the parent seen from the child.

    Departures: V̇₀ = (0, −g), where Kim's footnote 6 leaves the sign open, and so ∂V̇₀ = (0, −∂g);
    Ṡ is zero, ∂Ṡ is not. Kim's definition of S has ``∂T⁻¹`` for ``∂T``, a misprint; Table 5
    itself is right as it stands.

    Args:
        model: the robot.
        q: configuration. v: velocity. a: acceleration.
        perturbation: how everything changes with p; its ``dtau`` is not used.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Torques (N m, N) and their derivatives. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    d, topology, I = complete(model, perturbation), model.topology, model.inertia
    T, S = joint_placements(model, q), motion_subspace(model)
    Sv, Sa, dSdot_v = (sum_dofs(topology, x) for x in (S * v[:, None], S * a[:, None],
                                                       d.dSdot * v[:, None]))  # fmt: skip
    dSv = sum_dofs(topology, d.dS * v[:, None] + S * d.dv[:, None])
    dSa = sum_dofs(topology, d.dS * a[:, None] + S * d.da[:, None])

    def forward(parent, x):
        T, dh, Sv, Sa, dSv, dSa, dSdot_v = x
        V_up, A_up, dV, dA = (to_child(T, X) for X in parent)
        V = V_up + Sv
        A = A_up + cross_twist(V, Sv) + Sa
        dV = dV - cross_twist(dh, V_up) + dSv
        dA = dA - cross_twist(dh, A_up) + dSa
        dA = dA + cross_twist(dV, Sv) + cross_twist(V, dSv) + dSdot_v
        return V, A, dV, dA

    zero = jnp.zeros((6,), S.dtype)
    dA_world = jnp.concatenate([jnp.zeros_like(d.dgravity), -d.dgravity])
    world = zero, base_acceleration(model), zero, dA_world
    rows = T, d.dh, Sv, Sa, dSv, dSa, dSdot_v
    V, A, dV, dA = root_to_leaf(topology.tree, forward, rows, world)

    F = inertia.apply(I, A) + cross_wrench(V, inertia.apply(I, V))
    dIV = inertia.apply(d.dI, V) + inertia.apply(I, dV)
    dF = inertia.apply(d.dI, A) + inertia.apply(I, dA) - d.df_ext
    dF = dF + cross_wrench(dV, inertia.apply(I, V)) + cross_wrench(V, dIV)
    if f_ext is not None:
        F = F - f_ext

    def backward(x, children):
        T, dh, F, dF = x
        F, dF = F + children[0], dF + children[1]
        carried = dF + cross_wrench(dh, F)  # (60)
        return (wrench_to_parent(T, F), wrench_to_parent(T, carried)), (F, dF)

    F, dF = leaf_to_root(topology.tree, backward, (T, d.dh, F, dF), (zero, zero))
    F, dF = of_bodies(topology, F), of_bodies(topology, dF)
    tau = jnp.sum(S * F, axis=-1) + model.armature * a + model.damping * v
    dtau = jnp.sum(d.dS * F + S * dF, axis=-1)
    dtau = dtau + d.darmature * a + model.armature * d.da
    return tau, dtau + d.ddamping * v + model.damping * d.dv
