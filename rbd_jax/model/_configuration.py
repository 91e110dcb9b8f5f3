"""What the joints do, all joints of one kind at once: placements, motion, ⊕, ⊖, q̇ and v."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spatial import se3, so3
from ._joints import GROUPS
from ._model import Model
from .arguments import algorithm, checked, takes_coordinates
from .rows import merge_rows, take_rows
from .topology import Topology


def _groups(space: Topology):
    """Yield ``(group, bodies, q_index, v_index)`` for every joint group present."""
    for group in GROUPS:
        bodies = space.bodies_of(*group.kinds)
        if len(bodies) == 0:
            continue
        q_index = space.q_starts[bodies][:, None] + np.arange(group.nq)
        v_index = space.v_starts[bodies][:, None] + np.arange(group.nv)
        yield group, bodies, q_index, v_index


def _with_parameters(model: Model):
    """Yield ``(group, bodies, q_index, v_index, parameters)`` for every joint group present."""
    for group, bodies, q_index, v_index in _groups(model.topology):
        kinds = [model.topology.kinds[b] for b in bodies]
        prismatic = np.array([k == "prismatic" for k in kinds])
        axis = take_rows(model.axis, bodies)
        if group is GROUPS[0]:
            axis = so3.unit(axis)
        parameters = SimpleNamespace(
            axis=axis,
            turns=jnp.asarray(~prismatic, dtype=axis.dtype),
            advance=jnp.where(prismatic, jnp.ones_like(axis[:, 0]), take_rows(model.pitch, bodies)),
        )
        yield group, bodies, q_index, v_index, parameters


def joint_placements(model: Model, q: Float[Array, " nq"]) -> se3.Pose:
    """Pose of each body in its parent body's frame, ``T_{λ(i),i}`` of Kim; (nb, 3, 3), (nb, 3)."""
    Rs, ps = [], []
    for group, bodies, q_index, _, j in _with_parameters(model):
        R, p = group.transform(take_rows(q, q_index), j)
        Rs.append((bodies, R))
        ps.append((bodies, p))
    joint = merge_rows(Rs, model.placement_R), merge_rows(ps, model.placement_p)
    return se3.compose((so3.orthonormalize(model.placement_R), model.placement_p), joint)


def motion_subspace(model: Model) -> Float[Array, "nv 6"]:
    """The motion subspaces S in the child frames, one row a degree of freedom. Source: Kim (36)."""
    parts = [(v_index, g.subspace(j)) for g, _, _, v_index, j in _with_parameters(model)]
    return merge_rows(parts, jnp.zeros((0, 6), model.dtype))


def per_joint(space: Topology, name: str, of_q: bool, args: tuple) -> Array:
    """Apply a function of the joint kinds to all joints.

    ``args`` are pairs of an array and whether it is laid out as q. Reverse mode keeps only these
    arguments: the functions of a rotation take a hundred short steps, and storing each of them in
    every step of a rollout costs more than computing them again.
    """
    parts = []
    for group, _, q_index, v_index in _groups(space):
        inputs = [take_rows(x, q_index if q_like else v_index) for x, q_like in args]
        function = jax.checkpoint(getattr(group, name), prevent_cse=False)
        parts.append((q_index if of_q else v_index, function(*inputs)))
    return merge_rows(parts, args[0][0])


@algorithm(driven_joints=True)
def integrate(model: Model, q: Float[Array, " nq"], dv: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """``q ⊕ dv``: move along the tangent ``dv`` (a velocity times a time), exactly on the manifold.

    Source: Müller §7, the exponential of each joint's group. Derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration; its quaternions need not be normalized. Returned quaternions are.
        dv: tangent step, the body-fixed twist for a free joint (rad, m).
    """
    return per_joint(model.space, "plus", True, ((q, True), (dv, False)))


@algorithm(driven_joints=True)
def difference(
    model: Model, q0: Float[Array, " nq"], q1: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """``q1 ⊖ q0``: the shortest tangent with ``integrate(q0, difference(q0, q1)) = q1``.

    Derivatives are those of autodiff.
    """
    return per_joint(model.space, "minus", False, ((q0, True), (q1, True)))


@algorithm(driven_joints=True)
def displacement(
    model: Model, q0: Float[Array, " nq"], q1: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """How far each joint is from where it is at q0, in its own axes: what a joint spring feels.

    As :func:`difference`, but for the position of a free joint, whose two ends are joined by a
    straight line: ``R1ᵀ (p1 − p0)`` and not the linear part of a screw. Source: MuJoCo's
    documentation, XML reference, ``joint/stiffness``.
    """
    return per_joint(model.space, "displacement", False, ((q0, True), (q1, True)))


@algorithm(driven_joints=True)
def rate_from_velocity(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nq"]:
    """The time derivative of the coordinates q when the velocity is v.

    Source: Kim (9)–(10) for a free joint. Derivatives are those of autodiff.
    """
    return per_joint(model.space, "rate", True, ((q, True), (v, False)))


@algorithm(driven_joints=True)
def velocity_from_rate(
    model: Model, q: Float[Array, " nq"], dq: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """The velocity v of an ambient q̇; inverse of :func:`rate_from_velocity` on the manifold.

    Derivatives are those of autodiff.
    """
    return per_joint(model.space, "velocity", False, ((q, True), (dq, True)))


def chart_rate(model: Model, u: Float[Array, " nv"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """The rate u̇ of the chart coordinates at which ``integrate(q, u)`` moves with velocity v.

    Source: Müller §7: ``u̇ = dexp⁻¹_{−u} v``; valid for rotations of less than 2π.
    """
    return per_joint(model.space, "chart_rate", False, ((u, False), (v, False)))


def chart_velocity(
    model: Model, u: Float[Array, " nv"], du: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The velocity of ``integrate(model, q, u)`` when the chart coordinates move at the rate du.

    Source: Müller (89), ``V = dexp_{−u} u̇``; inverse of :func:`chart_rate`.
    """
    return per_joint(model.space, "chart_velocity", False, ((u, False), (du, False)))


def coadjoint(model: Model, v: Float[Array, " nv"], p: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ad*_v p``: the rate of joint momenta that are constant in space, seen by the moving joint.

    Source: Müller (41); zero for joints of one degree of freedom.
    """
    return per_joint(model.space, "coadjoint", False, ((v, False), (p, False)))


@checked
@takes_coordinates
def neutral(model: Model) -> Float[Array, " nq"]:
    """The configuration with every joint at its origin (unit quaternions), whatever the limits."""
    q = np.zeros(model.nq)
    for group, _, q_index, _ in _groups(model.space):
        if group.nq > group.nv:
            q[q_index[:, -4]] = 1.0
    return jnp.asarray(q, dtype=model.dtype)


@checked
@takes_coordinates
def random_configuration(model: Model, key: Array) -> Float[Array, " nq"]:
    """A random configuration within the limits; ±π (rad or m) where there are none.

    Orientations are uniform, positions of free and translation joints uniform in ±1 m.
    """
    parts = []
    for k, (group, _, q_index, _) in enumerate(_groups(model.space)):
        limits = take_rows(model.position_lower, q_index), take_rows(model.position_upper, q_index)
        parts.append((q_index, group.random(jax.random.fold_in(key, k), *limits)))
    return merge_rows(parts, jnp.zeros((0,), model.dtype))
