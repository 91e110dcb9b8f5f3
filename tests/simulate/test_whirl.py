"""Steps of semi-implicit Euler that cannot follow a motion; all others stay as they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import euler_velocity, step_derivatives

DT = 0.002


def test_motions_that_a_step_follows_are_exactly_those_of_euler():
    """Turns below 1 rad in a step under any torques, and fast turns that are even."""
    m = samples.quadruped()
    v, a = (jax.random.uniform(jax.random.key(k), (200, m.nv), minval=-1) for k in (0, 1))
    even = jnp.where(jnp.arange(m.nv) == 8, 4000.0, 0.0)  # one joint turns by 8 rad in a step
    slow, strong = 400 * v, 40000 * a

    @jax.jit
    @jax.vmap
    def both(v, a):
        return euler_velocity(m, v, a, DT), v + DT * a

    for w, b in ((slow, strong), (0.1 * slow + even[None], 70000 * a)):
        for one, other in (both(w, b), both(-w, b)):
            assert bool(jnp.all(one == other))
    flies = jnp.arange(m.nv) < 6
    new, plain = both(jnp.where(flies[None], 0, 3000) * v, 1e6 * a)
    assert bool(jnp.all(new[:, 3:6] == plain[:, 3:6]))  # no translation is slowed
    assert bool(jnp.all(jnp.abs(new[:, 6:]) < jnp.abs(plain[:, 6:])))


def test_the_greatest_speed_grows_by_a_bounded_amount():
    """The stated equation, in NumPy; and speeds above 2 rad in a step gain 0.3 rad at most."""
    m = samples.quadruped()
    keys = jax.random.split(jax.random.key(0), 4)
    v, a = (jax.random.normal(k, (500, m.nv)) for k in keys[:2])
    v = v * 10 ** jax.random.uniform(keys[2], (500, 1), minval=0, maxval=4)
    a = a * 10 ** jax.random.uniform(keys[3], (500, 1), minval=0, maxval=7)
    new = np.asarray(jax.jit(jax.vmap(lambda v, a: euler_velocity(m, v, a, DT)))(v, a))
    v, a = np.asarray(v), np.asarray(a)
    plain = v + DT * a
    angular = np.delete(np.arange(m.nv), [3, 4, 5])
    turn, change = DT * np.abs(plain)[:, angular], DT**2 * np.abs(a)[:, angular]
    y = np.maximum(np.minimum(turn - 1, change - 0.3), 0)
    fastest = DT * np.abs(v)[:, angular].max(axis=1)
    s = 1 / (1 + y.max(axis=1) / np.maximum(fastest, 1))
    assert 0.2 < np.mean(s == 1) < 0.8
    np.testing.assert_allclose(new[:, angular], s[:, None] * plain[:, angular], rtol=1e-5)
    after = DT * np.abs(new[:, angular]).max(axis=1)
    assert np.all(after <= np.maximum(fastest, 2) * (1 + 1e-5) + 0.301)


@pytest.mark.float64
def test_steps_of_whirling_limbs_have_exact_derivatives():
    """The closed form of the step and autodiff through it, against differences on the manifold."""
    m = samples.quadruped()
    s, h = random_state(m), 1e-7
    v = s.v.at[6:].multiply(1500.0)

    def after(x):
        dq, dv, tau = jnp.split(x, 3)
        return rbd.step(m, rbd.integrate(m, s.q, dq), v + dv, s.tau + tau, DT)

    @quick_jit
    def all_ways():
        q1, v1 = after(jnp.zeros(3 * m.nv))
        tangent = lambda x: jnp.concatenate([rbd.difference(m, q1, x[0]), x[1]])  # noqa: E731
        eye = jnp.eye(3 * m.nv) * h
        ends = [jax.vmap(lambda x: tangent(after(x)))(sign * eye) for sign in (1, -1)]
        closed = step_derivatives(m, s.q, v, s.tau, DT)
        auto = jax.jacfwd(lambda x: tangent(after(x)))(jnp.zeros(3 * m.nv))
        a = rbd.forward_dynamics(rbd.simulate.implicitly_damped(m, DT), s.q, v, s.tau)
        return (
            jnp.concatenate(closed, axis=1),
            auto,
            (ends[0] - ends[1]).T / (2 * h),
            v1 - v - DT * a,
        )

    closed, auto, differences, lost = all_ways()
    assert float(jnp.abs(lost).max()) > 1
    assert_close(closed, auto, rtol=1e-9, atol=1e-9)
    assert_close(auto, differences, rtol=1e-5, atol=1e-5)


def test_gradients_through_a_whirl_are_finite():
    m = rbd.load_urdf(rbd.io.example_robot("panda"))
    q, v = rbd.neutral(m), jnp.linspace(-2000, 2000, m.nv)

    def end(v, tau):
        path = rbd.rollout(m, q, v, jnp.tile(tau, (20, 1)), DT)
        return jnp.sum(jnp.sin(path.q[-1])) + 1e-3 * jnp.sum(path.v[-1])

    value, slopes = quick_jit(jax.vmap(jax.value_and_grad(end, argnums=(0, 1))))(
        v[None], 0 * v[None]
    )
    assert np.isfinite(value).all() and all(np.isfinite(x).all() for x in slopes)
    assert all(np.abs(x).max() > 0 for x in slopes)


@pytest.mark.parametrize("name", ["double_pendulum", "cart_pole", "quadrotor_arm"])
def test_long_steps_of_falling_robots_stay_as_they_are(name):
    """Steps of 0.05 s, as trajectory optimization takes them: bit for bit the explicit ones."""
    m = getattr(samples, name)()
    m = eqx.tree_at(lambda m: m.damping, m, 0 * m.damping)
    q = rbd.integrate(m, rbd.neutral(m), jnp.full(m.nv, 1.5))

    def ends(how):
        return rbd.rollout(m, q, jnp.ones(m.nv), jnp.zeros((40, m.nv)), 0.05, integrator=how)[1:3]

    ours, plain = quick_jit(lambda: (ends("implicit_damping"), ends("semi_implicit_euler")))()
    for a, b in zip(ours, plain, strict=True):
        assert bool(jnp.all(a == b))
    assert float(jnp.abs(ours[1]).max()) > 2
