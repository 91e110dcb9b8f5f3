"""The solvers of all rooms end in the same words: ``result``, ``steps``, ``max_steps``, ``throw``.

The messages of optimization and identification are tested with their solvers.
"""

import inspect
from typing import get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints, contact, control, identify, optimize, simulate
from rbd_jax.model.outcome import RESULTS

VALUES = (contact.SceneStep, contact.Solution, constraints.Projected, optimize.Solution,
          optimize.ConstrainedSolution, identify.Fit, control.Reached,
          simulate.AdaptiveTrajectory)  # fmt: skip
SOLVERS = (
    contact.scene_step, contact.constrained_acceleration, constraints.project, optimize.ilqr,
    optimize.ddp, optimize.single_shooting, optimize.multiple_shooting,
    optimize.augmented_lagrangian, identify.fit_torques, identify.fit_accelerations,
    identify.fit_trajectories, simulate.adaptive_rollout,
    control.inverse_kinematics,
)  # fmt: skip
BALL = """<mujoco><option cone="elliptic"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 .099"><freejoint/><geom size=".1"/></body></worldbody>
<keyframe><key name="start" qvel=".2 .1 -.3 0 .3 0"/></keyframe></mujoco>"""


def test_every_solver_has_the_same_options_and_fields():
    for room in (contact, constraints, control, optimize, simulate):
        assert room.RESULTS is RESULTS
    for value in VALUES:
        assert {"result", "steps"} <= set(get_type_hints(value)), value
    for solver in SOLVERS:
        assert {"max_steps", "throw"} <= set(inspect.signature(solver).parameters), solver


def test_every_outcome_prints_its_words():
    for name, item in RESULTS._name_to_item.items():
        words = RESULTS[item]
        assert len(words.split()) > 2 and words.endswith("."), name
        assert words in repr(item)
    batch = jax.vmap(lambda x: RESULTS.where(x > 0, RESULTS.successful, RESULTS.stalled))
    assert "The solver succeeded." in repr(batch(jnp.arange(2.0)))


@pytest.mark.float64
def test_contact():
    """A step says how its solver ended: too few steps, a number that is NaN, and a whole batch."""
    scene = rbd.load_mjcf(BALL)
    q, v, u = scene.keyframes["start"]

    @jax.jit
    def step(q, v):
        return [contact.scene_step(scene, q, v, u, max_steps=n)[3:5] for n in (60, 1)]

    (good, n), (few, one) = step(q, v)
    assert good == RESULTS.successful and 1 < int(n) < 10
    assert few == RESULTS.max_steps_reached and int(one) == 1
    assert step(q, v * np.nan)[0][0] == RESULTS.nonfinite
    with pytest.raises(RuntimeError, match="Raise `max_steps`"):
        contact.scene_step(scene, q, v, u, max_steps=1, throw=True)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        contact.scene_step(scene, q, v, u, max_steps=0)


@pytest.mark.slow
def test_projection():
    """The tip of a double pendulum is pulled to a point; two locks of one joint contradict."""
    model = rbd.samples.double_pendulum()
    held = constraints.join(
        constraints.point(model, "lower", offset=[0, 0, -1.0], at=[-1.0, 0, -1.4]),
        constraints.lock(model, "shoulder", 0.0, name="here"),
        constraints.lock(model, "shoulder", 1.0, name="there"),
    )
    q, v = jnp.array([0.3, 0.9]), jnp.ones(2)

    @quick_jit
    def project(q, active):
        c = held.with_active(active)
        return [constraints.project(model, q, v, c, max_steps=n) for n in (1, 7)]

    tip, locks = jnp.array([True, False, False]), jnp.array([False, True, True])
    one, seven = project(q, tip)
    assert one.result == RESULTS.max_steps_reached and int(one.steps) == 1
    assert seven.result == RESULTS.successful and int(seven.steps) == 7
    apart = constraints.residual(model, seven.q, held.with_active(tip))
    np.testing.assert_allclose(apart, 0, atol=1e-12)
    one, seven = project(q, locks)
    assert one.result == RESULTS.max_steps_reached and seven.result == RESULTS.stalled
    np.testing.assert_allclose(seven.q[0], 0.5)  # least squares
    assert project(q * np.nan, tip)[1].result == RESULTS.nonfinite
    with pytest.raises(RuntimeError, match="no step that makes progress"):
        constraints.project(model, q, v, held.with_active(locks), 7, throw=True)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        constraints.project(model, q, v, held, 0)
