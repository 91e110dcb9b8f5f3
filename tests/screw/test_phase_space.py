"""The momentum form as a system in (q, Π), against forward dynamics and a rollout. Müller (79)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import screw


def _tree():
    m = rbd.samples.random_tree(1, kinds=("revolute", "spherical", "helical", "universal"))
    return eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))


def test_rates_are_those_of_forward_dynamics():
    """Π̇ is the derivative of the momenta along the motion under the torques."""
    m = _tree()
    s = random_state(m, 3)

    def run(m, s):
        a = rbd.aba(m, s.q, s.v, s.tau, s.f_ext)
        rate = rbd.rate_from_velocity(m, s.q, s.v), a
        Pi, dPi = jax.jvp(lambda q, v: screw.spatial_momenta(m, q, v), (s.q, s.v), rate)
        return screw.phase_rates(m, s.q, Pi, s.tau, s.f_ext), (s.v, dPi)

    rates, expected = quick_jit(run)(m, s)
    for x, y in zip(rates, expected, strict=True):
        assert_close(x, y, atol=1e-9 * (1 + float(np.abs(y).max())))


def test_momentum_of_a_free_robot_moves_by_the_wrenches_on_it_alone():
    m = rbd.samples.tree(3, 2, floating_base=True)
    s = random_state(m, 1)
    tau = s.tau.at[:6].set(0.0)

    def run(m, s):
        Pi = screw.spatial_momenta(m, s.q, s.v)
        R, p = rbd.forward_kinematics(m, s.q)
        arm = rbd.spatial.so3.rotate(R, rbd.spatial.inertia.com(m.inertia)) + p
        weight = m.inertia[:, :1] * m.gravity[None]
        gravity = jnp.concatenate([rbd.spatial.so3.cross(arm, weight), weight], axis=1)
        return screw.phase_rates(m, s.q, Pi, tau).dPi, gravity

    # rotor inertia and damping act between bodies
    m = eqx.tree_at(lambda m: (m.armature, m.damping), m,
                    (m.armature.at[:6].set(0.0), m.damping.at[:6].set(0.0)))  # fmt: skip
    dPi, gravity = quick_jit(run)(m, s)
    assert_close(dPi.sum(axis=0), gravity.sum(axis=0), atol=1e-10)


@pytest.mark.slow
def test_integration_in_phase_space_is_the_rollout():
    """RK4 of (q, Π) in ambient coordinates of a double pendulum, against RK4 of (q, v)."""
    m = rbd.samples.double_pendulum()
    q0, v0, n, h = jnp.array([0.4, -0.7]), jnp.array([1.0, 0.5]), 200, 0.002

    def field(x):
        v, dPi = screw.phase_rates(m, *x, jnp.zeros(2))
        return rbd.rate_from_velocity(m, x[0], v), dPi

    def step(x, _):
        move = lambda k, c: jax.tree.map(lambda x, k: x + c * h * k, x, k)  # noqa: E731
        k1 = field(x)
        k2 = field(move(k1, 0.5))
        k3 = field(move(k2, 0.5))
        k4 = field(move(k3, 1.0))
        mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return move(mean, 1.0), None

    def run(q0, v0):
        start = q0, screw.spatial_momenta(m, q0, v0)
        q, Pi = jax.lax.scan(step, start, length=n)[0]
        path = rbd.rollout(m, q0, v0, jnp.zeros((n, 2)), h, integrator="rk4")
        return (q, screw.velocity_of_momenta(m, q, Pi)), (path.q[-1], path.v[-1])

    got, expected = quick_jit(run)(q0, v0)
    assert_close(got, expected, atol=1e-8)
