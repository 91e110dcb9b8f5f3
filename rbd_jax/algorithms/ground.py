"""All spatial quantities of a robot in ground coordinates, centred on the root body.

Ground coordinates make sums along the tree plain additions (Singh, §IV; Müller, spatial twists).
Their axes are the world's; the origin is the origin of the root body of each tree (in the world,
for a body hinged to it, the placement of that body), so that single precision does not suffer
far from the world's origin. Dynamics does not depend on the choice.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, Topology, joint_placements, motion_subspace
from ..spatial import inertia, se3, so3
from ..spatial.motion import cross_twist, shift, turn, wrench_to_parent
from .gravity import base_acceleration
from .tree import ancestor_product, ancestor_sum, per_dof, subtree_sum, sum_dofs


class Pose(NamedTuple):
    """Where everything is: body poses, motion subspaces and inertias, in ground coordinates.

    ``S_own``, ``I_own``: the same with the world's axes about the origin of each body (Müller's
    hybrid form), where light links far from the root lose no digits.
    """

    R: Float[Array, "nb 3 3"]
    p: Float[Array, "nb 3"]
    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    S_own: Float[Array, "nv 6"]
    I_own: Float[Array, "nb 10"]


class Motion(NamedTuple):
    """How it moves and what that takes, in ground coordinates.

    ``v``, ``a``: twist and acceleration (gravity included) of each body; ``f``: wrench that the
    body takes, external wrench deducted; ``F``: the same for its whole subtree, the wrench
    through its joint.
    """

    v: Float[Array, "nb 6"]
    a: Float[Array, "nb 6"]
    f: Float[Array, "nb 6"]
    F: Float[Array, "nb 6"]


def centred_poses(model: Model, q: Float[Array, " nq"]) -> se3.Pose:
    """Body poses with world axes and the origin at the root body of each tree."""
    tree = model.topology.tree
    R, p = joint_placements(model, q)
    p = jnp.where((tree.depths == 0)[:, None], jnp.zeros_like(p), p)
    return ancestor_product(tree, se3.compose, (R, p), se3.identity(p.dtype))


def pose(model: Model, q: Float[Array, " nq"]) -> Pose:
    """Poses, S and inertias in ground coordinates."""
    R, p = centred_poses(model, q)
    return at_pose(model, R, p)


def at_pose(model: Model, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]) -> Pose:
    """S and inertias in ground coordinates for given centred poses."""
    topology = model.topology
    S_own = turn(per_dof(topology, R), motion_subspace(model))
    I_own = inertia.rotate(R, model.inertia)
    return Pose(R, p, *about_root(topology, p, S_own, I_own), S_own, I_own)


def about_root(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S_own: Float[Array, "nv 6"],
    I_own: Float[Array, "nb 10"],
) -> tuple[Float[Array, "nv 6"], Float[Array, "nb 10"]]:
    """S and I in ground coordinates of those about the origins p of the bodies."""
    return shift(per_dof(topology, p), S_own), inertia.translate(p, I_own)


def motion(
    model: Model,
    g: Pose,
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


def _body_wrenches(model: Model, g: Pose, v: Array, a: Array) -> Float[Array, "nb 6"]:
    """``I a + v ×* I v`` of every body, from its inertia in its own frame.

    Source: Müller (53), the Newton–Euler equations in hybrid form, shifted to the ground's origin.
    They cost less than taking ten inertial parameters of every body to ground coordinates first.
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


def torque(model: Model, g: Pose, m: Motion, v: Array, a: Array) -> Float[Array, " nv"]:
    """``τ = Sᵀ F`` with rotor inertia and damping."""
    tau = jnp.sum(g.S * per_dof(model.topology, m.F), axis=-1)
    return tau + model.armature * a + model.damping * v
