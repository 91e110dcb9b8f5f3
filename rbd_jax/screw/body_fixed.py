"""Body-fixed twists: recursions in body frames. Source: Müller §2.1, §3.2, §4.1.

Letters: T = (R, p) is the pose of body i in its parent, X the joint screw, Xv = X q̇ the joint
twist (Xa and Xj are X q̈ and X q⃛), V the twist and W the wrench through the joint. All belong to
body i and are in frame i.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.passive import base_acceleration
from ..algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial.motion import cross_twist, to_child, wrench_to_parent
from ..spatial.se3 import Pose
from .newton_euler import body_fixed_wrench


def _motion(
    model: Model,
    T: Pose,
    X: Float[Array, "nv 6"],
    rates: tuple[Float[Array, " nv"], ...],
    base: Float[Array, "6"] | None,
) -> tuple[Float[Array, "nb 6"], ...]:
    """The same as :func:`motion`, with the acceleration ``base`` of the world."""
    joint = tuple(sum_dofs(model.topology, X * x[:, None]) for x in rates)

    def step(parent, x):
        T, joint = x
        Xv = joint[0]
        U = tuple(to_child(T, p) for p in parent)
        V = U[0] + Xv
        if len(joint) == 1:
            return (V,)
        dV = U[1] + cross_twist(V, Xv) + joint[1]
        if len(joint) == 2:
            return V, dV
        ddV = U[2] + cross_twist(U[1] + dV, Xv) + cross_twist(V, joint[1]) + joint[2]
        return V, dV, ddV

    zero = jnp.zeros((6,), X.dtype)
    world = (zero, zero if base is None else base, zero)[: len(rates)]
    return root_to_leaf(model.topology.tree, step, (T, joint), world)


def motion(
    model: Model, q: Float[Array, " nq"], rates: tuple[Float[Array, " nv"], ...]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛). Cost: O(n).

    Source: Müller (66b), (65c), and the time derivative of the latter.
    """
    return _motion(model, joint_placements(model, q), motion_subspace(model), rates, None)


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
    V, dV = _motion(model, T, X, (v, a), base_acceleration(model))
    W = body_fixed_wrench(model.inertia, V, dV)
    if f_ext is not None:
        W = W - f_ext

    def backward(x, below):
        T, W = x
        W = W + below
        return wrench_to_parent(T, W), W

    W = leaf_to_root(topology.tree, backward, (T, W), jnp.zeros((6,), X.dtype))
    Q = jnp.sum(X * per_dof(topology, W), axis=-1)
    return Q + model.armature * a + model.damping * v
