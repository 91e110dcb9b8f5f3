"""The poses of all bodies with an analytical rule for the configuration.

``δR = δω × R`` and ``δp = δv + δω × p`` with the twists ``Σ_anc S δq``. This is one sum along the
tree of six numbers a body, where autodiff would follow the products of placements.
"""

import equinox as eqx
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.tree import ancestor_sum, sum_dofs
from ...model import Model, Topology, joint_placements, velocity_from_rate
from ...spatial import so3
from ..perturbation import GEOMETRY, nonzero_tangents
from .mechanism import ruled


def twists(
    topology: Topology, g: world_frame.Placed, v: Float[Array, " nv"]
) -> tuple[Float[Array, "nb 3"], Float[Array, "nb 3"]]:
    """Angular velocity of each body, and velocity of its origin, in world axes, for joint speeds.

    Source: Singh, Algorithm 1, line 3.
    """
    V = ancestor_sum(topology.tree, sum_dofs(topology, g.S * v[:, None]))
    return V[:, :3], V[:, 3:] + so3.cross(V[:, :3], g.p)


def _found(model: Model, q: Float[Array, " nq"]):
    root = joint_placements(model, q)[1][model.topology.tree.roots]
    return *world_frame.centered_poses(model, q), root


_poses = ruled(_found)


@_poses.def_jvp
def _poses_jvp(primals, tangents):
    (model, q), (dmodel, dq) = primals, tangents
    R, p, root = found = _poses(model, q)
    total = None, None, None
    if nonzero_tangents(dmodel, *GEOMETRY):
        total = eqx.filter_jvp(lambda m: _found(m, q), (model,), (dmodel,))[1]
    if dq is not None:
        w, v = twists(model.topology, world_frame.pose(model, q), velocity_from_rate(model, q, dq))
        of_root = v[model.topology.tree.roots]
        part = so3.matmul(so3.hat(w), R), v - of_root, of_root
        total = [x if y is None else x + y for x, y in zip(part, total, strict=True)]
    return found, tuple(total)


def placed(model: Model, q: Float[Array, " nq"]) -> tuple[world_frame.Placed, Float[Array, "nb 3"]]:
    """Poses, motion subspaces and inertias in ground coordinates, and the origin of those (m).

    The origin is that of the root body of each tree. The value is that of
    :func:`world_frame.pose`; a derivative with respect to q is the rule, one with respect to the model autodiff's.
    """
    R, p, root = _poses(model, q)
    return world_frame.at_pose(model, R, p), root
