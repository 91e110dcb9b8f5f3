"""Objects that a robot brings to a pose by touching them, without a schedule of contacts."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...contact import Scene, load_mjcf
from ...model import difference
from ...optimize import Problem, StateCost, in_scene
from ...simulate import Plant, StraightThrough

OBJECT = "object"
"""The name of the joint, and of the body, of the object in each scene."""
STAGES = 30
"""Steps of a problem, in each of which the targets of the servos are held."""

_BLOCK = """<mujoco model="push_block">
<option timestep="0.01" cone="elliptic" integrator="implicitfast"/>
<default><geom friction="0.4"/></default>
<worldbody>
<geom name="table" type="plane" size="1 1 .1"/>
<body name="object" pos="0 0 .04"><freejoint name="object"/>
  <geom name="object" type="box" size=".08 .06 .04" mass=".5"/></body>
<body name="finger" pos="0 0 .04"><joint name="x" type="slide" axis="1 0 0"/>
  <joint name="y" type="slide" axis="0 1 0"/>
  <geom name="finger" size=".02" mass=".2" contype="2" conaffinity="1"/></body>
</worldbody>
<actuator><position joint="x" kp="100" kv="15"/><position joint="y" kp="100" kv="15"/></actuator>
</mujoco>"""

_FINGER = """<body pos="{x} {y} .03" euler="0 0 {turn}">
  <joint name="swing{k}" axis="0 0 1" damping=".02" armature="1e-4"/>
  <geom type="capsule" fromto="0 0 0 .05 0 0" size=".007" mass=".02" contype="0" conaffinity="0"/>
  <body pos=".05 0 0"><joint name="reach{k}" type="slide" axis="1 0 0" damping="1"/>
    <geom name="tip{k}" size=".01" pos=".009 0 0" mass=".01" condim="4" friction="1"/></body>
</body>"""
_HAND = """<mujoco model="turn_in_hand">
<option timestep=".005" cone="elliptic" integrator="implicitfast"/>
<worldbody>
<geom name="palm" type="plane" size=".2 .2 .1" friction=".1"/>
<body name="object" pos="0 0 .03"><freejoint name="object"/>
  <geom name="object" type="cylinder" size=".03 .03" mass=".1" friction=".1"/></body>
{fingers}
</worldbody>
<actuator>{servos}</actuator>
</mujoco>"""


class ObjectTask(eqx.Module):
    """An object that is to come to a pose by the touch of a robot, from many starts.

    Derivatives do not tell of contacts that are not there. So :func:`rbd_jax.optimize.cem` finds a
    motion, and :func:`rbd_jax.optimize.ilqr` improves it by derivatives through contact::

        task = tasks.push_block(dtype=jnp.float32)
        q, v, u = task.q0[0], task.v0[0], task.u[0]
        found = opt.cem(task.problem, q, v, u, key, **task.search)
        better = opt.ilqr(task.problem, q, v, found.u, max_steps=20, throw=False)
        task.arrives(better.q[-1])

    Without samples, ``ilqr`` can begin with the derivatives of contacts that act at a distance, and
    go on with those of shorter ones: :meth:`smoothed`.
    """

    problem: Problem
    q0: Float[Array, "S nq"]
    v0: Float[Array, "S nv"]
    u: Float[Array, "S T nu"]
    """First guesses: the servos hold what is there."""
    noise: Float[Array, " nu"]
    """Spread of the first samples of a search."""
    mjcf: str = eqx.field(static=True)
    """The scene, as MuJoCo reads it."""
    near: tuple[float, float] = eqx.field(static=True)
    """How far from its goal an object may be that has arrived (m, rad)."""
    steps: int = eqx.field(static=True)
    """Steps of a search."""
    reaches: tuple[float, ...] = eqx.field(static=True)
    """Distances at which contacts act in derivatives, from the first to the last (m)."""

    def smoothed(self, reach: float | Array, softness: float | Array = 0.1) -> Problem:
        """The same problem with the derivatives of contacts that act at a distance.

        Args:
            reach: as in :meth:`rbd_jax.contact.Scene.at_distance`. softness: too.
        """
        scene = self.scene
        return self.moving(StraightThrough(scene, scene.at_distance(reach, softness)))

    def moving(self, plant: Plant) -> Problem:
        """The same problem with another plant that moves as the scene does."""
        p = self.problem
        rest = p.dt, p.steps, None, p.lower, p.upper
        return Problem(plant, p.stage, p.final, *rest, substeps=p.substeps)

    @property
    def scene(self) -> Scene:
        """The scene of robot and object."""
        return self.problem.plant.scene  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def goal(self) -> Float[Array, " nq"]:
        """The configuration with the object where it is to be, which the final cost asks for."""
        return self.problem.final.q  # pyright: ignore[reportFunctionMemberAccess]

    @property
    def search(self) -> dict:
        """Arguments of :func:`rbd_jax.optimize.cem` that suit the task."""
        sizes = {"samples": 128, "elites": 16, "knots": 8, "keep": 0.5}
        return {"noise": self.noise, "max_steps": self.steps} | sizes

    def miss(self, q: Float[Array, " nq"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """How far the object is from its goal: the distance (m) and the angle (rad)."""
        model = self.problem.model
        d = difference(model, self.goal, q)[model.v_slice(OBJECT)]
        return _length(d[3:]), _length(d[:3])

    def arrives(self, q: Float[Array, " nq"]) -> Bool[Array, ""]:
        """Whether the object is at its goal, within ``near``."""
        distance, angle = self.miss(q)
        return (distance <= self.near[0]) & (angle <= self.near[1])


def _length(x: Array) -> Float[Array, ""]:
    """The length of a vector, whose derivative is zero at zero instead of NaN."""
    square = jnp.sum(x * x)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def push_block(starts: int = 64, seed: int = 0, dtype=None) -> ObjectTask:
    """Push a block of 0.5 kg over a table to a pose, in 2.4 s, with a finger that slides.

    The goal is 25 cm ahead and 10 cm to the left, without a turn. The block starts up to 10 cm off
    and turned by up to 1.5 rad, and the finger 15 to 20 cm from its center on any side. It has
    arrived within 2 cm and 0.1 rad.

    Args:
        starts: how many. seed: of their random numbers. dtype: of all arrays.
    """
    rng = np.random.default_rng(seed)
    shift, turn = rng.uniform(-0.1, 0.1, (starts, 2)), rng.uniform(-1.5, 1.5, starts)
    side, away = rng.uniform(-np.pi, np.pi, starts), rng.uniform(0.15, 0.2, starts)
    at = shift + away[:, None] * np.stack([np.cos(side), np.sin(side)], axis=1)
    block = np.array([0.2, 0.2, 0.2, 2.0, 2.0, 0.6])
    weights = np.r_[block, 0, 0], np.r_[np.full(6, 0.02), 0.05, 0.05], np.full(2, 0.1)
    goal = np.array([0.25, 0.1]), 0.0
    near = 0.02, 0.1
    return _task(
        _BLOCK, dtype, goal, (shift, turn), at, weights, 8, 0.2, near=near, steps=25,
        reaches=(0.1, 0.03, 0.01),
    )  # fmt: skip


def turn_in_hand(starts: int = 64, seed: int = 0, dtype=None) -> ObjectTask:
    """Turn a cylinder of 0.1 kg on a palm to an angle, in 1.5 s, with three fingers.

    Each finger reaches and swings by servos. The cylinder starts up to 3 mm off the middle and
    turned by up to 1.5 rad, more than one grasp can turn it. It has arrived within 5 mm and
    0.1 rad.

    Args:
        starts: how many. seed: of their random numbers. dtype: of all arrays.
    """
    places = [(0.104 * np.cos(a), 0.104 * np.sin(a), a) for a in 2 * np.pi * np.arange(3) / 3]
    fingers = "\n".join(
        _FINGER.format(k=k, x=x, y=y, turn=np.degrees(a) + 180)
        for k, (x, y, a) in enumerate(places)
    )
    servos = "".join(
        f'<position joint="swing{k}" kp="1"/><position joint="reach{k}" kp="300"/>'
        for k in range(3)
    )
    rng = np.random.default_rng(seed)
    shift, turn = rng.uniform(-0.003, 0.003, (starts, 2)), rng.uniform(-1.5, 1.5, starts)
    cylinder = np.array([0.3, 0.3, 0.5, 5.0, 5.0, 2.0])
    rates = np.r_[np.full(6, 0.01), np.full(6, 0.002)]
    weights = np.r_[cylinder, np.zeros(6)], rates, np.tile([0.02, 1.0], 3)
    return _task(
        _HAND.format(fingers=fingers, servos=servos), dtype, (np.zeros(2), 0.0), (shift, turn),
        np.zeros((starts, 6)), weights, 10, [0.5, 0.01] * 3, near=(0.005, 0.1), steps=30,
        reaches=(0.02, 0.005),
    )  # fmt: skip


def _task(mjcf, dtype, goal, first, joints, weights, substeps, noise, **rest) -> ObjectTask:
    """A task.

    Args:
        mjcf: its scene. dtype: of its arrays.
        goal: shift (2,) of the object from its place in the file, and its turn. first: those of
            the starts.
        joints: of the robot at the starts; the targets of its servos are the same numbers.
        weights: of configuration, velocity and controls; ten times as large at the last state.
        substeps: steps of the scene in each step of the problem.
        noise: of the first samples. rest: other fields.
    """
    scene = load_mjcf(mjcf, dtype=dtype)
    model = scene.model
    array = lambda x: jnp.asarray(np.asarray(x, float), model.dtype)  # noqa: E731
    free = model.q_slice(OBJECT)

    def placed(shift, turn) -> np.ndarray:
        q = np.tile(np.array(scene.q0, float), (*np.shape(turn), 1))
        half = 0.5 * np.asarray(turn)
        q[..., free][..., :2] += shift
        q[..., free][..., 3:] = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=-1)
        return q

    q0, target = placed(*first), array(placed(*goal))
    rows = np.ones(model.nq, bool)
    rows[free] = False
    q0[:, rows] = joints
    w, rates, effort = (array(x) for x in weights)
    stage = StateCost(target, w, rates, effort)
    final = StateCost(target, 10 * w, 10 * rates)
    problem = in_scene(scene, stage, final, STAGES, substeps=substeps)
    u = array(np.repeat(np.asarray(joints, float)[:, None], STAGES, axis=1))
    noise = jnp.broadcast_to(array(noise), u.shape[2:])
    still = jnp.zeros((len(q0), model.nv), model.dtype)
    return ObjectTask(problem, array(q0), still, u, noise, mjcf, **rest)


OBJECTS: dict[str, Callable[..., ObjectTask]] = {"push": push_block, "turn": turn_in_hand}
"""Tasks with objects by their names: functions ``(starts, seed, dtype) -> ObjectTask``."""
