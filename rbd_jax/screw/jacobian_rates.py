"""Time derivatives of all Jacobians in closed form. Source: Müller (8), (16), (27), (30).

Letters: J_ij is the column of degree of freedom j in the Jacobian of body i, V_j the twist of the
body of j, U = V_i − Ad_{C_ij} V_j the twist of body i relative to that body, in frame i, and r_ij =
r_j − r_i. The screws of a joint are constant in its own body, so all degrees of freedom of a joint
are treated alike.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.tree import per_dof
from ..model import Model
from ..model.arguments import checked
from ..spatial import so3
from ..spatial.motion import cross_twist, shift, to_child, to_parent
from . import hybrid, spatial
from .hybrid import lever, spin
from .representations import Representation, jacobians, module_of

Rows = Float[Array, "nb nv 6"]


def _in_all_frames(model: Model, C, x: Float[Array, "nb 6"]) -> Rows:
    """``Ad_{C_ij} x_j``: the twist of each body, first in its own frame, in the frame of body i."""
    R, r = C
    nb, nv = model.nb, model.nv
    in_world = to_parent(C, x)
    at_dof = jnp.broadcast_to(per_dof(model.topology, in_world)[None], (nb, nv, 6))
    here = jnp.broadcast_to(R[:, None], (nb, nv, 3, 3)), jnp.broadcast_to(r[:, None], (nb, nv, 3))
    return to_child(here, at_dof)


def _body_fixed(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Rows, ...]:
    C = world_frame.centered_poses(model, q)
    J = so3.transpose(jacobians(model, q, "body_fixed"))
    V, *rest = module_of("jacobian_rates", "body_fixed").motion(model, q, rates)
    carried = _in_all_frames(model, C, V)
    U = V[:, None] - carried
    dJ = cross_twist(J, U)
    if not rest:
        return (dJ,)
    dU = rest[0][:, None] - _in_all_frames(model, C, rest[0]) - cross_twist(carried, U)
    return dJ, cross_twist(dJ, U) + cross_twist(J, dU)


def _spatial(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Rows, ...]:
    J = so3.transpose(jacobians(model, q, "spatial"))
    at_dof = [per_dof(model.topology, x)[None] for x in spatial.motion(model, q, rates)]
    dJ = cross_twist(at_dof[0], J)
    if len(at_dof) == 1:
        return (dJ,)
    return dJ, cross_twist(at_dof[1], J) + cross_twist(at_dof[0], dJ)


def _hybrid(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Rows, ...]:
    topology = model.topology
    R, r = world_frame.centered_poses(model, q)
    X = hybrid.joint_screws(model, R)[None]
    V, *rest = hybrid.motion(model, q, rates)

    def between(x: Float[Array, "nb 3"]) -> Float[Array, "nb nv 3"]:
        """``x_ij = x_j − x_i`` of positions or of their rates."""
        return per_dof(topology, x)[None] - x[:, None]

    d, dd, w = between(r), between(V[:, 3:]), per_dof(topology, V[:, :3])[None]
    turned = spin(w, X)
    dJ = lever(dd, X) + shift(d, turned)
    if not rest:
        return (dJ,)
    ddd, dw = between(rest[0][:, 3:]), per_dof(topology, rest[0][:, :3])[None]
    return dJ, lever(ddd, X) + 2 * lever(dd, turned) + shift(d, spin(dw, X) + spin(w, turned))


def _mixed(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Rows, ...]:
    pairs = zip(_body_fixed(model, q, rates), _hybrid(model, q, rates), strict=True)
    return tuple(jnp.concatenate([b[..., :3], h[..., 3:]], axis=-1) for b, h in pairs)


_RATES = {"body_fixed": _body_fixed, "spatial": _spatial, "hybrid": _hybrid, "mixed": _mixed}


def _columns(model: Model, J: Rows) -> Float[Array, "nb 6 nv"]:
    moves = jnp.asarray(model.topology.tree.ancestor_mask[:, model.topology.dof_bodies])
    return so3.transpose(jnp.where(moves[:, :, None], J, 0))


@checked
def jacobian_rates(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6 nv"]:
    """``J̇_i`` of all bodies, with ``V̇_i = J_i a + J̇_i v``.

    Derivatives are those of autodiff. Cost: O(n²).

    Source: Müller (8) body-fixed, ``[J_ij, U]``; (16) spatial, ``[V_j, J_j]``; (27) hybrid,
    ``(ad_{ṙ_ij} + Ad_{r_ij} ad_{ω_j}) X⁰_j``, where the paper prints r_{i,j−1}. Mixed Jacobians
    have the angular rows of body-fixed ones and the linear rows of hybrid ones.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        representation: representation of the twists.

    Raises:
        ValueError: for an unknown representation.
    """
    module_of("jacobian_rates", representation)
    return _columns(model, _RATES[representation](model, q, (v,))[0])


@checked
def jacobian_second_rates(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6 nv"]:
    """``J̈_i`` of all bodies, with ``V̈_i = J_i j + 2 J̇_i a + J̈_i v`` for the jerk j of the
    joints.

    Arguments and errors are those of :func:`jacobian_rates`, with the acceleration a.
    Derivatives are those of autodiff. Cost: O(n²).

    Source: Müller (30) hybrid; spatial the time derivative of (16),
    ``[V̇_j, J_j] + [V_j, [V_j, J_j]]``; body-fixed the time derivative of (8).
    """
    module_of("jacobian_second_rates", representation)
    return _columns(model, _RATES[representation](model, q, (v, a))[1])
