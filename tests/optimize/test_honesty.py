"""Solvers say "successful" at minima alone, and find them where the linear model overshoots."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close

from rbd_jax import optimize as opt, samples, tasks
from rbd_jax.optimize import RESULTS, Problem, StateCost
from rbd_jax.optimize.solvers._sqp_loop import Options, Proposal, sqp_loop
from rbd_jax.optimize.solvers._tolerances import tolerances
from rbd_jax.tasks.judges import _optimality as optimality


def balance():
    """A pole that starts 0.34 rad from upright, where Gauss–Newton overshoots."""
    up = jnp.array([0, jnp.pi])
    stage = StateCost(up, jnp.full(2, 0.3), jnp.full(2, 0.03), jnp.array([0.1]))
    final = StateCost(up, jnp.full(2, 20.0), jnp.full(2, 10.0))
    problem = Problem(samples.cart_pole(), stage, final, 0.05, 30, jnp.array([[1.0], [0.0]]))
    return problem, jnp.array([0, jnp.pi - 0.34]), jnp.zeros(2), jnp.zeros((30, 1))


def projected_gradient(problem, q0, v0, u):
    """By reverse mode through the simulation."""

    def objective(u):
        path = problem.simulate(q0, v0, u)
        return problem.cost(path.q, path.v, u)

    cost, g = jax.value_and_grad(objective)(u)
    return jnp.max(jnp.abs(u - problem.clip(u - g))) / (1 + jnp.abs(cost))


@pytest.mark.slow
@pytest.mark.float64
def test_ddp_balances_a_pole_and_converges_quadratically():
    """With exact second derivatives wherever they have a minimum; it was more than 200 steps."""
    problem, *start = balance()

    @quick_jit
    def solve(u):
        s = opt.ddp(problem, *start[:2], u, throw=False)
        return (
            s.u,
            s.result == RESULTS.successful,
            s.steps,
            projected_gradient(problem, *start[:2], s.u),
        )

    u, good, steps, size = solve(start[2])
    assert good and steps < 100 and size < 1e-8
    noise = jnp.asarray(np.random.default_rng(0).normal(size=u.shape))
    again, good, steps, _ = solve(u + 1e-4 * noise)
    assert good and steps <= 5
    np.testing.assert_allclose(again, u, atol=1e-6)


@pytest.mark.parametrize(
    "solver, tol",
    [
        ("ilqr", None),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in (("ddp", None), ("multiple_shooting", 1.0))
        ),
    ],
)
def test_success_means_that_the_conditions_of_first_order_hold(solver, tol):
    """From 8 random guesses: the gradient of the Lagrangian, of the nonlinear program itself."""
    task = tasks.cart_pole(steps=30)
    problem = task.problem
    u = task.u[None] + 3 * np.random.default_rng(1).normal(size=(8, *task.u.shape))

    @quick_jit
    @jax.vmap
    def solve(u):
        s = getattr(opt, solver)(problem, *task[1:3], u, tol=tol, throw=False)
        good = s.result == RESULTS.successful
        return good, s.u, s.cost, optimality.expansion(problem)(s.q, s.v, s.u)

    good, u, cost, derivatives = jax.tree.map(np.asarray, solve(u))
    assert good.sum() >= 5
    limits = tolerances(u.dtype)
    for k in np.flatnonzero(good):
        one = jax.tree.map(lambda x, k=k: x[k], derivatives)
        found = optimality.residual(problem, (), u[k], one)
        print(solver, k, cost[k], found)
        assert found.slope < limits.slope
        assert found.gap < limits.violation


@pytest.mark.float64
@pytest.mark.parametrize(
    "second_order", [pytest.param(False, marks=pytest.mark.slow), True], ids=["ilqr", "ddp"]
)
def test_success_under_constraints_means_the_same(second_order):
    """Limits of force and of speed that both act: feasibility, and multipliers of one sign."""
    task = tasks.cart_pole(steps=30)
    problem = dataclasses.replace(task.problem, lower=None, upper=None)
    speed = opt.Constraint(lambda m, q, v: jnp.abs(v[0]) - 3.0, "speed", at="states")
    force = opt.Constraint(lambda m, t, q, v, u: jnp.concatenate([u, -u]) - 12.0, "force")
    limits = [speed, force]

    @quick_jit
    def solve(u):
        s = opt.augmented_lagrangian(
            problem, *task[1:3], u, limits, second_order=second_order, throw=False
        )
        good = s.result == RESULTS.successful
        return good, s.u, s.cost, optimality.expansion(problem, limits)(s.q, s.v, s.u)

    good, u, cost, derivatives = jax.tree.map(np.asarray, solve(task.u))
    tol = tolerances(u.dtype)
    found = optimality.residual(problem, limits, u, derivatives, 10 * tol.violation)
    print(good, cost, found)
    act = derivatives.holds & (derivatives.c > -10 * tol.violation)
    assert good and act.sum() >= 4
    assert found.slope < tol.slope
    assert found.gap < tol.violation and found.violation < tol.violation


def test_far_bounds_and_limits_change_nothing():
    """The first step of this solve was taken for the last one, at a cost of 22310."""
    task = tasks.reach()
    far = jnp.full(task.problem.model.nv, 100.0)
    problem = dataclasses.replace(task.problem, lower=-far, upper=far)
    limit = opt.Constraint(lambda m, q, v: jnp.max(jnp.abs(v)) - 1e4, "speed", at="states")

    @quick_jit
    def both():
        plain = opt.ilqr(problem, *task[1:], throw=False)
        return plain, opt.augmented_lagrangian(problem, *task[1:], [limit], throw=False)

    plain, limited = both()
    for s in (plain, limited):
        assert s.result == RESULTS.successful
    assert_close(limited.cost, plain.cost, rtol=1e-6)


def test_a_model_that_expects_an_increase_has_not_converged():
    """The loop rejects its step; a stationary point with a negligible change ends it."""

    def attempt(model, x, carried, mu, share):
        expected = jnp.where(mu < 1, -1.0, 1e-12)
        flat = jnp.abs(x) < 1e-3
        new = jnp.where(mu < 1, x, 0.5 * x)
        one, yes = jnp.ones(()), jnp.ones((), bool)
        return Proposal(new, x * x, new * new, expected, one, yes, flat & (mu < 1)), carried

    x = jnp.ones(())
    s = sqp_loop(lambda *_: (), attempt, x, (), x * x, Options(5, 1e-9, 1e-6, None))
    assert s.result == RESULTS.max_steps_reached and float(s.point) == pytest.approx(0.5**5)
    tried = np.asarray(s.history.regularization)
    assert (tried >= 1).all()


@pytest.mark.parametrize("bad, end", [(4, 3), (5, 4)])
def test_the_solution_is_a_point_that_was_tested(bad, end):
    """The step after convergence is taken if the point that it leads to is stationary too."""

    def attempt(model, x, carried, mu, share):
        one, yes = jnp.ones(()), jnp.ones((), bool)
        good, expected = (x > 2) & (x < bad), jnp.where(x < 3, 1e-6, 1e-12)
        return Proposal(x + 1, one, one - expected, expected, one, yes, good), x

    x = jnp.zeros(())
    s = sqp_loop(lambda *_: (), attempt, x, x, x * x, Options(9, 1e-9, 1e-6, None))
    assert s.result == RESULTS.successful and s.point == s.carried == end
    assert s.steps == 4 and int(jnp.isfinite(s.history.cost).sum()) == 4


@pytest.mark.parametrize("promise, steps", [(1e-12, 3), (1e-6, 4)])
def test_no_step_follows_one_that_promised_as_little_as_the_last(promise, steps):
    """A good point after a step of a negligible promise is the solution, and not one step later."""

    def attempt(model, x, carried, mu, share):
        one, yes = jnp.ones(()), jnp.ones((), bool)
        expected = jnp.where(x < 3, promise, 1e-12)  # the third step leads to the good points
        return Proposal(x + 1, one, one - expected, expected, one, yes, x > 2), x

    x = jnp.zeros(())
    s = sqp_loop(lambda *_: (), attempt, x, x, x * x, Options(9, 1e-9, 1e-6, None))
    assert s.result == RESULTS.successful and s.point == s.carried == steps
    assert s.steps == steps and int(jnp.isfinite(s.history.cost).sum()) == steps


def test_a_limit_that_cannot_hold_is_never_called_converged():
    task = tasks.reach()
    low = eqx.tree_at(lambda p: [p.lower, p.upper], task.problem, [None, None])
    weak = opt.torque_limits(low, scale=0.02)  # less than gravity asks for
    s = quick_jit(
        lambda: opt.augmented_lagrangian(low, *task[1:], [weak], throw=False, max_steps=60)
    )()
    assert s.result != RESULTS.successful
    assert "too much: 'torque limits'" in s.explain()


ITERATES = {
    "ilqr": opt.ilqr,
    "multiple_shooting": opt.multiple_shooting,
    "ddp": opt.ddp,
    "augmented_lagrangian": lambda *x, **how: opt.augmented_lagrangian(*x, [], **how),
}


@pytest.mark.parametrize(
    "name",
    ["ilqr", *(pytest.param(x, marks=pytest.mark.slow) for x in list(ITERATES)[1:])],
)
def test_a_history_keeps_the_trajectories_if_told(name):
    solve = ITERATES[name]
    problem = tasks.cart_pole(steps=20).problem
    args = problem, jnp.zeros(2), jnp.zeros(2), jnp.full((20, 1), 0.1)
    how = {"max_steps": 8, "throw": False}
    s, plain = jax.jit(
        lambda *x: (solve(*x, **how, iterates=True), solve(*x, **how))
    )(*args)  # fmt: skip
    h, n = s.history, int(s.steps)
    assert plain.history.q is None and n == int(plain.steps)
    np.testing.assert_allclose(s.u, plain.u, rtol=1e-5, atol=1e-5)
    assert h.q.shape == (8, 21, 2) and h.v.shape == (8, 21, 2) and h.u.shape == (8, 20, 1)
    for x in (h.q, h.v, h.u):
        assert np.isfinite(x[:n]).all() and np.isnan(x[n:]).all()
    np.testing.assert_array_equal(h.u[0], args[3])
    costs = jax.vmap(problem.cost)(h.q[:n], h.v[:n], h.u[:n])
    np.testing.assert_allclose(costs[0], h.cost[0], rtol=1e-5)
    if name != "multiple_shooting":  # without gaps, the merit is the cost
        np.testing.assert_allclose(costs, h.cost[:n], rtol=1e-5)
