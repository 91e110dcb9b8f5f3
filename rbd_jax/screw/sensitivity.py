"""Sensitivity of motion and dynamics to the geometry, in closed form. Source: Müller §6.1–6.2.

The reference pose of a joint depends on parameters π through the product of exponentials
``B_i(π) = B_i0 exp(U_1 π_1) … exp(U_λ π_λ)``. A parameter moves its body by the screw

    ∂h = Ad⁻¹(exp(U_{j+1} π_{j+1}) … exp(U_λ π_λ) exp(X_i q_i)) U_j.

A joint at that place would move the body in the same way, so the parameter is treated as a joint.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.kinematics import forward_kinematics, frame_in_body
from ..derivatives.custom_jvp.forward_dynamics import forward_dynamics, mass_matrix_solve
from ..derivatives.linearization import body_operator, linearization_point
from ..model import Model, joint_placements
from ..model.arguments import checked
from ..model.topology import unknown
from ..spatial import se3, so3
from ..spatial.motion import to_child, to_parent


class Geometry(eqx.Module):
    """Geometric parameters: the joint whose reference pose each one changes, and its screw.

    Parameters of one body are applied in the order of this list.
    """

    bodies: tuple[int, ...] = eqx.field(static=True)
    """For each parameter the body i of its ``B_i``."""
    screws: Float[Array, "m 6"]
    """U (angular, linear) in the joint frame. ``(0, e)`` is a length, and ``(e, 0)`` an angle."""

    @staticmethod
    def of_joints(model: Model, joints: tuple[str, ...] | None = None) -> "Geometry":
        """Three angles and three lengths for each of the named joints, or for all if None.

        Raises KeyError for an unknown joint.
        """
        names = model.joint_names if joints is None else joints
        for name in names:
            if name not in model.joint_names:
                raise KeyError(unknown("joint", name, model.joint_names, model.topology.name))
        bodies = tuple(model.joint_names.index(n) for n in names for _ in range(6))
        return Geometry(bodies, jnp.tile(jnp.eye(6, dtype=model.dtype), (len(names), 1)))


def _index(geometry: Geometry) -> Array:
    return jnp.array(geometry.bodies, dtype=jnp.int32)


def _check(model: Model, geometry: Geometry, pi: Array) -> None:
    m = len(geometry.bodies)
    if jnp.shape(geometry.screws) != (m, 6) or jnp.shape(pi) != (m,):
        raise ValueError(
            f"Geometry of {m} parameters: screws must have shape ({m}, 6) and pi ({m},), got "
            f"{jnp.shape(geometry.screws)} and {jnp.shape(pi)}"
        )
    if any(not 0 <= b < model.nb for b in geometry.bodies):
        raise ValueError(
            f"Geometry: bodies are {geometry.bodies}, but robot {model.topology.name!r} has the "
            f"bodies 0 to {model.nb - 1}"
        )


@checked
def with_geometry(model: Model, geometry: Geometry, pi: Float[Array, " m"]) -> Model:
    """The robot with the reference poses ``B_i(π)``. Derivatives are those of autodiff.

    Source: Müller §6.2.

    Args:
        model: the nominal robot with B_i0.
        geometry: bodies and screws of the parameters.
        pi: values of the parameters (rad, m).
    """
    _check(model, geometry, pi)
    if not geometry.bodies:
        return model

    def apply(poses, x):
        body, step = x
        R, p = se3.compose((poses[0][body], poses[1][body]), step)
        return (poses[0].at[body].set(R), poses[1].at[body].set(p)), None

    steps = se3.exp(geometry.screws * pi[:, None])
    nominal = so3.orthonormalize(model.placement_R), model.placement_p
    (R, p), _ = jax.lax.scan(apply, nominal, (_index(geometry), steps))
    return eqx.tree_at(lambda m: (m.placement_R, m.placement_p), model, (R, p))


def _twists(
    model: Model, changed: Model, q: Array, geometry: Geometry, pi: Array
) -> Float[Array, "m 6"]:
    """``∂h`` of each parameter, in the frame of its body."""

    def later(after, x):
        body, U, step = x
        T = after[0][body], after[1][body]
        R, p = se3.compose(step, T)
        return (after[0].at[body].set(R), after[1].at[body].set(p)), to_child(T, U)

    nb, dtype = model.nb, model.dtype
    identity = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (nb, 3, 3)), jnp.zeros((nb, 3), dtype)
    body = _index(geometry)
    rows = body, geometry.screws, se3.exp(geometry.screws * pi[:, None])
    _, U = jax.lax.scan(later, identity, rows, reverse=True)
    R, p = joint_placements(changed, q)
    B = so3.orthonormalize(changed.placement_R)[body], changed.placement_p[body]
    return to_child((R[body], p[body]), to_parent(B, U))


@checked
def frame_sensitivity(
    model: Model,
    q: Float[Array, " nq"],
    frame: str | int,
    geometry: Geometry,
    pi: Float[Array, " m"],
) -> Float[Array, "6 m"]:
    """The body-fixed twist of a frame per unit of each geometric parameter.

    Its own derivatives are those of autodiff.

    Source: Müller §6.2: the columns ``Ad ∂h``, a geometric Jacobian with parameters as joints.

    Args:
        model: the nominal robot.
        q: configuration.
        frame: name (or number) of a frame.
        geometry: bodies and screws of the parameters.
        pi: values of the parameters (rad, m).
    """
    changed = with_geometry(model, geometry, pi)
    body, local = frame_in_body(changed, frame)
    if body < 0 or not geometry.bodies:
        return jnp.zeros((6, len(geometry.bodies)), model.dtype)
    R, p = forward_kinematics(changed, q)
    at = _index(geometry)
    columns = to_parent((R[at], p[at]), _twists(model, changed, q, geometry, pi))
    T_wf = se3.compose((R[body], p[body]), local)
    local_columns = jax.vmap(to_child, (None, 0))(T_wf, columns)
    moves = jnp.asarray(model.topology.tree.ancestor_mask[body])[at]
    return jnp.where(moves[:, None], local_columns, 0).T


@checked
def inverse_dynamics_sensitivity(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    geometry: Geometry,
    pi: Float[Array, " m"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, "nv m"]:
    """``∂τ/∂π`` of inverse dynamics by the geometric parameters. Cost: O(n) for each parameter.

    The arguments are those of :func:`frame_sensitivity` and :func:`rbd_jax.inverse_dynamics`. Its
    own derivatives are those of autodiff.

    Source: Müller §6.2; Kim, Table 5 with the ``∂h`` of the module, in ground coordinates.
    """
    changed, topology = with_geometry(model, geometry, pi), model.topology
    if not geometry.bodies:
        return jnp.zeros((model.nv, 0), model.dtype)
    g = world_frame.quantities(changed, q)
    r = linearization_point(changed, g, world_frame.motion(changed, g, v, a, f_ext))
    at = _index(geometry)
    eta = to_parent((g.R[at], g.p[at]), _twists(model, changed, q, geometry, pi))
    zero = jnp.zeros_like(r.v)

    def column(body, twist):
        return body_operator(topology, r, zero.at[body].set(twist), zero, zero)

    return jax.vmap(column, out_axes=1)(at, eta)


@checked
def forward_dynamics_sensitivity(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    geometry: Geometry,
    pi: Float[Array, " m"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, "nv m"]:
    """``∂a/∂π = −M⁻¹ ∂τ/∂π`` of forward dynamics by the geometric parameters.

    The arguments are those of :func:`inverse_dynamics_sensitivity`. Its own derivatives follow the
    analytical rules of forward dynamics and of the mass matrix solve, and else autodiff.

    Source: Müller §6.2.
    """
    changed = with_geometry(model, geometry, pi)
    a = forward_dynamics(changed, q, v, tau, f_ext)
    rate = inverse_dynamics_sensitivity(model, q, v, a, geometry, pi, f_ext)
    return -jax.vmap(lambda b: mass_matrix_solve(changed, q, b), 1, 1)(rate)
