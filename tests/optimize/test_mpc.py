"""The receding horizon: against the linear regulator, full solutions, pushes; batches, failures."""

from collections.abc import Callable
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, within
from support.problems import sledge

import rbd_jax as rbd
from rbd_jax import optimize as opt
from rbd_jax.model.functions import as_module
from rbd_jax.simulate import Plant

DT, T = 0.04, 25
RAIL = 0.45


class Kicked(Plant):
    """A plant whose velocity jumps at the end of each step."""

    plant: Plant
    kick: Callable = eqx.field(converter=as_module)

    @property
    def model(self):
        return self.plant.model

    @property
    def nu(self):
        return self.plant.nu

    def step(self, t, state, u, dt):
        new = self.plant.step(t, state, u, dt)
        return new._replace(v=new.v + self.kick(t))


@cache
def balance():
    """A cart-pole that is to stay upright while the cart follows a sine, on a short rail."""
    model = rbd.samples.cart_pole()

    def stage(m, t, q, v, u):
        path = 0.5 * jnp.sin(2 * t)
        return jnp.concatenate(
            [3 * (q - jnp.stack([path, jnp.asarray(jnp.pi)])), 0.3 * v, 0.05 * u]
        )

    def final(m, q, v):
        return 5 * (q[1:] - jnp.pi)

    B = jnp.array([[1.0], [0.0]])
    problem = opt.Problem(model, stage, final, DT, T, B, -12.0, 12.0)
    rail = opt.Constraint(lambda m, q, v: jnp.abs(q[0]) - RAIL, "rail", at="states")
    return problem, opt.controller(problem, [rail], max_steps=2)


@cache
def loops():
    """200 steps from some starts, with a push against the pole at 3 s."""
    problem, control = balance()

    def run(q0, push):
        def kick(t):
            return jnp.where(jnp.abs(t - 3.0) < 0.5 * DT, push, 0) * jnp.array([0.0, 1.0])

        plant = Kicked(problem.plant, kick)
        return opt.mpc(control, q0, jnp.zeros(2), jnp.zeros((T, 1)), 200, plant=plant)

    starts = jnp.array([[0.0, np.pi], [0.1, np.pi - 0.2], [-0.2, np.pi + 0.1]])
    return jax.jit(jax.vmap(run))(starts, jnp.array([1.0, 0.0, -0.8]))


def test_it_follows_a_path_and_rejects_a_push_within_its_limits():
    s = loops()
    q, u = np.asarray(s.q), np.asarray(s.u)
    assert bool((s.result == opt.RESULTS.successful).all())
    assert (np.abs(u) <= 12).all() and np.abs(u).max() > 5
    # the rail is met up to the few solver steps for each state
    print("rail", np.abs(q[..., 0]).max(axis=1), "pole", np.abs(q[..., 1] - np.pi).max(axis=1))
    assert np.abs(q[..., 0]).max() < RAIL + 0.02
    late = np.asarray(s.t[0]) > 1.5
    path = np.clip(0.5 * np.sin(2 * np.asarray(s.t[0])), -RAIL, RAIL)
    before = late & (np.asarray(s.t[0]) < 2.9)
    assert np.abs(q[:, before, 0] - path[before]).max() < 0.15
    pushed = slice(76, 90)
    tip = np.abs(q[:, pushed, 1] - np.pi).max(axis=1)
    assert tip[0] > 1.5 * tip[1] and tip[0] > 0.2  # the push is felt
    peak, left = (np.abs(q[::2, k] - q[1, k]).max() for k in (slice(76, 100), slice(190, 201)))
    print("deviation", peak, "left", left)
    assert left < 0.1 * peak  # and is over


def test_a_batch_is_its_samples():
    s = loops()
    problem, control = balance()
    one = jax.jit(lambda q0: opt.mpc(control, q0, jnp.zeros(2), jnp.zeros((T, 1)), 60))(s.q[1, 0])
    assert_close(s.q[1, :61], one.q, atol=1e-8)  # its push is zero


def test_a_loop_is_its_steps_with_the_plan_shifted_in_between():
    problem, control = balance()
    q0, v0, zero = jnp.array([0.1, np.pi - 0.2]), jnp.zeros(2), jnp.zeros((T, 1))

    @jax.jit
    def run():
        def again(_, state):
            plan, q, v, t = state
            plan = control.step(plan, q, v, t=t).plan
            return plan, *problem.step(0, q, v, plan.u[0]), t + problem.dt

        first = control.step(control.plan(q0, v0, zero), q0, v0, shift=False).plan
        state = first, *problem.step(0, q0, v0, first.u[0]), problem.dt
        plan, *_ = jax.lax.fori_loop(0, 2, again, state)
        return plan, opt.mpc(control, q0, v0, zero, 3)

    plan, s = run()
    assert_close(s.u[2], plan.u[0], atol=1e-8)
    assert_close(s.plan.u[:-1], plan.u[1:], atol=1e-8)


def test_on_a_linear_problem_it_is_the_linear_regulator():
    """With the value function of the infinite horizon at its end, from the Riccati equation."""
    from scipy.linalg import solve_discrete_are

    dt, mass = 0.1, 2.0
    A = np.array([[1, dt], [0, 1]])
    B = np.array([[dt * dt], [dt]]) / mass
    Q, R = np.diag([2.0, 0.5]), np.array([[0.3]])
    P = solve_discrete_are(A, B, dt * Q, dt * R)
    K = np.linalg.solve(dt * R + B.T @ P @ B, B.T @ P @ A)
    root = np.linalg.cholesky(P).T
    weights = jnp.sqrt(jnp.array([2.0, 0.5, 0.3]))
    stage = lambda m, t, q, v, u: weights * jnp.concatenate([q, v, u])  # noqa: E731
    final = lambda m, q, v: jnp.sum(root * jnp.concatenate([q, v])[None], axis=-1)  # noqa: E731
    problem = opt.Problem(sledge(), stage, final, dt, 8)
    control = opt.controller(problem, max_steps=1, regularization=0.0)

    plant = Kicked(problem.plant, lambda t: 0.05 * jnp.sin(7 * t))

    @jax.jit
    def run(q, v):
        loop = partial(opt.mpc, control, q, v, jnp.zeros((8, 1)), 20, plant=plant)
        return loop(), loop(every=4)  # between two plans, the feedback is the regulator

    each, fourth = run(jnp.array([1.0]), jnp.array([-0.3]))
    for s, plans in ((each, 20), (fourth, 5)):
        assert s.steps.tolist() == [1] * plans and s.cost.shape == (plans,)
        x = np.array([1.0, -0.3])
        for k in range(20):
            np.testing.assert_allclose(np.concatenate([s.q[k], s.v[k]]), x, atol=within(1e-9, 1e-5))
            u = -K @ x
            np.testing.assert_allclose(s.u[k], u, atol=within(1e-8, 1e-5))
            x = A @ x + B @ u + [0, 0.05 * np.sin(7 * k * dt)]
        assert np.abs(x).max() < 0.5


@pytest.mark.parametrize(("steps", "every"), [(20, 0), (20, 3), (52, 26)])
def test_plans_are_followed_for_whole_parts_of_the_loop(steps, every):
    control, zero = balance()[1], jnp.zeros((T, 1))
    with pytest.raises(ValueError, match=rf"every must divide steps = {steps}.*got {every}"):
        opt.mpc(control, jnp.zeros(2), jnp.zeros(2), zero, steps, every=every)


@pytest.mark.slow
def test_at_rest_it_finds_the_constrained_solution():
    """Steps without shifting, from one state, with the multipliers of each iteration."""
    problem, _ = balance()
    rail = opt.Constraint(lambda m, q, v: jnp.abs(q[0]) - RAIL, "rail", at="states")
    control = opt.controller(problem, [rail], penalty=1e4)
    q, v, zero = jnp.array([0.35, np.pi - 0.1]), jnp.array([0.5, 0.0]), jnp.zeros((T, 1))

    @jax.jit
    def run():
        plan = control.plan(q, v, zero)
        again = lambda _, p: control.step(p, q, v, shift=False).plan  # noqa: E731
        plan = jax.lax.fori_loop(0, 200, again, plan)
        cost = problem.cost(plan.q, plan.v, plan.u)
        s = opt.augmented_lagrangian(problem, q, v, zero, [rail], tol=1e-11, throw=False)
        return plan, cost, s

    plan, cost, s = run()
    assert bool(s.result == opt.RESULTS.successful)
    assert int((s.multipliers.stage > 1e-3).sum()) > 0
    # the last controls hardly cost anything, so they are the last to settle
    assert_close(plan.u[:10], s.u[:10], atol=1e-3)
    assert_close((plan.q, plan.v), (s.q, s.v), atol=1e-3)
    assert abs(float(cost / s.cost) - 1) < 1e-6


def test_what_cannot_be_simulated_is_a_result():
    problem, control = balance()

    @jax.jit
    def run(q):
        plan = control.plan(jnp.array([0.0, np.pi]), jnp.zeros(2), jnp.ones((T, 1)))
        return plan, control.step(plan, q, jnp.zeros(2))

    plan, bad = run(jnp.array([jnp.nan, 0.0]))
    assert bool(bad.result == opt.RESULTS.nonfinite)
    assert_close(bad.plan.u, jnp.concatenate([plan.u[1:], plan.u[-1:]]))
    _, good = run(jnp.array([0.01, np.pi]))
    assert bool(good.result == opt.RESULTS.successful)
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        opt.controller(problem, max_steps=0)
    with pytest.raises(ValueError, match=r"Controller.step: q has shape \(1,\)"):
        control.step(plan, jnp.zeros(1), jnp.zeros(2))
