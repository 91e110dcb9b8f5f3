"""A quadruped that stands up from where it lies, and keeps standing when it is pushed."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from ...contact import Scene
from ...learn import (
    Mirror,
    Reflection,
    SceneEnvironment,
    Settings,
    State,
)
from ...simulate import ScenePlant
from ...spatial import so3
from ..problems._scene import lying, near_stance, stand_up
from ..problems._task import Task
from ._walker import mirrored_joints, soft

Number = Float[Array, ""]

STAND_UP = Settings(robots=128, updates=1500, average=0.99)
"""Settings of :func:`shac` with which a :class:`Stander` learns. Its updates are noisy, so give
:func:`shac` a :func:`stand_judge` too."""


class StanderWeights(eqx.Module):
    """How much each part of the reward of a :class:`Stander` counts."""

    alive: float | Number = 6.0
    upright: float | Number = 4.0
    """One minus the cosine of the tilt: it has a slope wherever the trunk does not lie upside
    down."""
    level: float | Number = 1.0
    """The sine of the tilt, for the last degrees."""
    height: float | Number = 1.0
    posture: float | Number = 0.1
    stance: float | Number = 3.0
    """A bonus that grows as the robot nears the standing posture, at its height and at rest. It
    tells a robot that stands on a wrongly bent leg to set that foot down again."""
    still: float | Number = 0.02
    """Velocity and turning rate of the trunk."""
    calm: float | Number = 3e-3
    """Speeds of the joints."""
    smooth: float | Number = 0.05
    saturation: float | Number = 0.02
    """A barrier ``−log(1 − a²)`` of the actions. A policy has no slope where its action is one, so
    that a leg which it once folded would stay folded."""
    effort: float | Number = 1e-5


class Stander(SceneEnvironment):
    """A quadruped with servos that stands up from where it lies, and withstands pushes.

    The policy sees gravity in the trunk's axes, the trunk's height, its velocity and turning rate
    in its own axes, angles and speeds of the joints, and its last action. Its actions are targets
    of the servos around the standing posture, within the limits of the joints. The reward is
    smooth: it asks for an upright trunk at its height, the standing posture, and rest. No episode
    fails, because a robot that has fallen is to stand up again.

    Source: the reward is of this library. The learner is that of Xu et al., "Accelerated Policy
    Learning with Parallel Differentiable Simulation" (2022), see :func:`shac`.
    """

    scene: Scene
    weights: StanderWeights
    start: Float[Array, " nq"]
    """The standing configuration."""
    fallen_q: Float[Array, "n nq"]
    """The states on the ground in which episodes begin."""
    fallen_v: Float[Array, "n nv"]
    standing: Float[Array, ""]
    """The share of the episodes that begin near the standing posture."""
    reach: Float[Array, " nu"]
    """How far an action of one moves a target from the standing posture (rad), if limits permit."""
    push_speed: Float[Array, ""]
    """The greatest of the random changes of the trunk's horizontal velocity (m/s)."""
    push_probability: Float[Array, ""]
    """Probability of such a change in a control step."""
    joints: Reflection | None = eqx.field(static=True)
    """The twelve joints in the mirror, left for right; None if the sides differ."""
    substeps: int = eqx.field(static=True, default=2)
    episode: int = eqx.field(static=True, default=150)
    actions: int = eqx.field(static=True, default=12)

    def begin(self, key: Key[Array, ""]) -> State:
        """One of the states on the ground, or near the standing posture and at rest."""
        which, stands, bent = jax.random.split(key, 3)
        k = jax.random.randint(which, (), 0, self.fallen_q.shape[0])
        angles = 0.1 * jax.random.normal(bent, (self.actions,), self.start.dtype)
        up = jax.random.uniform(stands, (), self.start.dtype) < self.standing
        q = jnp.where(up, self.start.at[7:].add(angles), self.fallen_q[k])
        v = jnp.where(up, 0, self.fallen_v[k])
        return self.state(q, v, q[7:])

    def observe(self, state: State) -> Float[Array, "46"]:
        """Gravity in the trunk's axes (3), height, velocity and turning rate (3 each), angles and
        speeds of the joints and the last action (12 each).
        """
        R = so3.quat_to_matrix(so3.quat_normalize(state.q[3:7]))
        bent = state.q[7:] - self.start[7:]
        parts = R[2], state.q[2:3], state.v[3:6], state.v[:3], bent, state.v[6:], state.action
        return jnp.concatenate(parts)

    @property
    def mirror(self) -> Mirror | None:
        """The observation and the action of the mirrored robot."""
        joints = self.joints
        if joints is None:
            return None
        vector, axis = Reflection.vector(), Reflection.axis()
        parts = vector, np.ones(1), vector, axis, joints, joints, joints
        return Mirror(Reflection.of(*parts), joints)

    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """Targets of the servos (rad): one and minus one are the ends of the reach, or limits."""
        return self.start[7:] + jnp.where(action > 0, *self.reaches) * action

    @property
    def reaches(self) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
        """How far targets move up and down from the standing posture, within the limits (rad)."""
        stance, m = self.start[7:], self.scene.model
        up, down = m.position_upper[7:] - stance, stance - m.position_lower[7:]
        return jnp.minimum(self.reach, up), jnp.minimum(self.reach, down)

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """The rewards for living and for the standing posture, minus the weighted costs."""
        w = self.weights
        up = so3.quat_to_matrix(so3.quat_normalize(after.q[3:7]))[2]
        bent, low = after.q[7:] - self.start[7:], after.q[2] - self.start[2]
        torque = self.scene.torque(after.q, after.v, after.controls)
        cost = (
            w.upright * (1 - up[2])
            + w.level * soft(up[0] ** 2 + up[1] ** 2)
            + w.height * soft(16 * low**2)
            + w.posture * jnp.sum(soft(bent**2))
            + w.still * jnp.sum(soft(after.v[:6] ** 2))
            + w.calm * jnp.sum(after.v[6:] ** 2)
            + w.smooth * jnp.sum((action - before.action) ** 2)
            - w.saturation * jnp.sum(jnp.log1p(-(action**2) / 1.0001))
            + w.effort * jnp.sum(torque**2)
        )
        at_height = jnp.exp(-64 * low**2 - 4 * (1 - up[2]))
        bonus = w.stance * at_height / (1 + 4 * jnp.sum(bent**2) + 0.5 * jnp.sum(after.v**2))
        return w.alive + bonus - cost

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """Now and then the trunk's velocity changes in a random horizontal direction."""
        now, way, size = jax.random.split(key, 3)
        dtype = state.v.dtype
        angle = jax.random.uniform(way, (), dtype, 0, 2 * np.pi)
        way = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])
        kick = self.push_speed * jax.random.uniform(size, (), dtype) * way
        R = so3.quat_to_matrix(so3.quat_normalize(state.q[3:7]))
        pushed = state.v.at[3:6].add(so3.rotate_inverse(R, kick))
        v = jnp.where(jax.random.uniform(now, (), dtype) < self.push_probability, pushed, state.v)
        return eqx.tree_at(lambda s: s.v, state, v)

    def stands(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Bool[Array, ""]:
        """The judgment of :func:`rbd_jax.tasks.stands`."""
        return near_stance(self.start, q, v)


def stander(
    dtype=None,
    task: Task | None = None,
    *,
    fallen: int = 512,
    seed: int = 7,
    standing: float = 0.3,
    reach: Sequence[float] = (0.8, 1.2, 1.4),
    push_speed: float = 2.0,
    push_probability: float = 0.02,
    weights: StanderWeights | None = None,
    mirrored: bool = True,
) -> Stander:
    """The task to stand up and to withstand pushes, of a quadruped with twelve servos.

    Args:
        dtype: of the sample quadruped.
        task: made by :func:`rbd_jax.tasks.stand_up`, for another quadruped.
        fallen: number of states on the ground, of :func:`rbd_jax.tasks.lying`.
        seed: of their random keys.
        standing: share of the episodes that begin near the standing posture.
        reach: how far an action of one moves the three targets of a leg (rad).
        push_speed: greatest random change of the trunk's horizontal velocity (m/s).
        push_probability: probability of such a change per control step (20 ms).
        weights: of the reward.
        mirrored: whether the policy acts alike on both sides. Take False for a robot whose sides
            or whose standing posture differ.

    Raises:
        ValueError: if the robot of the task is not such a quadruped, or if its right side does not
            mirror its left in build and posture although ``mirrored`` is true.
    """
    task = stand_up(dtype=dtype) if task is None else task
    problem, model = task.problem, task.problem.model
    if not isinstance(problem.plant, ScenePlant) or model.nq != 19 or problem.controls != 12:
        raise ValueError(
            f"stander: expected a free trunk with 12 joints and servos in a scene, got a "
            f"{type(problem.plant).__name__} with nq={model.nq} and {problem.controls} controls"
        )
    scene = problem.plant.scene
    keys = jax.random.split(jax.random.key(seed), fallen)
    q, v = jax.jit(jax.vmap(lying, (None, 0)))(task, keys)

    joints = mirrored_joints(model, task.q0[7:], "stander") if mirrored else None

    def array(x):
        return jnp.asarray(np.asarray(x, float), model.dtype)

    return Stander(  # pyright: ignore[reportCallIssue]
        scene=scene,
        weights=jax.tree.map(array, weights or StanderWeights()),
        start=task.q0,
        fallen_q=q,
        fallen_v=v,
        standing=array(standing),
        reach=array(list(reach) * 4),
        push_speed=array(push_speed),
        push_probability=array(push_probability),
        joints=joints,
    )
