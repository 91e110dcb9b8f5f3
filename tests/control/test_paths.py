"""Time-optimal paths: limits hold and are used, and a closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import control

pytest.importorskip("toppra")
pytestmark = pytest.mark.float64


def test_one_joint_accelerates_and_brakes_with_all_its_torque():
    """Without gravity half a turn takes ``2 √(π I / τ)``."""
    link = rbd.LinkSpec("bar", 2.0, np.zeros(3), np.diag([0.1, 0.5, 0.1]))
    joint = rbd.JointSpec(
        "hinge", "revolute", "base", "bar", axis=np.array([0.0, 1, 0]), effort=3.0
    )
    spec = rbd.RobotSpec("bar", (rbd.LinkSpec("base"), link), (joint,))
    model = rbd.build_model(spec, gravity=(0.0, 0.0, 0.0))
    motion = control.time_optimal_path(model, jnp.array([[0.0], [0.5 * np.pi], [np.pi]]))
    assert float(motion.t[-1]) == pytest.approx(2 * np.sqrt(np.pi * 0.5 / 3.0), rel=0.02)
    assert np.abs(motion.tau).max() < 3.0 * 1.001
    assert np.abs(motion.q[-1] - np.pi) < 1e-6


def test_an_arm_keeps_its_limits_and_uses_them():
    model = rbd.samples.arm()
    way = jnp.stack([jnp.zeros(7), 0.1 * jnp.arange(7.0), 0.3 * jnp.arange(7.0) - 0.5])
    motion = control.time_optimal_path(model, way)
    shares = np.abs(motion.tau) / np.asarray(model.effort_limit)
    speeds = np.abs(motion.v) / np.asarray(model.velocity_limit)
    assert shares.max() < 1.02 and speeds.max() < 1.02
    assert np.median(np.maximum(shares.max(1), speeds.max(1))) > 0.95
    weak = 0.01 * model.effort_limit
    with pytest.raises(ValueError, match="no torques within the limits follow this path"):
        control.time_optimal_path(model, way, effort_limit=weak)
    with pytest.raises(ValueError, match="at least two waypoints, got 1"):
        control.time_optimal_path(model, way[:1])
