"""A quadruped or a humanoid that follows a commanded velocity."""

import os
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from ...algorithms.kinematics import forward_kinematics, frame_in_body, frame_placement
from ...contact import Scene, load_mjcf
from ...learn import Mirror, Reflection, SceneEnvironment, Settings, State, joint_reflection
from ...model import Model
from ...spatial import so3
from ..robots._mjlab import GO1_LEGS, g1_mjcf, go1_mjcf
from ..robots._quadruped import LEGS, quadruped_mjcf

Number = Float[Array, ""]


class WalkerWeights(eqx.Module):
    """How much each part of the reward counts."""

    alive: float | Number = 3.0
    velocity: float | Number = 1.0
    turning: float | Number = 0.5
    gait: float | Number = 0.3
    """Heights of the feet, which follow the clock."""
    slip: float | Number = 0.15
    sole: float | Number = 0.0
    """Tilt of the feet, for robots with soles."""
    toes: float | Number = 0.0
    """Feet that point to the side of the trunk, for robots with soles."""
    upright: float | Number = 4.0
    height: float | Number = 20.0
    bounce: float | Number = 0.5
    rolling: float | Number = 0.05
    posture: float | Number = 0.15
    smooth: float | Number = 0.03
    effort: float | Number = 2e-4


class WalkerVariation(eqx.Module):
    """Half widths of the random factors by which the robots of a training differ, about one."""

    mass: float | Number = 0.2
    """Mass and inertia of the trunk."""
    friction: float | Number = 0.3
    strength: float | Number = 0.1
    """Gains of the servos."""
    delay: float | Number = 2.0
    """The greatest delay of the controls, in simulation steps."""


class WalkerRobot(eqx.Module):
    """One robot of a training."""

    mass: Float[Array, "*b"]
    friction: Float[Array, "*b"]
    strength: Float[Array, "*b"]


class WalkerTask(eqx.Module):
    """The commanded velocity of one robot and the phase of its gait."""

    command: Float[Array, "*b 3"]
    """Velocity forward and to the left (m/s), turning rate (rad/s)."""
    phase: Float[Array, "*b"]
    """Phase of the gait when the episode begins (turns)."""


def soft(x2: Array) -> Array:
    """``2 x²`` for small x, ``2 |x|`` for large x, from ``x²``."""
    return jnp.sqrt(1 + 4 * x2) - 1


class Walker(SceneEnvironment):
    """A robot with a free trunk, k feet and servos, which follows a commanded velocity.

    The policy sees gravity, velocity and turning rate of the trunk in the trunk's axes, angles and
    speeds of the joints, its last action, the command, and the clock of the gait. Its actions are
    targets of the servos around the standing posture. The reward is smooth: it asks for the
    commanded velocity, a level trunk, and feet that follow the clock.

    Source: the reward is of this library; the clock is that of Siekmann et al., "Sim-to-Real
    Learning of All Common Bipedal Gaits via Periodic Reward Composition" (2021).
    """

    scene: Scene
    weights: WalkerWeights
    variation: WalkerVariation
    lowest: Float[Array, "3"]
    """The least command: forward, left (m/s), turning (rad/s)."""
    highest: Float[Array, "3"]
    stance: Float[Array, " nu"]
    """The controls of the standing posture (rad)."""
    reach: Float[Array, " nu"]
    """How far an action of one moves a target from it (rad)."""
    start: Float[Array, " nq"]
    height: Float[Array, ""]
    """Height of the trunk when it walks (m)."""
    foot_place: Float[Array, "k 3"]
    """The feet in the frames of their bodies (m)."""
    foot_phase: Float[Array, " k"]
    """By how much the clock of each foot is ahead (turns). A foot swings in the first half of its
    turn."""
    foot_radius: Float[Array, ""]
    """Height of a foot's place above the ground when it stands (m)."""
    posture: Float[Array, " nu"]
    """How much each joint counts in the cost of the posture."""
    fall_height: Float[Array, ""]
    """Height of the trunk below which the robot has fallen (m)."""
    lift: Float[Array, ""]
    """How high the feet are lifted (m)."""
    rhythm: Float[Array, ""]
    """Steps of the clock (turns per second)."""
    push_speed: Float[Array, ""]
    """Standard deviation of random changes of the trunk's velocity (m/s)."""
    push_probability: Float[Array, ""]
    """Probability of a random push, and of a new command, in a control step."""
    foot_bodies: tuple[int, ...] = eqx.field(static=True)
    joints: Reflection | None = eqx.field(static=True, default=None)
    """The joints in the mirror, left for right; None if the policy may prefer a side."""
    trunk: int = eqx.field(static=True, default=0)
    substeps: int = eqx.field(static=True, default=4)
    episode: int = eqx.field(static=True, default=500)

    @property
    def actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One action for each servo."""
        return self.scene.nu

    @property
    def mirror(self) -> Mirror | None:
        """The observation and the action of the mirrored robot, half a turn of the clock later."""
        joints = self.joints
        if joints is None:
            return None
        vector, axis = Reflection.vector(), Reflection.axis()
        command, beat = np.array([1.0, -1.0, -1.0]), np.array([-1.0, -1.0])
        parts = vector, vector, axis, joints, joints, joints, command, beat
        return Mirror(Reflection.of(*parts), joints)

    def begin(self, key: Key[Array, ""]) -> State:
        """Near the standing posture, with a random command, clock and robot."""
        keys = jax.random.split(key, 6)
        dtype, model = self.start.dtype, self.scene.model
        bent = 0.1 * jax.random.normal(keys[0], (self.actions,), dtype)
        q = self.start.at[7:].add(bent)
        v = jnp.zeros((model.nv,), dtype)
        v = v.at[3:6].set(0.2 * jax.random.normal(keys[1], (3,), dtype))
        w = self.variation
        wide = jnp.array([w.mass, w.friction, w.strength], dtype)
        mass, friction, strength = 1 + wide * jax.random.uniform(keys[2], (3,), dtype, -1, 1)
        delay = jnp.floor(jax.random.uniform(keys[3], (), dtype, 0, w.delay + 1))
        phase = jax.random.uniform(keys[4], (), dtype)
        task = WalkerTask(self.random_command(keys[5]), phase)
        return self.state(q, v, self.stance, WalkerRobot(mass, friction, strength), task, delay)

    def random_command(self, key: Key[Array, ""]) -> Float[Array, "3"]:
        """A command within the limits."""
        draw = jax.random.uniform(key, (3,), self.lowest.dtype)
        return self.lowest + (self.highest - self.lowest) * draw

    def scene_of(self, robot: WalkerRobot) -> Scene:
        """The scene with the robot's trunk, soles and servos."""

        def leaves(s: Scene):
            a = s.actuators
            return s.model.inertia, s.constraints.contacts.pairs.friction, a.gainprm, a.biasprm

        inertia, friction, gain, bias = leaves(self.scene)
        heavier = inertia.at[self.trunk].multiply(robot.mass)
        new = heavier, robot.friction * friction, robot.strength * gain, robot.strength * bias
        return eqx.tree_at(leaves, self.scene, new)

    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """Targets of the servos (rad)."""
        return self.stance + self.reach * action

    def clock(self, state: State) -> Float[Array, ""]:
        """The clock of the gait (turns)."""
        return state.task.phase + self.rhythm * self.period * state.age

    def observe(self, state: State) -> Float[Array, " n"]:
        """Gravity, velocity and turning rate in the trunk's axes (3 each), angles and speeds of the
        joints and the last action (nu each), the command (3), sine and cosine of the clock (2).
        """
        R = so3.quat_to_matrix(so3.quat_normalize(state.q[3:7]))
        angle = 2 * jnp.pi * self.clock(state)
        beat = jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        bent = state.q[7:] - self.stance
        parts = R[2], state.v[3:6], state.v[:3], bent, state.v[6:], state.action
        return jnp.concatenate([*parts, state.task.command, beat])

    def feet(self, state: State) -> Float[Array, "k 3"]:
        """Places of the feet in the world (m)."""
        return self.foot_poses(state)[1]

    def foot_poses(self, state: State) -> tuple[Float[Array, "k 3 3"], Float[Array, "k 3"]]:
        """Orientations of the bodies of the feet, and places of the feet in the world (m)."""
        R, p = forward_kinematics(self.scene.model, state.q)
        where = np.array(self.foot_bodies)
        return R[where], p[where] + so3.rotate(R[where], self.foot_place)

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """The reward for living, minus the weighted costs of velocity, gait, posture and effort."""
        w, command = self.weights, after.task.command
        R = so3.quat_to_matrix(so3.quat_normalize(after.q[3:7]))
        spin, speed = after.v[:3], after.v[3:6]
        rise = jnp.sum(R[2] * speed)
        off = speed[:2] - command[:2]
        swing = jnp.sin(2 * jnp.pi * (self.clock(after) + self.foot_phase))
        turn, feet = self.foot_poses(after)
        goal = self.lift * jnp.maximum(swing, 0)
        foot = (feet[:, 2] - self.foot_radius - goal) / self.lift
        slip = (feet - self.feet(before))[:, :2] / self.period
        slip = jnp.where(swing < 0, jnp.sum(slip**2, axis=1), 0)
        torque = self.scene.torque(after.q, after.v, after.controls)
        change, bent = action - before.action, after.q[7:] - self.stance
        aside = jnp.sum(turn[:, :, 0] * R[None, :, 1], axis=1)
        cost = (
            w.velocity * soft(4 * jnp.sum(off**2))
            + w.turning * soft((spin[2] - command[2]) ** 2)
            + w.gait * jnp.sum(soft(foot**2))
            + w.slip * jnp.sum(soft(slip))
            + w.sole * jnp.sum(turn[:, 2, :2] ** 2)
            + w.toes * jnp.sum(aside**2)
            + w.upright * jnp.sum(R[2, :2] ** 2)
            + w.height * (after.q[2] - self.height) ** 2
            + w.bounce * rise**2
            + w.rolling * jnp.sum(spin[:2] ** 2)
            + w.posture * jnp.sum(self.posture * bent**2)
            + w.smooth * jnp.sum(change**2)
            + w.effort * jnp.sum(torque**2)
        )
        return w.alive - cost

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the trunk is too low, or tilted by more than 60 degrees."""
        up = so3.quat_to_matrix(so3.quat_normalize(state.q[3:7]))[2, 2]
        return (state.q[2] < self.fall_height) | (up < 0.5)

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """Now and then a push that changes the trunk's velocity, and a new command."""
        now, push, new = jax.random.split(key, 3)
        chance = jax.random.uniform(now, (2,))
        kick = self.push_speed * jax.random.normal(push, (2,), state.v.dtype)
        v = jnp.where(chance[0] < self.push_probability, state.v.at[3:5].add(kick), state.v)
        command = jnp.where(
            chance[1] < self.push_probability, self.random_command(new), state.task.command
        )
        return eqx.tree_at(lambda s: (s.v, s.task.command), state, (v, command))


def walker(
    scene: Scene,
    feet: Sequence[str],
    *,
    foot_radius: float,
    height: float,
    phases: Sequence[float] = (0.0, 0.5, 0.5, 0.0),
    reach: Sequence[float] = (0.25, 0.5, 0.6),
    posture: Sequence[float] = (1.0, 0.2, 0.1),
    lift: float = 0.08,
    rhythm: float = 2.0,
    lowest: Sequence[float] = (0.0, -0.3, -0.6),
    highest: Sequence[float] = (1.0, 0.3, 0.6),
    push_speed: float = 0.4,
    fall: float = 0.55,
    weights: WalkerWeights | None = None,
    variation: WalkerVariation | None = None,
    mirrored: bool = False,
) -> Walker:
    """The walking task of a robot on legs with a servo at each joint.

    The defaults are the trot of a quadruped of 10 to 15 kg, with three joints a leg and the feet
    front right, front left, rear right and rear left.

    Args:
        scene: a scene with a free trunk, one servo a joint in the order of the joints, and a
            keyframe of the standing posture.
        feet: frames (sites) of the feet.
        foot_radius: height of the frames of the feet above the ground when they stand (m).
        height: of the trunk's origin when it walks (m).
        phases: by how much the clock of each foot is ahead (turns).
        reach: how far an action of one moves the target of each servo (rad). Fewer numbers than
            servos are those of one leg, and are repeated.
        posture: how much each joint counts in the cost of the posture, in the same way.
        lift: how high feet are lifted (m).
        rhythm: turns of the gait's clock per second.
        lowest: least command: forward and left (m/s), turning (rad/s). highest: the greatest.
        push_speed: standard deviation of random changes of the trunk's velocity (m/s).
        fall: share of ``height`` below which the robot has fallen.
        weights: of the reward. variation: of the robots.
        mirrored: whether the policy acts alike on both sides. It takes a robot whose sides mirror
            each other in build and posture, and a gait whose sides are half a turn apart.

    Raises:
        ValueError: if the scene is not such a robot, or if it is not its own mirror image, or its
            gait not that of its image half a turn later, although ``mirrored`` is true.
    """
    model, dtype, n = scene.model, scene.model.dtype, scene.nu
    if model.nq != n + 7 or model.nv != n + 6 or not scene.keyframes:
        raise ValueError(
            "walker: expected a free trunk, a servo for each of its joints and a keyframe, got "
            f"nq={model.nq}, nv={model.nv}, {n} actuators and {len(scene.keyframes)} keyframes"
        )
    if len(phases) != len(feet):
        raise ValueError(f"walker: {len(feet)} feet need as many phases, got {len(phases)}")
    for name, given in ("reach", reach), ("posture", posture):
        if not len(given) or n % len(given):
            raise ValueError(
                f"walker: {name} has {len(given)} entries, which do not divide {n} servos"
            )
    stand = next(iter(scene.keyframes.values()))
    places = [frame_in_body(model, f) for f in feet]

    joints = None
    if mirrored:
        joints = mirrored_joints(model, stand.q[7:], "walker")
        _check_mirrored_gait([frame_placement(model, stand.q, f)[1] for f in feet], phases)

    def array(x):
        return jnp.asarray(np.asarray(x, float), dtype)

    numbers: dict[str, Any] = {
        "foot_radius": foot_radius,
        "foot_phase": phases,
        "height": height,
        "fall_height": fall * height,
        "reach": np.resize(reach, n),
        "posture": np.resize(posture, n),
        "lift": lift,
        "rhythm": rhythm,
        "lowest": lowest,
        "highest": highest,
        "push_speed": push_speed,
        "push_probability": 0.005,
    }
    leaves: dict[str, Any] = {k: array(x) for k, x in numbers.items()}
    return Walker(
        scene=scene,
        weights=jax.tree.map(array, weights or WalkerWeights()),
        variation=jax.tree.map(array, variation or WalkerVariation()),
        stance=stand.controls,
        start=stand.q,
        foot_place=jnp.stack([pose[1] for _, pose in places]),
        foot_bodies=tuple(int(b) for b, _ in places),
        joints=joints,
        **leaves,
    )


def mirrored_joints(model: Model, stance: Float[Array, " nu"], who: str) -> Reflection:
    """The joints behind a free trunk in the mirror, where the posture (rad) has to be the same.

    ``who`` names the function in the error.
    """
    order, sign = joint_reflection(model)
    joints = Reflection(tuple(k - 6 for k in order[6:]), sign[6:])
    if float(jnp.max(jnp.abs(joints(stance) - stance))) > 1e-3:
        raise ValueError(
            f"{who}: the standing posture is not the same on both sides; use mirrored=False"
        )
    return joints


def _check_mirrored_gait(places: Sequence[Array], phases: Sequence[float]) -> None:
    """Refuse feet without a mirror image, and phases that are not half a turn from their image's.

    The policy sees the clock half a turn later in the mirror, so that each foot has to do then what
    its image did before.
    """
    p = np.asarray(places, float)
    apart = np.linalg.norm(p[:, None] * [1, -1, 1] - p, axis=-1)
    image = np.argmin(apart, axis=1)
    ahead = np.asarray(phases, float)
    off = np.mod(ahead - ahead[image] + 0.5, 1.0)
    if apart.min(axis=1).max() > 0.02 or np.minimum(off, 1 - off).max() > 1e-3:
        raise ValueError(
            f"walker: with mirrored=True each foot is half a turn ahead of the one on the other "
            f"side, got the phases {tuple(map(float, phases))}; use mirrored=False"
        )


def quadruped(dtype=None, **options) -> Walker:
    """The walking task of the quadruped of this package; options as for :func:`walker`."""
    feet = [f"{leg}_foot" for leg in LEGS]
    numbers: dict[str, Any] = {"foot_radius": 0.022, "height": 0.3} | options
    return walker(load_mjcf(quadruped_mjcf(), dtype), feet, **numbers)


def go1(dtype=None, path: str | os.PathLike | None = None, **options) -> Walker:
    """The walking task of Unitree's Go1; path as :func:`go1_mjcf`, options as :func:`walker`."""
    numbers: dict[str, Any] = {"foot_radius": 0.023, "height": 0.27} | options
    return walker(load_mjcf(go1_mjcf(path), dtype), GO1_LEGS, **numbers)


G1_WALK = Settings(updates=600, hidden=(256, 128), average=0.98)
"""Settings of :func:`shac` with which :func:`g1` learns to walk."""

_G1_JOINTS = {
    "hip_pitch": (0.8, 0.05),
    "hip_roll": (0.4, 0.6),
    "hip_yaw": (0.4, 1.5),
    "knee": (0.9, 0.05),
    "ankle_pitch": (0.7, 0.05),
    "ankle_roll": (0.4, 0.3),
    "waist_yaw": (0.3, 2.0),
    "waist_roll": (0.3, 2.0),
    "waist_pitch": (0.3, 2.0),
    "shoulder_pitch": (0.6, 1.0),
    "shoulder_roll": (0.3, 2.0),
    "shoulder_yaw": (0.3, 2.0),
    "elbow": (0.4, 1.0),
    "wrist_roll": (0.2, 2.0),
    "wrist_pitch": (0.2, 2.0),
    "wrist_yaw": (0.2, 2.0),
}
"""Reach (rad) and weight of the posture of G1's joints, left and right."""


def g1(dtype=None, path: str | os.PathLike | None = None, **options) -> Walker:
    """The walking task of Unitree's humanoid G1 with 29 servos, which acts alike on both sides.

    The path is that of :func:`g1_mjcf`, options are those of :func:`walker`. Its learner is
    :func:`shac` with the settings :data:`G1_WALK`.
    """
    scene = load_mjcf(g1_mjcf(path), dtype)
    joints = [name.removeprefix("left_").removeprefix("right_") for name in scene.actuators.names]
    reach, posture = zip(*(_G1_JOINTS[name] for name in joints), strict=True)
    numbers: dict[str, Any] = {
        "phases": (0.0, 0.5),
        "foot_radius": -0.002,
        "height": 0.74,
        "reach": reach,
        "posture": posture,
        "lift": 0.09,
        "rhythm": 1.4,
        "lowest": (-0.2, -0.3, -0.6),
        "fall": 0.7,
        "weights": WalkerWeights(
            alive=4.0, velocity=1.5, gait=1.5, slip=0.3, sole=0.5, toes=0.5, effort=2e-5
        ),
        "mirrored": True,
    }
    return walker(scene, ("right_foot", "left_foot"), **(numbers | options))
