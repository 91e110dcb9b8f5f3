"""Ready problems of robots with servos on the ground, without a schedule of contacts."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from ...algorithms.kinematics import forward_kinematics, frame_in_body, frame_placement
from ...contact import (
    Scene,
    Surface,
    pd_actuators,
    points,
    scene_on_ground,
)
from ...model import Model, integrate
from ...optimize import StateCost, in_scene
from ...simulate import ScenePlant, State as PlantState, rollout
from ...spatial import so3
from ._legged import FEET, quadruped
from ._task import Task

SOFT = Surface((0.8, 0.005, 0.0001), (0.02, 1.0), (0.5, 0.95, 0.01, 0.5, 2.0))
"""Ground that is softer than MuJoCo's default, so that forces change smoothly."""
FOOT, KNEE, HIP = 0.02, 0.03, 0.08
"""Radii of the spheres by which a quadruped touches the ground (m)."""
DT, SUBSTEPS, HORIZON = 0.01, 8, 20
"""The time step of the simulation (s), steps for which targets of the servos are held, and how
often they change in the horizon of a controller."""


class Standing(NamedTuple):
    """Costs of a robot that is to stand: weights of the residuals of state and controls."""

    q: Float[np.ndarray, " nv"]
    v: Float[np.ndarray, " nv"]
    u: Float[np.ndarray, " nu"]


class Ledge(eqx.Module):
    """Ground that rises along x to a box with a steep flank, a height function for scenes."""

    height: Float[Array, ""]
    """Height of the box (m)."""
    x: Float[Array, ""]
    """Where the middle of its flank is (m)."""
    width: Float[Array, ""]
    """Length over which it rises from a quarter to three quarters, about (m)."""

    def __call__(self, x: Float[Array, "2"]) -> Float[Array, ""]:
        """The height at (x, y) (m)."""
        return self.height * jax.nn.sigmoid((x[0] - self.x) / (0.5 * self.width))


def _weights(model: Model) -> Standing:
    q, v = np.full(model.nv, 0.3), np.full(model.nv, 0.02)
    q[:6], v[:6] = (4.0, 4.0, 0.5, 0.5, 0.5, 10.0), (0.2, 0.2, 0.2, 0.3, 0.3, 0.3)
    return Standing(q, v, np.full(model.nv - 6, 0.1))


def on_ground(
    model: Model | None = None,
    q0=None,
    dtype=None,
    *,
    stiffness=200.0,
    damping=10.0,
    terrain: Callable[[Array], Array] | None = None,
) -> tuple[Scene, Float[Array, " nq"]]:
    """A quadruped with servos on soft ground, and how it stands there.

    Its feet, knees and hips touch the ground as spheres.

    Args:
        model: a quadruped with feet ``lf_foot`` … ``rh_foot``, :func:`rbd_jax.samples.quadruped` if
            None.
        q0: how it stands; known for the sample and for HyQ.
        dtype: of the sample. stiffness: of the servos (N m/rad). damping: (N m s/rad).
        terrain: a height function instead of the plane.
    """
    model, q0 = quadruped(model, q0, dtype)
    q0 = jnp.asarray(q0, model.dtype).at[2].add(FOOT)
    topology, names = model.topology, model.body_names
    knees = [int(frame_in_body(model, f)[0]) for f in FEET]
    hips = [int(topology.parents[int(topology.parents[k])]) for k in knees]
    solids = points(FEET, FOOT)
    solids += points([names[k] for k in knees], KNEE) + points([names[k] for k in hips], HIP)
    servos = pd_actuators(model, model.joint_names[1:], stiffness, damping)
    ground = {"surface": SOFT, "terrain": terrain, "reference": q0}
    return scene_on_ground(model, solids, actuators=servos, dt=DT, **ground), q0


def stand_up(model: Model | None = None, q0=None, dtype=None, **options) -> Task:
    """A horizon of 1.6 s in which a quadruped comes to stand where it is. It starts standing.

    The controls are the targets of its servos, held for 0.08 s, which start at the standing
    posture. A receding horizon that searches by samples raises it from states of :func:`lying`::

        task = tasks.stand_up(dtype=jnp.float32)
        q, v = tasks.lying(task, key)
        control = opt.sampler(task.problem, key, noise=0.6, samples=64, max_steps=4, knots=6,
                              elites=8, rest=task.u[-1])
        loop = opt.mpc(control, q, v, tasks.rise(task, q), 30, every=2, plant=tasks.pushed(task))

    It takes some seconds for a robot. The policy of :func:`rbd_jax.tasks.stander` acts at once,
    see ``benchmarks/results/standing.md``. Arguments as :func:`on_ground`.
    """
    scene, q0 = on_ground(model, q0, dtype, **options)
    w, dtype = _weights(scene.model), scene.model.dtype
    q, v, u = (jnp.asarray(x, dtype) for x in w)
    targets = q0[7:]
    stage, final = StateCost(q0, q, v, u, targets), StateCost(q0, 3 * q, 9 * v)
    problem = in_scene(scene, stage, final, HORIZON, substeps=SUBSTEPS)
    u0 = jnp.tile(targets, (HORIZON, 1))
    return Task(problem, q0, jnp.zeros((scene.model.nv,), dtype), u0)


def jump_onto(
    model: Model | None = None,
    q0=None,
    dtype=None,
    *,
    height: float = 0.12,
    distance: float = 0.95,
    steps: int = 35,
    **options,
) -> Task:
    """A quadruped gets onto a box in front of it, with all feet, in 2.8 s.

    Nothing says when which foot touches what. Derivatives do not tell of contacts that are not
    there, so the guess, servos that stand, is for :func:`cem`::

        task = tasks.jump_onto(dtype=jnp.float32)
        found = opt.cem(task.problem, task.q0, task.v0, task.u, key, noise=0.6, samples=512,
                        elites=32, max_steps=80, knots=12, keep=0.5)

    From ``found.u``, :func:`ilqr` with exact derivatives through contact goes down further.

    Args:
        height: of the box (m). distance: how far forward it comes (m); the box begins 0.08 m before
            its front feet. steps: of 0.08 s each, in which the targets of the servos are held.
        options: as :func:`on_ground`, with model, q0 and dtype.
    """
    x = jnp.asarray
    scene, q0 = on_ground(model, q0, dtype, terrain=Ledge(x(0.0), x(0.0), x(1.0)), **options)
    model, dtype = scene.model, scene.model.dtype
    reach = max(float(frame_placement(model, q0, f)[1][0]) for f in FEET)
    box = Ledge(*(x(y, dtype) for y in (height, reach + 0.08, 0.04)))
    scene = eqx.tree_at(lambda s: s.constraints.contacts.terrain, scene, box)
    goal = q0.at[0].add(distance).at[2].add(height)
    w = _weights(model)
    q, v = np.array(w.q), np.full(model.nv, 0.03)
    q[:6], v[:6] = (5.0, 5.0, 2.0, 3.0, 3.0, 6.0), 0.3
    q, v, u = (x(y, dtype) for y in (q, v, w.u))
    stage, final = (
        StateCost(goal, 0.15 * q, 0.05 * v, 0.5 * u, q0[7:]),
        StateCost(goal, 3 * q, 2 * v),
    )
    problem = in_scene(scene, stage, final, steps, substeps=SUBSTEPS)
    return Task(problem, q0, jnp.zeros_like(q0[1:]), jnp.tile(q0[7:], (steps, 1)))


def lying(
    task: Task, key: Key[Array, ""], *, spread: float = 1.2, tilt: float = 0.4, seconds: float = 1.0
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """A random state in which the robot of a task lies or crouches on the ground.

    It falls limp for some time, from a posture that differs from the standing one.

    Args:
        task: made by :func:`stand_up`.
        key: random key.
        spread: greatest difference of each joint (rad), within the limits.
        tilt: greatest roll and pitch of the trunk at first (rad).
        seconds: how long it falls.
    """
    scene = scene_of(task)
    model = scene.model
    one, two = jax.random.split(key)
    uniform = lambda key, n, x: jax.random.uniform(key, (n,), model.dtype, -x, x)  # noqa: E731
    joints = task.q0[7:] + uniform(one, model.nv - 6, spread)
    joints = jnp.clip(joints, model.position_lower[7:], model.position_upper[7:])
    turn = jnp.zeros_like(task.v0).at[:2].set(uniform(two, 2, tilt))
    q = integrate(model, task.q0.at[7:].set(joints), turn)
    shapes, (R, p) = scene.contacts.shapes, forward_kinematics(model, q)
    at = np.array(shapes.bodies[1:])
    centers = p[at] + so3.rotate(R[at], shapes.p[1:])
    q = q.at[2].add(0.01 - jnp.min(centers[:, 2] - shapes.size[1:, 0]))
    a = scene.actuators
    slack = jnp.zeros_like(a.biasprm).at[:, 2].set(-3.0)  # some friction, no stiffness
    limp = eqx.tree_at(
        lambda s: (s.actuators.gainprm, s.actuators.biasprm), scene, (0 * a.gainprm, slack)
    )
    still = jnp.tile(task.q0[7:], (round(seconds / DT), 1))
    path = rollout(limp, q, task.v0, still, scene.dt)
    return path.q[-1], path.v[-1]


def rise(task: Task, q: Float[Array, " nq"]) -> Float[Array, "T nu"]:
    """A first guess of how to stand up: the servos fold the legs, then stretch them.

    In the first half of the horizon their targets go from where the joints are to a crouch, and in
    the second half to the stance. In the crouch all joint angles are twice those of the stance, so
    that the feet stay below the hips; limits of the joints hold.

    Args:
        task: made by :func:`stand_up`.
        q: where the robot lies.
    """
    model, T = task.problem.model, len(task.u)
    low, high = model.position_lower[7:], model.position_upper[7:]
    start, stance = q[None, 7:], task.q0[None, 7:]
    crouch = jnp.clip(2 * stance, low[None], high[None])
    s = jnp.arange(1, T + 1, dtype=q.dtype)[:, None] * (2 / T)
    folding = start + jnp.minimum(s, 1) * (crouch - start)
    return folding + jnp.maximum(s - 1, 0) * (stance - crouch)


class PushedScene(ScenePlant):
    """A scene whose trunk, on a free joint, is pushed by a force for some time."""

    force: Float[Array, "3"] = None  # pyright: ignore[reportAssignmentType]
    """The force on the trunk in world axes (N)."""
    at: Float[Array, ""] = None  # pyright: ignore[reportAssignmentType]
    """When it begins (s)."""
    lasting: Float[Array, ""] = None  # pyright: ignore[reportAssignmentType]
    """How long it acts (s)."""
    finer: int = eqx.field(static=True, default=1)
    """Simulation steps in each step."""

    def step(self, t: Array, state: PlantState, u: Array, dt: Array) -> PlantState:
        """The state after a step, which is divided into ``finer`` steps."""
        h = dt / self.finer
        scene = dataclasses.replace(self.scene, dt=h)
        middle = t + (jnp.arange(self.finer).astype(h.dtype) + 0.5) * h
        acts = (middle > self.at) & (middle < self.at + self.lasting)
        forces = jnp.where(acts[:, None], self.force[None], 0)

        def once(state, force):
            R = so3.quat_to_matrix(so3.quat_normalize(state.q[3:7]))
            tau = jnp.zeros_like(state.v).at[3:6].set(so3.rotate_inverse(R, force))
            return self.advanced(scene, state, u, tau), None

        return jax.lax.scan(once, state, forces)[0]


def pushed(
    task: Task,
    impulse: Float[Array, "3"] | float = 0.0,
    *,
    at: float = 0.2,
    lasting: float = 0.12,
    finer: int = 2,
) -> PushedScene:
    """A plant for :func:`mpc`: the robot of a task under a force on its trunk, in finer steps.

    Args:
        task: made by :func:`stand_up`.
        impulse: of the force in world axes (N s). The force is constant while it acts. It begins
            and ends with steps of the simulation, so that the period of the controls has no part.
        at: when it begins (s). lasting: how long it acts (s). finer: steps for one of the task's.
    """
    scene = scene_of(task)
    array = lambda x: jnp.asarray(x, scene.model.dtype)  # noqa: E731
    force = jnp.broadcast_to(array(impulse), (3,)) / lasting
    return PushedScene(  # pyright: ignore[reportCallIssue]
        scene=scene, force=force, at=array(at), lasting=array(lasting), finer=finer
    )


def scene_of(task: Task) -> Scene:
    """The scene of a task whose robot moves in one.

    Raises:
        ValueError: for another task.
    """
    plant = task.problem.plant
    if not isinstance(plant, ScenePlant):
        raise ValueError(
            f"tasks: expected a task whose robot moves in a scene, such as stand_up, got a "
            f"{type(plant).__name__}"
        )
    return plant.scene


def stands(task: Task, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Bool[Array, ""]:
    """Whether a state is near the standing one of a task, see :func:`near_stance`."""
    return near_stance(task.q0, q, v)


def uprightness(q: Float[Array | np.ndarray, "*batch nq"]) -> Float[Array, "*batch"]:
    """The cosine of the angle between the third axis of a floating base and that of the world.

    Args:
        q: configurations whose first seven numbers are the base's position and quaternion
            ``(w, x, y, z)``, which has unit length.
    """
    x, y = q[..., 4], q[..., 5]
    return jnp.asarray(1 - 2 * (x * x + y * y))


def near_stance(
    q0: Float[Array, " nq"], q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Bool[Array, ""]:
    """Whether a quadruped that stands at q0 is near that state.

    The trunk has at least 0.85 of its height and tilts by at most 18° (a cosine of 0.95), each
    joint is within 0.5 rad of its angle, and no entry of v exceeds 0.5 (m/s, rad/s).
    """
    bent, fast = jnp.max(jnp.abs(q[7:] - q0[7:])), jnp.max(jnp.abs(v))
    return (q[2] > 0.85 * q0[2]) & (uprightness(q) > 0.95) & (bent < 0.5) & (fast < 0.5)
