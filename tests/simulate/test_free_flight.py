"""The momentum of a robot in free flight is kept to rounding."""

from functools import cache, partial

import jax
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state
from support.integration import without

import rbd_jax as rbd
from rbd_jax import samples


@cache
def _flight(method: str, gravity: bool, n: int = 60):
    """A tumbling quadruped with driven, damped legs: spatial momenta along the path."""
    m = samples.quadruped()
    m = m if gravity else without(m, "gravity")
    s = random_state(m, 3)
    u = jax.random.normal(jax.random.key(5), (n, m.nv)).at[:, :6].set(0.0)

    def run(q, v, u):
        path = rbd.rollout(m, q, v, u, 0.02, integrator=method)
        return path.t, jax.vmap(partial(rbd.algorithms.spatial_momentum, m))(path.q, path.v)

    t, momentum = quick_jit(run)(s.q, s.v, u)
    return m, np.asarray(t), np.asarray(momentum)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["momentum_rk4", pytest.param("variational", marks=pytest.mark.slow)]
)
def test_momentum_in_free_flight_is_kept_to_rounding(method):
    _, _, momentum = _flight(method, False)
    drift = np.abs(momentum - momentum[0]).max(axis=0)
    print(method, "drift of the momentum", drift, "of", np.abs(momentum[0]).max())
    assert drift.max() < 1e-13 * np.abs(momentum[0]).max()


def test_momentum_in_free_flight_is_kept_only_to_the_order_by_a_plain_method():
    """At this step, so that the test above is not one of a tiny step."""
    _, _, momentum = _flight("rk4", False)
    assert np.abs(momentum - momentum[0]).max() > 1e-6


@pytest.mark.parametrize(
    "method", ["momentum_rk4", pytest.param("variational", marks=pytest.mark.slow)]
)
def test_momentum_under_gravity(method):
    """The linear momentum is that of free fall; angular momentum about the vertical is kept."""
    m, t, momentum = _flight(method, True)
    fall = float(rbd.total_mass(m)) * t[:, None] * np.asarray(m.gravity)
    assert_close(momentum[:, 3:], momentum[0, 3:] + fall, atol=1e-10)
    assert_close(momentum[:, 2], np.full_like(t, momentum[0, 2]), atol=1e-10)
    assert np.abs(momentum[:, 0] - momentum[0, 0]).max() > 1.0
