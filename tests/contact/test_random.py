"""Robots in contact at random states: neither value nor gradient is ever NaN."""

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
FINGER = """<body pos="{} {} .02" euler="0 0 {}"><joint axis="0 1 0" range="-20 100"/>
  <geom type="capsule" fromto="0 0 0 .05 0 0" size=".01"/>
  <body pos=".05 0 0"><joint axis="0 1 0" range="-20 100"/>
    <geom type="capsule" fromto="0 0 0 .04 0 0" size=".009"/>
    <geom type="box" size=".008 .008 .012" pos=".045 0 0"/></body></body>"""
CORNERS = np.random.default_rng(5).normal(size=(14, 3))
CORNERS *= 0.04 / np.linalg.norm(CORNERS, axis=1, keepdims=True)
HAND = f"""<mujoco><option cone="elliptic"/><compiler autolimits="true"/>
<asset><mesh name="stone" vertex="{" ".join(map(str, CORNERS.ravel()))}"/></asset>
<default><joint damping=".01" armature=".001"/></default><worldbody>
<geom name="palm" type="cylinder" size=".05 .015"/>
{FINGER.format(0.05, 0, 0)}{FINGER.format(-0.03, 0.04, 120)}{FINGER.format(-0.03, -0.04, 240)}
<body name="stone" pos="0 0 .06"><freejoint/>
  <geom name="stone" type="mesh" mesh="stone" density="500"/></body>
</worldbody></mujoco>"""
"""A hand of three fingers with a mesh in it; the free joint is the last."""


def checker(dtype, robot):
    """A compiled function of keys: is the step finite, its gradient, and does anything touch."""
    from benchmarks._ground import QUADRUPED

    scene = rbd.load_mjcf(QUADRUPED if robot == "quadruped" else HAND, dtype)
    model = scene.model
    start = rbd.contact.Keyframe(scene.q0, jnp.zeros(model.nv, dtype), jnp.zeros(scene.nu, dtype))
    start = next(iter(scene.keyframes.values()), start)
    z = model.q_slice(model.joint_names[0 if robot == "quadruped" else -1]).start + 2
    spread = 0.3 if robot == "quadruped" else 0.08

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
        if robot == "hand":  # the stone in, on and beside the hand
            place = spread * jax.random.normal(keys[2], (3,), model.dtype)
            q = q.at[z - 2 : z + 1].set(jnp.where(still, q[z - 2 : z + 1], place))
        height = spread * jax.random.normal(keys[2], (), model.dtype)
        q = q.at[z].set(jnp.where(kind == 1, q[z], jnp.where(still, q[z] - 0.01 * height, height)))
        v = jnp.where(still, 0, 3 * jax.random.normal(keys[3], (model.nv,), model.dtype))
        u = start.controls + jax.random.normal(keys[4], (scene.nu,), model.dtype)
        leaves, static = eqx.partition(scene, eqx.is_inexact_array)
        gradient, value = jax.grad(
            lambda s, q, v, u: loss(eqx.combine(s, static), q, v, u), (0, 1, 2, 3), has_aux=True
        )(leaves, q, v, u)
        found = [jnp.isfinite(x).all() for x in jax.tree.leaves(gradient)]
        touching = rbd.contact.constraint_forces(scene, q, v, jnp.zeros_like(v)).contacts
        own = touching.rows("stone") if robot == "hand" else list(range(len(touching.names)))
        return value, jnp.stack(found).all(), (touching.distance[np.array(own)] < 0).any()

    return finite


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["quadruped", "hand"])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.float64)])
def test_no_nan_at_random_states(dtype, robot):
    """Deep in each other, in the air and at exact touch; with controls, speeds and joint limits."""
    finite, touched = checker(dtype, robot), 0
    for first in range(0, STATES, CHUNK):
        keys = jax.random.split(jax.random.key(first), CHUNK)
        value, gradient, touching = map(np.asarray, finite(keys))
        assert value.all() and gradient.all(), np.flatnonzero(~(value & gradient))[:5]
        touched += touching.sum()
        print(f"{dtype}: {first + CHUNK} states, {touched} in contact", flush=True)
    assert 0.2 * STATES < touched < 0.95 * STATES
