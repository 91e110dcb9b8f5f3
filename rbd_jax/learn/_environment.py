"""Environments: a plant with a task, which a policy learns."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ..contact import Scene
from ..lanes import lanes
from ..simulate import Plant, ScenePlant, State as PlantState, fresh_state
from ._mirror import Mirror


class State(eqx.Module):
    """One robot at the start of a control step. A batch has the same fields with one more axis."""

    q: Float[Array, "*b nq"]
    v: Float[Array, "*b nv"]
    controls: Float[Array, "*b nu"]
    """The controls of the last control step, which still act while the new ones are late."""
    action: Float[Array, "*b na"]
    """The last action of the policy."""
    memory: PyTree
    """The memory of the plant, such as the warm start of a scene or the thrusts of rotors."""
    age: Float[Array, "*b"]
    """Control steps since the episode began."""
    delay: Float[Array, "*b"]
    """Simulation steps after which new controls act, between 0 and ``substeps``."""
    robot: PyTree
    """The randomized parameters of this robot, see :meth:`Environment.plant_of`."""
    task: PyTree
    """The goal of this robot, for example a commanded velocity."""


class Environment(eqx.Module):
    """A task of one robot that a policy learns. The learners map it over a batch of robots.

    The robot may be any plant; :class:`SceneEnvironment` is for scenes. The float arrays of an
    environment are leaves, like those of its plant. The methods of a subclass have to be
    differentiable functions of states and actions.
    """

    plant: eqx.AbstractVar[Plant]
    dt: eqx.AbstractVar[Float[Array, ""]]
    """The time of a simulation step (s)."""
    substeps: eqx.AbstractVar[int]
    """Simulation steps in each control step."""
    episode: eqx.AbstractVar[int]
    """Control steps after which an episode is truncated. Its return ends with the value of the last
    state, as if the episode went on."""
    actions: eqx.AbstractVar[int]
    """The number of actions, each between -1 and 1."""

    @abc.abstractmethod
    def begin(self, key: Key[Array, ""]) -> State:
        """A random state in which an episode begins; see :meth:`state`."""

    @abc.abstractmethod
    def observe(self, state: State) -> Float[Array, " n"]:
        """The observation of the policy. The learners normalize it to unit variance."""

    @abc.abstractmethod
    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """The controls of the plant for an action between -1 and 1."""

    @abc.abstractmethod
    def reward(self, before: State, action: Float[Array, " na"], after: State) -> Float[Array, ""]:
        """The reward of a control step.

        A failure ends all rewards. So the reward should be positive in every state that is better
        than a failure.
        """

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the episode terminates."""
        return jnp.zeros((), bool)

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """Random events between two control steps, such as pushes and new commands."""
        return state

    def plant_of(self, robot: PyTree) -> Plant:
        """The plant of a robot that differs from the others, for domain randomization."""
        return self.plant

    def state(
        self, q: Array, v: Array, controls: Array, robot=None, task=None, delay: Any = 0.0
    ) -> State:
        """A state at the beginning of an episode; without a robot it is that of the environment."""
        zero = jnp.zeros((), q.dtype)
        action = jnp.zeros((self.actions,), q.dtype)
        late = jnp.asarray(delay, q.dtype)
        plant = self.plant if robot is None else self.plant_of(robot)
        memory = fresh_state(plant, q, v, self.dt).memory
        return State(q, v, controls, action, memory, zero, late, robot, task)

    @property
    def mirror(self) -> Mirror | None:
        """The mirror symmetry of the task between left and right; None if it has none.

        If it is given, the networks of the learners are equivariant: the mirror image of an
        observation gives the mirror image of the action.
        """
        return None

    @property
    def period(self) -> Float[Array, ""]:
        """The time of a control step (s)."""
        return self.substeps * self.dt


class SceneEnvironment(Environment):
    """An environment whose plant is a scene, with the time step of the scene."""

    scene: eqx.AbstractVar[Scene]

    @property
    def plant(self) -> Plant:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The scene as a plant."""
        return ScenePlant(self.scene)  # pyright: ignore[reportCallIssue]

    @property
    def dt(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The time step of the scene (s)."""
        return self.scene.dt

    def scene_of(self, robot: PyTree) -> Scene:
        """The scene of a robot that differs from the others, for domain randomization."""
        return self.scene

    def plant_of(self, robot: PyTree) -> Plant:
        """The scene of a robot, as a plant."""
        return ScenePlant(self.scene_of(robot))  # pyright: ignore[reportCallIssue]


def advance(env: Environment, state: State, action: Float[Array, " na"]) -> State:
    """The state one control step later. Its derivatives are the exact ones of the plant's steps."""
    plant, new = env.plant_of(state.robot).prepared(), env.controls(state, action)
    begin = state.age * env.period
    now = PlantState(state.q, state.v, state.memory)

    def substep(now, k):
        u = jnp.where(k < state.delay, state.controls, new)
        return plant.step(begin + k * env.dt, now, u, env.dt), None

    k = jnp.arange(env.substeps, dtype=state.q.dtype)
    now, _ = jax.lax.scan(substep, plant.events(begin, now, env.period), k)
    return dataclasses.replace(
        state, **now._asdict(), controls=new, action=action, age=state.age + 1
    )


def memory_of(env: Environment, state: State, now: PlantState) -> PyTree:
    """The memory of a plant that is not that of the task, as far as the task knows it."""
    known = jax.tree.structure(state.memory) == jax.tree.structure(now.memory)
    return now.memory if known else state.memory


@lanes
def observe(env: Environment, state: State) -> Float[Array, " n"]:
    """:meth:`Environment.observe`, compiled for batches."""
    return env.observe(state)


@lanes
def judge_step(env: Environment, before: State, action: Array, after: State):
    """Reward and failure of a control step. A state that is not finite is a failure."""
    finite = jnp.isfinite(jnp.sum(after.q) + jnp.sum(after.v))
    return env.reward(before, action, after), env.failed(after) | ~finite
