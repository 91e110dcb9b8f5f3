"""Linearity in the dynamic parameters: against the algorithms themselves and Pinocchio."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_states

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.io import convert, example_robots, load_urdf

pytestmark = pytest.mark.filterwarnings("ignore::rbd_jax.RobotDescriptionWarning")
ROBOTS = {
    "random_tree": lambda: samples.random_tree(0),
    "quadruped": samples.quadruped,
}


def _all(m, s):
    return {
        "torque": rbd.algorithms.joint_torque_regressor(m, s.q, s.v, s.a),
        "momentum": rbd.algorithms.momentum_regressor(m, s.q, s.v),
        "kinetic": rbd.algorithms.kinetic_energy_regressor(m, s.q, s.v),
        "potential": rbd.algorithms.potential_energy_regressor(m, s.q),
    }


def _values(m, s):
    armature, damping = m.armature, m.damping
    return {
        "torque": rbd.inverse_dynamics(m, s.q, s.v, s.a) - armature * s.a - damping * s.v,
        "momentum": rbd.derivatives.mass_matrix_product(m, s.q, s.v) - armature * s.v,
        "kinetic": rbd.kinetic_energy(m, s.q, s.v) - 0.5 * jnp.sum(armature * s.v**2),
        "potential": rbd.potential_energy(m, s.q),
    }


@cache
def _facts(name):
    m = ROBOTS[name]()
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))
    s = random_states(m, 4)
    run = quick_jit(lambda m, s: jax.vmap(lambda s: (_all(m, s), _values(m, s)))(s))
    other = eqx.tree_at(
        lambda m: m.inertia, m, jnp.cos(1.0 + jnp.arange(10.0 * m.nb)).reshape(-1, 10)
    )
    return m, run(m, s), other, run(other, s)


@pytest.mark.float64
@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("what", ["torque", "momentum", "kinetic", "potential"])
def test_regressor_times_parameters(name, what):
    """Of the robot itself, and of inertias that belong to no body at all: Y does not know π."""
    m, (Y, value), other, (Y_other, value_other) = _facts(name)
    np.testing.assert_array_equal(Y[what], Y_other[what])
    for robot, x in ((m, value[what]), (other, value_other[what])):
        scale = float(jnp.abs(x).max())
        assert scale > 1e-2
        product = Y[what] @ robot.inertia.reshape(-1)
        np.testing.assert_allclose(product, x, rtol=0, atol=1e-12 * scale)


@pytest.mark.float64
def test_regressor_of_momentum_is_a_matrix():
    V = jnp.sin(1.0 + jnp.arange(12.0)).reshape(2, 6)
    I10 = jnp.cos(jnp.arange(20.0)).reshape(2, 10)
    K = rbd.spatial.inertia.regressor(V)
    product = jnp.einsum("bij,bj->bi", K, I10)
    np.testing.assert_allclose(product, rbd.spatial.inertia.apply(I10, V), rtol=0, atol=1e-15)


@pytest.mark.float64
def test_identification_of_a_payload_from_torques():
    """Least squares on noiseless torques finds the ten parameters of the last link's load."""
    m = samples.arm()
    load = jnp.array([0.8, 0.05, -0.02, 0.12, 0.03, 0.001, 0.031, -0.002, 0.001, 0.004])
    loaded = eqx.tree_at(lambda m: m.inertia, m, m.inertia.at[-1].add(load))
    s = random_states(m, 20)
    inverse = quick_jit(jax.vmap(rbd.inverse_dynamics, in_axes=(None, 0, 0, 0)))
    Y = quick_jit(jax.vmap(rbd.algorithms.joint_torque_regressor, in_axes=(None, 0, 0, 0)))(
        m, *s[:3]
    )
    extra = inverse(loaded, *s[:3]) - inverse(m, *s[:3])
    found = np.linalg.lstsq(np.asarray(Y[..., -10:].reshape(-1, 10)), np.asarray(extra).ravel())[0]
    np.testing.assert_allclose(found, load, rtol=0, atol=1e-11)


@pytest.mark.float64
@pytest.mark.parametrize("case", ["talos_full_v2-floating", "panda-fixed"])
def test_against_pinocchio(case):
    pin = pytest.importorskip("pinocchio")
    name, _, base = case.rpartition("-")
    path, floating = example_robots()[name], base == "floating"
    theirs = pin.buildModelFromUrdf(str(path), *((pin.JointModelFreeFlyer(),) if floating else ()))
    ours = load_urdf(path, floating_base=floating, dtype=jnp.float64, mimic="independent")
    gravity = jnp.array([0.7, -1.9, -9.3])
    theirs.gravity.linear = np.asarray(gravity)
    ours = eqx.tree_at(lambda m: m.gravity, ours, gravity)
    layout, data = convert.pinocchio(ours, theirs), theirs.createData()
    s = random_states(ours, 2)
    Y = quick_jit(lambda m, s: jax.vmap(lambda s: _all(m, s))(s))(ours, s)
    names = list(theirs.names)[1:]
    ours_of = [ours.joint_names.index(n) if n in ours.joint_names else 0 for n in names]
    columns = np.concatenate([10 * i + np.arange(10) for i in ours_of])
    to = quick_jit(lambda q, v, a: (layout.q_to(q), layout.v_to(q, v), layout.a_to(q, v, a)))
    turn = quick_jit(jax.vmap(layout.tau_to, in_axes=(None, 0)))
    for k in range(2):
        q, v, a = s.q[k], s.v[k], s.a[k]
        x = jax.tree.map(np.asarray, to(q, v, a))
        tau = np.asarray(pin.computeJointTorqueRegressor(theirs, data, *x))
        mine = np.asarray(turn(q, Y["torque"][k].T[columns])).T
        np.testing.assert_allclose(mine, tau, rtol=0, atol=1e-10 * np.abs(tau).max())
        kinetic = pin.computeKineticEnergyRegressor(theirs, data, x[0], x[1])
        np.testing.assert_allclose(
            Y["kinetic"][k][columns], kinetic.ravel(), rtol=0, atol=1e-10 * np.abs(kinetic).max()
        )
        potential = pin.computePotentialEnergyRegressor(theirs, data, x[0])
        np.testing.assert_allclose(
            Y["potential"][k][columns],
            potential.ravel(),
            rtol=0,
            atol=1e-10 * np.abs(potential).max(),
        )
