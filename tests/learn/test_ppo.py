"""A PPO that knows nothing of this library learns through each adapter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

from support.ppo import train  # noqa: E402

from rbd_jax import learn, tasks  # noqa: E402

ROBOTS, HORIZON = 64, 64


@pytest.fixture(scope="module")
def env():
    """A pole that falls within half a second if nobody pushes the cart; one is the best reward."""
    return tasks.from_gymnasium("InvertedPendulum-v5", jnp.float32)


@pytest.fixture(autouse=True)
def as_users_have_it():
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def by_gymnasium(env):
    many = learn.as_gymnasium(env, ROBOTS, "same_step")

    def step(actions):
        seen, reward, terminated, truncated, info = many.step(np.clip(actions, -1, 1))
        last = np.array(seen)
        for i in np.flatnonzero(terminated | truncated):
            last[i] = info["final_obs"][i]
        return seen, reward, terminated + 2 * (truncated & ~terminated), last

    return lambda: many.reset(seed=0)[0], step


def by_gymnax(env):
    pytest.importorskip("gymnax")
    ours = learn.as_gymnax(env)
    params, held = ours.default_params, {}

    @jax.jit
    def begin(key):
        return jax.vmap(ours.reset, (0, None))(jax.random.split(key, ROBOTS), params)

    @jax.jit
    def move(key, state, actions):
        return jax.vmap(ours.step, (0, 0, 0, None))(
            jax.random.split(key, ROBOTS), state, actions, params
        )

    def reset():
        seen, held["state"] = begin(jax.random.key(0))
        held["key"] = jax.random.key(1)
        return seen

    def step(actions):
        held["key"], now = jax.random.split(held["key"])
        seen, held["state"], reward, terminated, truncated, info = move(now, held["state"], actions)
        return seen, reward, terminated + 2 * (truncated & ~terminated), info["final_observation"]

    return reset, step


def by_brax(env):
    training = pytest.importorskip("brax.envs.wrappers.training")
    wrapped, held = training.wrap(learn.as_brax(env), episode_length=env.episode), {}
    begin, move = jax.jit(wrapped.reset), jax.jit(wrapped.step)

    def reset():
        held["state"] = begin(jax.random.split(jax.random.PRNGKey(0), ROBOTS))
        return held["state"].obs

    def step(actions):
        before = held["state"]
        held["state"] = now = move(before, actions)
        cut = now.info["truncation"]
        over = np.where(np.asarray(cut) > 0, 2, np.asarray(now.done))
        return now.obs, now.reward, over, now.obs  # Brax keeps no last observation

    return reset, step


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [by_gymnasium, by_gymnax, by_brax])
def test_it_learns_to_balance_a_pole(env, adapter):
    rewards, learner = train(*adapter(env), (4, env.actions), updates=40, horizon=HORIZON)
    # with the noise of its exploration the pole falls ten times as rarely as at first
    assert 1 - np.mean(rewards[-3:]) < (1 - rewards[0]) / 10

    # the policy without noise holds the pole for four seconds from ten states
    act = lambda seen: jnp.clip(learner.mean(seen), -1, 1)  # noqa: E731
    states = jax.vmap(lambda k: env.reset(k)[0])(jax.random.split(jax.random.key(7), 10))
    last = jax.jit(jax.vmap(lambda s: learn.closed_loop(env, act, s, 100)[0][-1]))(states)
    assert float(jnp.abs(last[:, 1]).max()) < 0.2


@pytest.fixture(scope="module")
def hopper():
    """A leg that falls within a third of a second; it gets one for each step that it stands."""
    return tasks.from_gymnasium("Hopper-v5", jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [by_gymnasium, by_gymnax, by_brax])
def test_it_learns_to_hop(hopper, adapter):
    rewards, learner = train(*adapter(hopper), (11, hopper.actions), updates=60, horizon=HORIZON)
    print([round(x, 2) for x in rewards])
    assert np.mean(rewards[-5:]) > 1.5 * np.mean(rewards[:2])
