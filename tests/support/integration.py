"""Runs of an integrator with torques that depend on time, and the orders of their errors."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.simulate import resolve_integrator
from support.calls import quick_jit
from support.helpers import Compiled

difference = Compiled(rbd).difference


def without(m, *leaves):
    """The robot with some leaves zero."""
    get = lambda m: [getattr(m, x) for x in leaves]  # noqa: E731
    return eqx.tree_at(get, m, [jnp.zeros_like(x) for x in get(m)])


def slope(errors):
    """Exponents of two by which each row of errors falls into the next, where step sizes halve."""
    errors = np.array(errors)
    return np.log2(errors[:-1] / errors[1:])


def actuated(m, w, t, q, v):
    """Accelerations under torques that depend on the time, so that the nodes in time matter."""
    return rbd.forward_dynamics(m, q, v, w * jnp.cos(3 * t))


@cache
def runner(method):
    def run(m, w, q, v, dt, steps):
        integrator = resolve_integrator(method)
        acceleration = partial(actuated, m, w)

        def step(k, state):
            (q, v), memory = state
            return integrator.step(m, acceleration, k.astype(dt.dtype) * dt, q, v, dt, memory)

        memory = integrator.init(m, acceleration, jnp.zeros_like(dt), q, v, dt)
        return jax.lax.fori_loop(0, steps, step, ((q, v), memory))[0]

    return quick_jit(run)
