"""Derivative of recursive inverse dynamics along a scalar. Source: Kim, Table 5."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms.passive import base_acceleration, plus_springs
from ...algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ...model import CoordinateModel, Model, joint_placements, motion_subspace
from ...model.arguments import algorithm
from ...spatial import inertia
from ...spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from ...spatial.se3 import Pose
from ..symbolic_zeros import add, unless_none
from .parts import rows_and_parts
from .perturbation import (
    JointPerturbation,
    Perturbation,
    ValueAndDerivative,
    of_all_joints,
)


@algorithm(driven_joints=True)
def kim_inverse_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    perturbation: Perturbation | JointPerturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ValueAndDerivative:
    """``(τ, ∂τ/∂p)``: inverse dynamics and its derivative along any scalar p, in body frames.

    Source: Kim, Tables 2 and 5, with rotor inertia and viscous damping added. Letters: ``dX`` is
    ∂X/∂p, A is V̇, T placement in the parent, V twist, F wrench through the joint, ``X_up`` is X of
    the parent seen from the child. Terms of quantities that do not change are left out, as in §3.2,
    and so are bodies that do not feel the joint of a
    :class:`~rbd_jax.derivatives.JointPerturbation`. Further derivatives are those of autodiff. For
    joints of S(q) see :mod:`rbd_jax.derivatives.kim.driven_joints`.

    Departures: V̇₀ = (0, −g), where Kim's footnote 6 leaves the sign open, and so ∂V̇₀ = (0, −∂g).
    Ṡ is zero, but ∂Ṡ need not be. Kim's definition of S has ``∂T⁻¹`` for ``∂T``, a misprint. Table
    5 itself is right.

    Args:
        model: the robot.
        q: configuration. v: velocity. a: acceleration.
        perturbation: how everything changes with p, or how one joint does; its ``dtau`` is not
            used.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Torques (N m, N) and their derivatives. Cost: O(n). The derivative along one joint costs the
        bodies below that joint and above it.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    if isinstance(model, CoordinateModel):
        from .driven_joints import driven_table5

        return driven_table5(model, q, v, a, of_all_joints(model, perturbation), f_ext)
    return table5(model, q, v, a, perturbation, f_ext)


class Motion(NamedTuple):
    """What Table 2 finds for each body, in its frame; Sv is ``S q̇`` and Sa ``S q̈``."""

    T: Pose
    Sv: Float[Array, "nb 6"]
    Sa: Float[Array, "nb 6"]
    V: Float[Array, "nb 6"]
    A: Float[Array, "nb 6"]
    IV: Float[Array, "nb 6"]
    F: Float[Array, "nb 6"]


def table2(
    model: Model,
    S: Float[Array, "nv 6"],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Motion:
    """The motion that Table 5 is about. Source: Kim, Table 2."""
    topology, I, T = model.topology, model.inertia, joint_placements(model, q)
    Sv, Sa = (sum_dofs(topology, S * x[:, None]) for x in (v, a))

    def forward(parent, x):
        T, Sv, Sa = x
        V_up, A_up = (to_child(T, X) for X in parent)
        V = V_up + Sv
        return V, A_up + cross_twist(V, Sv) + Sa

    zero = jnp.zeros((6,), Sv.dtype)
    V, A = root_to_leaf(topology.tree, forward, (T, Sv, Sa), (zero, base_acceleration(model)))
    IV = inertia.apply(I, V)
    F = inertia.apply(I, A) + cross_wrench(V, IV)

    def backward(x, below):
        T, F = x
        F = F + below
        return wrench_to_parent(T, F), F

    F = leaf_to_root(topology.tree, backward, (T, F if f_ext is None else F - f_ext), zero)
    return Motion(T, Sv, Sa, V, A, IV, F)


def table5(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    perturbation: Perturbation | JointPerturbation,
    f_ext: Float[Array, "nb 6"] | None,
) -> ValueAndDerivative:
    """Table 5 after Table 2, for a robot whose joints are independent, part by part.

    ``own`` are the bodies whose quantities (64) change: all of them, or the one of a joint. Twists
    change in ``own`` and ``below``, wrenches also in ``above``.
    """
    d, around = rows_and_parts(model, perturbation)
    bodies, dofs, twist = around.bodies, around.dofs, around.twists
    S = motion_subspace(model)
    m = table2(model, S, q, v, a, f_ext)
    own, (S_own, v_own, a_own) = bodies.own.rows(m), dofs.own.rows((S, v, a))

    dSv = add(unless_none(twist, d.dS, v_own), unless_none(twist, S_own, d.dv))
    dSa = add(unless_none(twist, d.dS, a_own), unless_none(twist, S_own, d.da))
    V_up = own.V - own.Sv
    A_up = own.A - cross_twist(own.V, own.Sv) - own.Sa
    dV = add(unless_none(cross_twist, V_up, d.dh), dSv)
    dA = add(unless_none(cross_twist, A_up, d.dh), unless_none(cross_twist, own.V, dSv), dSa)
    dA = add(dA, unless_none(twist, d.dSdot, v_own))

    def forward(parent, x):
        T, Sv, dV, dA = x
        dV_up, dA_up = (unless_none(to_child, T, X) for X in parent)
        dV = add(dV_up, dV)
        return dV, add(dA_up, dA, unless_none(cross_twist, dV, Sv))

    zero = jnp.zeros((6,), S.dtype)
    zero_of = lambda *x: unless_none(lambda _: zero, add(*x))  # noqa: E731
    falling = unless_none(lambda g: jnp.concatenate([jnp.zeros_like(g), -g]), d.dgravity)
    world = zero_of(dV), add(falling, zero_of(dV, dA))
    rows = {"own": (own.T, own.Sv, dV, dA), "below": (*bodies.below.rows((m.T, m.Sv)), None, None)}
    moved = bodies.down(forward, rows, world)

    def wrench(part, dI=None, df_ext=None):
        """How the wrench changes that the bodies of a part take by their own motion."""
        x, I = getattr(bodies, part).rows((m, model.inertia))
        dV, dA = moved.get(part, (None, None))
        dIV = add(unless_none(inertia.apply, dI, x.V), unless_none(inertia.apply, I, dV))
        dF = add(unless_none(inertia.apply, dI, x.A), unless_none(inertia.apply, I, dA))
        dF = add(dF, unless_none(cross_wrench, dV, x.IV), unless_none(cross_wrench, x.V, dIV))
        return add(dF, unless_none(jnp.negative, df_ext))

    def backward(x, below):
        T, F, dh, dF = x
        dF = add(dF, below[0])
        return (wrench_to_parent(T, add(dF, unless_none(cross_wrench, dh, F))),), dF  # (60)

    dF = {"below": wrench("below"), "own": wrench("own", d.dI, d.df_ext), "above": None}
    rows = {
        k: (*getattr(bodies, k).rows((m.T, m.F)), d.dh if k == "own" else None, x)
        for k, x in dF.items()
    }
    some = unless_none(
        lambda _: zero, next((x for x in (d.dh, *dF.values()) if x is not None), None)
    )
    zeros = {"below": (unless_none(lambda _: zero, dF["below"]),), "own": (some,), "above": (some,)}
    dF = bodies.up(backward, rows, zeros)

    along = lambda S, F: jnp.sum(S * F, axis=-1)  # noqa: E731
    times = lambda x, y: x * y  # noqa: E731
    dtau = {k: along(getattr(dofs, k).rows(S), around.per_dof(k, x)) for k, x in dF.items()}
    F = around.per_dof("own", own.F)
    armature, damping = dofs.own.rows((model.armature, model.damping))
    rotor = unless_none(times, d.darmature, a_own), unless_none(times, armature, d.da)
    friction = unless_none(times, d.ddamping, v_own), unless_none(times, damping, d.dv)
    dtau["own"] = add(dtau.get("own"), unless_none(along, d.dS, F), *rotor, *friction, d.dspring)
    F = per_dof(model.topology, m.F)
    tau = along(S, F) + model.armature * a + model.damping * v
    return ValueAndDerivative(plus_springs(model, q, tau), dofs.put(tau, dtau))
