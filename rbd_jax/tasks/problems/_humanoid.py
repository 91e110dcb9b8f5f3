"""Ready problems of humanoids, whose soles are flat on the ground: squat, step, balance."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import constraints
from ...algorithms.energy import center_of_mass
from ...algorithms.kinematics import frame_placement
from ...model import Model
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
    rest: float = 3.0,
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
        rest: weight of the posture at the end. more: costs besides.
    """
    numbers = {"reference": "local", "velocity_gain": 1.0 / dt}
    contacts = constraints.join(*(constraints.frame(model, f, **numbers) for f in feet))
    active, nv, nu = schedule(phases, feet), model.nv, model.nv - 6
    p0 = np.stack([np.asarray(frame_placement(model, q0, f)[1]) for f in feet])
    targets, weights, ends = swings(p0, phases, feet, np.array([stride, 0.0, 0.0]), height)
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    table = lambda x: Table(array(x), array(dt))  # noqa: E731
    com = np.asarray(center_of_mass(model, q0)) + center
    q_weight, v_weight = np.full(nv, 0.3), np.full(nv, 0.1)
    q_weight[:3], q_weight[3:6] = 3.0, 0.0
    rows = tuple(contacts.row_slice(f).start + 3 for f in feet)
    stage = CostSum((
        StateCost(q0, array(q_weight), array(v_weight), array(np.full(nu, 0.01))),
        FootSwing(table(targets), table(60.0 * weights**2), feet),
        CenterOfMass(table(com), array([50.0, 50.0, 50.0])),
        FrictionPyramid(array(friction), array(0.1), rows),
        *more,
    ))  # fmt: skip
    goal = q0.at[:3].add(array(np.mean(ends - p0, axis=0)))
    final = StateCost(goal, array(np.full(nv, rest)), array(np.full(nv, 1.0)))
    return on_contacts(model, q0, stage, final, contacts, active, dt)


def flat(model: Model, q0: Array, feet: tuple[str, ...]) -> list[Callable[..., Array]]:
    """Costs that keep swinging soles level, and the pressure inside of standing ones."""
    array = lambda x: jnp.asarray(x, model.dtype)  # noqa: E731
    level = array(np.full(3, 20.0))
    found: list[Callable[..., Array]] = [
        Orientation(frame_placement(model, q0, f)[0], level, f) for f in feet
    ]
    rows = tuple(6 * k for k in range(len(feet)))
    return [*found, CenterOfPressure(array(SOLE), array(0.5), rows)]


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
    still = np.zeros((steps + 1, 3))
    return on_soles(model, q0, [Phase(steps)], still, feet=feet, dt=dt, friction=friction,
                    rest=0.1, more=more)  # fmt: skip
