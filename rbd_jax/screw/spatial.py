"""Spatial twists: world axes, measured at the world's origin. Source: Müller §2.2, §3.1, §4.2.

All quantities are in one frame, so that recursions along the tree become plain sums. Letters: C is
the pose of body i, J the instantaneous joint screws, Jv = J q̇ the joint twist, V the twist and W
the wrench through the joint. Float32 loses digits far from the world's origin. The library's own
algorithms therefore use the same formulas relative to the root body.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import base_acceleration
from ..algorithms.tree import ancestor_sum, per_dof, subtree_sum, sum_dofs
from ..model import Model, motion_subspace
from ..model.arguments import checked
from ..spatial import inertia
from ..spatial.motion import cross_twist, to_parent, wrench_to_parent
from ..spatial.se3 import Pose
from .newton_euler import spatial_wrench


def joint_screws(model: Model, C: Pose) -> Float[Array, "nv 6"]:
    """The instantaneous joint screws ``J_j = Ad_{C_j} X_j``, one row for each degree of freedom.

    Source: Müller (70b), (104).
    """
    of_dof = per_dof(model.topology, C[0]), per_dof(model.topology, C[1])
    return to_parent(of_dof, motion_subspace(model))


def _motion(
    model: Model,
    J: Float[Array, "nv 6"],
    rates: tuple[Float[Array, " nv"], ...],
    base: Float[Array, "6"] | None,
) -> tuple[Float[Array, "nb 6"], ...]:
    tree = model.topology.tree
    joint = [sum_dofs(model.topology, J * x[:, None]) for x in rates]
    Jv = joint[0]
    V = ancestor_sum(tree, Jv)
    if len(joint) == 1:
        return (V,)
    bias = cross_twist(V, Jv)
    dV = ancestor_sum(tree, joint[1] + bias)
    if len(joint) == 2:
        return V, dV if base is None else dV + base[None]
    terms = cross_twist(V, 2 * joint[1] + bias) + cross_twist(dV, Jv)
    return V, dV, ancestor_sum(tree, joint[2] + terms)


def motion(
    model: Model, q: Float[Array, " nq"], rates: tuple[Float[Array, " nv"], ...]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛). Cost: O(n).

    Source: Müller (70c), (70d) with ``ad_{V_{i−1}} V_i = ad_{V_i} J_i q̇_i``, and the time
    derivative of the latter by (16).
    """
    J = joint_screws(model, forward_kinematics(model, q))
    return _motion(model, J, rates, None)


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
    topology = model.topology
    C = forward_kinematics(model, q)
    J = joint_screws(model, C)
    V, dV = _motion(model, J, (v, a), base_acceleration(model))
    W = spatial_wrench(inertia.to_parent(C, model.inertia), V, dV)
    if f_ext is not None:
        W = W - wrench_to_parent(C, f_ext)
    Q = jnp.sum(J * per_dof(topology, subtree_sum(topology.tree, W)), axis=-1)
    return Q + model.armature * a + model.damping * v
