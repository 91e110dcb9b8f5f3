"""Body-fixed twists: recursions in body frames. Source: Müller §2.1, §3.2, §4.1.

Letters: T = (R, p) is the pose of body i in its parent, X the joint screw, Xv = X q̇ the joint
twist (Xa and Xj are X q̈ and X q⃛), V the twist and W the wrench through the joint. All belong to
body i and are in frame i.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.passive import base_acceleration, plus_springs
from ..algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial.motion import cross_twist, to_child, wrench_to_parent
from ..spatial.se3 import Pose
from ._series import in_moving_frame
from .newton_euler import body_fixed_wrench


def motion_at(
    model: Model,
    T: Pose,
    X: Float[Array, "nv 6"],
    rates: Sequence[Float[Array, " nv"]],
    base: Float[Array, "6"] | None = None,
) -> tuple[Float[Array, "nb 6"], ...]:
    """The same as :func:`motion`, from placements and screws; the world accelerates by ``base``."""
    joint = tuple(sum_dofs(model.topology, X * x[:, None]) for x in rates)

    def step(parent, x):
        T, joint = x
        carried = in_moving_frame([to_child(T, V) for V in parent], joint, cross_twist, -1)
        return tuple(U + Xv for U, Xv in zip(carried, joint, strict=True))

    world = world_rates(X.dtype, len(joint), base)
    return root_to_leaf(model.topology.tree, step, (T, joint), world)


def world_rates(dtype: Any, order: int, base: Float[Array, "6"] | None) -> tuple[Array, ...]:
    """The twist of the world, which is zero, and its rates; the first one is ``base``."""
    zero = jnp.zeros((6,), dtype)
    return (zero, zero if base is None else base, *[zero] * order)[:order]


def motion(
    model: Model, q: Float[Array, " nq"], rates: Sequence[Float[Array, " nv"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈, …)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛, …).

    Cost: O(n k²) for k rates.

    Source: Müller (66b), (65c), and the time derivatives of the latter.
    """
    return motion_at(model, joint_placements(model, q), motion_subspace(model), rates)


def wrenches_at(
    model: Model,
    T: Pose,
    X: Float[Array, "nv 6"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The same as :func:`wrenches`, from poses and screws."""
    V, dV = motion_at(model, T, X, (v, a), base_acceleration(model))
    W = body_fixed_wrench(model.inertia, V, dV)
    return W if f_ext is None else W - f_ext


def wrenches(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The wrench that the joints must exert on each body, against gravity too (N m, N).

    Source: Müller (66), (67a), with V̇₀ = (0, −g).
    """
    T, X = joint_placements(model, q), motion_subspace(model)
    return wrenches_at(model, T, X, v, a, f_ext)


@checked
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of a motion by the recursion in body-fixed twists (N m, N).

    Arguments, armature and damping are those of :func:`rbd_jax.rnea`. Derivatives are those of
    autodiff.
    Cost: O(n).

    Source: Müller (66)–(67), with ``ad_V`` for the misprinted ``ad_V̇`` in (67a). Applied wrenches
    are subtracted as in (77), sums run over all children, and V̇₀ = (0, −g).
    """
    topology, X = model.topology, motion_subspace(model)
    T = joint_placements(model, q)
    W = wrenches_at(model, T, X, v, a, f_ext)

    def backward(x, below):
        T, W = x
        W = W + below
        return wrench_to_parent(T, W), W

    W = leaf_to_root(topology.tree, backward, (T, W), jnp.zeros((6,), X.dtype))
    Q = jnp.sum(X * per_dof(topology, W), axis=-1)
    return plus_springs(model, q, Q + model.armature * a + model.damping * v)
