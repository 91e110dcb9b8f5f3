"""The public problem set: solvers on a few of its problems, and the judge on known cases."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.problems import sledge

from benchmarks import problems
from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize.solvers._ilqr import balanced, roll
from rbd_jax.tasks.judges import _optimality as judge


@pytest.mark.parametrize("name", sorted(tasks.PROBLEM_SET))
def test_every_problem_has_finite_starts(name):
    """In each precision; the constraints are numbers there too."""
    trials = tasks.PROBLEM_SET[name](starts=2)
    dtype = jnp.result_type(float)
    for x in (trials.q0, trials.v0, trials.u):
        assert x.shape[0] == 2 and x.dtype == dtype and jnp.isfinite(x).all()
    assert trials.u.shape[1:] == (trials.problem.steps, trials.problem.controls)
    q, v, u = trials.q0[0], trials.v0[0], trials.u[0, 0]
    for c in trials.constraints:
        at = (jnp.zeros(()), q, v, u) if c.at == "stage" else (q, v)
        assert jnp.isfinite(c.function(trials.problem.model, *at)).all()


@pytest.mark.float64
@pytest.mark.parametrize(
    "name", [pytest.param("double-integrator", marks=pytest.mark.slow), "pendulum"]
)
def test_the_default_choice_solves_goals_under_bounds(name):
    """The pendulum's multipliers went round in circles at a negligible decrease of the cost."""
    trials = tasks.PROBLEM_SET[name](starts=4)
    run = problems.solve("augmented_lagrangian", trials, 300)
    print(run.judged, run.steps, run.cost)
    assert run.claimed.all()
    assert all(x.within(1e-6) for x in run.judged)


CONTACT_IMPLICIT = {"cart-pole-friction", "acrobot-stops", "push-obstacle"}
"""Which are problems for the interior point; they have tests of their own."""


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize(
    "name", sorted(set(tasks.PROBLEM_SET) - CONTACT_IMPLICIT - {"double-integrator"})
)
def test_no_claim_of_success_is_wrong(name):
    """The whole set with the solver that the guide names first."""
    trials = tasks.PROBLEM_SET[name](starts=6)
    solver = "augmented_lagrangian, second order" if trials.constraints else "ddp"
    run = problems.solve(solver, trials)
    solved = np.array([x.within(1e-6) for x in run.judged])
    print(run.judged, run.steps, run.cost)
    assert not (run.claimed & ~solved).any()
    assert solved.sum() >= 4


@pytest.mark.float64
def test_the_judge_knows_minima_bounds_and_multipliers():
    """A double integrator whose force is bang-bang; a wrong sign of a slope at a bound is seen."""
    trials = tasks.PROBLEM_SET["double-integrator"](starts=1)
    problem, goal = trials.problem, trials.constraints
    start = trials.start()

    @quick_jit
    def solve():
        s = opt.augmented_lagrangian(*start, goal)
        see = judge.expansion(problem, goal)
        still = jnp.zeros_like(s.q), jnp.zeros_like(s.v), s.u
        alone = judge.expansion(problem)(s.q, s.v, s.u)
        return s.u, see(s.q, s.v, s.u), see(*still), alone

    u, at, still, alone = jax.tree.map(np.asarray, solve())
    assert (np.abs(u) == 1.5).sum() >= 2  # controls at their bounds
    assert judge.residual(problem, goal, u, at).within(1e-6)
    bad = judge.residual(problem, goal, u, still)
    assert bad.gap > 0.1 and bad.violation == 1  # it pushes and stays, far from the goal
    assert judge.residual(problem, goal, 0.99 * u, at).slope > 1e-3  # off the bounds
    assert judge.residual(problem, (), u, alone).slope > 1e-3  # without the goal's multipliers
    nothing = judge.Optimality(np.nan, 0.0, 0.0)
    assert not nothing.within(1.0)


@pytest.mark.float64
def test_the_judge_asks_nothing_of_controls_between_equal_bounds():
    """The force on a sledge that has to arrive; a second force is given."""
    stage = lambda m, t, q, v, u: 0.5 * jnp.sum(u * u) + 0.1 * q[0]  # noqa: E731
    low, high, push = jnp.array([-2.0, 0.1]), jnp.array([2.0, 0.1]), jnp.ones((1, 2))
    problem = opt.Problem(sledge(), stage, lambda m, q, v: 0.0 * q[0], 0.1, 20, push, low, high)
    goal = (opt.Constraint(lambda m, q, v: jnp.stack([q[0] - 1.1, v[0]]), "goal", True, "final"),)
    at = jnp.zeros(1), 0.5 * jnp.ones(1), jnp.zeros((20, 2))
    s = jax.jit(lambda *x: opt.augmented_lagrangian(problem, *x, goal, tol=1e-14))(*at)
    assert (s.u[:, 1] == 0.1).all() and tasks.optimality(problem, s, goal).within(1e-6)
    changed = dataclasses.replace(s, u=s.u.at[3, 0].add(0.01))
    assert tasks.optimality(problem, changed, goal).slope > 1e-4


@pytest.mark.float64
def test_the_judge_knows_minima_whose_motion_is_unstable():
    """``x⁺ = 2x + u`` for 60 steps: the costates without feedback are rounding times 2⁶⁰."""
    T, A, B = 60, 2.0, 1.0
    P, K = 1.0, np.zeros(T)
    for k in reversed(range(T)):
        K[k] = -B * P * A / (1 + B * P * B)
        P = 1 + A * P * (A + B * K[k])

    def found(error):
        x, u = np.ones(T + 1), np.zeros(T)
        for k in range(T):
            u[k] = K[k] * x[k] + error * np.cos(k)
            x[k + 1] = A * x[k] + B * u[k]
        one, none = np.ones((T, 1, 1)), np.zeros((T + 1, 0))
        cost = 0.5 * (np.sum(x * x) + np.sum(u * u))
        return u[:, None], judge.Expansion(
            cost, x[:, None], u[:, None], np.zeros((T, 1)), A * one, B * one, none,
            np.zeros((T + 1, 0, 1)), np.zeros((T, 0, 1)), none.astype(bool),
        )  # fmt: skip

    problem = tasks.PROBLEM_SET["double-integrator"](starts=1).problem
    problem = SimpleNamespace(bounded=False, model=problem.model, controls=1)
    assert judge.residual(problem, (), *found(0.0)).slope < 1e-14
    for error in (1e-6, 1e-3):  # the motion under feedback is this far from the best one
        slope = judge.residual(problem, (), *found(error)).slope
        assert 0.1 * error < slope < 10 * error


@pytest.mark.float64
def test_solvers_take_costates_under_feedback_only_where_others_are_rounding():
    problem = SimpleNamespace(clip=lambda u: u)
    u, K = jnp.zeros((3, 1)), jnp.ones((3, 1, 2))

    def still(g, reduced, pull=1.0):
        g, reduced = (jnp.full((3, 1), x) for x in (g, reduced))
        return bool(balanced(problem, u, pull * K, g, reduced, jnp.ones(())))

    assert still(1e-8, 1e-8) and still(1e-3, 1e-8)  # single shooting needs no more
    assert still(1e-10, 1e-3)  # 10⁷ times what the slope by the states is: rounding
    assert not still(1e-8, 1e-3)  # 10⁵ times: a slope
    assert not still(1e-3, 1e4) and not still(1e-10, 1e4, pull=1e6)


@pytest.mark.slow
@pytest.mark.float64
def test_multiple_shooting_knows_a_motion_that_is_unstable_without_feedback():
    """An arm that whirls when it is limp; 9 of 20 claims were of slopes up to 5e-6."""
    run = problems.solve("multiple_shooting", tasks.PROBLEM_SET["kinova-reach"](starts=12))
    print(run.judged, run.steps)
    assert run.claimed.all() and run.solved.all()


@pytest.mark.float64
def test_known_multipliers_lead_back_in_a_few_steps():
    """From controls off by 1e-4; an update of the multipliers there spoiled them."""
    trials = tasks.PROBLEM_SET["double-integrator"](starts=4)
    problem, goal = trials.problem, trials.constraints
    noise = 1e-4 * np.random.default_rng(1).normal(size=trials.u.shape)

    @quick_jit
    @jax.vmap
    def solve(q0, v0, u, noise):
        s = opt.augmented_lagrangian(problem, q0, v0, u, goal, throw=False)
        first = {"multipliers": s.multipliers, "penalty": s.penalty}
        u = problem.clip(s.u + noise)
        again = opt.augmented_lagrangian(problem, q0, v0, u, goal, **first, throw=False)
        return s.penalty, again.penalty, again.steps, again.result == opt.RESULTS.successful

    before, after, steps, good = solve(trials.q0, trials.v0, trials.u, jnp.asarray(noise))
    assert good.all()
    np.testing.assert_array_equal(before, after)
    assert (steps <= 6).all()


def test_starts_are_the_same_everywhere_and_begin_with_that_of_the_source():
    trials = tasks.PROBLEM_SET["acrobot"](starts=3)
    np.testing.assert_array_equal(trials.q0[0], 0)
    np.testing.assert_array_equal(trials.u[0], 0)
    again = tasks.PROBLEM_SET["acrobot"](starts=3)
    np.testing.assert_array_equal(trials.q0, again.q0)
    assert float(jnp.abs(trials.q0[1:]).min()) > 0
    assert float(jnp.abs(trials.u).max()) <= float(trials.problem.bounds()[1][0])


FREE = "cart-pole", "double-pendulum", "pendubot", "hector", "reach", "quadrotor"


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("name", FREE)
def test_ddp_converges_quadratically_near_a_minimum(name):
    """From a disturbance of 1e-4 under the feedback, at most five steps lead back to 1e-6."""
    trials = tasks.PROBLEM_SET[name](starts=1)
    problem, q0, v0, u = trials.start()
    noise = jnp.asarray(1e-4 * np.random.default_rng(1).normal(size=u.shape))

    @quick_jit
    def solve(u):
        s = opt.ddp(problem, q0, v0, u, max_steps=600, throw=False)
        near = roll(problem, s.q, s.v, s.u, noise, s.K)[2]
        return s.u, s.steps, judge.expansion(problem)(s.q, s.v, s.u), near

    u, steps, found, near = solve(u)
    assert judge.residual(problem, (), u, found).within(1e-6)
    again, steps, found, _ = solve(near)
    print(int(steps), "steps back,", float(jnp.abs(again - u).max()), "away")
    assert int(steps) <= 5
    assert judge.residual(problem, (), again, found).within(1e-6)
