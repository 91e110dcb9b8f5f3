"""Derivatives of recursive forward and hybrid dynamics along a scalar. Source: Kim, Tables 6, 7."""

from functools import partial
from typing import Any, NamedTuple

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
from ...spatial.se3 import Pose
from ..symbolic_zeros import add, unless_none
from .driven_joints import driven_table7
from .parts import Surroundings, rows_and_parts
from .perturbation import (
    JointPerturbation,
    Perturbation,
    ValueAndDerivative,
    of_all_joints,
)


@algorithm(driven_joints=True)
def kim_forward_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    perturbation: Perturbation | JointPerturbation,
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
        d = of_all_joints(model, perturbation)
        out = driven_table7(model, q, v, still, tau, None, d, f_ext)
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
    perturbation: Perturbation | JointPerturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ValueAndDerivative:
    """``((q̈, τ), (∂q̈/∂p, ∂τ/∂p))``: hybrid dynamics and its derivative along any scalar p.

    Source: Kim, Tables 4 and 7, with rotor inertia and viscous damping added. Joints of several
    degrees of freedom are eliminated one column of S at a time, as in
    :mod:`rbd_jax.algorithms.aba`, so that Ψ is a scalar. Terms of quantities that do not change are
    left out, as in §3.2: along q̇, q̈ and τ the recursion of ∂Î, ∂Ψ and ∂Π vanishes, and along the
    coordinates of one joint (:class:`~rbd_jax.derivatives.JointPerturbation`) it starts at that
    joint. Further derivatives are those of autodiff.

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
        d = of_all_joints(model, perturbation)
        out = driven_table7(model, q, v, a, tau, prescribed, d, f_ext)
        return ValueAndDerivative(*out)
    return ValueAndDerivative(*_table7(model, q, v, a, tau, prescribed, perturbation, f_ext))


class Velocities(NamedTuple):
    """What the first recursion of Table 4 finds for each body."""

    T: Pose
    Sv: Float[Array, "nb 6"]
    V: Float[Array, "nb 6"]
    IV: Float[Array, "nb 6"]


class Articulation(NamedTuple):
    """What Table 4 finds for each degree of freedom; letters as in :mod:`rbd_jax.algorithms.aba`.

    ``r`` is ``u − Uᵀ η``, ``w`` is the acceleration that β assumes, and ``A_up`` is V̇ of the
    parent, seen from the node.
    """

    T: Pose
    S: Any
    eta: Any
    armature: Any
    prescribed: Any
    Ia: Any
    U: Any
    psi: Any
    Pi: Any
    Ba: Any
    u: Any
    r: Any
    w: Any
    beta: Any
    A_up: Any
    qdd: Any
    torque: Any


def table4(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[Velocities, Articulation]:
    """The motion that Table 7 is about, on the tree of degrees of freedom. Source: Kim, Table 4."""
    topology, I, S = model.topology, model.inertia, motion_subspace(model)
    T, Sv = joint_placements(model, q), sum_dofs(topology, S * v[:, None])

    def velocity(V_up, x):
        T, Sv = x
        return to_child(T, V_up) + Sv

    V = root_to_leaf(topology.tree, velocity, (T, Sv), jnp.zeros((6,), S.dtype))
    IV = inertia.apply(I, V)
    B = cross_wrench(V, IV)
    bodies = Velocities(T, Sv, V, IV)

    first, last = partial(at_first_dof, topology), partial(at_last_dof, topology)
    T = first(T[0], jnp.eye(3, dtype=S.dtype)[None]), first(T[1])
    eta, I, B = first(cross_twist(V, Sv)), last(I), last(B if f_ext is None else B - f_ext)
    tau = jnp.where(prescribed, 0, minus_springs(model, q, tau) - model.damping * v)
    flags = prescribed.astype(S.dtype)

    def backward(x, below):
        T, S, eta, I, B, tau, a, armature, prescribed = x
        Ia = jax.tree.map(jnp.add, articulated.from_inertia(I), below[0])
        Ba = B + below[1]
        U, psi, Pi = articulated.eliminate(Ia, S, armature, prescribed)
        u = tau - _dot(S, Ba)
        r = u - _dot(U, eta)
        w = jnp.where(prescribed > 0, a, psi * r)
        beta = Ba + articulated.apply(Ia, eta) + U * w
        up = articulated.to_parent(T, Pi), wrench_to_parent(T, beta)
        return up, (Ia, U, psi, Pi, Ba, u, r, w, beta)

    leaf = articulated.from_inertia(jnp.zeros((10,), S.dtype)), jnp.zeros((6,), S.dtype)
    rows = T, S, eta, I, B, tau, a, model.armature, flags
    found = leaf_to_root(topology.dof_tree, backward, rows, leaf)

    def forward(A, x):
        T, S, eta, U, psi, u, tau, a, armature, prescribed = x
        A_up = to_child(T, A[0])
        pull = _dot(U, A_up + eta)
        qdd = jnp.where(prescribed > 0, a, psi * (u - pull))
        torque = pull + (tau - u) + (_dot(S, U) + armature) * qdd  # Sᵀ(Î V̇ + B̂)
        return A_up + eta + S * qdd, A_up, qdd, torque

    number = jnp.zeros((), S.dtype)
    world = base_acceleration(model), jnp.zeros((6,), S.dtype), number, number
    rows = T, S, eta, *found[1:3], found[5], tau, a, model.armature, flags
    _, *accelerations = root_to_leaf(topology.dof_tree, forward, rows, world)
    return bodies, Articulation(T, S, eta, model.armature, flags, *found, *accelerations)


class _Rates(NamedTuple):
    """How the quantities of a node change, as far as they are its own; None is zero."""

    dh: Any = None
    dS: Any = None
    deta: Any = None
    dI: Any = None
    dB: Any = None
    da: Any = None
    dtau: Any = None
    darmature: Any = None


class _Factors(NamedTuple):
    """What the second recursion of Table 7 leaves for the third one; None is zero."""

    dU: Any = None
    dpsi: Any = None
    du: Any = None


def _table7(model, q, v, a, tau, prescribed, perturbation, f_ext):
    """Table 7 after Table 4, on the tree of degrees of freedom, part by part.

    ``own`` are the nodes whose quantities (64) change: all of them, or those of one joint. Twists
    change in ``own`` and ``below``, articulated inertias in ``own`` and ``above``, bias wrenches in
    all three, and accelerations everywhere. ``dX`` is ∂X/∂p.
    """
    d, around = rows_and_parts(model, perturbation)
    bodies, m = table4(model, q, v, a, tau, prescribed, f_ext)
    dofs, own = around.dofs, around.dofs.own
    minus = lambda x, y: -x * y  # noqa: E731
    friction = unless_none(minus, own.rows(model.damping), d.dv)
    friction = add(unless_none(minus, d.ddamping, own.rows(v)), friction)
    friction = add(friction, unless_none(jnp.negative, d.dspring))
    free = ~own.rows(prescribed)
    dtau = unless_none(lambda x: jnp.where(free, x, 0), add(d.dtau, friction))
    rates = _bias_rates(model, around, bodies, own.rows(m.S), own.rows(v), d)
    rates["own"] = rates["own"]._replace(dS=d.dS, da=d.da, dtau=dtau, darmature=d.darmature)

    zero6, zero = jnp.zeros((6,), m.S.dtype), articulated.from_inertia(jnp.zeros((10,), m.S.dtype))
    changing = (rates["own"].dh, d.dS, d.dI, d.darmature)
    dPi = zero if any(x is not None for x in changing) else None
    pushed = unless_none(lambda _: zero6, add(rates["below"].deta, rates["below"].dB))
    zeros = {"below": (None, pushed), "own": (dPi, zero6), "above": (dPi, zero6)}
    needed = m._replace(armature=None, u=None, A_up=None, qdd=None, torque=None)
    rows = {k: (getattr(dofs, k).rows(needed), x) for k, x in rates.items()}
    factors = dofs.up(_backward, rows, zeros)

    factors["outside"] = dofs.widened(factors.get("above", _Factors()))
    rates["outside"] = _Rates()
    needed = m._replace(Ia=None, Pi=None, Ba=None, r=None, w=None, beta=None, torque=None)
    rows = {
        k: (getattr(dofs, k).rows(needed), rates[k], factors.get(k, _Factors()))
        for k in ("outside", "own", "below")
    }
    falling = unless_none(lambda g: jnp.concatenate([jnp.zeros_like(g), -g]), d.dgravity)
    number = jnp.zeros((), m.S.dtype)
    world = zero6 if falling is None else falling, number, number
    found = dofs.down(_forward, rows, world)

    dqdd = dofs.put(m.qdd, {k: x[1] for k, x in found.items()})
    torque = {k: x[2] for k, x in found.items()}
    torque["own"] = add(torque.get("own"), unless_none(jnp.negative, friction))
    out = jnp.where(prescribed, plus_springs(model, q, m.torque) + model.damping * v, tau)
    dout = jnp.where(prescribed, dofs.put(tau, torque), dofs.put(tau, {"own": d.dtau}))
    return (m.qdd, out), (dqdd, dout)


def _bias_rates(
    model: Model,
    around: Surroundings,
    bodies: Velocities,
    S: Float[Array, "w 6"],
    v: Float[Array, " w"],
    d: Perturbation,
) -> dict[str, _Rates]:
    """First recursion, over bodies: ∂h, ∂η, ∂I and each body's part of ∂B̂, at its nodes."""
    parts, twist = around.bodies, around.twists
    own = parts.own.rows(bodies)
    dSv = add(unless_none(twist, d.dS, v), unless_none(twist, S, d.dv))
    dV = add(unless_none(cross_twist, own.V - own.Sv, d.dh), dSv)

    def forward(parent, x):
        T, dV = x
        return (add(unless_none(to_child, T, parent[0]), dV),)

    rows = {"own": (own.T, dV), "below": (parts.below.rows(bodies.T), None)}
    world = (unless_none(lambda _: jnp.zeros((6,), S.dtype), dV),)
    moved = parts.down(forward, rows, world)

    def rates(part, dSv=None, dSdot_v=None, dh=None, dI=None, df_ext=None):
        x, I = getattr(parts, part).rows((bodies, model.inertia))
        (dV,) = moved.get(part, (None,))
        deta = add(unless_none(cross_twist, dV, x.Sv), unless_none(cross_twist, x.V, dSv), dSdot_v)
        dIV = add(unless_none(inertia.apply, dI, x.V), unless_none(inertia.apply, I, dV))
        dB = add(unless_none(cross_wrench, dV, x.IV), unless_none(cross_wrench, x.V, dIV))
        dB = add(dB, unless_none(jnp.negative, df_ext))
        first, last = partial(around.at_first_dof, part), partial(around.at_last_dof, part)
        dh, deta = unless_none(first, dh), unless_none(first, deta)
        return _Rates(dh=dh, deta=deta, dI=unless_none(last, dI), dB=unless_none(last, dB))

    changes = dSv, unless_none(twist, d.dSdot, v), d.dh, d.dI, d.df_ext
    return {"below": rates("below"), "own": rates("own", *changes), "above": _Rates()}


def _backward(x, below):
    """Second recursion: ∂Î, ∂B̂, ∂Ψ, ∂Π, ∂β."""
    m, d = x
    dIa, dBa = below[0], add(d.dB, below[1])
    if d.dI is not None:
        dIa = jax.tree.map(jnp.add, articulated.from_inertia(d.dI), dIa)
    dU = add(unless_none(articulated.apply, dIa, m.S), unless_none(articulated.apply, m.Ia, d.dS))
    dD = add(unless_none(_dot, d.dS, m.U), unless_none(_dot, m.S, dU), d.darmature)
    dpsi = unless_none(lambda dD: -m.psi * dD * m.psi, dD)
    du = add(d.dtau, unless_none(_minus, d.dS, m.Ba), unless_none(_minus, m.S, dBa))

    dPi = None
    if dIa is not None:
        dPi = _subtract(articulated.subtract(dIa, dpsi, m.U), m.psi, m.U, dU)
    dr = add(du, unless_none(_minus, dU, m.eta), unless_none(_minus, m.U, d.deta))
    dw = add(unless_none(lambda x: x * m.r, dpsi), m.psi * dr)
    dw = jnp.where(m.prescribed > 0, 0 if d.da is None else d.da, dw)
    dbeta = add(dBa, unless_none(articulated.apply, dIa, m.eta))
    dbeta = add(dbeta, unless_none(articulated.apply, m.Ia, d.deta))
    dbeta = add(dbeta, unless_none(lambda x: x * m.w, dU), m.U * dw)

    carried = add(dbeta, unless_none(cross_wrench, d.dh, m.beta))  # (60)
    dPi = dPi if d.dh is None else _turn(dPi, m.Pi, d.dh)
    up = unless_none(articulated.to_parent, m.T, dPi), wrench_to_parent(m.T, carried)
    return up, _Factors(dU, dpsi, du)


def _forward(parent, x):
    """Third recursion: ∂V̇, ∂q̈, ∂τ."""
    m, d, factors = x
    dU, dpsi, du = factors
    dA = add(to_child(m.T, parent[0]), unless_none(cross_twist, m.A_up, d.dh), d.deta)
    here = m.A_up + m.eta
    dpull = add(unless_none(_dot, dU, here), _dot(m.U, dA))
    dqdd = add(unless_none(lambda x: x * (m.u - _dot(m.U, here)), dpsi), m.psi * add(-dpull, du))
    dqdd = jnp.where(m.prescribed > 0, 0 if d.da is None else d.da, dqdd)
    D = _dot(m.S, m.U) + m.armature
    dD = add(unless_none(_dot, d.dS, m.U), unless_none(_dot, m.S, dU), d.darmature)
    dtorque = add(dpull, d.dtau, unless_none(jnp.negative, du), D * dqdd)
    dtorque = add(dtorque, unless_none(lambda x: x * m.qdd, dD))
    dA = add(dA, unless_none(lambda x: x * m.qdd, d.dS), m.S * dqdd)
    return dA, dqdd, dtorque


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
