"""Where a frame and the center of mass are, with analytical rules for the configuration.

``δR = δω × R``, ``δp = J δv`` with a Jacobian of few rows. It is found once for all directions of a
derivative, where autodiff would follow the placements of all bodies in each direction.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.energy import center_of_mass, total_mass
from ...algorithms.kinematics import forward_kinematics, frame_in_body, frame_placement
from ...algorithms.tree import per_dof, subtree_sum
from ...model import CoordinateModel, Model, velocity_from_rate
from ...spatial import se3, so3
from ..perturbation import GEOMETRY, nonzero_tangents
from .mechanism import ruled


def frame_pose(model: Model, q: Float[Array, " nq"], frame: str | int) -> se3.Pose:
    """Pose ``(R, p)`` of a frame in the world (p in m), as :func:`rbd_jax.frame_placement`.

    Source: Kim (34). The derivative along q is the rule; along the model it is autodiff's.
    """
    if isinstance(model, CoordinateModel):
        return frame_placement(model, q, frame)
    body, local = frame_in_body(model, frame)
    return local if body < 0 else se3.compose(_body_pose(model, q, body), local)


def mass_center(model: Model, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Center of mass in the world (m), as :func:`rbd_jax.center_of_mass`.

    Source: Kim, the mean of the bodies' centers weighed by their masses. The derivative along q is
    the rule; along the model it is autodiff's.
    """
    return center_of_mass(model, q) if isinstance(model, CoordinateModel) else _center(model, q)


def _pose_found(model: Model, q, body: int) -> se3.Pose:
    R, p = forward_kinematics(model, q)
    return R[body], p[body]


_body_pose, _center = (ruled(f) for f in (_pose_found, center_of_mass))


@_body_pose.def_jvp
def _body_pose_jvp(primals, tangents):
    """Source: Featherstone, Rigid Body Dynamics Algorithms, §4.1, the Jacobian of a body."""
    (model, q, body), (dmodel, dq, _) = primals, tangents
    found, topology = _body_pose(model, q, body), model.topology
    dR, dp = None, None
    if nonzero_tangents(dmodel, *GEOMETRY):
        dR, dp = eqx.filter_jvp(lambda m: _pose_found(m, q, body), (model,), (dmodel,))[1]
    if dq is not None:
        g = world_frame.pose(model, q)
        above = topology.tree.ancestor_mask[body][topology.dof_bodies] > 0
        V = _times(jnp.where(above[:, None], g.S, 0).T, velocity_from_rate(model, q, dq))
        turn, move = so3.matmul(so3.hat(V[:3]), found[0]), V[3:] + so3.cross(V[:3], g.p[body])
        dR, dp = (turn, move) if dR is None or dp is None else (dR + turn, dp + move)
    return found, (dR, dp)


@_center.def_jvp
def _center_jvp(primals, tangents):
    """Source: Orin, Goswami, Lee, Autonomous Robots 2013, eq. (28): subtrees move as one body."""
    (model, q), (dmodel, dq) = primals, tangents
    found, topology, total = _center(model, q), model.topology, None
    if nonzero_tangents(dmodel, *GEOMETRY, "inertia"):
        total = eqx.filter_jvp(lambda m: center_of_mass(m, q), (model,), (dmodel,))[1]
    if dq is not None:
        g = world_frame.pose(model, q)
        mass = per_dof(topology, subtree_sum(topology.tree, g.I[:, :4]))
        moved = mass[:, :1] * g.S[:, 3:] + so3.cross(g.S[:, :3], mass[:, 1:])
        part = _times(moved.T, velocity_from_rate(model, q, dq)) / total_mass(model)
        total = part if total is None else total + part
    return found, total


def _times(A: Array, x: Array) -> Array:
    return jnp.matmul(A, x, precision="highest")
