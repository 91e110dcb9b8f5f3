"""Environments as those of Brax."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from ._adapters import bounded, check, needed, observation_size, typed
from ._environment import Environment


def as_brax(env: Environment) -> Any:
    """The environment as a ``brax.envs.Env``, for Brax's wrappers and learners.

    ``done`` says that the episode has failed. Brax's ``EpisodeWrapper`` counts the steps and
    truncates, so give its ``episode_length``; ``env.episode`` is that of the task. Brax's
    ``AutoResetWrapper`` begins every episode in the first state of the robot; the random events
    of the environment differ nevertheless. Brax's wrappers want keys of ``jax.random.PRNGKey``.
    Steps are differentiable. Needs the extra ``brax``.

    Args:
        env: the environment.

    Raises:
        ImportError: without the package brax.
        TypeError: if ``env`` is no environment of this library.
    """
    check("as_brax", env)
    return _class()(env)


@functools.cache
def _class() -> type:
    base = needed("as_brax", "brax.envs.base")

    class RobotEnv(base.Env):
        """An environment of rbd_jax for Brax."""

        def __init__(self, env):
            self.env = env
            self._size = observation_size(env)

        def reset(self, rng):
            key, now = jax.random.split(rng)
            state, seen = self.env.reset(typed(now))
            zero = jnp.zeros((), seen.dtype)
            return base.State(state, seen, zero, zero, {}, {"key": key})

        def step(self, state, action):
            key, now = jax.random.split(state.info["key"])
            action = bounded(action, state.obs.dtype)
            t = self.env.transition(state.pipeline_state, action, typed(now))
            return state.replace(
                pipeline_state=t.state,
                obs=t.observation,
                reward=t.reward,
                done=t.terminated.astype(t.reward.dtype),
                info=state.info | {"key": key},
            )

        @property
        def observation_size(self):
            return self._size

        @property
        def action_size(self):
            return self.env.actions

        @property
        def dt(self):
            return float(self.env.period)

        @property
        def backend(self):
            return "rbd_jax"

    return RobotEnv
