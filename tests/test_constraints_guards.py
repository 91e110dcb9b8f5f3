"""Touch-down, rebound and lift-off in rollouts, against closed forms."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.simulate import Touching

G = 9.81


@cache
def ball():
    links = rbd.LinkSpec("ground"), rbd.LinkSpec("ball", 1.5)
    joint = rbd.JointSpec("j", "translation", "ground", "ball")
    model = rbd.build_model(rbd.RobotSpec("ball", links, (joint,)), dtype=jnp.float64)
    return model, constraints.point(model, "ball", active=False)


def bouncing(height, restitution, t):
    """Height and speed of a ball that is dropped, after two bounces."""
    v = jnp.sqrt(2 * G * height)
    since = t - v / G - 2 * restitution * v / G
    up = restitution**2 * v
    return jnp.stack([up * since - G * since**2 / 2, up - G * since])


def bounced(x):
    """Height and speed after 1.5 s of a ball that is dropped from x[0] with the restitution x[1]."""
    model, c = ball()
    steps = 500
    c = eqx.tree_at(lambda c: c.restitution, c, x[1:])
    q0, v0 = jnp.array([0.2, 0.1, 0.0]).at[2].set(x[0]), jnp.array([0.5, 0.0, 0.0])
    path = rbd.rollout(model, q0, v0, jnp.zeros((steps, 3)), 1.5 / steps, constraints=c,
                       active=Touching(), integrator="midpoint")  # fmt: skip
    return jnp.stack([path.q[-1, 2], path.v[-1, 2]])


def exactly_bounced(x):
    """The same in closed form, after two bounces."""
    v, e = jnp.sqrt(2 * G * x[0]), x[1]
    since = 1.5 - v / G - 2 * e * v / G
    up = e**2 * v
    return jnp.stack([up * since - G * since**2 / 2, up - G * since])


BALLS = jnp.array([[1.0, 0.8], [1.1, 0.75], [0.95, 0.85]])


def test_a_ball_bounces_as_its_closed_form():
    found = quick_jit(jax.vmap(bounced))(BALLS)
    np.testing.assert_allclose(found, jax.vmap(exactly_bounced)(BALLS), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_know_that_the_time_of_a_touch_changes(mode):
    """With respect to the height and the restitution; fixed times would give the wrong sign."""
    found = quick_jit(jax.vmap(mode(bounced)))(BALLS)
    expected = jax.vmap(jax.jacfwd(exactly_bounced))(BALLS)
    print(np.abs(found - expected).max())
    np.testing.assert_allclose(found, expected, atol=0.02)
