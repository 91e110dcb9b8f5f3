"""Environments: a scene with a task, which a policy learns."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ..contact import Scene, constants, scene_step
from ..lanes import lanes
from ._mirror import Mirror


class State(eqx.Module):
    """One robot at the start of a control step. A batch has the same fields with one more axis."""

    q: Float[Array, "*b nq"]
    v: Float[Array, "*b nv"]
    controls: Float[Array, "*b nu"]
    """The controls of the last control step, which still act while the new ones are late."""
    action: Float[Array, "*b na"]
    """The last action of the policy."""
    warmstart: Float[Array, "*b nv"]
    """Accelerations of the last step, where the solver of contact starts."""
    age: Float[Array, "*b"]
    """Control steps since the episode began."""
    delay: Float[Array, "*b"]
    """Simulation steps after which new controls act, between 0 and ``substeps``."""
    robot: PyTree
    """The randomized parameters of this robot, see :meth:`Environment.scene_of`."""
    task: PyTree
    """The goal of this robot, for example a commanded velocity."""


class Environment(eqx.Module):
    """A task of one robot that a policy learns. The learners map it over a batch of robots.

    The float arrays of an environment are leaves, like the float arrays of its scene. The methods
    of a subclass have to be differentiable functions of states and actions.
    """

    scene: eqx.AbstractVar[Scene]
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
        """The controls of the actuators for an action between -1 and 1."""

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

    def scene_of(self, robot: PyTree) -> Scene:
        """The scene of a robot that differs from the others, for domain randomization."""
        return self.scene

    def state(
        self, q: Array, v: Array, controls: Array, robot=None, task=None, delay: Any = 0.0
    ) -> State:
        """A state at the beginning of an episode."""
        zero = jnp.zeros((), q.dtype)
        action = jnp.zeros((self.actions,), q.dtype)
        late = jnp.asarray(delay, q.dtype)
        return State(q, v, controls, action, jnp.zeros_like(v), zero, late, robot, task)

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
        return self.substeps * self.scene.dt


def advance(env: Environment, state: State, action: Float[Array, " na"]) -> State:
    """The state one control step later. Its derivatives are the exact ones of the scene's steps."""
    scene, new = env.scene_of(state.robot), env.controls(state, action)
    fixed = constants(scene)

    def substep(now, k):
        q, v, warmstart = now
        u = jnp.where(k < state.delay, state.controls, new)
        end = scene_step(scene, q, v, u, warmstart=warmstart, constants=fixed)
        return (end.q, end.v, end.a), None

    k = jnp.arange(env.substeps, dtype=state.q.dtype)
    (q, v, warmstart), _ = jax.lax.scan(substep, (state.q, state.v, state.warmstart), k)
    return dataclasses.replace(
        state, q=q, v=v, warmstart=warmstart, controls=new, action=action, age=state.age + 1
    )


@lanes
def observe(env: Environment, state: State) -> Float[Array, " n"]:
    """:meth:`Environment.observe`, compiled for batches."""
    return env.observe(state)


@lanes
def judge_step(env: Environment, before: State, action: Array, after: State):
    """Reward and failure of a control step. A state that is not finite is a failure."""
    finite = jnp.isfinite(jnp.sum(after.q) + jnp.sum(after.v))
    return env.reward(before, action, after), env.failed(after) | ~finite
