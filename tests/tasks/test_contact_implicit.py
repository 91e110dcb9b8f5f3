"""The contact-implicit problems against the formulas of their source, and trials of many robots."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

from benchmarks import problems
from rbd_jax import constraints, tasks
from rbd_jax.simulate import State

pytestmark = pytest.mark.float64
SET = tasks.PROBLEM_SET


def after(problem, q, v, u) -> State:
    """The state after a step, compiled."""
    step = quick_jit(lambda q, v, u: problem.plant.step(jnp.zeros(()), State(q, v), u, problem.dt))
    return step(*map(jnp.asarray, (q, v, u)))


def pairs(problem, constraint, q, v, u):
    """The complementary pairs of a law of contacts."""
    law = constraint.function.pairs
    return quick_jit(lambda *x: law(*x))(*map(jnp.asarray, (q, v, u)))


def test_cart_poles_move_by_the_equations_of_the_source():
    """With its angle, which goes round the other way; the first robot is in the middle."""
    problem, (law,) = SET["cart-pole-friction"](starts=2).at(0)
    mc, mp, l, g, h = 1.0, 0.2, 0.5, 9.81, 0.05
    q, v = np.array([0.3, 0.7]), np.array([-0.4, 1.1])
    u = np.array([2.0, 0.3, 0.1, 0.02, 0.05, 0.4, 0.6])
    found = after(problem, q, v, u)
    turn, rate = -q[1], -v[1]
    M = np.array([[mc + mp, mp * l * np.cos(turn)], [mp * l * np.cos(turn), mp * l**2]])
    bias = np.array([-mp * l * np.sin(turn) * rate**2, mp * g * l * np.sin(turn)])
    force = np.array([u[0] + u[1] - u[2], -(u[3] - u[4])])
    v1 = v + h * np.linalg.solve(M, force - bias) * [1, -1]
    np.testing.assert_allclose(found.v, v1, rtol=1e-12)
    np.testing.assert_allclose(found.q, q + h * v1, rtol=1e-12)
    a, b = pairs(problem, law, q, v, u)
    limit = 0.1 * g * np.array([mc + mp, mp * l])
    sliding = np.array([[u[5] + v1[0], u[5] - v1[0]], [u[6] + v1[1], u[6] - v1[1]]])
    np.testing.assert_allclose(a, [*sliding.ravel(), *limit - [u[1] + u[2], u[3] + u[4]]])
    np.testing.assert_array_equal(b, u[1:])


def test_friction_that_opposes_the_motion_with_its_whole_strength_is_complementary():
    problem, (law,) = SET["cart-pole-friction"](starts=1).at(0)
    q, v, limit = np.zeros(2), np.array([1.0, -2.0]), np.asarray(law.function.pairs.limit)

    def product(back: bool):
        """Of all pairs, with friction against the motion or along it."""
        force = np.array([[0, limit[0]], [limit[1], 0]])[:, :: 1 if back else -1]
        u = np.array([0, *force.ravel(), 0, 0])
        u[5:] = np.abs(after(problem, q, v, u).v)
        a, b = pairs(problem, law, q, v, u)
        assert (np.asarray(a) > -1e-12).all()
        return float(np.abs(a * b).max())

    assert product(True) < 1e-12
    assert product(False) > 0.1


def test_acrobots_move_by_the_equations_of_the_source():
    problem, (law,) = SET["acrobot-stops"](starts=3).at(2)
    model = problem.model
    m1, m2 = np.asarray(model.inertia)[:, 0]
    l1 = -float(model.placement_p[1, 2])
    I, c, g, h, damping = 0.333, 0.5, 9.81, 0.05, 0.1
    q, v, u = np.array([0.4, -0.9]), np.array([1.3, -0.2]), np.array([1.5, 0.7, 0.2])
    found = after(problem, q, v, u)
    k = m2 * l1 * c
    M = np.array([[2 * I + m2 * l1**2 + 2 * k * np.cos(q[1]), I + k * np.cos(q[1])],
                  [I + k * np.cos(q[1]), I]])  # fmt: skip
    s, (w1, w2) = k * np.sin(q[1]), v
    bias = np.array([-s * w2 * (2 * w1 + w2), s * w1**2])
    lower = m2 * g * c * np.sin(q.sum())
    bias += [m1 * g * c * np.sin(q[0]) + m2 * g * l1 * np.sin(q[0]) + lower, lower]
    force = np.array([0.0, u[0] - u[1] + u[2]])
    # the damping is that of the next velocity
    v1 = np.linalg.solve(M + h * damping * np.eye(2), M @ v + h * (force - bias))
    np.testing.assert_allclose(found.v, v1, rtol=1e-10)
    a, b = pairs(problem, law, q, v, u)
    q1 = q[1] + h * v1[1]
    np.testing.assert_allclose(a, [np.pi / 2 - q1, np.pi / 2 + q1], rtol=1e-10)
    np.testing.assert_array_equal(b, u[1:])


def test_sliders_move_by_the_limit_surface_of_the_source():
    """The twist is L Jᵀ f; the work of the finger is positive."""
    problem, (law, around, within) = SET["push-obstacle"](starts=2).at(1)
    plant: Any = problem.plant
    depth, ratio, h = float(plant.depth), float(plant.ratio), 0.04
    q, u = np.array([0.1, 0.2, 0.8, -0.3]), np.array([0.2, 0.05, 0.4, 0.1])
    J = np.array([[1, 0, depth / 2 * np.tan(q[3])], [0, 1, -depth / 2]])
    twist = np.diag([1, 1, ratio**-2]) @ J.T @ u[:2]
    R = np.array([[np.cos(q[2]), -np.sin(q[2])], [np.sin(q[2]), np.cos(q[2])]])
    moved = q + h * np.array([*R @ twist[:2], twist[2], u[2] - u[3]])
    np.testing.assert_allclose(after(problem, q, np.zeros(4), u).q, moved, rtol=1e-12)
    mu = float(law.function.pairs.friction)
    a, b = pairs(problem, law, q, np.zeros(4), u)
    np.testing.assert_allclose(a, [mu * u[0] - u[1], mu * u[0] + u[1]], rtol=1e-12)
    np.testing.assert_array_equal(b, u[2:])
    center, radius = np.asarray(around.function.center), float(around.function.radius)
    q = jnp.asarray([*center + [radius, 0], 0, 0.9])
    assert abs(around.function(problem.model, q, q)) < 1e-15
    assert abs(within.function(problem.model, q, q)).min() < 1e-15


def _depth(trials):
    """The depths of the sliders of all starts."""
    return trials.each[0].plant.depth


def test_each_start_has_a_robot_of_its_own():
    """A function that is mapped over all starts sees the same as with each of them."""
    trials = SET["push-obstacle"](starts=3)
    end = lambda problem, _, q, v, u: problem.cost(*problem.stacked(problem.simulate(q, v, u)), u)  # noqa: E731
    batch = jax.jit(trials.mapped(end))(trials.q0, trials.v0, trials.u)
    alone = [jax.jit(lambda *x, k=k: end(*trials.at(k), *x))(*trials.start(k)[1:]) for k in (0, 2)]
    np.testing.assert_allclose([batch[0], batch[2]], alone, rtol=1e-12)
    assert abs(batch[0] - batch[2]) > 1e-6
    few = trials.first(2)
    depth, again = (_depth(x) for x in (few, SET["push-obstacle"](starts=2)))
    assert len(few.u) == 2 and depth.shape == (2,)
    np.testing.assert_array_equal(depth, again)


def test_nudged_robots_keep_the_feet_that_stand():
    task = tasks.trot()
    trials = tasks.nudged(task, starts=4)
    plant: Any = task.problem.plant
    J = constraints.jacobian(plant.model, task.q0, plant.constraints)
    assert plant.active[0].all()
    np.testing.assert_array_equal(trials.v0[0], 0)
    assert (jnp.abs(trials.v0[1:]).max(axis=1) > 0.05).all()
    assert jnp.abs(trials.v0 @ J.T).max() < 1e-10


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("name", ["cart-pole-friction", "push-obstacle"])
def test_the_interior_point_finds_when_contacts_act(name):
    """The augmented Lagrangian has not solved any of them in 600 steps."""
    trials = SET[name](starts=4)
    run = problems.solve("interior_point, second order", trials)
    print(run.cost, run.steps, run.judged)
    assert run.solved.all() and run.claimed.all()


@pytest.mark.slow
@pytest.mark.float64
def test_no_claim_is_wrong_where_an_acrobot_meets_its_stops():
    """Not every start is solved, but the solver knows which ones are."""
    run = problems.solve("interior_point, second order", SET["acrobot-stops"](starts=6))
    print(run.cost, run.steps, run.judged)
    assert run.solved.sum() >= 2 and not (run.claimed & ~run.solved).any()
