"""Constraints that keep robots clear of things, and functions that take the wrong arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import central_difference

import rbd_jax as rbd
from rbd_jax import optimize as opt

TWO = """<mujoco><worldbody><geom name="ball" type="sphere" size=".2" pos="1.2 0 0"/>
<body><joint name="a" axis="0 1 0"/>
<geom name="rod" type="capsule" fromto="0 0 0 0.5 0 0" size=".05"/>
<body pos=".5 0 0"><joint name="b" axis="0 0 1"/>
<geom name="hand" type="sphere" pos=".3 0 0" size=".1"/></body></body></worldbody></mujoco>"""


def test_spheres_stay_clear_of_obstacles():
    model = rbd.samples.arm()
    q = 0.3 * jnp.arange(1.0, 8.0)
    obstacles = np.array([[0.4, 0.1, 0.4, 0.15], [0.0, 0.2, 0.9, 0.1], [-0.3, 0.0, 0.2, 0.3]])
    frames = {"tool": 0.05, "link4": 0.1}
    c = opt.clear_of(model, frames, obstacles, margin=0.02)
    rows = jax.jit(lambda q: c.function(model, q, q))
    want = [r + o[3] + 0.02 - np.linalg.norm(rbd.frame_placement(model, q, f)[1] - o[:3])
            for f, r in frames.items() for o in obstacles]  # fmt: skip
    np.testing.assert_allclose(rows(q), want, rtol=1e-6)
    J = jax.jit(jax.jacrev(rows))(q)
    difference = central_difference(rows, q)  # has a third of the digits of float32
    np.testing.assert_allclose(J, difference, atol=1e-6 if J.dtype == jnp.float64 else 2e-4)
    inside = opt.clear_of(model, {"tool": 0.1}, [[*rbd.frame_placement(model, q, "tool")[1], 0.1]])
    slope = jax.jit(jax.grad(lambda q: inside.function(model, q, q)[0]))(q)
    assert bool(jnp.isfinite(slope).all())
    with pytest.raises(ValueError, match="obstacles of shape"):
        opt.clear_of(model, frames, np.zeros((2, 3)))


def test_shapes_of_a_scene_stay_apart():
    pytest.importorskip("mujoco")
    scene = rbd.load_mjcf(TWO)
    pairs = [("ball", "hand"), ("ball", "rod")]
    c = opt.keep_apart(scene, pairs, margin=0.01)
    q = jnp.array([0.3, -0.4])
    there = jax.jit(lambda q: rbd.contact.distances(scene, q, pairs).distance)(q)
    rows = jax.jit(lambda q: c.function(scene.model, q, q))
    np.testing.assert_allclose(rows(q), 0.01 - there, atol=1e-9)
    J = jax.jit(jax.jacfwd(rows))(q)
    difference = central_difference(rows, q)  # has a third of the digits of float32
    np.testing.assert_allclose(J, difference, atol=1e-6 if J.dtype == jnp.float64 else 2e-4)
    with pytest.raises(KeyError, match="no shape is named"):
        opt.keep_apart(scene, [("ball", "foot")])


def test_a_wrong_number_of_arguments_is_told():
    cart = rbd.samples.cart_pole()
    right = lambda model, t, q, v, u: jnp.sum(q)  # noqa: E731
    final = lambda model, q, v: jnp.sum(q)  # noqa: E731
    opt.Problem(cart, right, final, 0.1, 3)
    with pytest.raises(TypeError, match=r"Problem: stage is called with 5 .*\(model, t, q, v, u\)"):
        opt.Problem(cart, final, final, 0.1, 3)
    with pytest.raises(TypeError, match=r"Problem: final is called with 3 arguments"):
        opt.Problem(cart, right, right, 0.1, 3)
    with pytest.raises(TypeError, match=r"Constraint 'rail' at 'states' .*takes \(q\)"):
        opt.Constraint(lambda q: q, "rail", at="states")
