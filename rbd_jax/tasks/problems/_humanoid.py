"""Ready problems of humanoids, whose soles are flat on the ground: squat, step, balance, walk."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import constraints
from ...algorithms.energy import center_of_mass
from ...algorithms.kinematics import frame_placement
from ...contact import Scene
from ...model import Model
from ...model.arguments import check_number
from ...optimize import (
    CenterOfMass,
    CenterOfPressure,
    CostSum,
    FootSwing,
    FrictionPyramid,
    Orientation,
    StateCost,
    Table,
)
from ._legged import STANCES, Phase, on_contacts, schedule, stand, swings
from ._task import Task

SOLES = ("left_sole_link", "right_sole_link")
SOLE = (0.10, 0.06)
"""Half the length and half the width of a sole of Talos (m)."""
HAND = "arm_left_7_link"
G1_SOLES = ("left_foot", "right_foot")
G1_SOLE = (0.07, 0.014)
"""Of the sole of G1, which stands on two long capsules, the part where pressure is welcome (m)."""


class SoleWeights(NamedTuple):
    """Weights of the costs of a problem on soles.

    Those of :class:`rbd_jax.optimize.StateCost` multiply half the squares of angles (rad), places
    (m), velocities (rad/s, m/s) and torques (N m). The others multiply residuals.
    """

    posture: float = 0.3
    """Of each joint's distance from where it is at the start."""
    trunk: tuple[float, ...] = (3.0, 3.0, 3.0, 0.0, 0.0, 0.0)
    """The same of the trunk, in the order of its velocity: turn, then place."""
    velocity: float = 0.1
    """Of each joint's velocity."""
    trunk_velocity: tuple[float, ...] = (0.1,) * 6
    effort: float = 0.01
    """Of each joint's torque."""
    center: tuple[float, float, float] = (50.0, 50.0, 50.0)
    """Of the distance of the center of mass from its target along x, y and z of the world (m)."""
    friction: float = 0.1
    """Of forces outside of the friction pyramid (N)."""
    pressure: float = 0.5
    """Of moments with which the center of pressure is outside of the sole (N m)."""
    level: float = 20.0
    """Of the rotation of soles from where they are at the start (rad)."""
    end: float = 3.0
    """Of the posture at the end."""
    end_trunk: tuple[float, ...] = (3.0,) * 6
    end_velocity: float = 1.0
    """Of all velocities at the end."""


IN_PLACE = SoleWeights()
"""Weights of problems whose feet stay, or go one step."""
IN_STEPS = SoleWeights(
    trunk=(5.0, 5.0, 5.0, 0.0, 0.0, 0.0),
    trunk_velocity=(0.1, 0.1, 0.1, 0.0, 0.0, 0.1),
    effort=0.02,
    center=(50.0, 5.0, 50.0),
    friction=0.02,
    pressure=0.05,
    level=10.0,
    end=1.0,
    end_trunk=(1.0, 1.0, 1.0, 0.0, 0.0, 0.0),
    end_velocity=0.3,
)
"""Weights of a walk: the trunk may be anywhere, and it sways as it needs to.

Penalties are soft, because stiff ones have a feedback that soft contacts do not bear: with those of
a squat, G1 fell at its first step in the contact simulator.
"""


def standing(model: Model, q0, feet: tuple[str, ...], name: str) -> Float[Array, " nq"]:
    """The standing configuration of a humanoid, q0 itself or the one that is known for Talos."""
    if q0 is not None:
        return q0
    if not model.topology.name.startswith("talos"):
        raise ValueError(f"tasks.{name}: the stance of {model.topology.name!r} is unknown")
    return stand(model, feet, STANCES["talos"])


def on_soles(
    model: Model,
    q0: Float[Array, " nq"],
    phases: Sequence[Phase],
    center: Float[np.ndarray, "S 3"],
    *,
    feet: tuple[str, ...] = SOLES,
    stride: float = 0.0,
    height: float = 0.0,
    dt: float = 0.02,
    friction: float = 0.7,
    weights: SoleWeights = IN_PLACE,
    more: Sequence[Callable[..., Array]] = (),
) -> Task:
    """A problem, its start and its first guess, for soles that are held with six components.

    Args:
        model: a humanoid on a free joint with actuated joints.
        q0: where it stands. phases: which feet swing, one after the other.
        center: targets (T + 1, 3) of the center of mass relative to its start (m).
        feet: frames of the soles, with z up from the ground.
        stride: forward motion of each swing (m). height: of each swing (m).
        dt: time step (s). friction: with the ground, kept by a penalty.
        weights: of the costs. more: costs besides.
    """
    numbers = {"reference": "local", "velocity_gain": 1.0 / dt}
    contacts = constraints.join(*(constraints.frame(model, f, **numbers) for f in feet))
    active, nv, nu = schedule(phases, feet), model.nv, model.nv - 6
    p0 = np.stack([np.asarray(frame_placement(model, q0, f)[1]) for f in feet])
    targets, in_air, ends = swings(p0, phases, feet, np.array([stride, 0.0, 0.0]), height)
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    table = lambda x: Table(array(x), array(dt))  # noqa: E731
    com = np.asarray(center_of_mass(model, q0)) + center
    w = weights
    of_joints = lambda trunk, x: array(np.r_[trunk, np.full(nu, x)])  # noqa: E731
    q_weight, v_weight = of_joints(w.trunk, w.posture), of_joints(w.trunk_velocity, w.velocity)
    rows = tuple(contacts.row_slice(f).start + 3 for f in feet)
    stage = CostSum((
        StateCost(q0, q_weight, v_weight, array(np.full(nu, w.effort))),
        FootSwing(table(targets), table(60.0 * in_air**2), feet),
        CenterOfMass(table(com), array(w.center)),
        FrictionPyramid(array(friction), array(w.friction), rows),
        *more,
    ))  # fmt: skip
    goal = q0.at[:3].add(array(np.mean(ends - p0, axis=0)))
    final = StateCost(goal, of_joints(w.end_trunk, w.end), array(np.full(nv, w.end_velocity)))
    return on_contacts(model, q0, stage, final, contacts, active, dt)


def flat(
    model: Model,
    q0: Array,
    feet: tuple[str, ...],
    sole: tuple[float, float] = SOLE,
    weights: SoleWeights = IN_PLACE,
) -> list[Callable[..., Array]]:
    """Costs that keep swinging soles level, and the pressure inside of standing ones."""
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    level = array(np.full(3, weights.level))
    found: list[Callable[..., Array]] = [
        Orientation(frame_placement(model, q0, f)[0], level, f) for f in feet
    ]
    rows = tuple(6 * k for k in range(len(feet)))
    return [*found, CenterOfPressure(array(sole), array(weights.pressure), rows)]


def eased(a, b, steps: int) -> np.ndarray:
    """``steps`` points of the way from a to b, at rest at both ends, without b itself."""
    s = 0.5 - 0.5 * np.cos(np.pi * np.arange(steps) / steps)
    return np.asarray(a) + s[:, None] * (np.asarray(b) - np.asarray(a))


def squat(
    model: Model,
    q0=None,
    *,
    feet: tuple[str, ...] = SOLES,
    depth: float = 0.15,
    steps: int = 50,
    dt: float = 0.02,
    friction: float = 0.7,
) -> Task:
    """Lower the center of mass of a biped and raise it again, both feet flat on the ground.

    Args:
        model: a humanoid on a free joint, such as Talos.
        q0: where it stands; known for Talos.
        feet: frames of the soles, which are held with all six components.
        depth: of the squat (m).
        steps: number of steps. dt: time step (s).
        friction: coefficient of friction with the ground, kept by a penalty.
    """
    q0 = standing(model, q0, feet, "squat")
    down = -depth * np.sin(np.pi * np.arange(steps + 1) / steps) ** 2
    center = down[:, None] * np.array([0.0, 0.0, 1.0])
    return on_soles(model, q0, [Phase(steps)], center, feet=feet, dt=dt, friction=friction)


def step_forward(
    model: Model,
    q0=None,
    *,
    feet: tuple[str, ...] = SOLES,
    stride: float = 0.15,
    height: float = 0.05,
    dt: float = 0.02,
    friction: float = 0.7,
) -> Task:
    """A step forward with one foot after the other, in 3 s.

    The center of mass goes above the foot that stands. Swinging soles stay level, and the centers
    of pressure stay inside of the soles.

    Args:
        model: a humanoid on a free joint, such as Talos.
        q0: where it stands; known for Talos.
        feet: frames of the left and the right sole.
        stride: length of the step (m). height: of the swing (m).
        dt: time step (s). friction: as in :func:`squat`.
    """
    q0 = standing(model, q0, feet, "step")
    phases = [Phase(30), Phase(25, feet[:1]), Phase(40), Phase(25, feet[1:]), Phase(30)]
    start = np.asarray(center_of_mass(model, q0))
    left, right = (np.asarray(frame_placement(model, q0, f)[1]) - start for f in feet)
    ahead, flat_only = np.array([stride, 0.0, 0.0]), np.array([1.0, 1.0, 0.0])
    one, other = flat_only * right, flat_only * left + ahead
    ways = [(0 * one, one), (one, one), (one, other), (other, other), (other, ahead)]
    center = [eased(a, b, p.steps) for (a, b), p in zip(ways, phases, strict=True)]
    return on_soles(
        model, q0, phases, np.concatenate([*center, ahead[None]]), feet=feet, stride=stride,
        height=height, dt=dt, friction=friction, more=flat(model, q0, feet),
    )  # fmt: skip


def balance(
    model: Model,
    q0=None,
    *,
    feet: tuple[str, ...] = SOLES,
    hand: str = HAND,
    reach: Sequence[float] = (0.35, 0.05, 0.25),
    steps: int = 60,
    dt: float = 0.02,
    friction: float = 0.7,
) -> Task:
    """Reach for a point with a hand, without a step and without falling over.

    The center of mass stays above the middle of the feet, and the centers of pressure inside of
    the soles. The hand arrives after two thirds of the time and stays there.

    Args:
        model: a humanoid on a free joint, such as Talos.
        q0: where it stands; known for Talos.
        feet: frames of the soles.
        hand: frame of the hand. reach: from where it is to the point (m).
        steps: number of steps. dt: time step (s). friction: as in :func:`squat`.
    """
    q0 = standing(model, q0, feet, "balance")
    place = np.asarray(frame_placement(model, q0, hand)[1])
    goal, moving = place + np.asarray(reach, float), 2 * steps // 3
    way = np.concatenate([eased(place, goal, moving), np.tile(goal, (steps + 1 - moving, 1))])
    table = lambda x: Table(jnp.asarray(x, model.dtype), jnp.asarray(dt, model.dtype))  # noqa: E731
    to = FootSwing(table(way[:, None]), table(np.full((steps + 1, 1), 40.0)), (hand,))
    more = [to, *flat(model, q0, feet)]
    still, weights = np.zeros((steps + 1, 3)), IN_PLACE._replace(end=0.1, end_trunk=(0.1,) * 6)
    return on_soles(model, q0, [Phase(steps)], still, feet=feet, dt=dt, friction=friction,
                    weights=weights, more=more)  # fmt: skip


def biped_walk(
    model: Model,
    q0=None,
    *,
    feet: tuple[str, ...] = SOLES,
    sole: tuple[float, float] = SOLE,
    strides: int = 8,
    stride: float = 0.3,
    height: float = 0.06,
    swing: int = 20,
    both: int = 5,
    wait: int = 20,
    dt: float = 0.02,
    friction: float = 0.6,
    weights: SoleWeights = IN_STEPS,
) -> Task:
    """Walk on two legs along x of the world, from standing to standing.

    Feet swing by turns, the left one first. The center of mass goes forward evenly; how it sways
    follows from the centers of pressure, which a penalty keeps inside of the soles. The problem is
    solved as a whole, or piece by piece with :func:`receding`.

    Args:
        model: a humanoid on a free joint, such as Talos.
        q0: where it stands; known for Talos.
        feet: frames of the left and the right sole, with z up from the ground.
        sole: half the length and half the width of where the pressure of a sole may be (m).
        strides: how often a foot swings, at least 2.
        stride: length of a swing (m); the first and the last one go half as far.
        height: of each swing (m).
        swing: steps that a swing takes. both: steps between two swings, on both feet.
        wait: steps before the first swing and after the last one.
        dt: time step (s).
        friction: coefficient of friction with the ground, kept by a penalty.
        weights: of the costs.

    Raises:
        ValueError: for fewer than two strides.
    """
    check_number("tasks.biped_walk", "strides", strides, least=2, whole=True)
    q0 = standing(model, q0, feet, "biped-walk")
    phases = [Phase(wait)]
    for k in range(strides):
        part = 0.5 if k in (0, strides - 1) else 1.0
        phases += [Phase(swing, (feet[k % 2],), part), Phase(both)]
    phases.append(Phase(wait))
    steps, late = sum(p.steps for p in phases), wait + both
    far = 0.5 * stride * (strides - 1)
    ahead = np.interp(np.arange(steps + 1), [wait - both, steps - late], [0.0, far])
    center = ahead[:, None] * np.array([1.0, 0.0, 0.0])
    return on_soles(
        model, q0, phases, center, feet=feet, stride=stride, height=height, dt=dt,
        friction=friction, weights=weights, more=flat(model, q0, feet, sole, weights),
    )  # fmt: skip


def g1_walk(scene: Scene, **options) -> Task:
    """The walk of Unitree's humanoid G1 with torques at its joints.

    Args:
        scene: of ``g1_mjcf(motors=True)``, see :func:`g1_mjcf`. It can be the plant of
            :func:`rbd_jax.optimize.mpc`.
        options: as in :func:`biped_walk`.

    Raises:
        ValueError: if the scene has no keyframe, or no motor at each joint.
    """
    model, acts, nu = scene.model, scene.actuators, scene.model.nv - 6
    plain = scene.nu == nu and not np.any(np.asarray(acts.biasprm))
    if not plain or not scene.keyframes or acts.trnid != tuple(range(6, model.nv)):
        raise ValueError(
            "tasks.g1_walk: expected a keyframe and one motor for each joint, in their order, as "
            "in rbd_jax.tasks.g1_mjcf(motors=True)"
        )
    limit = jnp.concatenate([jnp.full((6,), jnp.inf, model.dtype), acts.ctrlrange[:, 1]])
    model = eqx.tree_at(lambda m: m.effort_limit, model, limit)
    q0 = next(iter(scene.keyframes.values())).q
    lowest = min(float(frame_placement(model, q0, f)[1][2]) for f in G1_SOLES)
    options = {"feet": G1_SOLES, "sole": G1_SOLE} | options
    return biped_walk(model, q0.at[2].add(-lowest), **options)
