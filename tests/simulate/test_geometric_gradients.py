"""Derivatives of rollouts through implicit and momentum steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.calls import quick_jit
from support.helpers import random_state

import rbd_jax as rbd
from rbd_jax import samples


def _losses(method):
    """A loss of the end of a rollout, over velocity, torques, inertias and time step."""
    m = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(m)
    u = jax.random.normal(jax.random.key(1), (2, m.nv))
    x0, unravel = ravel_pytree({"v": s.v, "u": u, "I": m.inertia, "dt": jnp.asarray(0.03)})

    def loss(x):
        x = unravel(x)
        robot = eqx.tree_at(lambda m: m.inertia, m, x["I"])
        path = rbd.rollout(robot, s.q, x["v"], x["u"], x["dt"], integrator=method)
        end = jnp.concatenate([path.q[-1], path.v[-1]])
        return jnp.sum(end * jnp.sin(1.0 + jnp.arange(end.size, dtype=end.dtype)))

    return loss, x0, jnp.cos(1.0 + jnp.arange(x0.size, dtype=x0.dtype))


IMPLICIT = ("generalized_alpha", "variational")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["generalized_alpha", "variational", "momentum_rk4"])
def test_gradients_through_a_batch_of_rollouts(method):
    """Reverse mode against differences along a line, both computed in a batch."""
    loss, x0, along = _losses(method)
    h = 3e-4  # truncation 1e-10, rounding 1e-12
    points = x0[None] + h * jnp.array([[0.0], [1], [-1], [2], [-2]]) * along[None]
    f, gradients = map(np.asarray, quick_jit(jax.vmap(jax.value_and_grad(loss)))(points))
    slope = (8 * (f[1] - f[2]) - (f[3] - f[4])) / (12 * h)
    assert abs(gradients[0] @ np.asarray(along) - slope) < 1e-9 * abs(slope)


@pytest.mark.slow
@pytest.mark.parametrize("method", IMPLICIT)
def test_second_derivatives_of_implicit_steps(method):
    """Forward over reverse against differences of the gradient."""
    loss, x0, along = _losses(method)
    second = quick_jit(lambda x: jax.jvp(jax.grad(loss), (x,), (along,))[1])(x0)
    h = 1e-3
    points = x0[None] + h * jnp.array([[1.0], [-1], [2], [-2]]) * along[None]
    g = np.asarray(quick_jit(jax.vmap(jax.grad(loss)))(points))
    numeric = (8 * (g[0] - g[1]) - (g[2] - g[3])) / (12 * h)
    np.testing.assert_allclose(second, numeric, rtol=0, atol=1e-8 * np.abs(numeric).max())
