"""The MuJoCo environments of gymnasium: observations, rewards and failures against the package."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
mujoco = pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

from rbd_jax import learn, tasks  # noqa: E402
from rbd_jax.tasks.environments._gymnasium import BALANCERS, REACHERS, RUNNERS  # noqa: E402

WITHOUT_FORCES = {
    "Ant-v5": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0},
    "Humanoid-v5": {
        f"include_{x}_in_observation": False
        for x in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    }
    | {"contact_cost_weight": 0},
}
NAMES = sorted({**RUNNERS, **BALANCERS, **REACHERS})


def names(*quick):
    """All names; those that are not quick are slow."""
    return pytest.mark.parametrize(
        "name", [x if x in quick else pytest.param(x, marks=pytest.mark.slow) for x in NAMES]
    )


def unit(seen, at):
    """The same with a unit quaternion, which gymnasium's first states have not."""
    seen = np.array(seen)
    seen[..., at : at + 4] /= np.linalg.norm(seen[..., at : at + 4], axis=-1, keepdims=True)
    return seen


def theirs(name):
    """The environment of the package, whose places of bodies are those of its state.

    Its solver of contact converges, because that of the humanoid ends at a hundred-thousandth.
    """
    env = gymnasium.make(name, **WITHOUT_FORCES.get(name, {})).unwrapped
    env.model.opt.solver, env.model.opt.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 200
    simulate = env._step_mujoco_simulation

    def fresh(ctrl, frames):
        simulate(ctrl, frames)
        mujoco.mj_forward(env.model, env.data)

    env._step_mujoco_simulation = fresh
    return env


@names("Hopper-v5", "Reacher-v5")
@pytest.mark.float64
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_steps_are_those_of_gymnasium(name):
    """Each step from the state of the package: states, observations, rewards and failures."""
    env, other = tasks.from_gymnasium(name), theirs(name)
    layout, d = env.scene.layout, other.data
    move = eqx.filter_jit(learn.Environment.transition)
    rng, seen, failures = np.random.default_rng(0), None, 0
    low, high = other.model.actuator_ctrlrange.T
    for k in range(80):
        if k % 40 == 0:
            seen, _ = other.reset(seed=k)
        q = layout.q_from(jnp.asarray(d.qpos))
        state = env.state(q, layout.v_from(q, jnp.asarray(d.qvel)), jnp.zeros(env.scene.nu))
        if k % 40 == 0:  # of the first state without the force on the cart of two poles
            n = len(seen) - (name == "InvertedDoublePendulum-v5")
            first = unit(seen[:n], 1) if layout.quats else seen[:n]
            np.testing.assert_allclose(env.observe(state), first, atol=1e-12)
        a = rng.uniform(-1, 1, env.actions)
        t = move(env, state, jnp.asarray(a), jax.random.key(k))
        seen, reward, failed, _, _ = other.step((low + high) / 2 + (high - low) / 2 * a)
        np.testing.assert_allclose(t.observation, seen[:n], atol=1e-7)
        np.testing.assert_allclose(t.reward, reward, atol=2e-7)
        assert bool(t.terminated) == failed
        failures += failed
    assert failures or name in ("HalfCheetah-v5", "Swimmer-v5", "Ant-v5", *REACHERS)


@names("Reacher-v5")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_episodes_begin_as_there_and_steps_have_gradients(name):
    """The places and velocities of first states have the mean and the spread of the package."""
    env, other = tasks.from_gymnasium(name), theirs(name)
    keys = jax.random.split(jax.random.key(0), 400)
    ours = jax.jit(jax.vmap(lambda k: jnp.concatenate(env.coordinates(env.begin(k)))))(keys)
    found = []
    for k in range(400):
        other.reset(seed=k)
        found.append(np.concatenate([other.data.qpos, other.data.qvel]))
    found = unit(found, 3) if env.scene.layout.quats else np.array(found)
    spread = np.std(found, axis=0)
    np.testing.assert_allclose(np.mean(ours, 0), np.mean(found, 0), atol=0.3 * spread.max() + 1e-6)
    np.testing.assert_allclose(np.std(ours, 0), spread, rtol=0.15, atol=3e-3)

    @jax.jit
    def slope(action):
        state = env.begin(keys[0])
        after = learn.advance(env, state, action)
        return jax.value_and_grad(lambda a: env.reward(state, a, learn.advance(env, state, a)))(
            action
        ), env.observe(after)

    (reward, by_action), seen = slope(jnp.full((env.actions,), 0.3, env.scene.model.dtype))
    chex.assert_tree_all_finite((reward, by_action, seen))
    assert float(jnp.abs(by_action).max()) > 0 or name == "InvertedPendulum-v5"


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="the name must be one of.*Ant-v5.*got 'Ant'"):
        tasks.from_gymnasium("Ant")
