"""Go1 and G1 under the joystick of MuJoCo Playground: the robots and rewards of there.

The file of each robot comes from the package ``playground`` that is installed, so the models are
those of its version. :data:`JOYSTICKS` has the numbers of each task, and a class its rewards.
"""

import abc
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from ...algorithms.kinematics import frame_placement
from ...contact import Scene, load_mjcf, sensors
from ...learn import SceneEnvironment, State
from ...model import RobotDescriptionError
from ..robots._packages import package_folder
from ._gymnasium import distance

Number = Float[Array, ""]


class Joystick(NamedTuple):
    """The numbers of one of Playground's tasks."""

    file: str
    """The scene, in the folder of Playground's locomotion."""
    keyframe: str
    """The posture around which actions move the joints."""
    substeps: int
    """Simulation steps in a control step."""
    imu: str
    """The site at which velocity, turning rate and gravity are observed."""
    feet: tuple[str, ...]
    """The sites of the feet, and the shapes that touch the floor."""
    readings: tuple[str, ...]
    """The sensors that rewards and observations need, besides those of the feet."""
    fastest: tuple[float, float, float]
    """The greatest commands: forward, to the left (m/s), turning (rad/s)."""
    foot_height: float
    """How high feet are to be lifted (m)."""
    scales: dict[str, float]
    """How much each term of the reward counts."""


JOYSTICKS = {
    "G1JoystickFlatTerrain": Joystick(
        "g1/xmls/scene_mjx_feetonly_flat_terrain.xml",
        "knees_bent",
        10,
        "imu_in_pelvis",
        ("left_foot", "right_foot"),
        (
            "local_linvel_pelvis", "gyro_pelvis", "global_linvel_pelvis", "global_angvel_pelvis",
            "global_angvel_torso", "upvector_torso", "left_foot_force", "right_foot_force",
            "right_foot_left_foot_found", "left_foot_right_shin_found",
            "right_foot_left_shin_found", "left_hand_left_thigh_found",
            "right_hand_right_thigh_found",
        ),
        (1.0, 0.5, 1.0),
        0.15,
        {
            "tracking_lin_vel": 1.0, "tracking_ang_vel": 0.75, "ang_vel_xy": -0.15,
            "orientation": -2.0, "feet_air_time": 2.0, "feet_slip": -0.25, "feet_phase": 1.0,
            "stand_still": -1.0, "termination": -100.0, "collision": -0.1, "contact_force": -0.01,
            "joint_deviation_knee": -0.1, "joint_deviation_hip": -0.25, "dof_pos_limits": -1.0,
            "pose": -0.1,
        },
    ),
    "Go1JoystickFlatTerrain": Joystick(
        "go1/xmls/scene_mjx_feetonly_flat_terrain.xml",
        "home",
        5,
        "imu",
        ("FR", "FL", "RR", "RL"),
        ("local_linvel", "gyro", "global_linvel", "global_angvel", "upvector"),
        (1.5, 0.8, 1.2),
        0.1,
        {
            "tracking_lin_vel": 1.0, "tracking_ang_vel": 0.5, "lin_vel_z": -0.5,
            "ang_vel_xy": -0.05, "orientation": -5.0, "dof_pos_limits": -1.0, "pose": 0.5,
            "termination": -1.0, "stand_still": -1.0, "torques": -0.0002, "action_rate": -0.01,
            "energy": -0.001, "feet_clearance": -2.0, "feet_height": -0.2, "feet_slip": -0.1,
            "feet_air_time": 0.1,
        },
    ),
}  # fmt: skip
"""Source: ``go1/joystick.py`` and ``g1/joystick.py`` of Playground's locomotion."""


_MISSING = (
    "from_playground needs the package playground, whose robots it loads: "
    "pip install --no-deps playground, or give the path of its scene"
)


class JoystickTask(eqx.Module):
    """The command of one robot, and what the task notes from step to step."""

    command: Float[Array, "*b 3"]
    """Velocity forward and to the left (m/s), turning rate (rad/s)."""
    wait: Float[Array, "*b"]
    """Control steps until the next command."""
    earlier: Float[Array, "*b nu"]
    """The action before the last one, which is what the policy sees."""
    air: Float[Array, "*b k"]
    """How long each foot has not touched the floor (s)."""
    peak: Float[Array, "*b k"]
    """The greatest height of each foot since it touched the floor (m)."""
    phase: Float[Array, "*b k"]
    """The clock of each foot at the last step (rad). Clocks and pushes are G1's."""
    pace: Float[Array, "*b"]
    """By how much the clocks advance in a step (rad)."""
    push_every: Float[Array, "*b"]
    """Control steps between two pushes."""
    noise: Float[Array, "*b n"]
    """The noise of the observation, for a noise level of one."""
    readings: dict[str, Float[Array, "..."]]
    """The readings of the sensors at the end of the last step."""


def _length(x: Array) -> Array:
    """Norms along the last axis, with a derivative of zero where they are zero."""
    return distance(x, jnp.zeros_like(x))


class FromPlayground(SceneEnvironment):
    """What the joysticks share: commands, the clock, the feet, and the noise of observations."""

    scene: Scene
    scales: dict[str, Number]
    """How much each term of the reward counts."""
    noise: Number
    """The level of the observations' noise; zero for none."""
    start: Float[Array, " nq"]
    stance: Float[Array, " nu"]
    """The joints in the posture around which actions move them (rad)."""
    reach: Number
    """How far an action of one moves a target from it (rad)."""
    fastest: Float[Array, "3"]
    """The greatest commands: forward, to the left (m/s), turning (rad/s)."""
    foot_height: Number
    """How high feet are to be lifted (m)."""
    sigma: Number
    """The width of the rewards for following the command."""
    feet: tuple[str, ...] = eqx.field(static=True)
    imu: str = eqx.field(static=True)
    watched: tuple[str, ...] = eqx.field(static=True)
    """The sensors that are read."""
    substeps: int = eqx.field(static=True)
    episode: int = eqx.field(static=True, default=1000)

    @property
    def actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One action for each servo."""
        return self.scene.nu

    def begin(self, key: Key[Array, ""]) -> State:
        """Anywhere within half a metre, in any direction, with a random velocity and command."""
        layout, dtype = self._layout, self.start.dtype
        keys = jax.random.split(key, 6)
        place = jax.random.uniform(keys[0], (2,), dtype, -0.5, 0.5)
        half = jax.random.uniform(keys[1], (), dtype, -3.14, 3.14) / 2
        turn = jnp.stack([jnp.cos(half), jnp.zeros((), dtype), jnp.zeros((), dtype), jnp.sin(half)])
        q = self.start.at[:2].add(place).at[3:7].set(turn)
        q = q.at[7:].multiply(self._bent(keys[2]))
        v = jnp.zeros((self.scene.model.nv,), dtype)
        v = v.at[:6].set(jax.random.uniform(keys[3], (6,), dtype, -0.5, 0.5))
        return self.state_at(q, layout.v_from(q, v), keys[4])

    def state_at(
        self, q: Float[Array, " nq"], v: Float[Array, " nv"], key: Key[Array, ""]
    ) -> State:
        """A state at the beginning of an episode, with a random command, clock and noise."""
        dtype, k = q.dtype, len(self.feet)
        keys = jax.random.split(key, 4)
        zero, state = jnp.zeros((k,), dtype), self.state(q, v, q[7:])
        pace = jax.random.uniform(keys[0], (), dtype, 1.25, 1.5)
        push = jax.random.uniform(keys[1], (), dtype, 5.0, 10.0)
        command, wait = self.first_command(keys[2])
        task = JoystickTask(
            command=command,
            wait=wait,
            earlier=jnp.zeros((self.actions,), dtype),
            air=zero,
            peak=zero,
            phase=jnp.pi * jnp.arange(k, dtype=dtype),
            pace=2 * jnp.pi * self.period * pace,
            push_every=jnp.round(push / self.period),
            noise=self._draw_noise(keys[3]),
            readings=self._sense(state),
        )
        return eqx.tree_at(lambda s: s.task, state, task, is_leaf=lambda x: x is None)

    def _bent(self, key: Array) -> Array | float:
        """Random factors of the joints' angles in which episodes begin."""
        return 1.0

    @abc.abstractmethod
    def first_command(self, key: Key[Array, ""]) -> tuple[Float[Array, "3"], Number]:
        """The command of a new episode, and after how many control steps there is another one."""

    @property
    def _layout(self):
        assert self.scene.layout is not None
        return self.scene.layout

    def _sense(self, state: State) -> dict[str, Array]:
        scene, model = self.scene, self.scene.model
        read = sensors(scene, state.q, state.v, state.controls, names=self.watched)
        height = jnp.stack([frame_placement(model, state.q, f)[1][2] for f in self.feet])
        down = -frame_placement(model, state.q, self.imu)[0][2]
        drag = jnp.stack([read.pop(f"{f}_global_linvel") for f in self.feet])
        touch = jnp.stack([read.pop(f"{f}_floor_found") for f in self.feet]) > 0
        more = {"gravity": down, "foot_height": height, "foot_velocity": drag}
        return {**read, **more, "touch": touch.astype(state.q.dtype)}

    def _draw_noise(self, key: Array) -> Array:
        """Uniform noise of gravity, velocities and joints; none of actions, command and clock."""
        dtype, n = self.start.dtype, self.actions
        sizes = [*3 * [0.1], *3 * [0.2], *3 * [0.05], *n * [0.03], *n * [1.5]]
        return jnp.asarray(sizes, dtype) * jax.random.uniform(key, (9 + 2 * n,), dtype, -1, 1)

    def remember(self, before: State, action: Float[Array, " na"], after: State) -> PyTree:
        """Read the sensors, and count how long feet are in the air and how high they swing."""
        old, read = before.task, self._sense(after)
        touch = read["touch"]
        return JoystickTask(
            command=old.command,
            wait=old.wait - 1,
            earlier=before.action,
            air=(1 - touch) * (old.air + self.period),
            peak=(1 - touch) * jnp.maximum(old.peak, read["foot_height"]),
            phase=jnp.where(before.age > 0, _turned(old.phase + old.pace), old.phase),
            pace=old.pace,
            push_every=old.push_every,
            noise=old.noise,
            readings=read,
        )

    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """Targets of the servos (rad)."""
        return self.stance + self.reach * action

    def _seen(self, state: State, velocity: str, gyro: str) -> tuple[Array, Array]:
        """Velocity, turning rate and gravity, and angles and speeds of the joints, with noise."""
        task = state.task
        read = task.readings
        now = [read[velocity], read[gyro], read["gravity"]]
        seen = jnp.concatenate([*now, state.q[7:] - self.stance, state.v[6:]])
        seen = seen + self.noise * task.noise
        return seen[:9], seen[9:]

    @abc.abstractmethod
    def terms(self, before: State, action: Array, after: State) -> dict[str, Number]:
        """The terms of the reward by their names, not yet scaled."""

    def reward(self, before: State, action: Array, after: State) -> Number:
        """The scaled sum of the terms, for the time of a control step."""
        terms = self.terms(before, action, after)
        return self.period * sum(self.scales[k] * x for k, x in terms.items())

    def _follows(self, after: State, velocity: str, gyro: str) -> dict[str, Number]:
        """The rewards for following the command, and the cost of joints near their limits."""
        read, command = after.task.readings, after.task.command
        off = jnp.sum((command[:2] - read[velocity][:2]) ** 2)
        turned = (command[2] - read[gyro][2]) ** 2
        bent, (low, high) = after.q[7:], self._soft_limits()
        past = jnp.maximum(low - bent, 0) + jnp.maximum(bent - high, 0)
        still = _length(command) < 0.01
        return {
            "tracking_lin_vel": jnp.exp(-off / self.sigma),
            "tracking_ang_vel": jnp.exp(-turned / self.sigma),
            "termination": self.failed(after).astype(bent.dtype),
            "stand_still": jnp.where(still, jnp.sum(jnp.abs(bent - self.stance)), 0),
            "dof_pos_limits": jnp.sum(past),
        }

    @abc.abstractmethod
    def _soft_limits(self) -> tuple[Array, Array]:
        """The angles between which the joints cost nothing (rad)."""

    def _landing(self, before: State, after: State) -> tuple[Array, Array, Array]:
        """Which feet have landed, how long they were in the air (s), and how high (m)."""
        old, read = before.task, after.task.readings
        landed = (old.air > 0) & (read["touch"] > 0)
        high = jnp.maximum(old.peak, read["foot_height"])
        return landed.astype(high.dtype), old.air + self.period, high


def _turned(angle: Array) -> Array:
    """An angle that is less than three half turns, between −π and π."""
    return jnp.fmod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi


class Go1Joystick(FromPlayground):
    """Playground's ``Go1JoystickFlatTerrain``."""

    def first_command(self, key: Key[Array, ""]) -> tuple[Float[Array, "3"], Number]:
        """Any command, for about five seconds."""
        first, second = jax.random.split(key)
        drawn = jax.random.uniform(first, (3,), self.start.dtype, -1, 1)
        return self.fastest * drawn, self._until_next(second)

    def _until_next(self, key: Array) -> Array:
        return jnp.round(5 * jax.random.exponential(key, (), self.start.dtype) / self.period)

    def observe(self, state: State) -> Float[Array, " 48"]:
        """Velocity, turning rate and gravity at the IMU, joints, the last action but one, the
        command."""
        trunk, joints = self._seen(state, "local_linvel", "gyro")
        return jnp.concatenate([trunk, joints, state.task.earlier, state.task.command])

    def _soft_limits(self) -> tuple[Array, Array]:
        model = self.scene.model
        return 0.95 * model.position_lower[7:], 0.95 * model.position_upper[7:]

    def terms(self, before: State, action: Array, after: State) -> dict[str, Number]:
        """The terms of the reward by their names, not yet scaled."""
        read, moves = after.task.readings, _length(after.task.command) > 0.01
        torque = self.scene.torque(after.q, after.v, after.controls)[6:]
        bent = after.q[7:] - self.stance
        drag = read["foot_velocity"][:, :2]
        landed, air, high = self._landing(before, after)
        weights = jnp.tile(jnp.array([1.0, 1.0, 0.1], bent.dtype), 4)
        speed = _length(drag)
        root = jnp.where(speed > 0, jnp.sqrt(jnp.where(speed > 0, speed, 1)), 0)
        return {
            **self._follows(after, "local_linvel", "gyro"),
            "lin_vel_z": read["global_linvel"][2] ** 2,
            "ang_vel_xy": jnp.sum(read["global_angvel"][:2] ** 2),
            "orientation": jnp.sum(read["upvector"][:2] ** 2),
            "pose": jnp.exp(-jnp.sum(weights * bent**2)),
            "torques": _length(torque) + jnp.sum(jnp.abs(torque)),
            "action_rate": jnp.sum((action - before.action) ** 2),
            "energy": jnp.sum(jnp.abs(after.v[6:]) * jnp.abs(torque)),
            "feet_slip": jnp.where(moves, jnp.sum(read["touch"] * jnp.sum(drag**2, axis=1)), 0),
            "feet_clearance": jnp.sum(root * jnp.abs(read["foot_height"] - self.foot_height)),
            "feet_height": jnp.where(
                moves, jnp.sum(landed * (high / self.foot_height - 1) ** 2), 0
            ),
            "feet_air_time": jnp.where(moves, jnp.sum(landed * (air - 0.1)), 0),
        }

    def reward(self, before: State, action: Array, after: State) -> Number:
        """The scaled sum of the terms, for the time of a control step; zero if it is negative."""
        return jnp.maximum(super().reward(before, action, after), 0)

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the trunk is upside down."""
        return state.task.readings["upvector"][2] < 0

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """Noise, and at times another command, of which each part changes, or becomes zero, at
        random."""
        dtype, task = self.start.dtype, state.task
        keys = jax.random.split(key, 5)
        drawn = self.fastest * jax.random.uniform(keys[0], (3,), dtype, -1, 1)
        kept = jax.random.uniform(keys[1], (3,), dtype) < jnp.array([0.9, 0.25, 0.5], dtype)
        changed = jax.random.bernoulli(keys[2], 0.5, (3,))
        new = jnp.where(changed, jnp.where(kept, drawn, 0), task.command)
        now = task.wait <= 0
        later = {
            "command": jnp.where(now & (state.age > 0), new, task.command),
            "wait": jnp.where(now, self._until_next(keys[3]), task.wait),
            "noise": self._draw_noise(keys[4]),
        }
        return _noted(state, later)


_HIPS = ("left_hip_roll", "left_hip_yaw", "right_hip_roll", "right_hip_yaw")
_KNEES = ("left_knee", "right_knee")


class G1Joystick(FromPlayground):
    """Playground's ``G1JoystickFlatTerrain``."""

    hips: tuple[int, ...] = eqx.field(static=True, default=())
    """Hips that roll and yaw, left and right, among the joints."""
    knees: tuple[int, ...] = eqx.field(static=True, default=())

    def _bent(self, key: Array) -> Array | float:
        return jax.random.uniform(key, (self.actions,), self.start.dtype, 0.5, 1.5)

    def first_command(self, key: Key[Array, ""]) -> tuple[Float[Array, "3"], Number]:
        """Any command, or with a probability of a tenth to stand, for ten seconds."""
        first, second = jax.random.split(key)
        drawn = self.fastest * jax.random.uniform(first, (3,), self.start.dtype, -1, 1)
        rests = jax.random.bernoulli(second, 0.1)
        return jnp.where(rests, 0, drawn), jnp.asarray(501.0, self.start.dtype)

    def observe(self, state: State) -> Float[Array, " 103"]:
        """Velocity, turning rate and gravity at the pelvis' IMU, the command, joints, the last
        action but one, cosines and sines of the clock."""
        trunk, joints = self._seen(state, "local_linvel_pelvis", "gyro_pelvis")
        task = state.task
        clock = [jnp.cos(task.phase), jnp.sin(task.phase)]
        return jnp.concatenate([trunk, task.command, joints, task.earlier, *clock])

    def _soft_limits(self) -> tuple[Array, Array]:
        low, high = self.scene.model.position_lower[7:], self.scene.model.position_upper[7:]
        middle, half = (low + high) / 2, 0.95 * (high - low) / 2
        return middle - half, middle + half

    def terms(self, before: State, action: Array, after: State) -> dict[str, Number]:
        """The terms of the reward by their names, not yet scaled."""
        task = after.task
        read, command = task.readings, task.command
        bent = after.q[7:] - self.stance
        landed, air, _ = self._landing(before, after)
        speed, turning = read["global_linvel_pelvis"][:2], read["global_angvel_pelvis"][2]
        upright = jnp.array([0.073, 0.0, 1.0], bent.dtype)
        force = jnp.stack([read[f"{f}_force"][2] for f in self.feet])
        moves = (_length(speed) > 0.1) | (jnp.abs(turning) > 0.1) | (_length(command) > 0.01)
        off = jnp.sum((read["foot_height"] - swing_height(task.phase, self.foot_height)) ** 2)
        # Playground's arrays broadcast: each of the four hips counts with the sum of four weights,
        # of which those of the two that roll are zero for commands to the left.
        weight = jnp.where(command[1] > 0.1, 2, 4)
        hands = read["left_hand_left_thigh_found"] + read["right_hand_right_thigh_found"]
        return {
            **self._follows(after, "local_linvel_pelvis", "gyro_pelvis"),
            "ang_vel_xy": jnp.sum(read["global_angvel_torso"][:2] ** 2),
            "orientation": jnp.sum((read["upvector_torso"] - upright) ** 2),
            "feet_slip": _length(speed) * jnp.sum(read["touch"]),
            "feet_air_time": jnp.sum(jnp.minimum(landed * (air - 0.2), 0.3)),
            "feet_phase": jnp.where(moves, jnp.exp(-off / 0.01), 0),
            "collision": (hands > 0).astype(bent.dtype),
            "contact_force": jnp.sum(jnp.maximum(jnp.abs(force) - 500, 0)),
            "joint_deviation_hip": weight * jnp.sum(jnp.abs(bent[np.array(self.hips)])),
            "joint_deviation_knee": jnp.sum(jnp.abs(bent[np.array(self.knees)])),
            "pose": jnp.sum(bent**2),
        }

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the torso is upside down, or a foot touches the other leg."""
        read = state.task.readings
        legs = sum(
            read[f"{x}_found"]
            for x in ("right_foot_left_foot", "left_foot_right_shin", "right_foot_left_shin")
        )
        return (read["upvector_torso"][2] < 0) | (legs > 0)

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """Noise, a push every five to ten seconds, and another command every ten seconds."""
        dtype, task = self.start.dtype, state.task
        keys = jax.random.split(key, 4)
        angle = jax.random.uniform(keys[0], (), dtype, 0, 2 * jnp.pi)
        size = jax.random.uniform(keys[1], (), dtype, 0.1, 2.0)
        now = jnp.mod(state.age + 1, task.push_every) == 0
        push = jnp.where(now, size, 0) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        layout, v = self._layout, state.v
        kicked = layout.v_from(state.q, layout.v_to(state.q, v).at[:2].add(push))
        command, wait = self.first_command(keys[2])
        over = task.wait <= 0
        later = {
            "command": jnp.where(over, command, task.command),
            "wait": jnp.where(over, wait, task.wait),
            "noise": self._draw_noise(keys[3]),
        }
        state = _noted(state, later)
        return eqx.tree_at(lambda s: s.v, state, jnp.where(now, kicked, v))


def _noted(state: State, later: dict[str, Array]) -> State:
    return eqx.tree_at(
        lambda s: tuple(getattr(s.task, k) for k in later), state, tuple(later.values())
    )


def swing_height(phase: Float[Array, " k"], height: Number) -> Float[Array, " k"]:
    """The height of each foot at its phase (rad, −π to π): up in the first half, then down (m)."""
    x = (phase + jnp.pi) / (2 * jnp.pi)

    def rise(x):
        return x**3 + 3 * x**2 * (1 - x)

    return height * jnp.where(x <= 0.5, rise(2 * x), 1 - rise(2 * x - 1))


def from_playground(
    name: str, dtype=None, path: str | os.PathLike | None = None
) -> Go1Joystick | G1Joystick:
    """Go1 or G1 under the joystick of MuJoCo Playground, with gradients and in batches.

    The robot is that of Playground's file. States, observations, rewards and failures are those of
    Playground after the same actions, but for this:

    - Sensors and places of bodies are read at the end of a step. Playground has them from one
      simulation step before.
    - Contacts are solved to convergence. Playground stops after one to three iterations.
    - Noise and commands come from other random numbers of the same distributions.
    - The observation is that of the policy (``obs["state"]``) alone.
    - Terms of the reward whose scale is zero there are left out. ``terms`` gives the others by
      name, and ``scales`` has their weights.
    - Actions are between −1 and 1.

    Args:
        name: as in Playground: ``"Go1JoystickFlatTerrain"`` or ``"G1JoystickFlatTerrain"``.
        dtype: of the robot; JAX's default precision if None.
        path: of the file of the scene, ``scene_mjx_feetonly_flat_terrain.xml`` in Playground's
            folder of the robot, whose meshes may be absent; that of the installed package if None.

    Raises:
        ImportError: without mujoco, or without Playground if there is no path.
        ValueError: for an unknown name.
        RobotDescriptionError: if there is no such file, or it is not that robot.

    Source: MuJoCo Playground 0.2 (Zakka et al., 2025), ``locomotion/go1`` and ``locomotion/g1``.
    """
    if name not in JOYSTICKS:
        raise ValueError(
            f"from_playground: the name must be one of {sorted(JOYSTICKS)}, got {name!r}"
        )
    spec = JOYSTICKS[name]
    if path is None:
        file = package_folder("mujoco_playground", _MISSING) / "_src" / "locomotion" / spec.file
    else:
        file = Path(path)
    if not file.is_file():
        raise RobotDescriptionError(f"from_playground: there is no file {str(file)!r}")
    scene = load_mjcf(file, dtype, drop_meshes=True)  # meshes are to be seen only
    feet = [f"{f}_{x}" for f in spec.feet for x in ("global_linvel", "floor_found")]
    watched = (*spec.readings, *feet)
    have = () if scene.sensors is None else scene.sensors.names
    layout = scene.layout
    if (
        spec.keyframe not in scene.keyframes
        or set(watched) - set(have)
        or layout is None
        or not np.array_equal(layout.q_places, np.arange(layout.nq))
    ):
        raise RobotDescriptionError(
            f"from_playground: {str(file)!r} is not the scene of {name}: it has no keyframe "
            f"{spec.keyframe!r}, or not its sensors"
        )
    stand = scene.keyframes[spec.keyframe]

    def number(x):
        return jnp.asarray(x, scene.model.dtype)

    shared: dict[str, Any] = {
        "scene": scene,
        "scales": {k: number(x) for k, x in spec.scales.items()},
        "noise": number(1.0),
        "start": stand.q,
        "stance": stand.q[7:],
        "reach": number(0.5),
        "fastest": number(spec.fastest),
        "foot_height": number(spec.foot_height),
        "sigma": number(0.25),
        "feet": spec.feet,
        "imu": spec.imu,
        "watched": watched,
        "substeps": spec.substeps,
    }
    if name.startswith("Go1"):
        return Go1Joystick(**shared)
    joints = [x.removesuffix("_joint") for x in scene.actuators.names]
    hips, knees = (tuple(joints.index(x) for x in group) for group in (_HIPS, _KNEES))
    return G1Joystick(**shared, hips=hips, knees=knees)
