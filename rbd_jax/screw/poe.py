"""The screws of a model, and its forward kinematics as products of exponentials.

Source: Müller App. A. Letters: C is the pose of a body, A its home pose C(0), and B its home pose
in the parent. Joint screws are X in the body frame, Y in the world frame at home, and Z in the
joint frame. The body-fixed reference frames (BFR) are the model's body frames, or one frame of each
body. Derivatives are those of autodiff.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.tree import ancestor_product, per_dof, sum_dofs
from ..model import Model, difference, motion_subspace, neutral
from ..model.arguments import checked
from ..spatial import se3, so3
from ..spatial.motion import to_child, to_parent
from ..spatial.se3 import Pose

Frames = Sequence[str | int]


def reference_frames(model: Model, frames: Frames | None) -> Pose:
    """Pose of each body's reference frame in its body frame (m); the body frames if None.

    The massless bodies inside a cylindrical, universal or planar joint have no frames. They keep
    their body frames, and ``frames`` has no entry for them.

    Raises:
        ValueError: if ``frames`` does not name one frame on each body that has frames, in order.
        KeyError: for an unknown frame.
    """
    topology = model.topology
    if frames is None:
        eye = jnp.broadcast_to(jnp.eye(3, dtype=model.dtype), (model.nb, 3, 3))
        return eye, jnp.zeros((model.nb, 3), model.dtype)
    index = np.array([topology.frame_index(f) if isinstance(f, str) else f for f in frames], int)
    bodies = [topology.frame_bodies[i] for i in index]
    with_frames = [b for b in range(model.nb) if b in topology.frame_bodies]
    if bodies != with_frames:
        raise ValueError(
            f"frames must name one frame on each of the {len(with_frames)} bodies with frames, in "
            f"the order {with_frames}; got frames on the bodies {bodies}"
        )
    rows = np.array(with_frames, int)
    R, p = reference_frames(model, None)
    own = so3.orthonormalize(model.frame_R[index]), model.frame_p[index]
    return R.at[rows].set(own[0]), p.at[rows].set(own[1])


def _above(model: Model, D: Pose) -> Pose:
    """For each body the reference frame of its parent in the parent's body frame."""
    R, p = D
    rows = model.topology.tree.parent_rows
    eye, zero = se3.identity(model.dtype)
    return jnp.concatenate([R, eye[None]])[rows], jnp.concatenate([p, zero[None]])[rows]


def _of_dofs(model: Model, C: Pose) -> tuple[Float[Array, "nv 3 3"], Float[Array, "nv 3"]]:
    return per_dof(model.topology, C[0]), per_dof(model.topology, C[1])


@checked
def body_screws(
    model: Model, frames: Frames | None = None
) -> tuple[Float[Array, "nv 6"], tuple[Float[Array, "nb 3 3"], Float[Array, "nb 3"]]]:
    """``(X, B)``: joint screws in the BFR of their body, and reference poses in the parent's BFR.

    Source: Müller (91), (92). One screw for each degree of freedom.

    Args:
        model: the robot.
        frames: name (or number) of each body's BFR; the body frames if None. The bodies inside a
            cylindrical, universal or planar joint have no frames and are left out.

    Raises:
        ValueError: if ``frames`` does not name one frame on each body that has frames.
        KeyError: for an unknown frame.
    """
    D = reference_frames(model, frames)
    X = to_child(_of_dofs(model, D), motion_subspace(model))
    place = so3.orthonormalize(model.placement_R), model.placement_p
    return X, se3.compose(se3.inverse(_above(model, D)), se3.compose(place, D))


@checked
def spatial_screws(
    model: Model, frames: Frames | None = None
) -> tuple[Float[Array, "nv 6"], tuple[Float[Array, "nb 3 3"], Float[Array, "nb 3"]]]:
    """``(Y, A)``: joint screws in the world frame at q = 0, and home poses of the BFRs.

    Arguments and errors are those of :func:`body_screws`. Y does not depend on ``frames``.

    Source: Müller (93), (94): ``Y_i = Ad_{A_i} X_i``.
    """
    X, B = body_screws(model, frames)
    A = ancestor_product(model.topology.tree, se3.compose, B, se3.identity(B[1].dtype))
    return to_parent(_of_dofs(model, A), X), A


@checked
def joint_screws(
    model: Model, frames: Frames | None = None
) -> tuple[Float[Array, "nv 6"], Pose, Pose]:
    """``(Z, S_parent, S_child)``: screws in the joint frames, and these frames in both BFRs.

    Arguments and errors are those of :func:`body_screws`.

    Source: Müller (91), (94).
    """
    D = reference_frames(model, frames)
    place = so3.orthonormalize(model.placement_R), model.placement_p
    S_parent = se3.compose(se3.inverse(_above(model, D)), place)
    return motion_subspace(model), S_parent, se3.inverse(D)


def _exponentials(model: Model, q: Array, screws: Float[Array, "nv 6"]) -> Pose:
    """``exp(Σ_k X_k u_k)`` of each joint, with the chart coordinates u of q about neutral."""
    u = difference(model, jax.lax.stop_gradient(neutral(model)), q)
    return se3.exp(sum_dofs(model.topology, screws * u[:, None]))


@checked
def poses_by_body_screws(
    model: Model, q: Float[Array, " nq"], frames: Frames | None = None
) -> tuple[Float[Array, "nb 3 3"], Float[Array, "nb 3"]]:
    """Poses of all BFRs: ``C_i = B_1 exp(X_1 q_1) … B_i exp(X_i q_i)`` (m).

    A joint of several degrees of freedom has one exponential, of its rotation vector or of the
    logarithm of its pose. Arguments and errors are those of :func:`body_screws`.

    Source: Müller (92).
    """
    X, B = body_screws(model, frames)
    factors = se3.compose(B, _exponentials(model, q, X))
    return ancestor_product(model.topology.tree, se3.compose, factors, se3.identity(q.dtype))


@checked
def poses_by_spatial_screws(
    model: Model, q: Float[Array, " nq"], frames: Frames | None = None
) -> tuple[Float[Array, "nb 3 3"], Float[Array, "nb 3"]]:
    """Poses of all BFRs: ``C_i = exp(Y_1 q_1) … exp(Y_i q_i) A_i`` (m).

    Everything else is as in :func:`poses_by_body_screws`.

    Source: Müller (93).
    """
    Y, A = spatial_screws(model, frames)
    factors = _exponentials(model, q, Y)
    return se3.compose(
        ancestor_product(model.topology.tree, se3.compose, factors, se3.identity(q.dtype)), A
    )
