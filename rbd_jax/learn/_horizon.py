"""Differentiable rollouts of a batch of robots under a policy, and their returns."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ._environment import Environment, State, advance, judge_step, observe
from ._mirror import Mirror
from ._networks import Normalizer, Policy


class Record(NamedTuple):
    """The record of a rollout, for each of T control steps and each of N robots."""

    observation: Float[Array, "T N n"]
    reward: Float[Array, "T N"]
    value: Float[Array, "T N"]
    """The value of the state that each step leads to, before any new episode begins."""
    failed: Bool[Array, "T N"]
    ended: Bool[Array, "T N"]
    """Whether a new episode begins after this step, because of a failure or of its length."""
    age: Float[Array, "T N"]
    """Control steps of the episode at the end of this step."""


def select(which: Bool[Array, " N"], a: State, b: State) -> State:
    """Robot by robot, ``a`` where ``which`` holds and ``b`` elsewhere."""

    def one(x, y):
        return jnp.where(which.reshape(-1, *[1] * (x.ndim - 1)), x, y)

    return jax.tree.map(one, a, b)


@jax.custom_vjp
def clip_gradient(state: State, limit: Float[Array, ""]) -> State:
    """The state itself; its gradient is made at most ``limit`` long, robot by robot.

    Stiff contact can make the gradient of a robot longer by orders of magnitude. In a mean over the
    batch it would drown all others. A gradient that is not finite counts as zero.

    Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks"
    (2013), clipping of the norm, here of each robot and at each control step.
    """
    del limit
    return state


def _clip_forward(state, limit):
    return state, limit


def _clip_backward(limit, slope):
    moving = [x for x in jax.tree.leaves(slope) if jnp.issubdtype(x.dtype, jnp.inexact)]
    size = jnp.sqrt(sum(jnp.sum(x.reshape(len(x), -1) ** 2, axis=1) for x in moving))
    finite = jnp.isfinite(size)
    scale = jnp.minimum(1, limit / jnp.where(finite & (size > 0), size, limit))

    def shorter(x):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        per_robot = (-1, *[1] * (x.ndim - 1))
        return jnp.where(finite.reshape(per_robot), scale.reshape(per_robot) * x, 0)

    return jax.tree.map(shorter, slope), jnp.zeros_like(limit)


clip_gradient.defvjp(_clip_forward, _clip_backward)


def rollout_return(
    env: Environment,
    policy: Policy,
    value: Callable[[Array], Array],
    states: State,
    key: Key[Array, ""],
    steps: int,
    discount: float,
    state_clip: float = math.inf,
) -> tuple[Float[Array, ""], State, Record]:
    """The mean discounted return per control step of a batch over a horizon.

    Source: Xu et al., "Accelerated Policy Learning with Parallel Differentiable Simulation"
    (2022), equation (4): rewards until the horizon or until a new episode begins, then the value
    of the last state. A failure has no value.

    Args:
        env: the task.
        policy: the policy. Its noise is drawn from ``key``.
        value: the value function of a normalized observation.
        states: the first states of the robots, (N, …).
        key: random key of noise, disturbances and new episodes.
        steps: number of control steps of the horizon.
        discount: discount factor of a control step.
        state_clip: greatest norm of the gradient of a robot's return by its state; at each control
            step, longer ones are shortened. Infinity leaves the gradient exact.

    Returns:
        The mean return, the states at the end, and the record of all steps.
    """
    size = states.age.shape[0]

    def look(state):
        return jax.vmap(observe, (None, 0))(env, state)

    def control_step(carry, x):
        state, weight, total = carry
        key, last = x
        noise_key, push_key, begin_key = jax.random.split(key, 3)
        if state_clip < math.inf:  # the total is a mean over robots and steps
            state = clip_gradient(state, jnp.asarray(state_clip / (size * steps), state.q.dtype))
        state = jax.vmap(env.disturb)(state, jax.random.split(push_key, size))
        observation = look(state)
        noise = jax.random.normal(noise_key, (size, env.actions), observation.dtype)
        action = jax.vmap(policy.sample)(observation, noise)
        after = jax.vmap(advance, (None, 0, 0))(env, state, action)
        reward, failed = jax.vmap(judge_step, (None, 0, 0, 0))(env, state, action, after)
        ended = failed | (after.age >= env.episode)
        reward = jnp.where(jnp.isfinite(reward), reward, 0)
        future = jax.vmap(lambda x: value(policy.normalizer(x)))(look(after))
        future = jnp.where(failed, 0, future)
        total = total + weight * reward
        later = discount * weight
        total = total + jnp.where(ended | last, later * future, 0)
        record = Record(observation, reward, future, failed, ended, after.age)
        fresh = jax.vmap(env.begin)(jax.random.split(begin_key, size))
        after = select(ended, fresh, after)
        return (after, jnp.where(ended, 1, later), total), record

    keys = jax.random.split(key, steps)
    last = jnp.arange(steps) == steps - 1
    one = jnp.ones((size,), states.q.dtype)
    (states, _, total), record = jax.lax.scan(control_step, (states, one, 0 * one), (keys, last))
    return jnp.mean(total) / steps, states, record


def value_targets(record: Record, discount: float, trace: float) -> Float[Array, "T N"]:
    """TD(λ) targets of the value function.

    Source: Xu et al. (2022), equations (7) and (8), as the usual recursion from the last step back.
    """

    def back(target, row):
        reward, value, ended = row
        mixed = jnp.where(ended, value, (1 - trace) * value + trace * target)
        target = reward + discount * mixed
        return target, target

    rows = record.reward, record.value, record.ended
    return jax.lax.scan(back, record.value[-1], rows, reverse=True)[1]


def mixed_ages(states: State, episode: int, key: Key[Array, ""]) -> State:
    """The states with random ages, so that episodes of a batch do not end together."""
    ages = jax.random.uniform(key, states.age.shape, states.age.dtype, 0, episode)
    return dataclasses.replace(states, age=jnp.floor(ages))


def remembered(normalizer: Normalizer, record: Record, mirror: Mirror | None) -> Normalizer:
    """The normalizer updated with the observations of a record and with their mirror images.

    So normalization commutes with the mirror.
    """
    x = record.observation.reshape(-1, record.observation.shape[-1])
    return normalizer.after(x if mirror is None else jnp.concatenate([x, mirror.observation(x)]))
