"""Derivatives of recursive forward and hybrid dynamics along a scalar. Source: Kim, Tables 6, 7."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import checked
from ..algorithms._tree import leaf_to_root, of_bodies, root_to_leaf, sum_dofs
from ..algorithms.gravity import base_acceleration
from ..algorithms.hybrid import _ends
from ..lanes import lanes
from ..model import Model, joint_placements, motion_subspace
from ..spatial import articulated, inertia, so3
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .kim import Perturbation, complete


@checked
@lanes
def kim_forward_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """``(q̈, ∂q̈/∂p)``: forward dynamics and its derivative along any scalar p, in body frames.

    Source: Kim, Table 6, which is Table 7 with no prescribed joint; see
    :func:`kim_hybrid_dynamics_derivative`. The text of Table 6 at hand has a misprint: the first
    term of ∂V is ``Ad_{T⁻¹} ∂V_λ``, as in Table 7.

    Args:
        model: the robot.
        q: configuration. v: velocity. tau: torques (N m, N).
        perturbation: how everything changes with p; its ``da`` is not used.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Accelerations and their derivatives. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    none = jnp.zeros(model.nv, bool)
    (a, _), (da, _) = _table7(model, q, v, jnp.zeros_like(v), tau, none, perturbation, f_ext)
    return a, da


@checked
@lanes
def kim_hybrid_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nb"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[
    tuple[Float[Array, " nv"], Float[Array, " nv"]],
    tuple[Float[Array, " nv"], Float[Array, " nv"]],
]:
    """``((q̈, τ), (∂q̈/∂p, ∂τ/∂p))``: hybrid dynamics and its derivative along any scalar p.

    Source: Kim, Tables 4 and 7 in one pass, with rotor inertia and viscous damping added.
    Joints of several degrees of freedom are eliminated one column of S at a time, as in
    :mod:`rbd_jax.algorithms.hybrid`, so that Ψ is a scalar.

    Misprints of Table 7 as printed in the text at hand, mended here: the first term of ∂η is
    ``ad_{∂V} S q̇``; for a prescribed joint ``∂β = ∂B̂ + ∂Î (η + S q̈) + Î (∂η + ∂S q̈ + S ∂q̈)``
    (the text starts it as ∂Ψ and has it again, out of place, in ∂Ψ of the other joints); ∂Ψ and
    ∂β of a joint that is not prescribed are those of Table 6.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have their acceleration given; data, it may be mapped over.
        perturbation: how everything changes with p; ``da`` and ``dtau`` are used where ``a`` and
            ``tau`` are.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Accelerations and torques, complete, and their derivatives. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    given = of_bodies(model.topology, prescribed[:, None])[:, 0]
    return _table7(model, q, v, a, tau, given, perturbation, f_ext)


def _table7(model, q, v, a, tau, given, perturbation, f_ext):
    """The three recursions on the tree of degrees of freedom.

    Letters: ``dX`` is ∂X/∂p, Ia and Ba are Î and B̂, U is Î S, A is V̇, w the acceleration that
    β assumes, ``X_up`` X of the parent seen from the child.
    """
    d, topology = complete(model, perturbation), model.topology
    S, known = motion_subspace(model), given.astype(model.dtype)
    T, dh, eta, deta, I, dI, B, dB = _per_dof(topology, *_velocities(model, S, q, v, d, f_ext))
    tau_in = jnp.where(given, 0, tau - model.damping * v)
    dtau_in = jnp.where(given, 0, d.dtau - d.ddamping * v - model.damping * d.dv)
    inputs = a, d.da, tau_in, dtau_in, model.armature, d.darmature, known

    zero6, zero = jnp.zeros((6,), S.dtype), articulated.from_inertia(jnp.zeros((10,), S.dtype))
    rows = T, dh, S, d.dS, eta, deta, I, dI, B, dB, *inputs
    factors = leaf_to_root(topology.dof_tree, _backward, rows, (zero, zero, zero6, zero6))

    dA_world = jnp.concatenate([jnp.zeros_like(d.dgravity), -d.dgravity])
    number = jnp.zeros((), S.dtype)
    world = base_acceleration(model), dA_world, *[number] * 4
    rows = T, dh, S, d.dS, eta, deta, *factors, *inputs
    values = root_to_leaf(topology.dof_tree, _forward, rows, world)
    _, _, qdd, dqdd, torque, dtorque = values
    out = jnp.where(given, torque + model.damping * v, tau)
    dout = dtorque + d.ddamping * v + model.damping * d.dv
    return (qdd, out), (dqdd, jnp.where(given, dout, d.dtau))


def _velocities(model, S, q, v, d, f_ext):
    """First recursion, body by body: ``T, ∂h, η, ∂η, I, ∂I`` and what each body adds to B̂, ∂B̂."""
    topology, I, T = model.topology, model.inertia, joint_placements(model, q)
    Sv = sum_dofs(topology, S * v[:, None])
    dSv = sum_dofs(topology, d.dS * v[:, None] + S * d.dv[:, None])
    dSdot_v = sum_dofs(topology, d.dSdot * v[:, None])

    def forward(parent, x):
        T, dh, Sv, dSv = x
        V_up, dV = to_child(T, parent[0]), to_child(T, parent[1])
        return V_up + Sv, dV - cross_twist(dh, V_up) + dSv

    zero = jnp.zeros((6,), S.dtype)
    V, dV = root_to_leaf(topology.tree, forward, (T, d.dh, Sv, dSv), (zero, zero))
    eta = cross_twist(V, Sv)
    deta = cross_twist(dV, Sv) + cross_twist(V, dSv) + dSdot_v
    B = cross_wrench(V, inertia.apply(I, V))
    dIV = inertia.apply(d.dI, V) + inertia.apply(I, dV)
    dB = cross_wrench(dV, inertia.apply(I, V)) + cross_wrench(V, dIV) - d.df_ext
    if f_ext is not None:
        B = B - f_ext
    return T, d.dh, eta, deta, I, d.dI, B, dB


def _per_dof(topology, T, dh, eta, deta, I, dI, B, dB):
    """From bodies to degrees of freedom: T, h, η belong to a joint's first, I, B to its last."""
    first, last = (jnp.asarray(np.isin(np.arange(topology.nv), k)) for k in _ends(topology))

    def at(where, x, otherwise: Any = 0):
        mask = where.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(mask, of_bodies(topology, x), otherwise)

    eye = jnp.eye(3, dtype=T[0].dtype)[None]
    T = at(first, T[0], eye), at(first, T[1])
    at_first = [at(first, x) for x in (dh, eta, deta)]
    return T, *at_first, *(at(last, x) for x in (I, dI, B, dB))


def _backward(x, children):
    """Second recursion: Î, B̂, Ψ, Π, β and their derivatives."""
    T, dh, S, dS, eta, deta, I, dI, B, dB, a, da, tau, dtau, armature, darmature, known = x
    Ia = jax.tree.map(jnp.add, articulated.from_inertia(I), children[0])
    dIa = jax.tree.map(jnp.add, articulated.from_inertia(dI), children[1])
    Ba, dBa = B + children[2], dB + children[3]
    U, dU = articulated.apply(Ia, S), articulated.apply(dIa, S) + articulated.apply(Ia, dS)
    D = jnp.sum(S * U) + armature
    dD = jnp.sum(dS * U + S * dU) + darmature
    psi = jnp.where(known > 0, 0, 1 / jnp.where(known > 0, 1, D))
    dpsi = -psi * dD * psi
    u, du = tau - jnp.sum(S * Ba), dtau - jnp.sum(dS * Ba + S * dBa)

    Pi = articulated.less(Ia, psi, U)
    dPi = _less_both(articulated.less(dIa, dpsi, U), psi, U, dU)
    r, dr = u - jnp.sum(U * eta), du - jnp.sum(dU * eta + U * deta)
    w = jnp.where(known > 0, a, psi * r)
    dw = jnp.where(known > 0, da, dpsi * r + psi * dr)
    beta = Ba + articulated.apply(Ia, eta) + U * w
    dbeta = dBa + articulated.apply(dIa, eta) + articulated.apply(Ia, deta) + dU * w + U * dw

    carried = dbeta + cross_wrench(dh, beta)  # (60)
    wrenches = wrench_to_parent(T, beta), wrench_to_parent(T, carried)
    inertias = articulated.to_parent(T, Pi), articulated.to_parent(T, _less_turned(dPi, Pi, dh))
    return (*inertias, *wrenches), (U, dU, psi, dpsi, u, du)


def _forward(parent, x):
    """Third recursion: q̈, V̇, τ and their derivatives."""
    T, dh, S, dS, eta, deta, U, dU, psi, dpsi, u, du, *rest = x
    a, da, tau, dtau, armature, darmature, known = rest
    A_up, dA = to_child(T, parent[0]), to_child(T, parent[1])
    A = A_up + eta
    dA = dA - cross_twist(dh, A_up) + deta
    pull, dpull = jnp.sum(U * A), jnp.sum(dU * A + U * dA)
    qdd = jnp.where(known > 0, a, psi * (u - pull))
    dqdd = jnp.where(known > 0, da, dpsi * (u - pull) + psi * (du - dpull))
    D, dD = jnp.sum(S * U) + armature, jnp.sum(dS * U + S * dU) + darmature
    torque = pull + (tau - u) + D * qdd  # Sᵀ(Î V̇ + B̂)
    dtorque = dpull + (dtau - du) + dD * qdd + D * dqdd
    return A + S * qdd, dA + dS * qdd + S * dqdd, qdd, dqdd, torque, dtorque


# An articulated inertia [[A, B], [Bᵀ, C]] as its blocks (A, B, C), as in algorithms/hybrid.


def _less_both(Ia, psi, U, dU):
    """``Î − ∂U Ψ Uᵀ − U Ψ ∂Uᵀ``."""
    A, B, C = Ia
    (n, f), (dn, df) = jnp.split(psi * U, 2), jnp.split(dU, 2)
    outer = lambda x, y: x[:, None] * y[None, :]  # noqa: E731
    return (
        A - outer(n, dn) - outer(dn, n),
        B - outer(n, df) - outer(dn, f),
        C - outer(f, df) - outer(df, f),
    )


def _less_turned(dPi, Pi, dh):
    """``∂Π − Π ad_∂h − (Π ad_∂h)ᵀ``, with ``ad = [[W, 0], [L, W]]``."""
    A, B, C = Pi
    W, L = so3.hat(dh[:3]), so3.hat(dh[3:])
    top = so3.matmul(A, W) + so3.matmul(B, L)
    side = so3.matmul(B, W) - so3.matmul(W, B) - so3.matmul(L, C)
    low = so3.matmul(C, W)
    dA, dB, dC = dPi
    return dA - top - so3.transpose(top), dB - side, dC - low - so3.transpose(low)
