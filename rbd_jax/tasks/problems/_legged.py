"""Ready problems of quadrupeds: walk, trot, pace, jump."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import constraints
from ...algorithms.energy import center_of_mass
from ...algorithms.kinematics import frame_placement
from ...algorithms.torques import gravity_torque
from ...io import samples
from ...model import Model, integrate, neutral
from ...optimize import (
    CenterOfMass,
    CostSum,
    FootSwing,
    FrictionPyramid,
    Problem,
    StateCost,
    Table,
    swing_path,
)
from ...simulate import ConstrainedRobot
from ._task import Task
from ._trials import Trials

STANCES = {
    "quadruped": {"hfe": 0.7, "kfe": -1.4},
    "hyq": {"haa": -0.2, "lf_hfe": 0.75, "rf_hfe": 0.75, "lh_hfe": -0.75, "rh_hfe": -0.75,
            "lf_kfe": -1.5, "rf_kfe": -1.5, "lh_kfe": 1.5, "rh_kfe": 1.5},
    "talos": {"leg_left_3": -0.411354, "leg_left_4": 0.859395, "leg_left_5": -0.448041,
              "leg_right_3": -0.411354, "leg_right_4": 0.859395, "leg_right_5": -0.448041,
              "arm_left_1": 0.25847, "arm_left_2": 0.173046, "arm_left_4": -0.525366,
              "arm_right_1": -0.25847, "arm_right_2": -0.173046, "arm_right_4": -0.525366},
}  # fmt: skip
"""Joint angles (rad) of robots that stand, by a part of the joint's name."""
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")


class Phase(NamedTuple):
    """A stretch of a gait."""

    steps: int
    swing: tuple[str, ...] = ()
    """Feet in the air."""
    part: float = 1.0
    """The part of a stride that they go."""


def stand(model: Model, feet: Sequence[str], stance: dict[str, float]) -> Float[Array, " nq"]:
    """A configuration with given joint angles whose lowest foot is on the ground, z = 0."""
    move = np.zeros(model.nv)
    for part, angle in stance.items():
        for joint in model.space.joint_names:
            if part in joint and (at := model.v_slice(joint)).stop - at.start == 1:
                move[at] = angle
    q = integrate(model, neutral(model), jnp.asarray(move, model.dtype))
    lowest = min(float(frame_placement(model, q, f)[1][2]) for f in feet)
    return q.at[2].add(-lowest)


def standing_torques(
    model: Model, q: Float[Array, " nq"], contacts: constraints.Constraints, active: np.ndarray
) -> np.ndarray:
    """Torques of the actuated joints that balance gravity as far as the active contacts allow.

    They and the contact forces solve ``B u + Jᵀ f = g`` in the sense of least squares, with the
    least norm.
    """
    J = np.asarray(constraints.jacobian(model, q, contacts))
    J = J[np.repeat(active, contacts.sizes)]
    B = np.eye(model.nv)[:, 6:]
    A = np.concatenate([B, J.T], axis=1)
    # forces are cheap, torques are not: both in the size of the weight
    scale = np.concatenate([np.full(model.nv - 6, 1.0), np.full(len(J), 10.0)])
    x = np.linalg.lstsq(A * scale, np.asarray(gravity_torque(model, q)), rcond=None)[0]
    return x[: model.nv - 6]


def schedule(phases: Sequence[Phase], feet: Sequence[str]) -> np.ndarray:
    """Which feet stand in each step (T, c)."""
    rows = [np.tile([f not in p.swing for f in feet], (p.steps, 1)) for p in phases]
    return np.concatenate(rows)


def swings(
    p0: np.ndarray, phases: Sequence[Phase], feet: Sequence[str], stride, height: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets (T + 1, c, 3) and weights (T + 1, c) of the feet, and where they end (c, 3).

    The weight is 1 in the air, 3 at the landing and 0 on the ground.
    """
    steps = sum(p.steps for p in phases)
    targets, weights = np.zeros((steps + 1, len(feet), 3)), np.zeros((steps + 1, len(feet)))
    now, k = np.array(p0), 0
    for phase in phases:
        rows = slice(k, k + phase.steps)
        targets[rows] = now
        for i in (feet.index(f) for f in phase.swing):
            far = phase.part * np.asarray(stride)
            path = swing_path(jnp.asarray(now[i]), jnp.asarray(far), height, phase.steps)
            targets[rows, i], weights[rows, i] = path, 1.0
            now[i] = now[i] + far
            weights[k + phase.steps, i] = 3.0
        k += phase.steps
        targets[k:] = now
    return targets, weights, now


def gait(
    model: Model,
    q0: Float[Array, " nq"],
    phases: Sequence[Phase],
    *,
    feet: tuple[str, ...] = FEET,
    stride: float = 0.15,
    height: float = 0.08,
    dt: float = 0.02,
    friction: float = 0.7,
    center: np.ndarray | None = None,
):
    """A problem, its start and its first guess, for feet that swing and stand by turns.

    Args:
        model: a robot on a free joint with actuated joints.
        q0: where it stands. phases: which feet swing, one after the other.
        feet: frames of the feet, points that stick to the ground.
        stride: forward motion of each swing (m). height: of each swing (m).
        dt: time step (s).
        friction: coefficient of friction with the ground, kept by a penalty.
        center: targets (T + 1, 3) of the center of mass relative to its start (m); if None, it
            moves forward evenly.

    Returns:
        ``(problem, q0, v0, u)``; u are the torques that balance gravity in each phase.
    """
    contacts = constraints.join(
        *(constraints.point(model, f, velocity_gain=1.0 / dt) for f in feet)
    )
    active = schedule(phases, feet)
    steps, nu = len(active), model.nv - 6
    p0 = np.stack([np.asarray(frame_placement(model, q0, f)[1]) for f in feet])
    step = np.array([stride, 0.0, 0.0])
    targets, weights, ends = swings(p0, phases, feet, step, height)
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    table = lambda x: Table(array(x), array(dt))  # noqa: E731
    forward = np.mean(ends - p0, axis=0)
    if center is None:
        center = np.linspace(0.0, 1.0, steps + 1)[:, None] * forward
    com = np.asarray(center_of_mass(model, q0)) + center
    q_weight, v_weight = np.full(model.nv, 0.5), np.full(model.nv, 0.2)
    q_weight[:3], q_weight[3:6], v_weight[:6] = 5.0, 0.0, 0.5
    state = StateCost(q0, array(q_weight), array(v_weight), array(np.full(nu, 0.02)))
    rows = tuple(contacts.row_slice(f).start for f in contacts.names)
    stage = CostSum((
        state,
        FootSwing(table(targets), table(60.0 * weights), feet),
        CenterOfMass(table(com), array([20.0, 20.0, 20.0])),
        FrictionPyramid(array(friction), array(0.1), rows),
    ))  # fmt: skip
    goal = q0.at[:3].add(array(forward))
    final = StateCost(goal, array(np.full(model.nv, 5.0)), array(np.full(model.nv, 1.0)))
    return on_contacts(model, q0, stage, final, contacts, active, dt)


def on_contacts(
    model: Model, q0, stage, final, contacts: constraints.Constraints, active: np.ndarray, dt
) -> Task:
    """A problem within the effort limits, its start and its first guess, for a schedule (T, c)."""
    guess = {tuple(a): standing_torques(model, q0, contacts, a) for a in np.unique(active, axis=0)}
    u = jnp.asarray(np.stack([guess[tuple(a)] for a in active]), model.dtype)
    B, limit = jnp.eye(model.nv, dtype=model.dtype)[:, 6:], model.effort_limit[6:]
    plant = ConstrainedRobot(model, constraints=contacts, active=jnp.asarray(active), actuation=B)
    problem = Problem(plant, stage, final, dt, len(active), lower=-limit, upper=limit)
    return Task(problem, q0, jnp.zeros((model.nv,), model.dtype), u)


def standing_guess(task: Task) -> dict[str, Array]:
    """First guesses of the states for :func:`multiple_shooting`: it stands still."""
    rows = (task.problem.steps + 1, 1)
    return {"q": jnp.tile(task.q0, rows), "v": jnp.tile(task.v0, rows)}


def nudged(task: Task, starts: int = 20, seed: int = 0, spread: float = 0.2) -> Trials:
    """A task on legs from many first velocities under which the feet that stand do not move.

    The first start is the task's own. In the others, uniform noise of up to ``spread`` (m/s, rad/s)
    in every coordinate goes through an impact with the contacts of the first step.
    """
    problem, q0, v0, u = task
    plant = cast(ConstrainedRobot, problem.plant)
    feet = eqx.tree_at(lambda c: c.active, plant.constraints, cast(Array, plant.active)[0])
    noise = np.random.default_rng(seed).uniform(-spread, spread, (starts, len(v0)))
    noise[0] = 0
    after = lambda d: constraints.impact(plant.model, q0, v0 + d, feet).v  # noqa: E731
    v = jax.vmap(after)(jnp.asarray(noise, q0.dtype))
    many = lambda x: jnp.broadcast_to(x, (starts, *x.shape))  # noqa: E731
    return Trials(problem, many(q0), v, many(u), ())


def receding(task: Task, steps: int) -> Task:
    """A task over its first steps alone, as :func:`rbd_jax.optimize.controller` plans it.

    Costs and contacts go by the time, so they go on where the horizon has moved to.
    """
    p = task.problem
    problem = Problem(p.plant, p.stage, p.final, p.dt, steps, lower=p.lower, upper=p.upper)
    return task._replace(problem=problem, u=task.u[np.minimum(np.arange(steps), len(task.u) - 1)])


def quadruped(model: Model | None, q0, dtype) -> tuple[Model, Array]:
    """A quadruped and how it stands with its feet at the height zero."""
    model = samples.quadruped(dtype=dtype) if model is None else model
    if q0 is None:
        if model.topology.name not in STANCES:
            raise ValueError(
                f"tasks: robot {model.topology.name!r} has no stance in this library; give q0"
            )
        q0 = stand(model, FEET, STANCES[model.topology.name])
    return model, q0


def walk(model: Model | None = None, q0=None, dtype=None, **options):
    """One cycle of a walk: one foot after the other swings 15 cm forward, in 1.6 s.

    Args:
        model: a quadruped with feet ``lf_foot`` … ``rh_foot``, :func:`rbd_jax.samples.quadruped` if
            None.
        q0: where it stands; known for the sample and for HyQ.
        dtype: of the sample. options: as in :func:`gait`.
    """
    model, q0 = quadruped(model, q0, dtype)
    order = ("rh_foot", "rf_foot", "lh_foot", "lf_foot")
    phases = [p for f in order for p in (Phase(5), Phase(15, (f,)))]
    return gait(model, q0, [*phases, Phase(5)], **options)


def trot(model: Model | None = None, q0=None, dtype=None, **options):
    """One cycle of a trot: diagonal feet swing together. Arguments as :func:`walk`."""
    model, q0 = quadruped(model, q0, dtype)
    phases = [Phase(5), Phase(15, ("lf_foot", "rh_foot")), Phase(3),
              Phase(15, ("rf_foot", "lh_foot")), Phase(7)]  # fmt: skip
    return gait(model, q0, phases, **options)


def pace(model: Model | None = None, q0=None, dtype=None, **options):
    """One cycle of a pace: feet of one side swing together. Arguments as :func:`walk`."""
    model, q0 = quadruped(model, q0, dtype)
    phases = [Phase(5), Phase(10, ("lf_foot", "lh_foot")), Phase(5),
              Phase(10, ("rf_foot", "rh_foot")), Phase(10)]  # fmt: skip
    return gait(model, q0, phases, **{"stride": 0.1, "height": 0.05, **options})


def jump(model: Model | None = None, q0=None, dtype=None, **options):
    """A jump 20 cm forward with a flight of 0.3 s. Arguments as :func:`walk`."""
    model, q0 = quadruped(model, q0, dtype)
    push, flight, land = 20, 15, 20
    dt, far = options.get("dt", 0.02), options.get("stride", 0.2)
    t = dt * np.arange(flight + 1)
    up = 0.5 * 9.81 * t * (t[-1] - t)
    center = np.zeros((push + flight + land + 1, 3))
    # crouch, push, fly on a parabola, land where the feet land
    center[: push + 1, 2] = -0.05 * np.sin(np.pi * np.arange(push + 1) / push) ** 2
    center[push : push + flight + 1, 2] = up
    center[push : push + flight + 1, 0] = far * t / t[-1]
    center[push + flight :, 0] = far
    phases = [Phase(push), Phase(flight, FEET), Phase(land)]
    return gait(model, q0, phases, **{"stride": far, "height": 0.15, "center": center, **options})
