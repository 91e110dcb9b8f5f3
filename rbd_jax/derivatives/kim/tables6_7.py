"""Derivatives of recursive forward and hybrid dynamics along a scalar. Source: Kim, Tables 6, 7."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms.aba import prescribed_dofs
from ...algorithms.passive import base_acceleration, minus_springs, plus_springs
from ...algorithms.tree import (
    at_first_dof,
    at_last_dof,
    leaf_to_root,
    root_to_leaf,
    sum_dofs,
)
from ...model import CoordinateModel, Model, joint_placements, motion_subspace
from ...model.arguments import algorithm
from ...spatial import articulated, inertia, so3
from ...spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from ..symbolic_zeros import add, unless_none
from .driven_joints import driven_table7
from .perturbation import Perturbation, ValueAndDerivative, fitting


@algorithm(driven_joints=True)
def kim_forward_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ValueAndDerivative:
    """``(q̈, ∂q̈/∂p)``: forward dynamics and its derivative along any scalar p, in body frames.

    Source: Kim, Table 6, which is Table 7 without prescribed joints; see
    :func:`kim_hybrid_dynamics_derivative`. The text of Table 6 at hand has a misprint: the first
    term of ∂V is ``Ad_{T⁻¹} ∂V_λ``, as in Table 7. Further derivatives are those of autodiff.

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
    if isinstance(model, CoordinateModel):
        still = jnp.zeros_like(v)
        out = driven_table7(model, q, v, still, tau, None, perturbation, f_ext)
        return ValueAndDerivative(out[0][0], out[1][0])
    none = jnp.zeros(model.nv, bool)
    (a, _), (da, _) = _table7(model, q, v, jnp.zeros_like(v), tau, none, perturbation, f_ext)
    return ValueAndDerivative(a, da)


@algorithm(driven_joints=True)
def kim_hybrid_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nj"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ValueAndDerivative:
    """``((q̈, τ), (∂q̈/∂p, ∂τ/∂p))``: hybrid dynamics and its derivative along any scalar p.

    Source: Kim, Tables 4 and 7 in one pass, with rotor inertia and viscous damping added.
    Joints of several degrees of freedom are eliminated one column of S at a time, as in
    :mod:`rbd_jax.algorithms.aba`, so that Ψ is a scalar. Terms of quantities that do not change are
    left out, as in §3.2: along q̇, q̈ and τ the recursion of ∂Î, ∂Ψ and ∂Π vanishes. Further
    derivatives are those of autodiff.

    The text of Table 7 at hand has misprints. The first term of ∂η is ``ad_{∂V} S q̇``. For a
    prescribed joint ``∂β = ∂B̂ + ∂Î (η + S q̈) + Î (∂η + ∂S q̈ + S ∂q̈)``; the text starts this line
    as ∂Ψ, and repeats it in ∂Ψ of the other joints. For joints that are not prescribed, ∂Ψ and ∂β
    are as in Table 6.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have a prescribed acceleration, as in :func:`rbd_jax.hybrid_aba`.
        perturbation: how everything changes with p; ``da`` and ``dtau`` are used where ``a`` and
            ``tau`` are.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Accelerations and torques of all joints, and their derivatives. Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    prescribed = prescribed_dofs(model, prescribed)
    if isinstance(model, CoordinateModel):
        out = driven_table7(model, q, v, a, tau, prescribed, perturbation, f_ext)
        return ValueAndDerivative(*out)
    return ValueAndDerivative(*_table7(model, q, v, a, tau, prescribed, perturbation, f_ext))


def _table7(model, q, v, a, tau, prescribed, perturbation, f_ext):
    """The three recursions on the tree of degrees of freedom.

    Letters as in :mod:`rbd_jax.algorithms.aba`, and: ``dX`` is ∂X/∂p, A is V̇, w is the acceleration
    that β assumes, ``X_up`` is X of the parent seen from the child.
    """
    d, topology = fitting(model, perturbation), model.topology
    S, flags = motion_subspace(model), prescribed.astype(model.dtype)
    T, dh, eta, deta, I, dI, B, dB = _rows(topology, *_velocities(model, S, q, v, d, f_ext))
    tau_in = jnp.where(prescribed, 0, minus_springs(model, q, tau) - model.damping * v)
    minus = lambda x, y: -x * y  # noqa: E731
    friction = add(unless_none(minus, d.ddamping, v), unless_none(minus, model.damping, d.dv))
    friction = add(friction, unless_none(jnp.negative, d.dspring))
    dtau_in = unless_none(lambda x: jnp.where(prescribed, 0, x), add(d.dtau, friction))
    inputs = a, d.da, tau_in, dtau_in, model.armature, d.darmature, flags

    zero6, zero = jnp.zeros((6,), S.dtype), articulated.from_inertia(jnp.zeros((10,), S.dtype))
    rows = T, dh, S, d.dS, eta, deta, I, dI, B, dB, *inputs
    inertia_changes = any(x is not None for x in (dh, d.dS, dI, d.darmature))
    world = zero, zero if inertia_changes else None, zero6, zero6
    factors = leaf_to_root(topology.dof_tree, _backward, rows, world)

    falling = unless_none(lambda g: jnp.concatenate([jnp.zeros_like(g), -g]), d.dgravity)
    dA_world = zero6 if falling is None else falling
    number = jnp.zeros((), S.dtype)
    world = base_acceleration(model), dA_world, *[number] * 4
    rows = T, dh, S, d.dS, eta, deta, *factors, *inputs
    values = root_to_leaf(topology.dof_tree, _forward, rows, world)
    _, _, qdd, dqdd, torque, dtorque = values
    out = jnp.where(prescribed, plus_springs(model, q, torque) + model.damping * v, tau)
    dout = add(dtorque, unless_none(jnp.negative, friction))
    return (qdd, out), (dqdd, jnp.where(prescribed, dout, 0 if d.dtau is None else d.dtau))


def _velocities(model, S, q, v, d, f_ext):
    """First recursion, over bodies: ``T, ∂h, η, ∂η, I, ∂I`` and each body's part of B̂ and ∂B̂."""
    topology, I, T = model.topology, model.inertia, joint_placements(model, q)
    twist = lambda S, x: sum_dofs(topology, S * x[:, None])  # noqa: E731
    Sv, dSdot_v = twist(S, v), unless_none(twist, d.dSdot, v)
    dSv = add(unless_none(twist, d.dS, v), unless_none(twist, S, d.dv))

    def forward(parent, x):
        T, dh, Sv, dSv = x
        V_up, dV = to_child(T, parent[0]), unless_none(to_child, T, parent[1])
        return V_up + Sv, add(dV, unless_none(cross_twist, V_up, dh), dSv)

    zero = jnp.zeros((6,), S.dtype)
    moving = unless_none(lambda _: zero, add(d.dh, dSv))
    V, dV = root_to_leaf(topology.tree, forward, (T, d.dh, Sv, dSv), (zero, moving))
    eta, IV = cross_twist(V, Sv), inertia.apply(I, V)
    deta = add(unless_none(cross_twist, dV, Sv), unless_none(cross_twist, V, dSv), dSdot_v)
    B = cross_wrench(V, IV)
    dIV = add(unless_none(inertia.apply, d.dI, V), unless_none(inertia.apply, I, dV))
    dB = add(
        unless_none(cross_wrench, dV, IV),
        unless_none(cross_wrench, V, dIV),
        unless_none(jnp.negative, d.df_ext),
    )
    if f_ext is not None:
        B = B - f_ext
    return T, d.dh, eta, deta, I, d.dI, B, dB


def _rows(topology, T, dh, eta, deta, I, dI, B, dB):
    """From bodies to degrees of freedom: T, h, η belong to a joint's first, I, B to its last."""
    eye = jnp.eye(3, dtype=T[0].dtype)[None]
    T = at_first_dof(topology, T[0], eye), at_first_dof(topology, T[1])
    first = [unless_none(partial(at_first_dof, topology), x) for x in (dh, eta, deta)]
    return T, *first, *(unless_none(partial(at_last_dof, topology), x) for x in (I, dI, B, dB))


def _backward(x, children):
    """Second recursion: Î, B̂, Ψ, Π, β and their derivatives."""
    T, dh, S, dS, eta, deta, I, dI, B, dB, a, da, tau, dtau, armature, darmature, prescribed = x
    plus = lambda *x: jax.tree.map(jnp.add, *x)  # noqa: E731
    Ia = plus(articulated.from_inertia(I), children[0])
    dIa = children[1] if dI is None else plus(articulated.from_inertia(dI), children[1])
    Ba, dBa = B + children[2], add(dB, children[3])
    U, psi, Pi = articulated.eliminate(Ia, S, armature, prescribed)
    dU = add(unless_none(articulated.apply, dIa, S), unless_none(articulated.apply, Ia, dS))
    dD = add(unless_none(_dot, dS, U), unless_none(_dot, S, dU), darmature)
    dpsi = unless_none(lambda dD: -psi * dD * psi, dD)
    u, du = tau - _dot(S, Ba), add(dtau, unless_none(_minus, dS, Ba), _minus(S, dBa))

    dPi = None if dIa is None else _subtract(articulated.subtract(dIa, dpsi, U), psi, U, dU)
    r, dr = u - _dot(U, eta), add(du, unless_none(_minus, dU, eta), unless_none(_minus, U, deta))
    w = jnp.where(prescribed > 0, a, psi * r)
    dw = add(unless_none(lambda x: x * r, dpsi), psi * dr)
    dw = jnp.where(prescribed > 0, 0 if da is None else da, dw)
    beta = Ba + articulated.apply(Ia, eta) + U * w
    dbeta = add(
        dBa, unless_none(articulated.apply, dIa, eta), unless_none(articulated.apply, Ia, deta)
    )
    dbeta = add(dbeta, unless_none(lambda x: x * w, dU), U * dw)

    carried = add(dbeta, unless_none(cross_wrench, dh, beta))  # (60)
    wrenches = wrench_to_parent(T, beta), wrench_to_parent(T, carried)
    dPi = dPi if dh is None else _turn(dPi, Pi, dh)
    inertias = articulated.to_parent(T, Pi), unless_none(articulated.to_parent, T, dPi)
    return (*inertias, *wrenches), (U, dU, psi, dpsi, u, du)


def _forward(parent, x):
    """Third recursion: q̈, V̇, τ and their derivatives."""
    T, dh, S, dS, eta, deta, U, dU, psi, dpsi, u, du, *rest = x
    a, da, tau, dtau, armature, darmature, prescribed = rest
    A_up, dA = to_child(T, parent[0]), to_child(T, parent[1])
    A = A_up + eta
    dA = add(dA, unless_none(cross_twist, A_up, dh), deta)
    pull, dpull = _dot(U, A), add(unless_none(_dot, dU, A), _dot(U, dA))
    qdd = jnp.where(prescribed > 0, a, psi * (u - pull))
    dqdd = add(unless_none(lambda x: x * (u - pull), dpsi), psi * (du - dpull))
    dqdd = jnp.where(prescribed > 0, 0 if da is None else da, dqdd)
    D, dD = (
        _dot(S, U) + armature,
        add(unless_none(_dot, dS, U), unless_none(_dot, S, dU), darmature),
    )
    torque = pull + (tau - u) + D * qdd  # Sᵀ(Î V̇ + B̂)
    dtorque = add(dpull, dtau, -du, unless_none(lambda x: x * qdd, dD), D * dqdd)
    dA = add(dA, unless_none(lambda x: x * qdd, dS), S * dqdd)
    return A + S * qdd, dA, qdd, dqdd, torque, dtorque


def _dot(x, y):
    return jnp.sum(x * y)


def _minus(x, y):
    return -jnp.sum(x * y)


# Articulated inertias as blocks, see :mod:`rbd_jax.spatial.articulated`.


def _subtract(Ia, psi, U, dU):
    """``Î − ∂U Ψ Uᵀ − U Ψ ∂Uᵀ``."""
    A, B, C = Ia
    (n, f), (dn, df) = jnp.split(psi * U, 2), jnp.split(dU, 2)
    outer = lambda x, y: x[:, None] * y[None, :]  # noqa: E731
    return (
        A - outer(n, dn) - outer(dn, n),
        B - outer(n, df) - outer(dn, f),
        C - outer(f, df) - outer(df, f),
    )


def _turn(dPi, Pi, dh):
    """``∂Π − Π ad_∂h − (Π ad_∂h)ᵀ``, with ``ad = [[W, 0], [L, W]]``."""
    A, B, C = Pi
    W, L = so3.hat(dh[:3]), so3.hat(dh[3:])
    top = so3.matmul(A, W) + so3.matmul(B, L)
    side = so3.matmul(B, W) - so3.matmul(W, B) - so3.matmul(L, C)
    low = so3.matmul(C, W)
    dA, dB, dC = dPi
    return dA - top - so3.transpose(top), dB - side, dC - low - so3.transpose(low)
