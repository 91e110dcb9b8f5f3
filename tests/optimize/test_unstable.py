"""Solutions of robots that fall without feedback: their states are those of the solver."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import within

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

STEPS = 300


def balance() -> tasks.Task:
    """A pendulum that stands on its end for 15 s, from 0.3 rad off. Guess: it stands there."""
    model = rbd.samples.pendulum()
    up, one = jnp.array([jnp.pi]), jnp.ones(1)
    cost = opt.StateCost(up, one, 0.1 * one, 0.1 * one)
    problem = opt.Problem(model, cost, opt.StateCost(up, one, one), 0.05, STEPS)
    return tasks.Task(problem, up - 0.3, jnp.zeros(1), jnp.zeros((STEPS, 1)))


def gaps(problem, s):
    """How far each state is from the step before (T, n)."""

    def one(k, q, v, u, q_next, v_next):
        q1, v1 = problem.step(k, q, v, u)
        return jnp.concatenate([rbd.difference(problem.model, q_next, q1), v1 - v_next])

    rows = s.q[:-1], s.v[:-1], s.u, s.q[1:], s.v[1:]
    return jax.vmap(one)(jnp.arange(problem.steps), *rows)


def solve(task):
    still = tasks.standing_guess(task)
    return opt.multiple_shooting(*task, q=still["q"], v=still["v"], throw=False)


def test_states_are_those_of_the_solver():
    """The controls alone let the pendulum fall; the solution balances, and has no gaps."""
    task = balance()

    @quick_jit
    def run(task):
        s = solve(task)
        return s, gaps(task.problem, s), task.problem.simulate(task.q0, task.v0, s.u).q

    s, gap, alone = run(task)
    assert bool(s.result == opt.RESULTS.successful)
    assert float(jnp.abs(alone[100:, 0] - np.pi).max()) > 0.5  # the example is unstable enough
    np.testing.assert_allclose(s.q[100:, 0], np.pi, atol=1e-4)
    np.testing.assert_allclose(s.v[100:], 0, atol=1e-4)
    assert float(jnp.abs(gap).max()) < within(1e-6, 1e-5)
    assert abs(float(s.cost) - float(s.history.cost[int(s.steps) - 1])) < within(1e-6, 1e-5)
    np.testing.assert_array_equal(s.q[0], task.q0)
    np.testing.assert_allclose(s.t, 0.05 * np.arange(STEPS + 1), atol=within(1e-12, 1e-5))


@pytest.mark.slow
def test_derivatives_of_an_unstable_solution():
    """Of controls, states and cost in mass, target and start, against differences of solutions."""
    task = balance()
    weights = jnp.cos(jnp.arange(float(STEPS)))

    def number(x):
        mass, target, start = x
        where = lambda p: (p.model.inertia, p.stage.q)  # noqa: E731
        new = mass * task.problem.model.inertia, target[None]
        problem = eqx.tree_at(where, task.problem, new)
        still = tasks.standing_guess(task)
        s = opt.multiple_shooting(
            problem, start[None], task.v0, task.u, q=still["q"], v=still["v"], tol=1e-15,
            throw=False,
        )  # fmt: skip
        y = weights @ (s.u[:, 0] + jnp.sin(s.q[1:, 0]) + s.v[:-1, 0]) + s.cost
        return y, s.result == opt.RESULTS.successful

    x, h = jnp.array([1.1, 3.1, np.pi - 0.3]), 1e-3
    points = jnp.concatenate([x[None], *(x[None] + k * h * jnp.eye(3) for k in (1, -1, 2, -2))])
    (y, good), slopes = jax.jit(jax.vmap(jax.value_and_grad(number, has_aux=True)))(points)
    assert bool(good.all())
    p1, m1, p2, m2 = y[1:].reshape(4, 3)
    numeric = (8 * (p1 - m1) - p2 + m2) / (12 * h)
    print("reverse", slopes[0], "differences", numeric)
    np.testing.assert_allclose(slopes[0], numeric, rtol=1e-5)
    assert float(jnp.abs(slopes[0]).min()) > 0.05


@pytest.mark.slow
def test_talos_squats_from_a_guess_that_stands_still():
    """It converges to finite states without gaps, goes down by 15 cm, and keeps its limits."""
    model = rbd.load_urdf(rbd.example_robot("talos_reduced"), floating_base=True)
    task = tasks.squat(model)

    @jax.jit
    def run(task):
        s = solve(task)
        center = jax.vmap(lambda q: rbd.center_of_mass(model, q))(s.q)
        forces = jax.vmap(task.problem.outputs)(s.t[:-1], s.q[:-1], s.v[:-1], s.u)[0]
        return s, gaps(task.problem, s), center, forces

    s, gap, center, forces = run(task)
    print(int(s.steps), "steps, cost", float(s.cost), "gap", float(jnp.abs(gap).max()))
    assert bool(s.result == opt.RESULTS.successful)
    chex.assert_tree_all_finite((s.q, s.v, s.u, s.K, s.cost))
    assert float(jnp.abs(gap).max()) < within(1e-6, 1e-5)
    assert 0.10 < float(center[0, 2] - center[:, 2].min()) < 0.20
    limit = np.asarray(task.problem.bounds()[1])
    assert (np.abs(s.u) <= limit + 1e-9).all()
    f = np.asarray(forces).reshape(-1, 2, 6)[..., 3:]
    outside = np.abs(f[..., :2]).max(-1) - 0.7 * f[..., 2]
    print("outside of the pyramid by", outside.max(), "N of", f[..., 2].max())
    assert outside.max() < 0.05 * f[..., 2].max() and f[..., 2].min() > 0
