"""Environments as those of gymnasium: one robot, or many that are simulated in one call."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..model.arguments import check_number
from ._adapters import bounded, check, needed, observation_size
from ._environment import Environment

MODES = ("next_step", "same_step")


def as_gymnasium(env: Environment, count: int | None = None, autoreset: str = "next_step") -> Any:
    """The environment as a ``gymnasium.Env``, or many robots as a ``gymnasium.vector.VectorEnv``.

    Observations, rewards and flags are NumPy arrays. Actions outside of -1 and 1 are cut. A batch
    is simulated in one compiled call, in lanes on a CPU. Needs the extra ``gymnasium``.

    Args:
        env: the environment.
        count: the number of robots; one ``gymnasium.Env`` if None.
        autoreset: of a batch, when an ended episode begins anew. ``"next_step"``, the default of
            gymnasium: the call after the end ignores the action and returns the new observation
            with a reward of zero. ``"same_step"``: the call that ends an episode returns the new
            observation, and the last one in ``info["final_obs"]``.

    Raises:
        ImportError: without the package gymnasium.
        TypeError: if ``env`` is no environment of this library.
        ValueError: for a count below one or an unknown mode.
    """
    check("as_gymnasium", env)
    if autoreset not in MODES:
        raise ValueError(f"as_gymnasium: autoreset must be one of {MODES}, got {autoreset!r}")
    if count is not None:
        check_number("as_gymnasium", "count", count, least=1, whole=True)
    one, many = _classes()
    return one(env) if count is None else many(env, count, autoreset)


@functools.cache
def _classes() -> tuple[type, type]:
    gym = needed("as_gymnasium", "gymnasium")
    vector = needed("as_gymnasium", "gymnasium.vector")
    batch_space = needed("as_gymnasium", "gymnasium.vector.utils").batch_space

    def spaces(env):
        dtype = np.dtype(env.plant.model.dtype)
        seen = gym.spaces.Box(-np.inf, np.inf, (observation_size(env),), dtype)
        return seen, gym.spaces.Box(-1, 1, (env.actions,), dtype)

    def next_key(space_random):
        return jax.random.key(int(space_random.integers(2**31)))

    def no_options(options):
        if options:
            raise ValueError(f"reset: this environment has no options, got {options}")

    class RobotEnv(gym.Env):
        """One robot of an environment of rbd_jax."""

        metadata = {"render_modes": []}

        def __init__(self, env):
            self.env = env
            self.observation_space, self.action_space = spaces(env)
            dtype = env.plant.model.dtype

            def move(state, action, key):
                key, now = jax.random.split(key)
                return env.transition(state, bounded(action, dtype), now), key

            self._begin, self._move = jax.jit(lambda key: env.reset(key)), jax.jit(move)
            self._state = None

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            no_options(options)
            self._key = next_key(self.np_random)
            self._state, seen = self._begin(next_key(self.np_random))
            return np.array(seen), {}

        def step(self, action):
            if self._state is None:
                raise RuntimeError("step: call reset first")
            t, self._key = self._move(self._state, action, self._key)
            self._state = t.state
            ended = bool(t.terminated), bool(t.truncated)
            seen = t.final_observation if any(ended) else t.observation
            return np.array(seen), float(t.reward), *ended, {}

    class RobotVectorEnv(vector.VectorEnv):
        """Many robots of an environment of rbd_jax."""

        def __init__(self, env, count, autoreset):
            self.env, self.num_envs, self._same = env, count, autoreset == "same_step"
            mode = vector.AutoresetMode.SAME_STEP if self._same else vector.AutoresetMode.NEXT_STEP
            self.metadata = {"autoreset_mode": mode, "render_modes": []}
            self.single_observation_space, self.single_action_space = spaces(env)
            self.observation_space = batch_space(self.single_observation_space, count)
            self.action_space = batch_space(self.single_action_space, count)
            dtype = env.plant.model.dtype

            def begin(key):
                key, now = jax.random.split(key)
                states, seen = jax.vmap(env.reset)(jax.random.split(now, count))
                return (states, jnp.zeros((count,), bool), key), seen

            def move(carry, actions):
                states, over, key = carry
                key, moves, begins = jax.random.split(key, 3)
                t = jax.vmap(env.transition)(
                    states, bounded(actions, dtype), jax.random.split(moves, count)
                )
                ended = t.terminated | t.truncated
                again = ended if self._same else over
                now = jnp.where(ended[:, None], t.final_observation, t.observation)

                def anew():
                    fresh = jax.vmap(env.reset)(jax.random.split(begins, count))

                    def one(x, y):
                        return jnp.where(again.reshape(-1, *[1] * (x.ndim - 1)), x, y)

                    return jax.tree.map(one, fresh, (t.state, now))

                states, seen = jax.lax.cond(jnp.any(again), anew, lambda: (t.state, now))
                told = t.reward, t.terminated, t.truncated
                if not self._same:
                    told = tuple(jnp.where(over, jnp.zeros_like(x), x) for x in told)
                    ended = told[1] | told[2]
                return (states, ended, key), (seen, *told, t.final_observation)

            self._begin, self._move = jax.jit(begin), jax.jit(move)
            self._carry = None

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            no_options(options)
            self._carry, seen = self._begin(next_key(self.np_random))
            return np.array(seen), {}

        def step(self, actions):
            if self._carry is None:
                raise RuntimeError("step: call reset first")
            if np.shape(actions) != self.action_space.shape:
                raise ValueError(
                    f"step: actions have shape {np.shape(actions)}, expected "
                    f"{self.action_space.shape}, one row for each robot"
                )
            self._carry, (seen, reward, terminated, truncated, last) = self._move(
                self._carry, actions
            )
            seen, reward, terminated, truncated = (
                np.array(x) for x in (seen, reward, terminated, truncated)
            )
            info = {}
            if self._same and (ended := terminated | truncated).any():
                rows = np.full(self.num_envs, None, dtype=object)
                last = np.array(last)
                for i in np.flatnonzero(ended):
                    rows[i] = last[i]
                info = {"final_obs": rows, "_final_obs": ended}
            return seen, reward, terminated, truncated, info

    return RobotEnv, RobotVectorEnv
