"""Fits of a plant of one's own: the lag of a drive, from positions and speeds alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.own_plants import lagging
from support.problems import sledge

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.model.outcome import RESULTS

DT = 0.05

pytestmark = pytest.mark.float64


def recorded(plant, key, sigma):
    u = 3 * jnp.sign(jnp.sin(0.9 * jnp.arange(60.0)))[:, None]
    path = rbd.rollout(plant, jnp.zeros(1), jnp.zeros(1), u, DT)
    noise = sigma * jax.random.normal(key, (2, 60, 1))
    data = identify.Dataset(None, path.q[:-1] + noise[0], path.v[:-1] + noise[1], controls=u)
    return data.windows(12), path.memory[:-1:12]


@pytest.mark.slow
def test_the_lag_of_a_drive_is_found_with_the_memory_at_the_start():
    truth, sigma = {"lag": 0.3, "mass": 2.0}, 1e-4
    plant = lagging(sledge(), truth["lag"])

    def plant_with(values):
        heavier = plant.model.inertia.at[0].multiply(values["mass"] / 2)
        new = values["lag"], heavier, heavier
        where = lambda p: (p.lag, p.model.inertia, p.robot.model.inertia)  # noqa: E731
        return eqx.tree_at(where, plant, new)

    @jax.jit
    def fit(key):
        windows, memory = recorded(plant, key, sigma)
        start = {"lag": 0.1, "mass": 1.0}
        how = {"q_sigma": sigma, "v_sigma": sigma, "throw": False}
        return identify.fit_plant(plant_with, windows, start, DT, **how), memory

    found, memory = fit(jax.random.key(0))
    assert bool(found.result == RESULTS.successful)
    for name, x in truth.items():
        off = abs(float(found.values[name]) - x)
        assert off < 4 * float(found.deviation[name]) < 0.02 * x, (name, off)
    assert found.memory0.shape == (5, 1)
    np.testing.assert_allclose(found.memory0, memory, atol=0.02)
    assert abs(2 * float(found.cost) - found.freedom) < 4 * (2 * found.freedom) ** 0.5
    with pytest.raises(ValueError, match="pass dt.*a Lagging has none"):
        identify.fit_plant(plant_with, recorded(plant, jax.random.key(0), 0.0)[0], truth)
