"""Twists, Jacobians and inverse dynamics with one switch for the representation.

Derivatives are those of autodiff. Source: Müller §2, §4 and App. A. The four representations of a
body's motion are:

- ``"body_fixed"``: body axes, velocity of the body's origin: ``C⁻¹ Ċ``.
- ``"spatial"``: world axes, velocity of the body point at the world's origin: ``Ċ C⁻¹``.
- ``"hybrid"``: world axes, velocity of the body's origin.
- ``"mixed"``: angular velocity in body axes, velocity of the body's origin in world axes.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.kinematics import forward_kinematics
from ..model import Model
from ..model.arguments import checked, projected
from ..spatial import so3
from ..spatial.motion import shift, to_child, turn
from ..spatial.se3 import Pose
from . import body_fixed, hybrid, mixed, spatial

Representation = Literal["body_fixed", "spatial", "hybrid", "mixed"]
_MODULES = {"body_fixed": body_fixed, "spatial": spatial, "hybrid": hybrid, "mixed": mixed}
REPRESENTATIONS = tuple(_MODULES)


def module_of(function: str, representation: str):
    """The module that implements a representation.

    Raises:
        ValueError: for an unknown representation.
    """
    if representation not in _MODULES:
        raise ValueError(
            f"{function}: representation must be one of {REPRESENTATIONS}, got {representation!r}"
        )
    return _MODULES[representation]


def convert_twist(
    C: Pose, V: Float[Array, "*#b 6"], source: Representation, target: Representation
) -> Float[Array, "*b 6"]:
    """The same twist in another representation.

    Source: Müller (98), (99), (100).

    Args:
        C: pose ``(R, r)`` of the body in the world (m).
        V: twist in the representation ``source`` (rad/s, m/s).
        source: representation of V.
        target: representation of the result.

    Raises:
        ValueError: for an unknown representation.
    """
    R, r = C
    module_of("convert_twist", source), module_of("convert_twist", target)
    if source == target:
        return V
    w, v = V[..., :3], V[..., 3:]
    if source == "body_fixed":
        h = turn(R, V)
    elif source == "spatial":
        h = shift(-r, V)
    elif source == "mixed":
        h = jnp.concatenate([so3.rotate(R, w), v], axis=-1)
    else:
        h = V
    w, v = h[..., :3], h[..., 3:]
    if target == "body_fixed":
        return jnp.concatenate([so3.rotate_inverse(R, w), so3.rotate_inverse(R, v)], axis=-1)
    if target == "spatial":
        return shift(r, h)
    if target == "mixed":
        return jnp.concatenate([so3.rotate_inverse(R, w), v], axis=-1)
    return h


@checked
@projected(2)
def jacobians(
    model: Model, q: Float[Array, " nq"], representation: Representation = "body_fixed"
) -> Float[Array, "nb 6 nv"]:
    """The Jacobians ``J_i`` of all bodies, ``V_i = J_i q̇``, which form the system Jacobian (111).

    Columns of degrees of freedom that do not move the body are zero. Cost: O(n²).

    Source: Müller (103) body-fixed, (104) spatial, (105) hybrid, (106), (33) mixed.

    Args:
        model: the robot.
        q: configuration.
        representation: representation of the twists, see the module.

    Raises:
        ValueError: for an unknown representation.
    """
    module_of("jacobians", representation)
    topology = model.topology
    moves = jnp.asarray(topology.tree.ancestor_mask[:, topology.dof_bodies])[:, :, None]
    if representation == "spatial":
        J = spatial.joint_screws(model, forward_kinematics(model, q))[None]
        J = jnp.broadcast_to(J, (model.nb, model.nv, 6))
    else:
        R, r = world_frame.centered_poses(model, q)  # Only relative positions matter.
        J = spatial.joint_screws(model, (R, r))[None]
        if representation == "hybrid":
            J = shift(-r[:, None], J)
        else:
            pairs = (model.nb, model.nv)
            R_all = jnp.broadcast_to(R[:, None], (*pairs, 3, 3))
            J = to_child((R_all, jnp.broadcast_to(r[:, None], (*pairs, 3))), J)
    if representation == "mixed":
        J = jnp.concatenate([J[..., :3], so3.rotate(R[:, None], J[..., 3:])], axis=-1)
    return so3.transpose(jnp.where(moves, J, 0))


@checked
@projected()
def twists(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6"]:
    """Twists ``(ω, v)`` of all bodies (rad/s, m/s).

    Source: Müller (108) body-fixed, (109) spatial, (110) hybrid, (100) mixed. Cost: O(n).

    Raises:
        ValueError: for an unknown representation.
    """
    return module_of("twists", representation).motion(model, q, (v,))[0]


@checked
@projected()
def accelerations(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6"]:
    """Rates of the components of :func:`twists`, without gravity (rad/s², m/s²).

    Source: Müller (66c) body-fixed, (70d) spatial, (75d) hybrid, (33) mixed. Cost: O(n).

    Raises:
        ValueError: for an unknown representation.
    """
    return module_of("accelerations", representation).motion(model, q, (v, a))[1]


@checked
def jerks(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    j: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6"]:
    """Rates of the components of :func:`accelerations` when the rate of ``a`` is ``j`` (rad/s³).

    Cost: O(n).

    Source: the time derivatives of Müller (66c), (70d), (75d). For the closed forms (13), (21),
    (31) see :func:`rbd_jax.screw.jerk_sums`.

    Raises:
        ValueError: for an unknown representation.
    """
    return module_of("jerks", representation).motion(model, q, (v, a, j))[2]


@checked
def twist_rates(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    rates: Float[Array, "k n"],
    representation: Representation = "body_fixed",
) -> Float[Array, "k1 nb 6"]:
    """Twists of all bodies and their rates to any order: twist, acceleration, jerk, jounce, ….

    Gravity does not enter. Derivatives are those of autodiff. Cost: O(n k²).

    Source: Müller §2 and §4.2, which name the recursions of higher order: the time derivatives of
    (66b), (70c), (75c) and (100) by Leibniz' rule, with (117) for what moves with a body.

    Args:
        model: the robot.
        q: configuration.
        v: velocity.
        rates: time derivatives of v, one in each row: acceleration, jerk, snap, …; there may be
            none.
        representation: representation of the twists.

    Returns:
        One row more than ``rates`` has; row k has the k-th rates of the components of the twists.

    Raises:
        ValueError: for an unknown representation or a wrong shape.
    """
    module = module_of("twist_rates", representation)
    if rates.ndim != 2 or rates.shape[1] != model.nv:
        raise ValueError(
            f"twist_rates: rates has shape {rates.shape}, expected (k, nv) = (k, {model.nv}): "
            "acceleration, jerk, snap, …"
        )
    return jnp.stack(module.motion(model, q, (v, *rates)))


@checked
@projected(0)
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    representation: Representation = "body_fixed",
) -> Float[Array, " nv"]:
    """Joint torques of a motion, by the recursion in the twists of ``representation`` (N m, N).

    Arguments and results are those of :func:`rbd_jax.rnea`. Cost: O(n).

    Source: Müller (66)–(67) body-fixed, (70)–(71) spatial, (75)–(76) hybrid, (56)–(57) mixed.

    Raises:
        ValueError: for an unknown representation or a wrong shape.
    """
    module = module_of("inverse_dynamics", representation)
    return module.inverse_dynamics(model, q, v, a, f_ext)
