"""The generalized-α method: damping, order, limits."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_state
from support.integration import runner, slope, without

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import resolve_integrator


@cache
def _stiff(method):
    """A pendulum on a torsion spring a million times as stiff: velocities after 100 steps."""
    m = without(samples.pendulum(), "gravity")
    spring = lambda t, q, v: -1e8 * q  # noqa: E731
    integrator = resolve_integrator(method)
    zero, h = jnp.zeros(()), jnp.asarray(0.01)

    def body(state, _):
        state = integrator.step(m, spring, zero, *state[0], h, state[1])
        return state, jnp.abs(state[0][0][0])

    state = jnp.array([1e-3]), jnp.zeros(1)

    def run(q, v):
        memory = integrator.init(m, spring, zero, q, v, h)
        return jax.lax.scan(body, ((q, v), memory), length=100)

    return np.asarray(quick_jit(run)(*state)[1])


@pytest.mark.parametrize("radius", [0.0, 0.5, 0.9])
def test_generalized_alpha_damps_what_it_cannot_resolve(radius):
    """Per step by the chosen spectral radius, where the step is 100 periods of the oscillation."""
    size = _stiff(rbd.simulate.GeneralizedAlpha(radius))
    if radius == 0.0:
        assert size[-1] < 1e-12
    else:  # amplitudes of a repeated root: k rᵏ
        rate = (size[-1] / size[49]) ** (1 / 50)
        assert abs(rate - radius) < 0.05
    assert not np.isfinite(_stiff("rk4")[-1]) or _stiff("rk4")[-1] > 1e6


def _fresh(model, *state):
    """A plain step function: the method begins anew each time."""
    return rbd.simulate.GeneralizedAlpha(0.5)(model, *state)


def test_generalized_alpha_from_a_fresh_start_is_of_order_two():
    m = samples.double_pendulum()
    s = random_state(m)
    end = lambda method, n: runner(method)(  # noqa: E731
        m, s.tau, s.q, s.v, jnp.asarray(0.5 / n), jnp.asarray(n)
    )
    truth = jnp.concatenate(end("rk4", 500))
    errors = [float(jnp.linalg.norm(jnp.concatenate(end(_fresh, n)) - truth)) for n in (40, 80)]
    assert abs(slope(errors)[0] - 2) < 0.15


def test_generalized_alpha_refuses_a_radius_above_one():
    with pytest.raises(ValueError, match="spectral_radius is 1.5, expected a number from 0 to 1"):
        rbd.simulate.GeneralizedAlpha(1.5)
