"""Fits to simulated motions of MuJoCo, and motions that are made for identification."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import quick_jit
from helpers import assert_close, central_difference
from recorded import THREE, MuJoCo

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.identify import choose

LOAD = (
    '<robot name="swing"><link name="base"/>'
    + THREE[THREE.index('<link name="one">') : THREE.index('<link name="three">')]
    + THREE[THREE.index('<joint name="j1"') : THREE.index('<joint name="j3"')]
    + "</robot>"
)


@pytest.mark.slow
def test_trajectories_of_mujoco_by_multiple_shooting():
    """Noisy positions alone: damping, a mass that has moved, and the states, all at once."""
    m = eqx.tree_at(lambda m: m.friction, rbd.load_urdf(LOAD), jnp.zeros(2))
    dt, T = 0.02, 121
    t = dt * np.arange(T)
    tau = np.stack([2 * np.sin(3 * t), 1.5 * np.cos(5 * t)], axis=1)
    q, v = MuJoCo(m, LOAD).simulate(np.array([0.3, -0.4]), np.zeros(2), tau, dt)
    noise = 2e-3
    rng = np.random.default_rng(0)
    measured = jnp.asarray(q + noise * rng.normal(size=q.shape))
    data = identify.Dataset(jnp.asarray(t), measured, None, None, jnp.asarray(tau))
    windows = data.windows(13, 12)
    assert windows.shape == (10, 13)
    wrong = choose(m, "inertia", "two").put(m, 0.25 * jnp.cos(jnp.arange(10.0)))
    wrong = eqx.tree_at(lambda m: m.damping, wrong, jnp.full(2, 0.8))
    blocks = choose(wrong, "damping"), choose(wrong, "inertia", "two")
    learn = identify.Parameters(wrong, *blocks)

    @quick_jit
    def run(windows):
        return identify.fit_trajectories(
            learn, windows, dt, q_sigma=noise, continuity=1e3, prior=1e-3, max_steps=100
        )

    found = run(windows)
    assert bool(found.fit.converged)
    deviation = jnp.sqrt(jnp.diagonal(found.fit.covariance))[:2]
    error = jnp.log(found.fit.model.damping / m.damping)
    print("damping", found.fit.model.damping, "deviation", deviation, int(found.fit.steps))
    assert bool((jnp.abs(error) < 4.5 * deviation).all()) and float(deviation.max()) < 0.1
    assert bool(identify.consistent(found.fit.model).all())
    # the states found are closer to the truth than the measured ones, and the speeds are right
    first = slice(0, T - 1, 12)
    miss = np.asarray(found.q0) - q[first]
    assert np.sqrt((miss**2).mean()) < 0.6 * noise
    assert np.abs(np.asarray(found.v0) - v[first]).max() < 0.05
    # a whole motion from the first state alone, as MuJoCo had it
    ours = jax.jit(identify.simulated)(found.fit.model, found.q0[0], found.v0[0], data.tau, dt)
    nominal = jax.jit(identify.simulated)(wrong, found.q0[0], found.v0[0], data.tau, dt)
    good, bad = (np.abs(np.asarray(x[0]) - q).max() for x in (ours, nominal))
    assert good < 0.03 and bad > 10 * good


@pytest.fixture(scope="module")
def motion():
    m = rbd.load_urdf(THREE)
    first = identify.excitation(m, jax.random.key(0), period=5.0)
    improve = quick_jit(lambda e: identify.optimal_excitation(m, e, samples=40, steps=60))
    return m, first, *improve(first)


def test_excitation_moves_consistently_within_limits(motion):
    m, first, best, _ = motion
    big = eqx.tree_at(lambda e: e.coefficients, first, 100 * first.coefficients)
    for e in (first, best, big):
        t = jnp.linspace(0.0, 5.0, 400)
        q, v, a = jax.jit(jax.vmap(e.at, (None, 0)))(m, t)
        assert bool((q > m.position_lower[None]).all() & (q < m.position_upper[None]).all())
        assert bool((jnp.abs(v) < m.velocity_limit[None]).all())
        assert float(jnp.abs(v).max()) > 0.5
        assert_close(q[-1], q[0], atol=1e-12)
    rate = lambda f: central_difference(lambda t: f(t[0]), jnp.array([1.3]))[..., 0]  # noqa: E731
    q, v, a = first.at(m, jnp.array(1.3))
    assert_close(rate(lambda t: first.at(m, t)[0]), v, atol=1e-9)
    assert_close(rate(lambda t: first.at(m, t)[1]), a, atol=1e-9)


def test_optimal_excitation_tells_more(motion):
    """Of what was asked for: the determinant; and so, here, of the worst base parameter too."""
    m, first, best, history = motion
    assert float(history.max()) > float(history[0]) + 5
    base = identify.base_parameters(m)
    sigma = jnp.ones(3)

    @quick_jit
    def look(e):
        data = e.sample(m, 300)
        H = identify.information(m, base, data, sigma, width=0.1)
        return jnp.linalg.slogdet(H)[1], data.tau

    (before, _), (after, tau) = look(first), look(best)
    assert float(after) > float(before) + 5
    assert float(jnp.abs(tau).max(axis=0).max()) < 1.3 * 30
    print("log det", float(before), "→", float(after))
