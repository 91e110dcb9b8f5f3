"""Poses, twists and accelerations of bodies and frames. Source: Kim (36), (40)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import algorithm
from ..spatial import se3, so3
from ..spatial.motion import cross_twist, to_child
from .tree import ancestor_product, root_to_leaf, sum_dofs


@algorithm(project=())
def forward_kinematics(
    model: Model, q: Float[Array, " nq"]
) -> tuple[Float[Array, "nb 3 3"], Float[Array, "nb 3"]]:
    """Poses ``(R_wb, p_wb)`` of all bodies in the world frame (p in m).

    Source: Kim (34), the product of placements along each chain. Derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration (rad, m; quaternions wxyz are normalized inside).
    """
    one = se3.identity(q.dtype)
    return ancestor_product(model.topology.tree, se3.compose, joint_placements(model, q), one)


@algorithm(project=())
def body_velocities(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """Twists (ω, v) of all bodies, each in its own frame (rad/s, m/s).

    Source: Kim (36). Derivatives are those of autodiff.
    """

    def step(parent, x):
        T, Sv = x
        return to_child(T, parent) + Sv

    Sv = sum_dofs(model.topology, motion_subspace(model) * v[:, None])
    rows = joint_placements(model, q), Sv
    return root_to_leaf(model.topology.tree, step, rows, jnp.zeros((6,), Sv.dtype))


@algorithm(project=())
def body_accelerations(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """Spatial accelerations V̇ of all bodies, each in its own frame, without gravity.

    Source: Kim (40), the component-wise rate of the twist in the body frame (rad/s², m/s²).
    Derivatives are those of autodiff.
    """

    def step(parent, x):
        T, Sv, Sa = x
        V = to_child(T, parent[0]) + Sv
        return V, to_child(T, parent[1]) + cross_twist(V, Sv) + Sa

    S = motion_subspace(model)
    Sv, Sa = (sum_dofs(model.topology, S * x[:, None]) for x in (v, a))
    zero = jnp.zeros((6,), S.dtype)
    rows = joint_placements(model, q), Sv, Sa
    return root_to_leaf(model.topology.tree, step, rows, (zero, zero))[1]


def frame_in_body(model: Model, frame: str | int) -> tuple[int, se3.Pose]:
    """The body that carries a frame (−1: the world) and the frame's pose in it.

    Raises:
        KeyError: for an unknown frame name, with the nearest known ones.
        IndexError: for a number that no frame has.
    """
    index = model.topology.frame_index(frame)
    R = so3.orthonormalize(model.frame_R[index])
    return model.topology.frame_bodies[index], (R, model.frame_p[index])


@algorithm(driven_joints=True)
def frame_placement(
    model: Model, q: Float[Array, " nq"], frame: str | int
) -> tuple[Float[Array, "3 3"], Float[Array, "3"]]:
    """Pose ``(R_wf, p_wf)`` of a frame in the world (p in m).

    Source: Kim (34). Derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration.
        frame: name of a link's frame, or its number in ``model.frame_names``.

    Raises:
        KeyError: for an unknown frame name. IndexError: for a number that no frame has.
    """
    body, local = frame_in_body(model, frame)
    if body < 0:
        return local
    R, p = forward_kinematics(model, q)
    return se3.compose((R[body], p[body]), local)
