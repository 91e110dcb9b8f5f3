"""No limb turns by half a revolution in a step of the default integrator; wheels do."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate._half_turn import below_half_a_turn, squared_turns

DT = 0.01
ROTOR = """<robot name="rotor"><link name="base"/>
  <link name="wheel"><inertial><origin xyz="{x} 0 0.05"/><mass value="0.4"/>
    <inertia ixx="0.002" iyy="{iyy}" izz="0.003" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="spin" type="continuous"><parent link="base"/><child link="wheel"/>
    <axis xyz="0 0 1"/></joint></robot>"""


def _rotor(x=0.0, iyy=0.002):
    return rbd.load_urdf(ROTOR.format(x=x, iyy=iyy))


def _weight(m):
    """How much a turn of the rotor counts."""
    return squared_turns(m, jnp.ones(1), 1.0)


def _turn(v):
    """The turn of a pendulum in a step after the scaling (rad)."""
    m = samples.pendulum()
    scaled = below_half_a_turn(m, jnp.reshape(v, (1,)), jnp.asarray(DT))
    return DT * scaled[0]


def test_the_turn_is_that_of_the_formula():
    w = jnp.array([0.0, 1.0, 1.57, 1.58, 2.0, 10.0, 1e6])
    turns = jax.vmap(_turn)(w / DT)
    expected = [x if x < np.pi / 2 else np.pi / 2 * (2 - np.pi / 2 / x) for x in np.asarray(w)]
    assert_close(turns, jnp.array(expected), atol=1e-6)
    assert_close(jax.vmap(_turn)(-w / DT), -turns, atol=1e-6)
    assert float(turns.max()) < np.pi


def test_the_scaling_has_a_continuous_derivative():
    at = np.pi / 2 / DT
    slopes = jax.vmap(jax.grad(_turn))(jnp.array([0.0, 0.5, 1 - 1e-4, 1 + 1e-4, 2.0]) * at)
    assert_close(slopes, DT * jnp.array([1, 1, 1, (1 + 1e-4) ** -2, 0.25]), atol=1e-4 * DT)


def test_all_velocities_have_one_factor_and_translations_do_not_count():
    m = samples.quadruped()
    fast = 1000 * np.asarray(random_state(m).v)
    slowed = jax.jit(lambda v: below_half_a_turn(m, v, jnp.asarray(DT)))
    scaled = np.asarray(slowed(fast))
    ratio = scaled / fast
    assert_close(ratio, ratio[0] * np.ones_like(ratio), atol=1e-6)
    assert ratio[0] < 0.5
    assert DT * np.abs(np.delete(scaled, [3, 4, 5])).max() < np.pi
    spin, fall = np.zeros_like(fast), np.zeros_like(fast)
    spin[:3] = 1e4  # the turn of a free joint is that of its vector
    assert DT * np.linalg.norm(slowed(spin)) < np.pi
    fall[5] = -1e4
    assert_close(slowed(fall), fall, atol=0)


def test_a_wheel_spins_as_fast_as_it_likes():
    m = _rotor()
    assert_close(_weight(m), jnp.zeros(1), atol=1e-5)
    v = jnp.array([2000.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = rbd.rollout(m, jnp.zeros(1), v, jnp.zeros((10, 1)), DT)
    assert_close(path.v, jnp.full((11, 1), 2000.0), atol=1e-2)
    # out of balance, or with another inertia across: a limb
    assert float(_weight(_rotor(x=0.05))[0]) == 1.0
    assert float(_weight(_rotor(iyy=0.004))[0]) == 1.0
    assert 0 < float(_weight(_rotor(x=0.001))[0]) < 1
    for out_of_balance in (_rotor(x=0.05), _rotor(iyy=0.004)):
        with pytest.warns(UserWarning, match="joint 'spin' .* quarter of a revolution"):
            path = rbd.rollout(out_of_balance, jnp.zeros(1), v, jnp.zeros((10, 1)), DT)
        assert float(jnp.abs(path.v[1:]).max()) * DT < np.pi


def test_the_weights_follow_the_leaves_of_the_model():
    m = _rotor()
    moved = lambda c: eqx.tree_at(lambda m: m.inertia, m, m.inertia.at[0, 1].set(0.4 * c))  # noqa: E731
    weights = jax.jit(jax.vmap(lambda c: _weight(moved(c))))(jnp.array([0.0, 0.001, 0.05]))
    assert_close(weights[0], jnp.zeros(1), atol=1e-5)
    assert 0 < float(weights[1, 0]) < 1 and float(weights[2, 0]) == 1
    slope = jax.jit(jax.grad(lambda c: _weight(moved(c))[0]))(jnp.asarray(0.0))
    assert float(slope) == pytest.approx(0, abs=1e-6)


def test_throw_is_an_error_under_jit_and_in_batches():
    m = samples.double_pendulum()

    def run(v):
        controls = jnp.zeros((5, m.nv))
        return rbd.rollout(m, jnp.zeros(m.nv), v, controls, DT, throw=True).v

    assert np.isfinite(jax.jit(run)(jnp.ones(m.nv))).all()
    with pytest.raises(jax.errors.JaxRuntimeError, match="more than a quarter of a revolution"):
        jax.block_until_ready(jax.jit(jax.vmap(run))(jnp.array([[1.0, 1.0], [500.0, 0.0]])))
    with pytest.raises(RuntimeError, match="joint .* of robot 'double_pendulum' turns by more"):
        run(jnp.array([500.0, 0.0]))


def test_a_robot_that_cannot_move_has_no_turn():
    m = rbd.build_model(rbd.RobotSpec("rock", (rbd.LinkSpec("base", 1.0),), ()))
    assert below_half_a_turn(m, jnp.zeros(0), jnp.asarray(DT)).shape == (0,)
