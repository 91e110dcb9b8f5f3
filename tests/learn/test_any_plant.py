"""An environment of a plant of one's own: a pendulum whose motor lags."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from support.calls import quick_jit
from support.helpers import assert_close
from support.own_plants import lagging

pytest.importorskip("optax")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import learn  # noqa: E402
from rbd_jax.simulate import Plant  # noqa: E402

pytestmark = pytest.mark.float64


class Swing(learn.Environment):
    """Keep a pendulum up by a motor that lags."""

    plant: Plant
    dt: Array
    substeps: int = eqx.field(static=True, default=3)
    episode: int = eqx.field(static=True, default=20)
    actions: int = eqx.field(static=True, default=1)

    def begin(self, key):
        q = 0.1 * jax.random.normal(key, (2,), self.dt.dtype)
        return self.state(q[:1] + jnp.pi, q[1:], jnp.zeros(1, self.dt.dtype))

    def observe(self, state):
        return jnp.concatenate([jnp.sin(state.q), state.v, state.memory])

    def controls(self, state, action):
        return 2 * action

    def reward(self, before, action, after):
        return 1 - jnp.cos(after.q[0]) - 0.01 * after.v[0] ** 2


def swing():
    return Swing(lagging(rbd.samples.pendulum()), jnp.asarray(0.02))


def test_a_control_step_is_the_steps_of_its_plant():
    """The memory goes on from one control step to the next, with derivatives by the lag."""
    env, actions = swing(), jnp.array([[0.5], [-0.3]])

    def learned(lag):
        task = eqx.tree_at(lambda e: e.plant.lag, env, lag)
        state = task.state(jnp.ones(1), jnp.zeros(1), jnp.zeros(1))
        for a in actions:
            state = learn.advance(task, state, a)
        return state

    def plain(lag):
        plant = eqx.tree_at(lambda p: p.lag, env.plant, lag)
        rows = 2 * jnp.repeat(actions, 3, axis=0)
        path = rbd.rollout(plant, jnp.ones(1), jnp.zeros(1), rows, env.dt)
        return path

    @quick_jit
    def run(lag):
        state, path = learned(lag), plain(lag)
        slopes = [jax.grad(lambda x, f=f: jnp.sum(f(x)))(lag) for f in (
            lambda x: learned(x).q, lambda x: plain(x).q[-1])]  # fmt: skip
        return (state.q, state.v, state.memory), (path.q[-1], path.v[-1], path.memory[-1]), slopes

    ours, theirs, slopes = run(jnp.asarray(0.2))
    assert_close(ours, theirs, atol=1e-12)
    assert_close(slopes[0], slopes[1], atol=1e-10)
    assert abs(float(slopes[0])) > 1e-4


@pytest.mark.slow
def test_a_policy_learns_and_acts_in_another_plant():
    """It keeps the pendulum up, nearly as well as the best of many linear policies (1.957)."""
    env = swing()
    settings = learn.Settings(
        robots=64, horizon=16, updates=150, hidden=(32,), rate=3e-3, discount=0.9
    )
    result = learn.shac(env, jax.random.key(0), settings)
    assert np.isfinite(result.history.reward).all()
    starts = jax.vmap(env.begin)(jax.random.split(jax.random.key(9), 64))

    def reward(policy):
        q, v = jax.vmap(lambda s: learn.closed_loop(env, policy, s, 20))(starts)
        return jnp.mean(1 - jnp.cos(q[..., 0]) - 0.01 * v[..., 0] ** 2)

    limp = jax.jit(lambda: reward(lambda seen: jnp.zeros(1)))()
    learned = jax.jit(reward)(result.policy)
    assert float(limp) < 1.8 and float(learned) > 1.93, (limp, learned)
    state = env.begin(jax.random.key(1))
    slower = eqx.tree_at(lambda p: p.lag, env.plant, jnp.asarray(0.3))

    def act(plant):
        return learn.closed_loop(env, result.policy, state, 10, plant)

    own, same, other = (jax.jit(act)(p) for p in (None, env.plant, slower))
    assert_close(own, same, atol=1e-12)
    assert float(jnp.abs(own[0] - other[0]).max()) > 1e-4
