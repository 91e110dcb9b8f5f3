"""A quadruped on the ground at random states: neither value nor gradient is ever NaN."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

pytest.importorskip("mujoco")

STATES = int(os.environ.get("RBD_JAX_STATES", "20000"))
"""How many random states; the environment variable makes it a million."""
CHUNK = 10_000


def checker(dtype):
    """A compiled function of keys: is the step finite, its gradient, and does anything touch."""
    from benchmarks._ground import QUADRUPED

    scene = rbd.load_mjcf(QUADRUPED, dtype)
    model, start = scene.model, next(iter(scene.keyframes.values()))

    def loss(scene, q, v, u):
        r = rbd.contact.scene_step(scene, q, v, u)
        return jnp.sum(r.q) + jnp.sum(r.v), jnp.isfinite(r.v).all()

    @jax.jit
    @jax.vmap
    def finite(key):
        keys = jax.random.split(key, 5)
        step = 0.7 * jax.random.normal(keys[0], (model.nv,), model.dtype)
        kind = jax.random.randint(keys[1], (), 0, 4)
        still = kind == 0  # at rest, on a foot's first touch or in the keyframe itself
        q = rbd.integrate(model, start.q, jnp.where(still, 0, step))
        height = 0.3 * jax.random.normal(keys[2], (), model.dtype)
        q = q.at[2].set(jnp.where(kind == 1, q[2], jnp.where(still, q[2] - 0.01 * height, height)))
        v = jnp.where(still, 0, 3 * jax.random.normal(keys[3], (model.nv,), model.dtype))
        u = start.controls + jax.random.normal(keys[4], (scene.nu,), model.dtype)
        leaves, static = eqx.partition(scene, eqx.is_inexact_array)
        gradient, value = jax.grad(
            lambda s, q, v, u: loss(eqx.combine(s, static), q, v, u), (0, 1, 2, 3), has_aux=True
        )(leaves, q, v, u)
        found = [jnp.isfinite(x).all() for x in jax.tree.leaves(gradient)]
        touching = rbd.contact.constraint_forces(scene, q, v, jnp.zeros_like(v)).contacts
        return value, jnp.stack(found).all(), (touching.distance < 0).any()

    return finite


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_nan_at_random_states(dtype):
    """Deep in the ground, in the air and at exact touch; with controls, speeds and joint limits."""
    finite, touched = checker(dtype), 0
    for first in range(0, STATES, CHUNK):
        keys = jax.random.split(jax.random.key(first), CHUNK)
        value, gradient, touching = map(np.asarray, finite(keys))
        assert value.all() and gradient.all(), np.flatnonzero(~(value & gradient))[:5]
        touched += touching.sum()
        print(f"{dtype}: {first + CHUNK} states, {touched} in contact", flush=True)
    assert 0.2 * STATES < touched < 0.95 * STATES
