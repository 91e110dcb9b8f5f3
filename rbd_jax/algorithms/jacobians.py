"""Frame Jacobians in three references, their time derivatives, frame twists and accelerations.

References: ``"local"``: components in the frame's axes, of the point at its origin;
``"local_world_aligned"``: components in world axes, of the point at the frame's origin;
``"world"``: components in world axes, of the body point at the world's origin (spatial twist).
Source: Müller (103)–(106): body-fixed, hybrid and spatial Jacobians.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, motion_subspace, rate_from_velocity
from ..model.arguments import algorithm
from ..spatial import se3, so3
from ..spatial.motion import to_parent
from .kinematics import forward_kinematics, frame_in_body
from .tree import per_dof

Reference = Literal["local", "world", "local_world_aligned"]
_REFERENCES = ("local", "world", "local_world_aligned")


@algorithm(project=(1,))
def jacobian(
    model: Model, q: Float[Array, " nq"], frame: str | int, reference: Reference = "local"
) -> Float[Array, "6 nv"]:
    """The geometric Jacobian J of a frame: twist ``(ω, v) = J v`` in one of three references.

    Source: Müller (103) body-fixed, (104) spatial, (105) hybrid; the columns are ``Ad S``.
    Derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration.
        frame: name of a frame, or its number in ``model.frame_names``.
        reference: ``"local"``, ``"world"`` or ``"local_world_aligned"``, see the module.

    Raises:
        KeyError: for an unknown frame name. IndexError: for a number that no frame has.
        ValueError: for an unknown reference.
    """
    if reference not in _REFERENCES:
        raise ValueError(f"jacobian: reference must be one of {_REFERENCES}, got {reference!r}")
    body, local = frame_in_body(model, frame)
    topology = model.topology
    if body < 0:
        return jnp.zeros((6, model.nv), model.dtype)
    R, p = forward_kinematics(model, q)
    R_wf, p_wf = se3.compose((R[body], p[body]), local)
    origin = jnp.zeros_like(p_wf) if reference == "world" else p_wf
    T = per_dof(topology, R), per_dof(topology, p - origin[None])
    J = to_parent(T, motion_subspace(model))
    if reference == "local":
        J = jnp.concatenate(
            [so3.rotate_inverse(R_wf[None], x) for x in (J[:, :3], J[:, 3:])], axis=-1
        )
    moves = per_dof(topology, jnp.asarray(topology.tree.ancestor_mask[body])[:, None])
    return jnp.where(moves, J, 0).T


@algorithm(driven_joints=True)
def jacobian_time_derivative(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | int,
    reference: Reference = "local",
) -> Float[Array, "6 nv"]:
    """``J̇``, the rate of the components of :func:`jacobian` along the motion ``v``.

    Source: one forward-mode derivative of Müller (103)–(105). Arguments and errors are those of
    :func:`jacobian`. Derivatives are those of autodiff.
    """
    rate = rate_from_velocity(model, q, v)
    return jax.jvp(lambda x: jacobian(model, x, frame, reference), (q,), (rate,))[1]


@algorithm(driven_joints=True)
def frame_velocity(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    frame: str | int,
    reference: Reference = "local",
) -> Float[Array, "6"]:
    """Twist ``(ω, v) = J v`` of a frame in a reference (rad/s, m/s).

    Source, arguments and errors are those of :func:`jacobian`. Derivatives are those of autodiff.
    """
    return jnp.sum(jacobian(model, q, frame, reference) * v[None], axis=-1)


@algorithm(driven_joints=True)
def frame_acceleration(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    frame: str | int,
    reference: Reference = "local",
) -> Float[Array, "6"]:
    """``J a + J̇ v``, the rate of the components of :func:`frame_velocity` (rad/s², m/s²).

    In ``"local"`` and ``"world"`` this is the spatial acceleration. In
    ``"local_world_aligned"`` its linear part is the acceleration of the frame's origin. Source,
    arguments and errors are those of :func:`jacobian`. Derivatives are those of autodiff.
    """
    J = jacobian(model, q, frame, reference)
    dJ = jacobian_time_derivative(model, q, v, frame, reference)
    return jnp.sum(J * a[None] + dJ * v[None], axis=-1)


@algorithm(driven_joints=True)
def relative_placement(
    model: Model, q: Float[Array, " nq"], frame: str | int, base: str | int
) -> se3.Pose:
    """Pose of ``frame`` in ``base``, both frames of the robot (p in m).

    Source: Kim (34). Derivatives are those of autodiff.
    """
    R, p = forward_kinematics(model, q)
    poses = []
    for name in (base, frame):
        body, local = frame_in_body(model, name)
        poses.append(local if body < 0 else se3.compose((R[body], p[body]), local))
    return se3.compose(se3.inverse(poses[0]), poses[1])
