"""The model: every physical parameter a stacked array and a leaf, the tree's shape static."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import checked
from ..lanes import lanes
from ..spatial import se3, so3
from ._joints import GROUPS
from ._topology import Topology


class Model(eqx.Module):
    """A robot: the tree's shape (static) and its parameters (leaves).

    Every leaf may be changed with ``eqx.tree_at``, differentiated, or given a leading axis and
    mapped over with ``jax.vmap``. The dtype of the leaves decides the dtype of the results.
    """

    placement_R: Float[Array, "*b nb 3 3"]
    """Joint frame in the parent body's frame at q = 0: rotation; gradients are tangent to SO(3)."""
    placement_p: Float[Array, "*b nb 3"]
    """Joint frame in the parent body's frame at q = 0: origin (m)."""
    axis: Float[Array, "*b nb 3"]
    """Axis of a screw joint in the joint frame; only its direction matters. Else zero."""
    pitch: Float[Array, "*b nb"]
    """Advance of a revolute or helical joint (m/rad). Not used by other kinds."""
    inertia: Float[Array, "*b nb 10"]
    """Ten inertial parameters in the body frame, see :mod:`rbd_jax.spatial.inertia`."""
    gravity: Float[Array, "*b 3"]
    """Gravitational acceleration in the world frame (m/s²)."""
    armature: Float[Array, "*b nv"]
    """Rotor inertia added to the diagonal of the mass matrix (kg m² or kg)."""
    damping: Float[Array, "*b nv"]
    """Viscous joint damping, a torque ``−damping · v`` (N m s/rad or N s/m)."""
    friction: Float[Array, "*b nv"]
    """Dry joint friction (N m or N). It acts in a scene's step only (:mod:`rbd_jax.contact`)."""
    position_lower: Float[Array, "*b nq"]
    """Lower position limits; −inf where there is none. They act in a scene's step only."""
    position_upper: Float[Array, "*b nq"]
    """Upper position limits; inf where there is none. They act in a scene's step only."""
    velocity_limit: Float[Array, "*b nv"]
    """Speed limits; inf where there is none. Not enforced."""
    effort_limit: Float[Array, "*b nv"]
    """Torque or force limits; inf where there is none. Not enforced."""
    frame_R: Float[Array, "*b nf 3 3"]
    """Frames in their body's frame: rotation."""
    frame_p: Float[Array, "*b nf 3"]
    """Frames in their body's frame: origin (m)."""
    topology: Topology = eqx.field(static=True)
    stiffness: Float[Array, "*b nv"] | None = None
    """Joint springs, a torque ``−stiffness · (q ⊖ rest)`` (N m/rad or N/m); None: no springs."""
    rest: Float[Array, "*b nq"] | None = None
    """Where the springs are at rest, laid out as q; None exactly if ``stiffness`` is None."""

    @property
    def nq(self) -> int:
        """Number of configuration coordinates."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return self.topology.nv

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return self.topology.nb

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the bodies; body i is moved by joint i."""
        return self.topology.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, one a body."""
        return self.topology.joint_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Names of the frames: every link of the description is one."""
        return self.topology.frame_names

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the parameters, and so of the results."""
        return self.inertia.dtype

    def q_slice(self, joint: str) -> slice:
        """Where the named joint lives in q. Raises KeyError for an unknown name."""
        return self.topology.q_slice(joint)

    def v_slice(self, joint: str) -> slice:
        """Where the named joint lives in v, a and tau. Raises KeyError for an unknown name."""
        return self.topology.v_slice(joint)


# --- per-joint functions, all joints of a kind at once ------------------------------------------


def _groups(model: Model):
    """Yield ``(group, bodies, q_index, v_index, parameters)`` for every joint group present."""
    topo = model.topology
    for group in GROUPS:
        bodies = topo.bodies_of(*group.kinds)
        if len(bodies) == 0:
            continue
        q_index = topo.q_starts[bodies][:, None] + np.arange(group.nq)
        v_index = topo.v_starts[bodies][:, None] + np.arange(group.nv)
        kinds = [topo.kinds[b] for b in bodies]
        prismatic = np.array([k == "prismatic" for k in kinds])
        axis = _rows(model.axis, bodies)
        if group is GROUPS[0]:
            # not by a sum: XLA:GPU would take that for a softmax, and compile for half a minute
            axis = axis / jnp.sqrt(axis[:, 0:1] ** 2 + axis[:, 1:2] ** 2 + axis[:, 2:3] ** 2)
        parameters = SimpleNamespace(
            axis=axis,
            turns=jnp.asarray(~prismatic, dtype=axis.dtype),
            advance=jnp.where(prismatic, jnp.ones_like(axis[:, 0]), _rows(model.pitch, bodies)),
        )
        yield group, bodies, q_index, v_index, parameters


def _rows(x: Array, index: np.ndarray) -> Array:
    """``x[index]`` for a static index, a slice or nothing at all where that is enough."""
    flat = index.reshape(-1)
    n = len(flat)
    if n and np.array_equal(flat, np.arange(flat[0], flat[0] + n)):
        x = x if n == x.shape[0] else jax.lax.slice_in_dim(x, int(flat[0]), int(flat[0]) + n)
        return x.reshape(*index.shape, *x.shape[1:])
    return x[index]


def _merge(parts: list[tuple[np.ndarray, Array]], like: Array) -> Array:
    """Put rows computed per group back in order: the inverse of :func:`_rows`."""
    if not parts:
        return like
    index = np.concatenate([i.reshape(-1) for i, _ in parts])
    rows = [v.reshape(i.size, *v.shape[i.ndim :]) for i, v in parts]
    stacked = rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    return _rows(stacked, np.argsort(index))


def joint_placements(model: Model, q: Float[Array, " nq"]) -> se3.Pose:
    """Pose of each body in its parent body's frame, ``T_{λ(i),i}`` of Kim; (nb, 3, 3), (nb, 3)."""
    Rs, ps = [], []
    for group, bodies, q_index, _, j in _groups(model):
        R, p = group.transform(_rows(q, q_index), j)
        Rs.append((bodies, R))
        ps.append((bodies, p))
    joint = _merge(Rs, model.placement_R), _merge(ps, model.placement_p)
    return se3.compose((so3.orthonormalize(model.placement_R), model.placement_p), joint)


def motion_subspace(model: Model) -> Float[Array, "nv 6"]:
    """The motion subspaces S in the child frames, one row a degree of freedom. Source: Kim (36)."""
    parts = [(v_index, g.subspace(j)) for g, _, _, v_index, j in _groups(model)]
    return _merge(parts, jnp.zeros((0, 6), model.dtype))


def _per_joint(model: Model, name: str, of_q: bool, args: tuple) -> Array:
    """Apply a joint-interface function to all joints; ``args`` are (array, is it laid out as q).

    Reverse mode keeps the arguments alone: a rotation's functions take a hundred short steps, and
    storing each in every step of a rollout costs more than computing them again.
    """
    parts = []
    for group, _, q_index, v_index, _ in _groups(model):
        inputs = [_rows(x, q_index if q_like else v_index) for x, q_like in args]
        function = jax.checkpoint(getattr(group, name), prevent_cse=False)
        parts.append((q_index if of_q else v_index, function(*inputs)))
    return _merge(parts, args[0][0])


@checked
@lanes
def integrate(model: Model, q: Float[Array, " nq"], dv: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """``q ⊕ dv``: move along the tangent ``dv`` (a velocity times a time), exactly on the manifold.

    Args:
        model: the robot.
        q: configuration; quaternions need not be normalised, those returned are.
        dv: tangent step, the body-fixed twist for a free joint (rad, m).
    """
    return _per_joint(model, "plus", True, ((q, True), (dv, False)))


@checked
@lanes
def difference(
    model: Model, q0: Float[Array, " nq"], q1: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """``q1 ⊖ q0``: the shortest tangent with ``integrate(q0, difference(q0, q1)) = q1``."""
    return _per_joint(model, "minus", False, ((q0, True), (q1, True)))


@checked
@lanes
def displacement(
    model: Model, q0: Float[Array, " nq"], q1: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """How far each joint is from where it is at q0, in its own axes: what a joint spring feels.

    As :func:`difference`, but for the position of a free joint, whose two ends are joined by a
    straight line: ``R1ᵀ (p1 − p0)`` and not the linear part of a screw. Source: MuJoCo's
    documentation, XML reference, ``joint/stiffness``.
    """
    return _per_joint(model, "displacement", False, ((q0, True), (q1, True)))


@checked
@lanes
def rate_from_velocity(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nq"]:
    """The time derivative of the coordinates q when the velocity is v."""
    return _per_joint(model, "rate", True, ((q, True), (v, False)))


@checked
@lanes
def velocity_from_rate(
    model: Model, q: Float[Array, " nq"], dq: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """The velocity v of an ambient q̇; inverse of :func:`rate_from_velocity` on the manifold."""
    return _per_joint(model, "velocity", False, ((q, True), (dq, True)))


def chart_rate(model: Model, u: Float[Array, " nv"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """The rate u̇ of the chart coordinates at which ``integrate(q, u)`` moves with velocity v.

    Source: Müller §7: ``u̇ = dexp⁻¹_{−u} v``; valid for rotations of less than 2π.
    """
    return _per_joint(model, "chart_rate", False, ((u, False), (v, False)))


def chart_velocity(
    model: Model, u: Float[Array, " nv"], du: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The velocity of ``integrate(model, q, u)`` when the chart coordinates move at the rate du.

    Source: Müller (89), ``V = dexp_{−u} u̇``; inverse of :func:`chart_rate`.
    """
    return _per_joint(model, "chart_velocity", False, ((u, False), (du, False)))


def coadjoint(model: Model, v: Float[Array, " nv"], p: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``ad*_v p``: the rate of joint momenta constant in space, seen by the moving joint.

    Source: Müller (41); zero for joints of one degree of freedom.
    """
    return _per_joint(model, "coadjoint", False, ((v, False), (p, False)))


@checked
def neutral(model: Model) -> Float[Array, " nq"]:
    """The configuration with every joint at its origin (unit quaternions); limits are not asked."""
    q = np.zeros(model.nq)
    for group, _, q_index, _, _ in _groups(model):
        if group.nq > group.nv:
            q[q_index[:, -4]] = 1.0
    return jnp.asarray(q, dtype=model.dtype)


@checked
def random_configuration(model: Model, key: Array) -> Float[Array, " nq"]:
    """A random configuration within the limits; ±π (rad or m) where there are none.

    Orientations are uniform, positions of free and translation joints uniform in ±1 m.
    """
    parts = []
    for k, (group, _, q_index, _, _) in enumerate(_groups(model)):
        limits = _rows(model.position_lower, q_index), _rows(model.position_upper, q_index)
        parts.append((q_index, group.random(jax.random.fold_in(key, k), *limits)))
    return _merge(parts, jnp.zeros((0,), model.dtype))
