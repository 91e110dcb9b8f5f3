"""Environments as those of gymnax."""

import functools
from typing import Any

import jax.numpy as jnp

from ._adapters import bounded, check, needed, observation_size, typed
from ._environment import Environment


def as_gymnax(env: Environment) -> Any:
    """The environment as a ``gymnax`` environment: ``reset(key)`` and ``step(key, state, action)``.

    An episode is truncated after ``params.max_steps_in_episode`` control steps, by default
    ``env.episode``. Gradients stop at each step, as gymnax wants, except in those of
    ``as_gymnax(env).with_transition_gradients()``. Needs the extra ``gymnax``.

    Args:
        env: the environment.

    Raises:
        ImportError: without the package gymnax.
        TypeError: if ``env`` is no environment of this library.
    """
    check("as_gymnax", env)
    return _class()(env)


@functools.cache
def _class() -> type:
    base = needed("as_gymnax", "gymnax.environments.environment")
    spaces = needed("as_gymnax", "gymnax.environments.spaces")

    class RobotEnv(base.Environment):
        """An environment of rbd_jax for gymnax."""

        _supports_transition_gradients = True

        def __init__(self, env):
            super().__init__()
            self.env = env
            self._size = observation_size(env)

        @property
        def default_params(self):
            return base.EnvParams(max_steps_in_episode=self.env.episode)

        def reset_env(self, key, params):
            state, seen = self.env.reset(typed(key))
            return seen, state

        def step_env(self, key, state, action, params):
            action = bounded(action, state.q.dtype)
            t = self.env.transition(state, action, typed(key))
            seen, state = self._apply_transition_gradient_policy(t.observation, t.state)
            return seen, state, t.reward, t.terminated, {}

        def is_truncated(self, state, params):
            return state.age >= params.max_steps_in_episode

        def is_terminated(self, state, params):
            return self.env.failed(state)

        def observe(self, key, state, action, params):
            return self.env.observe(state)

        @property
        def name(self):
            return type(self.env).__name__

        @property
        def num_actions(self):
            return self.env.actions

        def action_space(self, params=None):
            return spaces.Box(-1.0, 1.0, (self.env.actions,), self.env.plant.model.dtype)

        def observation_space(self, params=None):
            return spaces.Box(-jnp.inf, jnp.inf, (self._size,), self.env.plant.model.dtype)

    return RobotEnv
