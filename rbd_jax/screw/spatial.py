"""Spatial twists: world axes, measured at the world's origin. Source: Müller §2.2, §3.1, §4.2.

All quantities are in one frame, so that recursions along the tree become plain sums. Letters: C is
the pose of body i, J the instantaneous joint screws, Jv = J q̇ the joint twist, V the twist and W
the wrench through the joint. Float32 loses digits far from the world's origin. The library's own
algorithms therefore use the same formulas relative to the root body.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import base_acceleration, plus_springs
from ..algorithms.tree import ancestor_sum, per_dof, subtree_sum, sum_dofs
from ..model import Model, motion_subspace
from ..model.arguments import checked
from ..spatial import inertia
from ..spatial.motion import cross_twist, to_parent, wrench_to_parent
from ..spatial.se3 import Pose
from ._series import in_moving_frame
from .newton_euler import spatial_wrench


def joint_screws(model: Model, C: Pose) -> Float[Array, "nv 6"]:
    """The instantaneous joint screws ``J_j = Ad_{C_j} X_j``, one row for each degree of freedom.

    Source: Müller (70b), (104).
    """
    of_dof = per_dof(model.topology, C[0]), per_dof(model.topology, C[1])
    return to_parent(of_dof, motion_subspace(model))


def motion_at(
    model: Model, J: Float[Array, "nv 6"], rates: Sequence[Float[Array, " nv"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """The same as :func:`motion`, from the instantaneous joint screws."""
    V: list[Array] = []
    joint = [sum_dofs(model.topology, J * x[:, None]) for x in rates]
    for rate in in_moving_frame(joint, V, cross_twist):
        V.append(ancestor_sum(model.topology.tree, rate))
    return tuple(V)


def motion(
    model: Model, q: Float[Array, " nq"], rates: Sequence[Float[Array, " nv"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈, …)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛, …).

    Cost: O(n k²) for k rates.

    Source: Müller (70c), (70d) with ``ad_{V_{i−1}} V_i = ad_{V_i} J_i q̇_i``, and the time
    derivatives of the latter by (16).
    """
    return motion_at(model, joint_screws(model, forward_kinematics(model, q)), rates)


def wrenches_at(
    model: Model,
    C: Pose,
    J: Float[Array, "nv 6"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The same as :func:`wrenches`, from poses and screws."""
    V, dV = motion_at(model, J, (v, a))
    dV = dV + base_acceleration(model)[None]
    W = spatial_wrench(inertia.to_parent(C, model.inertia), V, dV)
    return W if f_ext is None else W - wrench_to_parent(C, f_ext)


def wrenches(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The wrench that the joints must exert on each body, against gravity too (N m, N).

    Source: Müller (70), (71a), (71b), with V̇₀ = (0, −g).
    """
    C = forward_kinematics(model, q)
    return wrenches_at(model, C, joint_screws(model, C), v, a, f_ext)


@checked
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of a motion from spatial twists and wrenches (N m, N).

    Arguments, armature and damping are those of :func:`rbd_jax.rnea`. Derivatives are those of
    autodiff.
    Cost: O(n).

    Source: Müller (70)–(71), with ``ad_V`` for the misprinted ``ad_V̇`` in (71b). Applied wrenches
    are subtracted as in (77), and V̇₀ = (0, −g).
    """
    topology, C = model.topology, forward_kinematics(model, q)
    J = joint_screws(model, C)
    W = wrenches_at(model, C, J, v, a, f_ext)
    Q = jnp.sum(J * per_dof(topology, subtree_sum(topology.tree, W)), axis=-1)
    return plus_springs(model, q, Q + model.armature * a + model.damping * v)
