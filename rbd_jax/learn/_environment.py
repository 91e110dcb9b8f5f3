"""Environments: a plant with a task, which a policy learns."""

import abc
import dataclasses
from typing import Any, NamedTuple

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
    """The goal of this robot, for example a commanded velocity, and what the task has noted, see
    :meth:`Environment.remember`."""


class Transition(NamedTuple):
    """What a control step leads to."""

    state: State
    """The state after the step, or that of a new episode if this one has ended."""
    observation: Float[Array, " n"]
    """The observation of ``state``. Numbers that are not finite are zero."""
    reward: Float[Array, ""]
    """The reward of the step; zero if it is not finite."""
    terminated: Bool[Array, ""]
    """Whether the episode has ended by a failure, after which there are no rewards."""
    truncated: Bool[Array, ""]
    """Whether the episode has ended by its length alone. Its last state has a value."""
    final_observation: Float[Array, " n"]
    """The observation of the state that the step led to, before a new episode and before
    :meth:`Environment.disturb`: what the value of the last state is a function of. Numbers that are
    not finite are zero."""


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

    def remember(self, before: State, action: Float[Array, " na"], after: State) -> PyTree:
        """The new ``state.task`` after a control step, of a task that counts or measures something.

        It sees the same states as :meth:`reward`, and is called before it: ``before.task`` is what
        was known before the step, ``after.task`` is what this method returns. Structure, shapes and
        dtypes stay the same.
        """
        return after.task

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

    def reset(self, key: Key[Array, ""]) -> tuple[State, Float[Array, " n"]]:
        """A state in which an episode begins, and its observation. Map it over keys for a batch."""
        first, second = jax.random.split(key)
        state = self.disturb(self.begin(first), second)
        return state, observe(self, state)

    def transition(
        self, state: State, action: Float[Array, " na"], key: Key[Array, ""]
    ) -> Transition:
        """One control step of one robot, which stays where it is when its episode ends.

        Args:
            state: the state at the start of the step.
            action: between -1 and 1.
            key: for :meth:`disturb`, which acts after the reward was given.
        """
        after = advance(self, state, action)
        reward, terminated = judge_step(self, state, action, after)
        seen = _finite(observe(self, after))
        truncated = (after.age >= self.episode) & ~terminated
        reward, last = _finite(reward), seen
        if _disturbs(self):
            after = self.disturb(after, key)
            seen = _finite(observe(self, after))
        return Transition(after, seen, reward, terminated, truncated, last)

    def step(self, state: State, action: Float[Array, " na"], key: Key[Array, ""]) -> Transition:
        """One control step of one robot, and a new episode where one ends.

        Arguments as :meth:`transition`. Both are differentiable, and ``jax.vmap`` maps them over a
        batch of robots.
        """
        moves, begins = jax.random.split(key)
        t = self.transition(state, action, moves)
        fresh = self.reset(begins)
        ended = t.terminated | t.truncated
        new = jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, (t.state, t.observation))
        return t._replace(state=new[0], observation=new[1])

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


class Wrapper(Environment):
    """An environment that is another one but for what a subclass changes.

    Its methods are those of ``env``. A subclass overrides, for example, ``observe`` or ``reward``
    and asks ``self.env`` for the rest. Wrappers of wrappers, learners and adapters take it as any
    environment.
    """

    env: Environment
    """The environment that is changed."""

    @property
    def plant(self) -> Plant:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See :attr:`Environment.plant`."""
        return self.env.plant

    @property
    def dt(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See :attr:`Environment.dt`."""
        return self.env.dt

    @property
    def substeps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See :attr:`Environment.substeps`."""
        return self.env.substeps

    @property
    def episode(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See :attr:`Environment.episode`."""
        return self.env.episode

    @property
    def actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See :attr:`Environment.actions`."""
        return self.env.actions

    def begin(self, key: Key[Array, ""]) -> State:
        """See :meth:`Environment.begin`."""
        return self.env.begin(key)

    def observe(self, state: State) -> Float[Array, " n"]:
        """See :meth:`Environment.observe`."""
        return self.env.observe(state)

    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """See :meth:`Environment.controls`."""
        return self.env.controls(state, action)

    def reward(self, before: State, action: Float[Array, " na"], after: State) -> Float[Array, ""]:
        """See :meth:`Environment.reward`."""
        return self.env.reward(before, action, after)

    def failed(self, state: State) -> Bool[Array, ""]:
        """See :meth:`Environment.failed`."""
        return self.env.failed(state)

    def remember(self, before: State, action: Float[Array, " na"], after: State) -> PyTree:
        """See :meth:`Environment.remember`."""
        return self.env.remember(before, action, after)

    def disturb(self, state: State, key: Key[Array, ""]) -> State:
        """See :meth:`Environment.disturb`."""
        return self.env.disturb(state, key)

    def plant_of(self, robot: PyTree) -> Plant:
        """See :meth:`Environment.plant_of`."""
        return self.env.plant_of(robot)

    @property
    def mirror(self) -> Mirror | None:
        """See :attr:`Environment.mirror`."""
        return self.env.mirror


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, 0)


def _disturbs(env: Environment) -> bool:
    """Whether an environment has random events of its own between two steps."""
    while isinstance(env, Wrapper) and type(env).disturb is Wrapper.disturb:
        env = env.env
    return type(env).disturb is not Environment.disturb


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
    return stepped(env, state, action, new, now)


def stepped(
    env: Environment, state: State, action: Array, controls: Array, now: PlantState
) -> State:
    """The state after a control step that brought the plant to ``now``."""
    new = {**now._asdict(), "controls": controls, "action": action}
    after = dataclasses.replace(state, **new, age=state.age + 1)
    return dataclasses.replace(after, task=env.remember(state, action, after))


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
