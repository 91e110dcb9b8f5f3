"""All spatial quantities of a robot in ground coordinates, centered on the root body.

In ground coordinates, sums along the tree are plain additions (Singh, §IV; Müller, spatial
twists). Their axes are the world's. Their origin is the origin of the root body of each tree, so
that single precision does not suffer far from the world's origin. Dynamics does not depend on this
choice.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, Topology, joint_placements, motion_subspace
from ..spatial import inertia, se3, so3
from ..spatial.motion import cross_twist, shift, turn, wrench_to_parent
from .passive import base_acceleration
from .tree import ancestor_product, ancestor_sum, per_dof, subtree_sum, sum_dofs


class WorldQuantities(NamedTuple):
    """A robot at a configuration: poses, motion subspaces and inertias, in ground coordinates.

    ``S_own`` and ``I_own`` have the same axes but are about the origin of each body (Müller's
    hybrid form), where light links far from the root lose no digits.
    """

    R: Float[Array, "nb 3 3"]
    p: Float[Array, "nb 3"]
    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    S_own: Float[Array, "nv 6"]
    I_own: Float[Array, "nb 10"]


class Motion(NamedTuple):
    """Velocities, accelerations and wrenches of a moving robot, in ground coordinates.

    ``v`` and ``a`` are the twist and the acceleration (gravity included) of each body. ``f`` is the
    wrench that accelerates the body, less the external wrench. ``F`` is the sum of f over the
    subtree, the wrench through the body's joint.
    """

    v: Float[Array, "nb 6"]
    a: Float[Array, "nb 6"]
    f: Float[Array, "nb 6"]
    F: Float[Array, "nb 6"]


def centered_poses(model: Model, q: Float[Array, " nq"]) -> se3.Pose:
    """Body poses with world axes and the origin at the root body of each tree."""
    tree = model.topology.tree
    R, p = joint_placements(model, q)
    p = jnp.where((tree.depths == 0)[:, None], jnp.zeros_like(p), p)
    return ancestor_product(tree, se3.compose, (R, p), se3.identity(p.dtype))


def quantities(model: Model, q: Float[Array, " nq"]) -> WorldQuantities:
    """Poses, motion subspaces and inertias in ground coordinates."""
    R, p = centered_poses(model, q)
    return quantities_at(model, R, p)


def quantities_at(
    model: Model, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]
) -> WorldQuantities:
    """The same for known poses in ground coordinates."""
    topology = model.topology
    S_own = turn(per_dof(topology, R), motion_subspace(model))
    I_own = inertia.rotate(R, model.inertia)
    return WorldQuantities(R, p, *about_root(topology, p, S_own, I_own), S_own, I_own)


def about_root(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S_own: Float[Array, "nv 6"],
    I_own: Float[Array, "nb 10"],
) -> tuple[Float[Array, "nv 6"], Float[Array, "nb 10"]]:
    """S and I in ground coordinates, from S and I about the origins p of the bodies."""
    return shift(per_dof(topology, p), S_own), inertia.translate(p, I_own)


def motion(
    model: Model,
    g: WorldQuantities,
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Motion:
    """Twists, accelerations and wrenches. Source: Singh, Algorithm 1, lines 3, 4, 10, 23."""
    topology = model.topology
    Sv = sum_dofs(topology, g.S * v[:, None])
    vb = ancestor_sum(topology.tree, Sv)
    Sa = sum_dofs(topology, g.S * a[:, None])
    ab = ancestor_sum(topology.tree, Sa + cross_twist(vb, Sv)) + base_acceleration(model)[None]
    f = _body_wrenches(model, g, vb, ab)
    if f_ext is not None:
        f = f - wrench_to_parent((g.R, g.p), f_ext)
    return Motion(vb, ab, f, subtree_sum(topology.tree, f))


def _body_wrenches(model: Model, g: WorldQuantities, v: Array, a: Array) -> Float[Array, "nb 6"]:
    """``I a + v ×* I v`` of every body, from its inertia in its own frame.

    Source: Müller (53), the Newton–Euler equations in hybrid form, shifted to the ground's origin.
    This costs less than first taking the ten inertial parameters of every body to the ground.
    """
    m, mc, J = model.inertia[:, :1], model.inertia[:, 1:4], inertia.rotational(model.inertia)
    w, dw = v[:, :3], a[:, :3]
    velocity, rate = v[:, 3:] + so3.cross(w, g.p), a[:, 3:] + so3.cross(dw, g.p)
    acceleration = rate + so3.cross(w, velocity)
    Rmc = so3.rotate(g.R, mc)
    f = m * acceleration + so3.cross(dw, Rmc) + so3.cross(w, so3.cross(w, Rmc))
    own_w, own_dw = so3.rotate_inverse(g.R, w), so3.rotate_inverse(g.R, dw)
    n = so3.rotate(J, own_dw) + so3.cross(own_w, so3.rotate(J, own_w))
    n = so3.rotate(g.R, n) + so3.cross(Rmc, acceleration) + so3.cross(g.p, f)
    return jnp.concatenate([n, f], axis=-1)


def torque(model: Model, g: WorldQuantities, m: Motion, v: Array, a: Array) -> Float[Array, " nv"]:
    """``τ = Sᵀ F`` with rotor inertia and damping."""
    tau = jnp.sum(g.S * per_dof(model.topology, m.F), axis=-1)
    return tau + model.armature * a + model.damping * v
