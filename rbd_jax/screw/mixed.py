"""Mixed twists: angular velocity in body axes, velocity of the body's origin in world axes.

Source: Müller §2.4, §3.4. The paper gives the equations of a body only. The backward recursion here
follows from them, with moments in body axes and forces in world axes. Letters: (R, r) is the pose
of body i, V = (ωᵇ, ṙ) the twist, and W = (t, f) the moment about the body's origin in body axes and
the force in world axes.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import base_acceleration, plus_springs
from ..algorithms.tree import ancestor_product, leaf_to_root, per_dof
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import se3, so3
from . import hybrid
from ._series import in_moving_frame
from .newton_euler import mixed_wrench


def of_hybrid(
    R: Float[Array, "nb 3 3"], rates: Sequence[Float[Array, "nb 6"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """The mixed twist and its rates from the hybrid ones.

    Source: Müller (33). The jerk there lacks the last term of ``ω̈ᵇ = Rᵀ ω̈ˢ − ωᵇ × ω̇ᵇ``.
    """
    w: list[Array] = []
    turned = [so3.rotate_inverse(R, x[:, :3]) for x in rates]
    for rate in in_moving_frame(turned, w, so3.cross, -1):
        w.append(rate)
    return tuple(jnp.concatenate([w, x[:, 3:]], -1) for w, x in zip(w, rates, strict=True))


def motion(
    model: Model, q: Float[Array, " nq"], rates: Sequence[Float[Array, " nv"]]
) -> tuple[Float[Array, "nb 6"], ...]:
    """``(V, V̇, V̈, …)`` of all bodies, as many as there are ``rates`` (q̇, q̈, q⃛, …).

    Cost: O(n k²) for k rates.

    Source: Müller (33), (100).
    """
    R, r = forward_kinematics(model, q)
    return of_hybrid(R, hybrid.motion_at(model, r, hybrid.joint_screws(model, R), rates))


def wrenches_at(
    model: Model,
    R: Float[Array, "nb 3 3"],
    r: Float[Array, "nb 3"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The same as :func:`wrenches`, from poses and screws."""
    X, base = hybrid.joint_screws(model, R), base_acceleration(model)
    V, dV = of_hybrid(R, hybrid.motion_at(model, r, X, (v, a), base))
    W = mixed_wrench(model.inertia, R, V, dV)
    if f_ext is None:
        return W
    return W - jnp.concatenate([f_ext[:, :3], so3.rotate(R, f_ext[:, 3:])], axis=-1)


def wrenches(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, "nb 6"]:
    """The moment and force that the joints must exert on each body, against gravity too (N m, N).

    Source: Müller (33), (56)–(57), with V̇₀ = (0, −g).
    """
    R, r = forward_kinematics(model, q)
    return wrenches_at(model, R, r, v, a, f_ext)


@checked
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of a motion by a recursion in mixed twists and wrenches (N m, N).

    Arguments, armature and damping are those of :func:`rbd_jax.rnea`. Derivatives are those of
    autodiff.
    Cost: O(n).

    Source: Müller (33), (56)–(57). Applied wrenches are subtracted as in (77), and V̇₀ = (0, −g).
    """
    topology = model.topology
    T = joint_placements(model, q)
    R, r = ancestor_product(topology.tree, se3.compose, T, se3.identity(T[1].dtype))
    W = wrenches_at(model, R, r, v, a, f_ext)

    def backward(x, below):
        (R_up, p), R, W = x
        W = W + below
        t, f = W[:3], W[3:]
        # R_up maps to the parent's axes. The force is in world axes and goes by way of body i.
        f_up = so3.rotate(R_up, so3.rotate_inverse(R, f))
        return jnp.concatenate([so3.rotate(R_up, t) + so3.cross(p, f_up), f]), W

    rows = T, R, W
    W = per_dof(topology, leaf_to_root(topology.tree, backward, rows, jnp.zeros((6,), R.dtype)))
    f = so3.rotate_inverse(per_dof(topology, R), W[:, 3:])
    Q = jnp.sum(motion_subspace(model) * jnp.concatenate([W[:, :3], f], axis=-1), axis=-1)
    return plus_springs(model, q, Q + model.armature * a + model.damping * v)
