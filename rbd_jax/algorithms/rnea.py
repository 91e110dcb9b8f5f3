"""Recursive Newton–Euler inverse dynamics in body frames. Source: Kim, Table 2."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import algorithm
from ..spatial import inertia
from ..spatial.motion import cross_twist, cross_wrench, to_child, wrench_to_parent
from .passive import BaseMotion, plus_springs, world_motion
from .tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs


@algorithm(project=(0,))
def rnea(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    base_motion: BaseMotion | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of the motion (q, v, a), with the derivatives of autodiff.

    The value is that of :func:`rbd_jax.inverse_dynamics`, which has a hand-written derivative rule.
    Take that function to differentiate. This one is the algorithm itself, to read and to compare
    with: ``τ = M a + h + armature·a + damping·v`` and springs.

    Source: Kim, Table 2, with rotor inertia and viscous damping added.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: acceleration, the time derivative of v.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).
        base_motion: twist and acceleration of the base; None for a base at rest. Gravity is given
            in the axes of the base, as it is at that instant.

    Returns:
        Generalized forces (N m, N). Cost: O(n).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    return plus_springs(model, q, newton_euler(model, q, v, a, f_ext, base_motion))


def newton_euler(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
    base_motion: BaseMotion | None = None,
) -> Float[Array, " nv"]:
    """The recursion of :func:`rnea`, for a robot whose joints are independent, without springs.

    Source: Kim, Table 2, with S constant in the child frame (Ṡ = 0). At rest V̇₀ = (0, −g).
    Letters: T placement in the parent, V twist, dV is V̇, F wrench through the joint, all of body i
    in frame i.
    """
    T, S = joint_placements(model, q), motion_subspace(model)
    topology, I = model.topology, model.inertia
    Sv = sum_dofs(topology, S * v[:, None])
    Sa = sum_dofs(topology, S * a[:, None])

    def forward(parent, x):
        T, Sv, Sa = x
        V = to_child(T, parent[0]) + Sv
        return V, to_child(T, parent[1]) + cross_twist(V, Sv) + Sa

    world = world_motion(model, base_motion)
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
    return tau + model.armature * a + model.damping * v
