"""Hybrid twists: world axes, measured at the body's origin. Source: Müller §2.3, §3.3, §4.3.

Letters: (R, r) is the pose of body i, d = r_λ − r_i the vector from body i to its parent, X⁰ = Ad_R
X the joint screw in world axes, Xv = X⁰ q̇ the joint twist (Xa and Xj with q̈ and q⃛), V = (ω, ṙ)
the twist and W the wrench through the joint.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import base_acceleration, plus_springs
from ..algorithms.tree import leaf_to_root, per_dof, root_to_leaf, sum_dofs
from ..model import Model, Topology, motion_subspace
from ..model.arguments import checked
from ..spatial import inertia, so3
from ..spatial.motion import turn
from ._series import in_moving_frame, leibniz
from .body_fixed import world_rates
from .newton_euler import hybrid_wrench


def lever(d: Float[Array, "*#b 3"], V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``ad_d V = (0, d × ω)``. Source: Müller (119)."""
    v = so3.cross(d, V[..., :3])
    return jnp.concatenate([jnp.zeros_like(v), v], axis=-1)


def spin(w: Float[Array, "*#b 3"], V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``ad_ω V``: the cross products of ω with both halves of V. Source: Müller (119)."""
    return jnp.concatenate([so3.cross(w, V[..., :3]), so3.cross(w, V[..., 3:])], axis=-1)


def to_parents(topology: Topology, r: Float[Array, "nb 3"]) -> Float[Array, "nb 3"]:
    """``d = r_λ − r_i`` (m). The world is at zero."""
    padded = jnp.concatenate([r, jnp.zeros((1, 3), r.dtype)])
    return padded[topology.tree.parent_rows] - r


def joint_screws(model: Model, R: Float[Array, "nb 3 3"]) -> Float[Array, "nv 6"]:
    """``X⁰ = Ad_R X``, one row for each degree of freedom. Source: Müller (75b), (107)."""
    return turn(per_dof(model.topology, R), motion_subspace(model))


def motion_at(
    model: Model,
    r: Float[Array, "nb 3"],
    X: Float[Array, "nv 6"],
    rates: Sequence[Float[Array, " nv"]],
    base: Float[Array, "6"] | None = None,
) -> tuple[Float[Array, "nb 6"], ...]:
    """The same as :func:`motion`, from positions and screws; the world accelerates by ``base``."""
    joint = tuple(sum_dofs(model.topology, X * x[:, None]) for x in rates)

    def step(parent, x):
        levers, joint = [x[0]], x[1]
        w: list[Array] = []
        V: list[Array] = []
        for k, turning in enumerate(in_moving_frame(joint, w, spin)):
            if k > 0:
                levers.append(parent[k - 1][3:] - V[k - 1][3:])
            turned = leibniz(lever, levers, parent, k)
            V.append(parent[k] + turned + turning)
            w.append(V[k][:3])
        return tuple(V)

    world = world_rates(X.dtype, len(joint), base)
    d = to_parents(model.topology, r)
    return root_to_leaf(model.topology.tree, step, (d, joint), world)


def motion(
    model: Model, q: Float[Array, " nq"], rates: Sequence[Float[Array, " nv"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈, …)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛, …).

    Cost: O(n k²) for k rates.

    Source: Müller (75c), (75d), which is (72), and the time derivatives of the latter.
    """
    R, r = forward_kinematics(model, q)
    return motion_at(model, r, joint_screws(model, R), rates)


def wrenches_at(
    model: Model,
    R: Float[Array, "nb 3 3"],
    r: Float[Array, "nb 3"],
    X: Float[Array, "nv 6"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The same as :func:`wrenches`, from poses and screws."""
    V, dV = motion_at(model, r, X, (v, a), base_acceleration(model))
    W = hybrid_wrench(inertia.rotate(R, model.inertia), V, dV)
    return W if f_ext is None else W - turn(R, f_ext)


def wrenches(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The wrench that the joints must exert on each body, against gravity too (N m, N).

    Source: Müller (75), (76a), (53), with V̇₀ = (0, −g).
    """
    R, r = forward_kinematics(model, q)
    return wrenches_at(model, R, r, joint_screws(model, R), v, a, f_ext)


@checked
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of a motion by the recursion in hybrid twists (N m, N).

    Arguments, armature and damping are those of :func:`rbd_jax.rnea`. Derivatives are those of
    autodiff.
    Cost: O(n).

    Source: Müller (75)–(76), with ``M (ω, 0)`` as in (53) for the misprinted ``M V`` in (76b).
    Applied wrenches are subtracted as in (77), sums run over all children, and V̇₀ = (0, −g).
    """
    topology = model.topology
    R, r = forward_kinematics(model, q)
    X = joint_screws(model, R)
    W = wrenches_at(model, R, r, X, v, a, f_ext)

    def backward(x, below):
        d, W = x
        W = W + below
        t, f = W[:3], W[3:]
        return jnp.concatenate([t - so3.cross(d, f), f]), W

    rows = to_parents(topology, r), W
    W = leaf_to_root(topology.tree, backward, rows, jnp.zeros((6,), r.dtype))
    Q = jnp.sum(X * per_dof(topology, W), axis=-1)
    return plus_springs(model, q, Q + model.armature * a + model.damping * v)
