"""A standing robot that rocks on its feet: the drift of the feet over time."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints

DT = 0.002


@cache
def biped():
    """A trunk that moves in the x-z plane on two legs with hips and knees; the feet are points."""
    axis = dict(x=np.eye(3)[0], y=np.eye(3)[1], z=np.eye(3)[2])
    tube = lambda name, m, l: rbd.LinkSpec(  # noqa: E731
        name, m, np.array([0, 0, -l / 2]), m * l**2 / 12 * np.diag([1.0, 1.0, 0.1])
    )
    links = [rbd.LinkSpec("ground"), rbd.LinkSpec("rail"), rbd.LinkSpec("lift"),
             rbd.LinkSpec("trunk", 10.0, np.zeros(3), np.diag([0.1, 0.3, 0.3]))]  # fmt: skip
    joint = lambda name, kind, a, b, way, p=(0.0, 0.0, 0.0): rbd.JointSpec(  # noqa: E731
        name, kind, a, b, p=np.array(p), axis=axis[way]
    )
    joints = [joint("x", "prismatic", "ground", "rail", "x"),
              joint("z", "prismatic", "rail", "lift", "z"),
              joint("pitch", "revolute", "lift", "trunk", "y")]  # fmt: skip
    for side, x in (("front", 0.2), ("hind", -0.2)):
        links += [tube(f"{side} thigh", 1.0, 0.3), tube(f"{side} shin", 0.5, 0.3)]
        joints += [
            joint(f"{side} hip", "revolute", "trunk", f"{side} thigh", "y", (x, 0.0, 0.0)),
            joint(f"{side} knee", "revolute", f"{side} thigh", f"{side} shin", "y", (0, 0, -0.3)),
        ]
    spec = rbd.RobotSpec("biped", tuple(links), tuple(joints))
    model = rbd.build_model(spec)
    posture = jnp.array([0.0, 0.0, 0.0, 0.6, -1.2, -0.6, 1.2])
    feet = [constraints.point(model, f"{side} shin", offset=[0, 0, -0.3])
            for side in ("front", "hind")]  # fmt: skip
    return model, posture, constraints.join(*feet), 3, 1


@cache
def quadruped():
    """The quadruped of the samples on its four feet, with bent legs."""
    model = rbd.samples.quadruped()
    q, legs = rbd.neutral(model), (("lf", 1), ("rf", 1), ("lh", -1), ("rh", -1))
    for leg, sign in legs:
        for joint, x in (("hfe", 0.7), ("kfe", -1.4)):
            q = q.at[model.q_slice(f"{leg}_{joint}").start].set(sign * x)
    feet = [constraints.point(model, f"{leg}_foot") for leg, _ in legs]
    return model, q, constraints.join(*feet), 6, 2


@cache
def gaps(robot, steps: int, project: bool, gains: tuple[float, ...]):
    """The distance of the feet from their places (m) and the height of the trunk, for each gain.

    Springs and dampers hold the posture, which moves up and down with 1 Hz.
    """
    model, posture, feet, base, up = robot()
    feet = constraints.anchored(model, posture, feet)
    motors = jnp.arange(model.nv) >= base
    bent = jnp.where(motors, rbd.difference(model, rbd.neutral(model), posture), 0)

    def control(t, q, v):
        target = rbd.integrate(model, posture, 0.3 * jnp.sin(2 * jnp.pi * t) * bent)
        return jnp.where(motors, 800 * rbd.difference(model, q, target) - 20 * v, 0)

    def observe(t, q, v):
        return jnp.abs(constraints.residual(model, q, feet)).max(), q[up]

    def run(gain):
        one = jnp.ones(len(feet.names))
        numbers = gain**2 * one, 2 * gain * one
        held = eqx.tree_at(lambda c: (c.position_gain, c.velocity_gain), feet, numbers)
        plant = rbd.simulate.ConstrainedRobot(model, constraints=held, project=project)
        rest = jnp.zeros(model.nv)
        path = rbd.rollout(plant, posture, rest, control, DT, steps=steps, observe=observe)
        return path.observations

    return [np.asarray(x) for x in quick_jit(jax.vmap(run))(jnp.array(gains))]


def check_projection(robot, steps: int):
    (gap,), (height,) = gaps(robot, steps, True, (0.0,))
    print("projection", gap.max(), "the trunk moves by", np.ptp(height[steps // 2 :]))
    assert gap.max() < 1e-6 and np.ptp(height[steps // 2 :]) > 0.03


def check_gains(robot, steps: int):
    """With gains the gap is as large in the second half as in the first; without them it grows."""
    half = steps // 2
    (pulled, free), _ = gaps(robot, steps, False, (30.0, 0.0))
    print("Baumgarte", pulled[:half].max(), pulled[half:].max())
    assert pulled.max() < 1e-4 and pulled[half:].max() < 1.1 * pulled[:half].max()
    print("neither", free[:half].max(), free[half:].max())
    assert free[half:].max() > 1.5 * free[:half].max() and free.max() > 1e-4


@pytest.mark.slow
def test_projection_holds_the_feet_of_a_standing_robot():
    check_projection(biped, 1000)


@pytest.mark.slow
def test_gains_bound_the_drift_of_a_standing_robot():
    check_gains(biped, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("robot", [biped, quadruped])
def test_drift_of_a_standing_robot_over_ten_seconds(robot):
    check_projection(robot, 5000)
    check_gains(robot, 5000)
    heights = [gaps(robot, 5000, *x)[1][0] for x in ((True, (0.0,)), (False, (30.0, 0.0)))]
    assert np.abs(heights[0] - heights[1]).max() < 2e-3
