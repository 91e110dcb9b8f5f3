"""Objects that hold plain functions are arguments of ``jax.jit`` and ``jax.vmap`` as they are."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close

import rbd_jax as rbd
from rbd_jax import contact, optimize as opt
from rbd_jax.model.functions import Static, as_module
from rbd_jax.simulate import Touching

CART = rbd.samples.cart_pole()
UP = np.array([0.0, np.pi])


def stage(model, t, q, v, u):
    return jnp.concatenate([q - jnp.asarray(UP, q.dtype), v, 0.1 * u])


def final(model, q, v):
    return 10 * jnp.concatenate([q - jnp.asarray(UP, q.dtype), v])


def push(model, t, q, v, u):
    return jnp.concatenate([u, jnp.zeros_like(u)])


def problem(**options):
    return opt.Problem(CART, stage, final, 0.05, 5, push, -9.0, 9.0, nu=1, **options)


def test_a_problem_of_plain_functions():
    """As the guide shows it; the program is compiled once for the same functions."""

    @jax.jit
    @chex.assert_max_traces(1)
    def solve(p, q0):
        return opt.ilqr(p, q0, jnp.zeros(2), jnp.zeros((5, 1)), max_steps=3, throw=False).u

    q0 = jnp.array([0.0, 3.0])
    u = solve(problem(), q0)
    assert_close(solve(problem(), q0), u, atol=0)
    modules = opt.Problem(
        CART, *(Static(f) for f in (stage, final)), 0.05, 5, Static(push), -9.0, 9.0, nu=1
    )
    assert jax.tree.structure(modules) == jax.tree.structure(problem())
    assert jnp.abs(u).max() > 0.1
    # in JAX's default mode, and mapped over an array of the problem
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        p = opt.Problem(rbd.samples.cart_pole(), lambda m, t, q, v, u: u, final, 0.05, 5,
                        jnp.array([[1.0], [0.0]]))  # fmt: skip
        cost = jax.jit(lambda p, u: p.cost(jnp.zeros((6, 2)), jnp.zeros((6, 2)), u))
        starts = jax.vmap(lambda dt: cost(p.starting(dt), jnp.ones((5, 1))))(jnp.arange(3.0))
        assert starts.dtype == jnp.float32 and jnp.isfinite(starts).all()


@pytest.mark.slow
@pytest.mark.float64
def test_costs_that_close_over_traced_numbers_have_their_gradients():
    def cost_of(weight):
        p = opt.Problem(CART, lambda m, t, q, v, u: weight * u, final, 0.05, 5, push, nu=1)
        s = opt.ilqr(p, jnp.array([0.0, 3.0]), jnp.zeros(2), jnp.zeros((5, 1)), max_steps=40)
        return s.cost

    w = jnp.asarray(0.7)
    both = jax.jit(jax.value_and_grad(cost_of))
    slope, moved = both(w)[1], [both(w + h)[0] for h in (1e-4, -1e-4)]
    assert float(slope) == pytest.approx(float(moved[0] - moved[1]) / 2e-4, rel=1e-4)


def test_a_constraint_of_a_plain_function():
    rail = opt.Constraint(lambda model, q, v: jnp.abs(q[0]) - 0.4, "rail", at="states")
    value = jax.jit(lambda c, q: c.function(CART, q, q))(rail, jnp.ones(2))
    assert float(value) == pytest.approx(0.6)
    up = jnp.array([0.0, 0.0, 1.0])
    cone = opt.friction_cone(lambda m, t, q, v, u: jnp.append(u, jnp.ones(2)), 0.5, up)
    assert jax.jit(lambda c: c.function(CART, 0.0, UP, UP, jnp.ones(1)))(cone).shape == (1,)


def test_a_guard_and_a_terrain_of_plain_functions():
    guard = Touching(lambda t, q, v: 0 * v, lambda p: p[2] - 0.1)
    assert float(jax.jit(lambda g: g.gap(jnp.ones(3)))(guard)) == pytest.approx(0.9)
    assert jax.tree.leaves(Touching()) == [0.01]
    model = rbd.samples.quadruped()
    scene = contact.scene_on_ground(
        model, contact.points(model.frame_names[-1:], 0.02), terrain=lambda x: 0.1 * x[0]
    )
    height = jax.jit(lambda s: s.contacts.terrain(jnp.ones(2)))(scene)
    assert float(height) == pytest.approx(0.1)


def test_pytrees_and_none_stay_as_they_are():
    cost = opt.StateCost(*[jnp.ones(2)] * 3, jnp.ones(1))
    assert as_module(cost) is cost and as_module(None) is None
    assert as_module(as_module(stage)) == as_module(stage)
