"""Environments as functions of keys, wrappers, and the adapters to libraries of others."""

import dataclasses
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close

from rbd_jax import learn, tasks
from rbd_jax.learn import Wrapper


class Pushed(Wrapper):
    """Random speeds of the cart between two steps."""

    def disturb(self, state, key):
        kick = jax.random.normal(key, (), state.v.dtype)
        return dataclasses.replace(state, v=state.v.at[0].add(kick))


class Halved(Wrapper):
    """Half of the reward, and the observation twice."""

    def observe(self, state):
        x = self.env.observe(state)
        return jnp.concatenate([x, x])

    def reward(self, before, action, after):
        return 0.5 * self.env.reward(before, action, after)


@pytest.fixture(scope="module")
def env():
    return tasks.cart_pole_environment()


def aged(state, env, steps):
    return dataclasses.replace(state, age=jnp.full_like(state.age, env.episode - steps))


def test_a_step_is_that_of_the_learners(env):
    state, seen = quick_jit(lambda key: env.reset(key))(jax.random.key(0))
    assert_close(seen, env.observe(state))
    action = jnp.array([0.7], seen.dtype)

    @quick_jit
    def both(state):
        after = learn.advance(env, state, action)
        moved, same = (f(state, action, jax.random.key(1)) for f in (env.transition, env.step))
        return after, env.reward(state, action, after), moved, same

    after, reward, moved, same = both(state)
    for t in (moved, same):
        assert_close(t.state, after)
        assert_close(t.reward, reward)
        assert_close(t.observation, t.final_observation)
        assert not t.terminated and not t.truncated


def test_episodes_end_by_failure_or_by_length_and_begin_anew(env):
    """Robots of a batch: one goes on, one is truncated, one fails, one fails at the last step."""
    keys = jax.random.split(jax.random.key(0), 4)
    states, _ = jax.vmap(env.reset)(keys)
    outside = jnp.array([0, 0, 5.0, 5.0])
    states = dataclasses.replace(
        states,
        q=states.q.at[:, 0].set(outside.astype(states.q.dtype)),
        age=jnp.array([3, env.episode - 1, 3, env.episode - 1], states.age.dtype),
    )
    still = jnp.zeros((4, 1), states.q.dtype)

    @quick_jit
    def both(states):
        return [jax.vmap(f)(states, still, keys) for f in (env.transition, env.step)]

    stays, anew = both(states)
    for t in (stays, anew):
        assert t.terminated.tolist() == [False, False, True, True]
        assert t.truncated.tolist() == [False, True, False, False]
    assert stays.state.age.tolist() == [4, env.episode, 4, env.episode]
    assert anew.state.age.tolist() == [4, 0, 0, 0]
    assert_close(anew.final_observation, stays.final_observation)
    assert float(jnp.abs(anew.observation[2:, 0]).max()) < 1  # in the middle of the track again
    bad = dataclasses.replace(states, v=states.v * jnp.nan)
    _, t = both(bad)
    assert t.terminated.all() and not t.truncated.any()
    chex.assert_tree_all_finite((t.reward, t.observation, t.final_observation, t.state.q))


@pytest.mark.slow
def test_wrappers_compose(env):
    wrapped = Pushed(Halved(env))  # pyright: ignore
    key, action = jax.random.key(3), jnp.zeros((1,), env.plant.model.dtype)
    state, _ = env.reset(key)

    @quick_jit
    def both():
        return env.transition(state, action, key), wrapped.transition(state, action, key)

    plain, t = both()
    assert_close(t.reward, 0.5 * plain.reward)
    assert_close(t.final_observation, jnp.tile(plain.final_observation, 2))
    kicked = t.observation - t.final_observation
    assert float(kicked[3]) == pytest.approx(float(kicked[8])) != 0
    assert float(jnp.abs(kicked[:3]).max()) == 0
    settings = learn.Settings(robots=4, horizon=2, updates=1, hidden=(4,))
    assert np.isfinite(learn.shac(wrapped, key, settings).history.reward).all()


@pytest.mark.slow
def test_steps_have_gradients(env):
    state, _ = env.reset(jax.random.key(0))
    one = lambda a: env.step(state, a, jax.random.key(1)).reward  # noqa: E731
    plain = lambda a: env.reward(state, a, learn.advance(env, state, a))  # noqa: E731
    a = jnp.array([0.3], state.q.dtype)
    slopes = quick_jit(lambda a: (jax.grad(one)(a), jax.grad(plain)(a)))(a)
    assert_close(*slopes)
    assert float(jnp.abs(slopes[0]).max()) > 0


def test_adapters_want_an_environment():
    for adapt in (learn.as_gymnasium, learn.as_brax, learn.as_gymnax):
        with pytest.raises(
            TypeError, match="env must be an rbd_jax.learn.Environment, got a?.*int"
        ):
            adapt(3)


def test_gymnasium_accepts_one_robot(env):
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    one = learn.as_gymnasium(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # observations have no bounds
        check_env(one, skip_render_check=True)
    first, _ = one.reset(seed=3)
    total = 0.0
    for k in range(env.episode):
        seen, reward, terminated, truncated, _ = one.step(np.zeros(1, first.dtype))
        total += reward
        assert truncated == (k == env.episode - 1) and not terminated
    assert np.isfinite(total) and seen.shape == first.shape
    again, _ = one.reset(seed=3)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_gymnasium_steps_many_robots(env, autoreset):
    """The spaces and the flags that its vector environments promise, and its own wrapper."""
    gymnasium = pytest.importorskip("gymnasium")
    short = dataclasses.replace(env, episode=3)
    many = learn.as_gymnasium(short, 5, autoreset)
    assert many.metadata["autoreset_mode"].value.lower() == autoreset.replace("_", "")
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(many)
    first, _ = recorded.reset(seed=7)
    assert first in many.observation_space
    ends, rewards = [], []
    for _ in range(8):
        actions = 3 * many.action_space.sample()  # outside of the bounds
        seen, reward, terminated, truncated, info = recorded.step(actions)
        assert seen in many.observation_space and seen.flags.writeable
        assert reward.shape == terminated.shape == (5,) and terminated.dtype == bool
        ends.append(bool(truncated.all()))
        rewards.append(reward.max())
        if autoreset == "same_step" and ends[-1]:
            assert info["_final_obs"].all() and info["final_obs"][0].shape == first[0].shape
            assert np.abs(info["final_obs"][0] - seen[0]).max() > 1e-3
        if ends[-1]:
            assert info["episode"]["l"].tolist() == [3] * 5
    on = [k % 3 == 2 if autoreset == "same_step" else k % 4 == 2 for k in range(8)]
    assert ends == on
    assert autoreset == "same_step" or rewards[3] == 0  # the call that begins anew
    again, _ = many.reset(seed=7)
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ValueError, match=r"actions have shape \(1,\), expected \(5, 1\)"):
        many.step(np.zeros(1))
    with pytest.raises(ValueError, match="autoreset must be one of"):
        learn.as_gymnasium(env, 5, "never")


def test_brax_wraps_an_environment(env):
    training = pytest.importorskip("brax.envs.wrappers.training")
    ours = learn.as_brax(env)
    assert ours.observation_size == 5 and ours.action_size == 1
    wrapped = training.EvalWrapper(training.wrap(ours, episode_length=4))
    keys = jax.random.split(jax.random.PRNGKey(0), 3)

    @quick_jit
    def run(keys):
        def one(state, _):
            state = wrapped.step(state, jnp.ones((3, 1), state.obs.dtype))
            return state, (state.obs, state.reward, state.done, state.info["truncation"])

        start = wrapped.reset(keys)
        return start.obs, jax.lax.scan(one, start, None, 9)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        first, (last, (seen, reward, done, truncation)) = run(keys)
    assert seen.shape == (9, 3, 5) and bool(jnp.isfinite(reward).all())
    assert done[:, 0].tolist() == truncation[:, 0].tolist() == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert_close(seen[3], first)  # Brax begins where it began before
    assert float(last.info["eval_metrics"].episode_steps[0]) == 4


def test_gymnax_steps_an_environment(env):
    pytest.importorskip("gymnax")
    ours = learn.as_gymnax(env)
    params = ours.default_params.replace(max_steps_in_episode=2)
    assert ours.action_space(params).shape == (1,)

    @quick_jit
    def run(key):
        def one(carry, key):
            seen, state = carry
            seen, state, reward, terminated, truncated, info = ours.step(
                key, state, jnp.ones((1,), seen.dtype), params
            )
            return (seen, state), (seen, reward, terminated, truncated, info["final_observation"])

        return jax.lax.scan(one, ours.reset(key, params), jax.random.split(key, 5))[1]

    seen, reward, terminated, truncated, last = jax.vmap(run)(
        jax.random.split(jax.random.key(0), 3)
    )
    assert seen.shape == (3, 5, 5) and bool(jnp.isfinite(reward).all())
    assert not terminated.any() and truncated[0].tolist() == [False, True, False, True, False]
    assert ours.observation_space(params).contains(seen[0, 0])
    differs = jnp.abs(seen - last).max(axis=-1) > 1e-6
    assert_close(differs, truncated)

    def end(action, ours):
        seen, state = ours.reset(jax.random.key(0), params)
        return ours.step(jax.random.key(1), state, action, params)[0].sum()

    a = jnp.zeros((1,), seen.dtype)
    slopes = [jax.grad(end)(a, x) for x in (ours, ours.with_transition_gradients())]
    assert float(slopes[0][0]) == 0 != float(slopes[1][0])


def test_a_policy_with_a_memory_acts_in_a_closed_loop(env):
    """A controller that acts one step too late."""
    state, _ = env.reset(jax.random.key(0))
    act = lambda seen: jnp.tanh(seen[1:2])  # noqa: E731

    def late(before, seen):
        return act(seen), before

    @quick_jit
    def both():
        found = learn.closed_loop(env, late, state, 6, carry=jnp.zeros_like(state.action))
        now, before, rows = state, jnp.zeros_like(state.action), [state.q]
        for _ in range(6):
            action, before = before, act(env.observe(now))
            now = learn.advance(env, now, action)
            rows.append(now.q)
        return found[0], jnp.stack(rows)

    assert_close(*both(), rtol=1e-6, atol=1e-6)
