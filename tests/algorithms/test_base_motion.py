"""Robots on a moving base (Kim, footnote 6; notes §8.1) against robots with a free base joint."""

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.driven import MODELS
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax.algorithms import BaseMotion


def test_the_torques_are_those_behind_a_free_joint_that_moves_like_the_base():
    fixed, free = (rbd.samples.tree(3, 2, floating_base=b) for b in (False, True))
    assert free.nv == fixed.nv + 6
    s = random_state(fixed, 2)
    base = BaseMotion(*jax.random.normal(jax.random.key(1), (2, 6)))
    flags = jnp.arange(fixed.nb) % 2 == 0

    @quick_jit
    def run(fixed, free, s, base):
        q = jnp.concatenate([jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), s.q])
        v, a = jnp.concatenate([base.V, s.v]), jnp.concatenate([base.dV, s.a])
        f = jnp.concatenate([jnp.zeros((1, 6)), s.f_ext])
        tau = rbd.rnea(free, q, v, a, f)[6:]
        mixed = rbd.algorithms.hybrid_aba(fixed, s.q, s.v, s.a, tau, flags, s.f_ext, base)
        return tau, (
            rbd.rnea(fixed, s.q, s.v, s.a, s.f_ext, base),
            rbd.screw.component_inverse_dynamics(fixed, s.q, s.v, s.a, s.f_ext, base),
            rbd.aba(fixed, s.q, s.v, tau, s.f_ext, base),
            mixed,
        )

    tau, (torque, components, a, mixed) = run(fixed, free, s, base)
    for x, y in ((torque, tau), (components, tau), (a, s.a), (mixed[0], s.a), (mixed[1], tau)):
        assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_driven_joints_on_a_moving_base():
    """Forward dynamics gives back the accelerations of inverse dynamics."""
    m = MODELS["knee"]()
    s = random_state(m, 2)
    base = BaseMotion(*jax.random.normal(jax.random.key(1), (2, 6)))

    @quick_jit
    def run(m, s, base):
        tau = rbd.rnea(m, s.q, s.v, s.a, s.f_ext, base)
        still = rbd.rnea(m, s.q, s.v, s.a, s.f_ext)
        return rbd.aba(m, s.q, s.v, tau, s.f_ext, base), tau - still

    a, difference = run(m, s, base)
    assert_close(a, s.a, rtol=1e-9, atol=1e-9)
    assert float(jnp.abs(difference).max()) > 0.1


def test_a_wrong_shape_is_named():
    m, x = rbd.samples.pendulum(), jnp.zeros(1)
    with pytest.raises(ValueError, match=r"base_motion: V has shape \(3,\), expected \(6,\)"):
        rbd.rnea(m, x, x, x, base_motion=BaseMotion(jnp.zeros(3), jnp.zeros(6)))
