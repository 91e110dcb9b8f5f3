"""Controllers against closed forms: what they promise of the motion holds in forward dynamics."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.driven import hand
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import algorithms, control
from rbd_jax.spatial import so3

AXES = "local_world_aligned"


@cache
def _arm():
    model = rbd.samples.arm()
    s = random_state(model, 2)
    return model, s.q, s.v, s.tau


def _accelerations(model, q, v, tau, frame):
    """Accelerations of the joints and of a frame."""
    a = rbd.forward_dynamics(model, q, v, tau)
    return a, algorithms.frame_acceleration(model, q, v, a, frame, AXES)


@pytest.mark.float64
@pytest.mark.parametrize("build", [rbd.samples.arm, hand], ids=["arm", "hand"])
def test_errors_of_joints_obey_a_linear_equation(build):
    """Under computed torque ``a = a* + K_p e + K_d ė``, without gravity compensation by hand."""
    model = build()
    s, wanted = random_state(model, 1), random_state(model, 2)

    @quick_jit
    def both(s, wanted):
        tau = control.computed_torque(
            model, s.q, s.v, wanted.q, wanted.v, wanted.a, stiffness=30.0, damping=7.0
        )
        e = rbd.difference(model, s.q, wanted.q)
        expected = wanted.a + 30.0 * e + 7.0 * (wanted.v - s.v)
        return rbd.forward_dynamics(model, s.q, s.v, tau), expected

    a, expected = both(s, wanted)
    assert_close(a, expected, atol=1e-8)


@pytest.mark.float64
def test_impedance_is_a_spring_a_damper_and_no_gravity():
    """At rest at the goal nothing moves; away from it the joints feel ``K e − D v``."""
    model, q, v, _ = _arm()
    gains = {"stiffness": jnp.arange(1.0, 8.0), "damping": 3.0}

    @quick_jit
    def torques(q, v, goal):
        return control.joint_impedance(model, q, v, goal, **gains), control.gravity_compensation(
            model, q
        )

    tau, g = torques(q, v, q + 0.1)
    assert_close(tau - g, 0.1 * jnp.arange(1.0, 8.0) - 3.0 * v)
    a = quick_jit(rbd.forward_dynamics)(model, q, jnp.zeros(7), torques(q, 0 * v, q)[0])
    assert_close(a, jnp.zeros(7), atol=1e-9)
    with pytest.raises(ValueError, match=r"number or have shape \(7,\), got \(3,\)"):
        control.joint_impedance(model, q, v, q, stiffness=jnp.ones(3))


@pytest.mark.float64
def test_task_inertia_is_that_of_the_constraint():
    """Λ is the inverse of the Delassus matrix, Nᵀ passes no torque on, and μ holds the task."""
    model, q, v, tau = _arm()

    @quick_jit
    def quantities(q, v, tau):
        J = rbd.jacobian(model, q, "tool", AXES)
        dJ = algorithms.jacobian_time_derivative(model, q, v, "tool", AXES)
        d = control.task_dynamics(model, q, v, J, dJ)
        held = rbd.constraints.frame(model, "tool", reference=AXES)
        moved = rbd.forward_dynamics(model, q, 0 * v, d.null_space @ tau)
        still = rbd.forward_dynamics(model, q, 0 * v, 0 * tau)
        hold = _accelerations(model, q, v, J.T @ d.bias, "tool")[1]
        return d, rbd.constraints.delassus(model, q, held), J @ (moved - still), hold, J

    d, delassus, passed, hold, J = quantities(q, v, tau)
    assert_close(d.inertia @ delassus, jnp.eye(6), atol=1e-9)
    assert_close(J @ d.inverse, jnp.eye(6), atol=1e-9)
    assert_close(passed, jnp.zeros(6), atol=1e-9)
    # μ holds the task against everything that does not pass through its null space
    assert_close(hold, jnp.zeros(6), atol=1e-8)


@pytest.mark.float64
def test_tasks_by_priority():
    """The first task has its acceleration exactly, the second what is left of the motion."""
    model, q, v, tau = _arm()
    R, p = so3.exp(jnp.array([0.2, 0.5, -0.3])), jnp.array([0.3, 0.2, 0.6])

    @quick_jit
    def motion(q, v, tau, free):
        first = control.frame_task(model, q, v, "tool", p=p, stiffness=50.0, damping=9.0)
        second = control.frame_task(model, q, v, "tool", R=R)
        last = control.frame_task(model, q, v, "link4", p=p)
        two = control.operational_space(model, q, v, [first, second], free * tau)
        three = control.operational_space(model, q, v, [first, last, second], damping=1e-6)
        a2 = _accelerations(model, q, v, two, "tool")[1]
        a3 = _accelerations(model, q, v, three, "tool")[1]
        place, J = rbd.frame_placement(model, q, "tool"), rbd.jacobian(model, q, "tool", AXES)
        V = J @ v
        linear = 50.0 * (p - place[1]) - 9.0 * V[3:]
        angular = 100.0 * so3.log(R @ place[0].T) - 20.0 * V[:3]
        return a2, a3, jnp.concatenate([angular, linear]), two

    a2, a3, wanted, still = motion(q, v, tau, 0.0)
    assert_close(a2, wanted, atol=1e-8)
    assert_close(a3[3:], wanted[3:], rtol=1e-5)  # the share of the damping is 1e-6
    assert np.abs(a3[:3] - wanted[:3]).max() > 0.1  # the second task leaves too little for it
    again, _, _, moving = motion(q, v, tau, 100.0)
    assert_close(again, wanted, atol=1e-8)
    assert np.abs(moving - still).max() > 0.1
    for bad, match in (([], "at least one task"), ([q], "must be a control.Task")):
        with pytest.raises((ValueError, TypeError), match=match):
            control.operational_space(model, q, v, bad)


@pytest.mark.float64
def test_a_frame_under_impedance_comes_to_rest_at_its_goal():
    """A spring and a damper at the tool and dampers at the joints bring it there, and hold it."""
    model, q, _, _ = _arm()
    model = rbd.samples.arm()
    goal = rbd.frame_placement(model, q + 0.2, "tool")
    dt = 0.005

    @jax.jit
    def run(q):
        def step(state, _):
            q, v = state
            tau = control.task_impedance(
                model, q, v, "tool", *goal, stiffness=jnp.array([40.0] * 3 + [400.0] * 3),
                damping=jnp.array([6.0] * 3 + [60.0] * 3),
            )  # fmt: skip
            v = v + dt * rbd.forward_dynamics(model, q, v, tau - 2.0 * v)
            return (q + dt * v, v), None

        (q, v), _ = jax.lax.scan(step, (q, jnp.zeros(7)), length=3000)
        return rbd.frame_placement(model, q, "tool"), v

    (R, p), v = run(q)
    assert_close(p, goal[1], atol=1e-3)
    assert_close(R, goal[0], atol=1e-2)
    assert_close(v, jnp.zeros(7), atol=1e-2)
    with pytest.raises(ValueError, match="task_impedance: give a wanted orientation R"):
        control.task_impedance(model, q, v, "tool")
