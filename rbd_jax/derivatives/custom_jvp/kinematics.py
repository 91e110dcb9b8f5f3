"""Poses of bodies and frames, and the center of mass, with rules for the configuration.

A rule follows the twists of the bodies, ``δR = δω × R`` and ``δp = δv + δω × p`` with
``(δω, δv) = Σ_anc S δq``. Autodiff would follow the products of placements along each chain, for
each direction of a derivative. Derivatives with respect to the model are those of autodiff.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.energy import center_of_mass, total_mass
from ...algorithms.kinematics import forward_kinematics, frame_in_body, frame_placement
from ...algorithms.tree import ancestor_sum, per_dof, subtree_sum, sum_dofs
from ...model import CoordinateModel, Model, Topology, joint_placements, velocity_from_rate
from ...spatial import linear, se3, so3
from ..perturbation import GEOMETRY, nonzero_tangents
from .mechanism import custom_jvp

# --- one frame, and the center of mass ------------------------------------------------------------


def frame_placement_custom_jvp(model: Model, q: Float[Array, " nq"], frame: str | int) -> se3.Pose:
    """Pose ``(R, p)`` of a frame (p in m): :func:`rbd_jax.frame_placement` with a derivative rule.

    The Jacobian of the frame has few rows and is found once for all directions of a derivative.
    Source: Kim (34). Robots with driven joints take the derivatives of autodiff.
    """
    if isinstance(model, CoordinateModel):
        return frame_placement(model, q, frame)
    body, local = frame_in_body(model, frame)
    return local if body < 0 else se3.compose(_body_pose_custom_jvp(model, q, body), local)


def center_of_mass_custom_jvp(model: Model, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Center of mass in the world (m): :func:`rbd_jax.center_of_mass` with a rule.

    Source: Kim, the mean of the centers of the bodies, weighted by their masses. Robots with driven
    joints take the derivatives of autodiff.
    """
    if isinstance(model, CoordinateModel):
        return center_of_mass(model, q)
    return _center_of_mass_custom_jvp(model, q)


def _body_pose(model: Model, q, body: int) -> se3.Pose:
    R, p = forward_kinematics(model, q)
    return R[body], p[body]


_body_pose_custom_jvp = custom_jvp(_body_pose)
_center_of_mass_custom_jvp = custom_jvp(center_of_mass)


@_body_pose_custom_jvp.def_jvp
def _body_pose_jvp(primals, tangents):
    """Source: Featherstone, Rigid Body Dynamics Algorithms, §4.1, the Jacobian of a body."""
    (model, q, body), (dmodel, dq, _) = primals, tangents
    pose, topology = _body_pose_custom_jvp(model, q, body), model.topology
    dR, dp = None, None
    if nonzero_tangents(dmodel, *GEOMETRY):
        dR, dp = eqx.filter_jvp(lambda m: _body_pose(m, q, body), (model,), (dmodel,))[1]
    if dq is not None:
        g = world_frame.quantities(model, q)
        above = topology.tree.ancestor_mask[body][topology.dof_bodies] > 0
        J = jnp.where(above[:, None], g.S, 0).T
        V = linear.matmul(J, velocity_from_rate(model, q, dq))
        turn, move = so3.matmul(so3.hat(V[:3]), pose[0]), V[3:] + so3.cross(V[:3], g.p[body])
        dR, dp = (turn, move) if dR is None or dp is None else (dR + turn, dp + move)
    return pose, (dR, dp)


@_center_of_mass_custom_jvp.def_jvp
def _center_of_mass_jvp(primals, tangents):
    """Source: Orin, Goswami, Lee, Autonomous Robots 2013, eq. (28): subtrees move as one body."""
    (model, q), (dmodel, dq) = primals, tangents
    center, topology, total = _center_of_mass_custom_jvp(model, q), model.topology, None
    if nonzero_tangents(dmodel, *GEOMETRY, "inertia"):
        total = eqx.filter_jvp(lambda m: center_of_mass(m, q), (model,), (dmodel,))[1]
    if dq is not None:
        g = world_frame.quantities(model, q)
        mass = per_dof(topology, subtree_sum(topology.tree, g.I[:, :4]))
        moved = mass[:, :1] * g.S[:, 3:] + so3.cross(g.S[:, :3], mass[:, 1:])
        part = linear.matmul(moved.T, velocity_from_rate(model, q, dq)) / total_mass(model)
        total = part if total is None else total + part
    return center, total


# --- all bodies -----------------------------------------------------------------------------------


def twists(
    topology: Topology, g: world_frame.WorldQuantities, v: Float[Array, " nv"]
) -> tuple[Float[Array, "nb 3"], Float[Array, "nb 3"]]:
    """Angular velocity of each body, and velocity of its origin, in world axes, for joint speeds.

    Source: Singh, Algorithm 1, line 3.
    """
    V = ancestor_sum(topology.tree, sum_dofs(topology, g.S * v[:, None]))
    return V[:, :3], V[:, 3:] + so3.cross(V[:, :3], g.p)


def world_quantities_custom_jvp(
    model: Model, q: Float[Array, " nq"]
) -> tuple[world_frame.WorldQuantities, Float[Array, "nb 3"]]:
    """The quantities of :func:`world_frame.quantities` with a rule, and the origin they refer to.

    The origin is that of the root body of each tree (m).
    """
    R, p, root = _body_poses_custom_jvp(model, q)
    return world_frame.quantities_at(model, R, p), root


def _body_poses(model: Model, q: Float[Array, " nq"]):
    root = joint_placements(model, q)[1][model.topology.tree.roots]
    return *world_frame.centered_poses(model, q), root


_body_poses_custom_jvp = custom_jvp(_body_poses)


@_body_poses_custom_jvp.def_jvp
def _body_poses_jvp(primals, tangents):
    """One sum along the tree, of six numbers for each body."""
    (model, q), (dmodel, dq) = primals, tangents
    R, p, root = poses = _body_poses_custom_jvp(model, q)
    total = None, None, None
    if nonzero_tangents(dmodel, *GEOMETRY):
        total = eqx.filter_jvp(lambda m: _body_poses(m, q), (model,), (dmodel,))[1]
    if dq is not None:
        g = world_frame.quantities(model, q)
        w, v = twists(model.topology, g, velocity_from_rate(model, q, dq))
        of_root = v[model.topology.tree.roots]
        part = so3.matmul(so3.hat(w), R), v - of_root, of_root
        total = [x if y is None else x + y for x, y in zip(part, total, strict=True)]
    return poses, tuple(total)
