"""Derivative of recursive inverse dynamics along a scalar. Source: Kim, Table 5."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms.passive import base_acceleration, plus_springs
from ...algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ...model import CoordinateModel, Model, joint_placements, motion_subspace
from ...model.arguments import algorithm
from ...spatial import inertia
from ...spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from ..symbolic_zeros import add, unless_none
from .perturbation import Perturbation, ValueAndDerivative, fitting


@algorithm(driven_joints=True)
def kim_inverse_dynamics_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> ValueAndDerivative:
    """``(τ, ∂τ/∂p)``: inverse dynamics and its derivative along any scalar p, in body frames.

    Source: Kim, Tables 2 and 5 in one pass, with rotor inertia and viscous damping added. Letters:
    ``dX`` is ∂X/∂p, A is V̇, T placement in the parent, V twist, F wrench through the joint,
    ``X_up`` is X of the parent seen from the child. Terms of quantities that do not change are left
    out, as in §3.2. Further derivatives are those of autodiff. For joints of S(q) see
    :mod:`rbd_jax.derivatives.kim.driven_joints`.

    Departures: V̇₀ = (0, −g), where Kim's footnote 6 leaves the sign open, and so ∂V̇₀ = (0, −∂g).
    Ṡ is zero, but ∂Ṡ need not be. Kim's definition of S has ``∂T⁻¹`` for ``∂T``, a misprint. Table
    5 itself is right.

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
    if isinstance(model, CoordinateModel):
        from .driven_joints import driven_table5

        return driven_table5(model, q, v, a, perturbation, f_ext)
    return table5(model, q, v, a, perturbation, f_ext)


def table5(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    perturbation: Perturbation,
    f_ext: Float[Array, "nb 6"] | None,
) -> ValueAndDerivative:
    """The recursions, for a robot whose joints are independent. Source: Kim, Tables 2 and 5."""
    d, topology, I = fitting(model, perturbation), model.topology, model.inertia
    T, S = joint_placements(model, q), motion_subspace(model)
    twist = lambda S, x: sum_dofs(topology, S * x[:, None])  # noqa: E731
    Sv, Sa, dSdot_v = twist(S, v), twist(S, a), unless_none(twist, d.dSdot, v)
    dSv = add(unless_none(twist, d.dS, v), unless_none(twist, S, d.dv))
    dSa = add(unless_none(twist, d.dS, a), unless_none(twist, S, d.da))

    def forward(parent, x):
        T, dh, Sv, Sa, dSv, dSa, dSdot_v = x
        V_up, A_up, dV, dA = (unless_none(to_child, T, X) for X in parent)
        V = V_up + Sv
        A = A_up + cross_twist(V, Sv) + Sa
        dV = add(dV, unless_none(cross_twist, V_up, dh), dSv)
        dA = add(dA, unless_none(cross_twist, A_up, dh), dSa)
        dA = add(dA, unless_none(cross_twist, dV, Sv), unless_none(cross_twist, V, dSv), dSdot_v)
        return V, A, dV, dA

    zero = jnp.zeros((6,), S.dtype)
    moving = unless_none(lambda _: zero, add(d.dh, dSv))
    falling = unless_none(lambda g: jnp.concatenate([jnp.zeros_like(g), -g]), d.dgravity)
    pushed = unless_none(lambda _: zero, add(d.dh, dSv, dSa, dSdot_v))
    world = zero, base_acceleration(model), moving, add(falling, pushed)
    rows = T, d.dh, Sv, Sa, dSv, dSa, dSdot_v
    V, A, dV, dA = root_to_leaf(topology.tree, forward, rows, world)

    IV = inertia.apply(I, V)
    F = inertia.apply(I, A) + cross_wrench(V, IV)
    dIV = add(unless_none(inertia.apply, d.dI, V), unless_none(inertia.apply, I, dV))
    dF = add(
        unless_none(inertia.apply, d.dI, A),
        unless_none(inertia.apply, I, dA),
        unless_none(jnp.negative, d.df_ext),
    )
    dF = add(dF, unless_none(cross_wrench, dV, IV), unless_none(cross_wrench, V, dIV))
    if f_ext is not None:
        F = F - f_ext

    def backward(x, children):
        T, dh, F, dF = x
        F, dF = F + children[0], add(dF, children[1])
        carried = add(dF, unless_none(cross_wrench, dh, F))  # (60)
        return (wrench_to_parent(T, F), unless_none(wrench_to_parent, T, carried)), (F, dF)

    changing = unless_none(lambda _: zero, add(dF, d.dh))
    F, dF = leaf_to_root(topology.tree, backward, (T, d.dh, F, dF), (zero, changing))
    F, dF = per_dof(topology, F), unless_none(lambda x: per_dof(topology, x), dF)
    tau = jnp.sum(S * F, axis=-1) + model.armature * a + model.damping * v
    along = lambda S, F: jnp.sum(S * F, axis=-1)  # noqa: E731
    dtau = add(unless_none(along, d.dS, F), unless_none(along, S, dF))
    times = lambda x, y: x * y  # noqa: E731
    rotor = unless_none(times, d.darmature, a), unless_none(times, model.armature, d.da)
    friction = unless_none(times, d.ddamping, v), unless_none(times, model.damping, d.dv)
    dtau = add(jnp.zeros_like(tau), dtau, *rotor, *friction, d.dspring)
    return ValueAndDerivative(plus_springs(model, q, tau), dtau)
