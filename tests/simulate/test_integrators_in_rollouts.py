"""Rollouts of each integrator: the loop over steps, batches, float32, gradients."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.calls import quick_jit
from support.helpers import assert_close, cast, random_state, scale_quaternions, stack
from support.integrator_cases import METHODS, ORDERS, small

import rbd_jax as rbd
from rbd_jax import samples


@pytest.mark.parametrize("method", ORDERS)
def test_rollout_is_the_loop_over_steps(method):
    m, T, dt = small(), 5, 0.01
    s = random_state(m)
    u = jax.random.normal(jax.random.key(0), (T, m.nv))
    path = quick_jit(partial(rbd.rollout, integrator=method))(m, s.q, s.v, u, jnp.asarray(dt))
    q, v = s.q, s.v
    step = quick_jit(
        lambda t, q, v, u: METHODS[method](
            m, lambda t, q, v: rbd.aba(m, q, v, u, None), t, q, v, jnp.asarray(dt)
        )
    )
    for k in range(T):
        assert_close((path.q[k], path.v[k]), (q, v))
        q, v = step(jnp.asarray(k * dt), q, v, u[k])
    assert_close((path.q[T], path.v[T]), (q, v))
    assert_close(path.t, dt * jnp.arange(T + 1.0))
    assert_close(path.controls, u, atol=0)


def test_policy_controls_wrenches_and_own_integrators():
    m = small()
    s = random_state(m)
    policy = lambda t, q, v: -0.3 * v + jnp.sin(t)  # noqa: E731
    start = m, s.q, s.v
    run = quick_jit(
        lambda m, q, v, u, f: rbd.rollout(m, q, v, u, 0.01, f_ext=f),
    )
    by_policy = quick_jit(lambda m, q, v, f: rbd.rollout(m, q, v, policy, 0.01, steps=6, f_ext=f))(
        *start, s.f_ext
    )
    assert by_policy.controls.shape == (6, m.nv)
    assert_close(by_policy.controls[2], policy(0.02, by_policy.q[2], by_policy.v[2]))
    assert_close(run(*start, by_policy.controls, s.f_ext), by_policy)
    other = run(*start, by_policy.controls, 0 * s.f_ext)
    assert float(jnp.abs(other.v[1] - by_policy.v[1]).max()) > 1e-3

    def frozen(model, acceleration, t, q, v, dt):
        return q, v + dt

    held = rbd.rollout(*start, by_policy.controls, 0.5, integrator=frozen)
    assert_close(held.q, jnp.broadcast_to(s.q, held.q.shape), atol=0)
    assert_close(held.v[-1], s.v + 3.0)


def test_no_steps_gives_the_initial_state():
    m = small()
    s = random_state(m)
    path = rbd.rollout(m, s.q, s.v, jnp.zeros((0, m.nv)), 0.01)
    assert_close((path.q, path.v), (s.q[None], s.v[None]), atol=0)
    assert path.t.shape == (1,) and path.controls.shape == (0, m.nv)


@pytest.mark.parametrize("method", ORDERS)
def test_rollout_in_float32_with_a_python_time_step(method):
    m = cast(small(), jnp.float32)
    s = random_state(m)
    u = jnp.zeros((3, m.nv), jnp.float32)
    policy = lambda t, q, v: -0.1 * v  # noqa: E731
    for controls, steps in ((u, None), (policy, 3)):
        path = jax.eval_shape(
            lambda q, v, c=controls, n=steps: rbd.rollout(
                m, q, v, c, 0.01, steps=n, integrator=method
            ),
            s.q,
            s.v,
        )
        assert {x.dtype for x in jax.tree.leaves(path)} == {jnp.dtype(jnp.float32)}


def test_batches_of_rollouts_over_states_and_models():
    m = small()
    s = random_state(m)
    u = jax.random.normal(jax.random.key(1), (3, 4, m.nv))
    run = lambda m, u: rbd.rollout(m, s.q, s.v, u, 0.01)  # noqa: E731
    heavy = stack([eqx.tree_at(lambda m: m.inertia, m, m.inertia * k) for k in (1.0, 2.0, 3.0)])
    many = quick_jit(jax.vmap(run, in_axes=(0, 0)))(heavy, u)
    one = quick_jit(run)
    for k in range(3):
        row = jax.tree.map(lambda x, k=k: x[k], heavy)
        assert_close(jax.tree.map(lambda x, k=k: x[k], many), one(row, u[k]), atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["semi_implicit_euler", pytest.param("rk4", marks=pytest.mark.slow)]
)
def test_gradient_through_a_rollout(method):
    """Of the final state with respect to q0, v0, controls, wrench, inertia and time step."""
    m = samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(m)
    u = jax.random.normal(jax.random.key(1), (4, m.nv))
    inputs = {"q": s.q, "v": s.v, "u": u, "f": s.f_ext, "I": m.inertia, "dt": jnp.asarray(0.02)}
    x0, unravel = ravel_pytree(inputs)

    def loss(x):
        x = unravel(x)
        robot = eqx.tree_at(lambda m: m.inertia, m, x["I"])
        path = rbd.rollout(robot, x["q"], x["v"], x["u"], x["dt"], integrator=method, f_ext=x["f"])
        end = jnp.concatenate([path.q[-1], path.v[-1]])
        return jnp.sum(end * jnp.sin(1.0 + jnp.arange(end.size, dtype=end.dtype)))

    gradient = np.asarray(quick_jit(jax.grad(loss))(x0))
    many = quick_jit(jax.vmap(loss))
    h, numeric = 1e-3, 0
    for c, w in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        numeric = numeric + w * np.asarray(many(x0[None] + c * h * jnp.eye(x0.size))) / (12 * h)
    scale = np.abs(gradient).max()
    parts = unravel(jnp.asarray(gradient))
    assert all(float(jnp.abs(x).max()) > 0 for x in parts.values())
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-6 * scale)


def test_rollout_from_a_quaternion_of_another_length():
    m = small()
    s = random_state(m)
    u = jnp.zeros((3, m.nv))
    run = quick_jit(lambda q: rbd.rollout(m, q, s.v, u, 0.01))
    a, b = run(s.q), run(scale_quaternions(m, s.q, 2.5))
    assert_close(a.v, b.v)
    assert_close(a.q[1:], b.q[1:])
