"""Ready constraints: limits, half-spaces, obstacles, distances, friction cones."""

from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ... import contact
from ...algorithms.kinematics import frame_placement
from ...contact import Clearance, Scene, Solid
from ...model import Model
from ...model.functions import as_module
from ...spatial import linear
from ._constraints import Constraint
from ._problem import Problem


class _Between(eqx.Module):
    """``low ≤ x[index] ≤ high`` as two sets of rows, those of infinite bounds left out."""

    low: Float[Array, " l"]
    high: Float[Array, " h"]
    at_low: tuple[int, ...] = eqx.field(static=True)
    at_high: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Float[Array, " r"]:
        below, above = x[np.array(self.at_low, int)], x[np.array(self.at_high, int)]
        return jnp.concatenate([self.low - below, above - self.high])


def _between(low: Array, high: Array, where: str) -> _Between:
    """Bounds of which the finite ones count; their values may be traced, their places not."""
    try:
        finite = [tuple(np.flatnonzero(np.isfinite(np.asarray(x))).tolist()) for x in (low, high)]
    except Exception as error:  # a traced bound
        raise TypeError(f"{where}: build it outside jit, where the limits are numbers") from error
    if not any(finite):
        raise ValueError(f"{where}: the robot has no such limit")
    at_low, at_high = (np.array(i, int) for i in finite)
    return _Between(low[at_low], high[at_high], *finite)


class _Positions(eqx.Module):
    between: _Between

    def __call__(self, model: Model, q: Array, v: Array) -> Array:
        return self.between(q)


class _Velocities(eqx.Module):
    between: _Between

    def __call__(self, model: Model, q: Array, v: Array) -> Array:
        return self.between(v)


class _Torques(eqx.Module):
    between: _Between
    problem: Problem

    def __call__(self, model: Model, t: Array, q: Array, v: Array, u: Array) -> Array:
        problem = eqx.tree_at(lambda p: p.model, self.problem, model)
        return self.between(problem.torques(t, q, v, u))


class _HalfSpace(eqx.Module):
    normal: Float[Array, "3"]
    offset: Float[Array, ""]
    point: Float[Array, "3"]
    frame: str = eqx.field(static=True)

    def __call__(self, model: Model, q: Array, v: Array) -> Array:
        R, p = frame_placement(model, q, self.frame)
        place = p + linear.matmul(R, self.point)
        return jnp.sum(self.normal * place) - self.offset


class _Apart(eqx.Module):
    clearance: Clearance

    def __call__(self, model: Model, q: Array, v: Array) -> Array:
        return self.clearance.margin - self.clearance.distances(model, q).distance


class _Cone(eqx.Module):
    force: Callable[..., Array] = eqx.field(converter=as_module)
    friction: Float[Array, ""]
    normal: Float[Array, "3"]
    smoothing: Float[Array, ""]

    def __call__(self, *state) -> Array:
        f = self.force(*state)
        normal = jnp.broadcast_to(self.normal, f.shape)
        press = jnp.sum(f * normal, axis=-1)
        slide = f - press[..., None] * normal
        size = jnp.sqrt(jnp.sum(slide * slide, axis=-1) + self.smoothing**2)
        return jnp.reshape(size - self.smoothing - self.friction * press, (-1,))


def joint_limits(model: Model, margin: float = 0.0, name: str = "joint limits") -> Constraint:
    """Positions stay within the model's limits, ``margin`` (rad, m) away from them.

    Raises:
        ValueError: for a robot without limits. TypeError: inside ``jit``, where they are unknown.
    """
    low, high = model.position_lower + margin, model.position_upper - margin
    return Constraint(_Positions(_between(low, high, "joint_limits")), name, at="states")


def velocity_limits(model: Model, scale: float = 1.0, name: str = "velocity limits") -> Constraint:
    """Speeds stay below ``scale`` times the model's limits (rad/s, m/s).

    Raises:
        ValueError: for a robot without limits. TypeError: inside ``jit``, where they are unknown.
    """
    limit = scale * model.velocity_limit
    return Constraint(_Velocities(_between(-limit, limit, "velocity_limits")), name, at="states")


def torque_limits(problem: Problem, scale: float = 1.0, name: str = "torque limits") -> Constraint:
    """Joint torques stay below ``scale`` times the model's limits (N m, N).

    If the controls are the torques, the bounds of the problem are cheaper; this one is for controls
    that drive the joints through a matrix or a function.

    Raises:
        ValueError: for a robot without limits. TypeError: inside ``jit``, where they are unknown.
    """
    limit = scale * problem.model.effort_limit
    return Constraint(_Torques(_between(-limit, limit, "torque_limits"), problem), name)


def half_space(
    model: Model, frame: str, normal, offset: float, point=(0.0, 0.0, 0.0), name: str | None = None
) -> Constraint:
    """``normal · p ≤ offset``: a point of a frame stays on one side of a plane.

    Args:
        model: the robot. frame: the frame's name.
        normal: unit normal of the plane in the world, out of the side that is allowed.
        offset: distance of the plane from the origin along the normal (m).
        point: the point in the frame (m).
        name: of the constraint; the frame's name with "half-space" if None.

    Raises:
        ValueError: for an unknown frame.
    """
    model.topology.frame_index(frame)
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    function = _HalfSpace(array(normal), array(offset), array(point), frame)
    return Constraint(function, name or f"half-space of {frame}", at="states")


def clear_of(
    model: Model,
    spheres: Mapping[str, float] | Sequence[Solid],
    obstacles: ArrayLike | Sequence[Solid] = (),
    margin: float | Array = 0.0,
    name: str = "obstacles",
    *,
    apart: Sequence[tuple[str, str]] = (),
) -> Constraint:
    """Shapes of the robot stay clear of obstacles, see :func:`rbd_jax.contact.clear_of`.

    ``clear_of(...).function(model, q, v)`` are the depths, which also serve in a cost:
    ``weight * jnp.maximum(depths + soft, 0)`` are residuals that begin to push at ``soft``.
    """
    clearance = contact.clear_of(model, spheres, obstacles, margin, apart=apart)
    return Constraint(_Apart(clearance), name, at="states")


def keep_apart(
    scene: Scene,
    pairs: Sequence[tuple[str, str]] | None = None,
    margin: float | Array = 0.0,
    name: str = "distances",
) -> Constraint:
    """Shapes of a scene stay apart, see :func:`rbd_jax.contact.keep_apart`.

    The problem's plant may be the scene, or its robot ``scene.model`` alone, which then moves
    without contact forces.
    """
    return Constraint(_Apart(contact.keep_apart(scene, pairs, margin)), name, at="states")


def friction_cone(
    force: Callable[..., Array],
    friction: Float[Array, ""] | float,
    normal: Float[Array, "3"],
    smoothing: float = 1e-3,
    name: str = "friction cone",
) -> Constraint:
    """Contact forces stay within Coulomb's cone, ``|f_t| ≤ friction · f_n``.

    Args:
        force: ``force(model, t, q, v, u)``, one force (3,) or several (…, 3) on the robot in the
            world (N).
        friction: coefficient of friction.
        normal: unit normal of the ground, out of it.
        smoothing: the tip of the cone is rounded, ``√(|f_t|² + s²) − s ≤ friction · f_n`` with s in
            N, which keeps its slope finite. It admits at most s of tangential force too much, and
            a force of zero holds.
        name: of the constraint.
    """
    normal = jnp.asarray(normal)
    array = lambda x: jnp.asarray(x, normal.dtype)  # noqa: E731
    return Constraint(_Cone(force, array(friction), normal, array(smoothing)), name)
