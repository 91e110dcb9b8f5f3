"""Recursive Newton–Euler inverse dynamics in body frames. Source: Kim, Table 2."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lanes import lanes
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..model.expansion import projected
from ..spatial import inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .gravity import base_acceleration
from .springs import plus_springs
from .tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs


@checked
@lanes
@projected(0)
def rnea(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of the motion (q, v, a): ``τ = M a + h + armature·a + damping·v`` and springs.

    Source: Kim, Table 2, with S constant in the child frame (Ṡ = 0) and V̇₀ = (0, −g), and with
    rotor inertia and viscous damping. Letters: T placement in the parent, V twist, F wrench
    through the joint, all of body i in frame i. Its derivatives are those of autodiff;
    :func:`rbd_jax.inverse_dynamics` has an analytical rule.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: acceleration, the time derivative of v.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Generalized forces (N m, N). Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    T, S = joint_placements(model, q), motion_subspace(model)
    topology, I = model.topology, model.inertia
    Sv = sum_dofs(topology, S * v[:, None])
    Sa = sum_dofs(topology, S * a[:, None])

    def forward(parent, x):
        T, Sv, Sa = x
        V = to_child(T, parent[0]) + Sv
        return V, to_child(T, parent[1]) + cross_twist(V, Sv) + Sa

    world = jnp.zeros_like(base_acceleration(model)), base_acceleration(model)
    V, dV = root_to_leaf(topology.tree, forward, (T, Sv, Sa), world)
    F = inertia.apply(I, dV) + cross_wrench(V, inertia.apply(I, V))
    if f_ext is not None:
        F = F - f_ext

    def backward(x, F_children):
        T, F = x
        F = F + F_children
        return wrench_to_parent(T, F), F

    F = leaf_to_root(topology.tree, backward, (T, F), jnp.zeros_like(world[0]))
    tau = jnp.sum(S * per_dof(topology, F), axis=-1)
    return plus_springs(model, q, tau + model.armature * a + model.damping * v)
