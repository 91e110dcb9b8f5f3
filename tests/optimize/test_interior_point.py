"""The interior point: against the augmented Lagrangian, a wall that pushes, its own promises."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within
from support.problems import sledge

from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize.problems._local_models import Quadratic
from rbd_jax.optimize.solvers._interior_point import _convex

GOOD = opt.RESULTS.successful
DT = 0.1


@pytest.mark.float64
def test_limits_and_a_goal_of_a_sledge_agree_with_the_augmented_lagrangian():
    """A speed limit, a limit on force and speed, an equality, and a control with equal bounds."""
    stage = lambda m, t, q, v, u: 0.5 * jnp.sum(u * u) + 0.05 * jnp.sum(v * v) + 0.2 * q[0]  # noqa: E731
    low, high, push = jnp.array([-2.6, 0.1]), jnp.array([2.6, 0.1]), jnp.ones((1, 2))
    problem = opt.Problem(sledge(), stage, lambda m, q, v: 0.0 * q[0], DT, 20, push, low, high)
    constraints = (
        opt.Constraint(lambda m, q, v: v - 0.7, "speed", at="states"),
        opt.Constraint(lambda m, t, q, v, u: u[:1] + 2 * v - 2.4, "power"),
        opt.Constraint(lambda m, q, v: jnp.stack([q[0] - 1.1, v[0]]), "goal", True, "final"),
    )
    q, v, u = jnp.zeros(1), 0.5 * jnp.ones(1), jnp.zeros((20, 2))
    solve = lambda method: jax.jit(  # noqa: E731
        lambda u: method(problem, q, v, u, constraints, feasibility=1e-9, tol=1e-14)
    )(u)
    s, other = solve(opt.interior_point), solve(opt.augmented_lagrangian)
    assert (s.result == GOOD) & (other.result == GOOD)
    np.testing.assert_allclose(s.u, other.u, atol=1e-6)
    np.testing.assert_allclose(s.multipliers.stage, other.multipliers.stage, atol=1e-4)
    np.testing.assert_allclose(s.multipliers.final, other.multipliers.final, atol=1e-4)
    np.testing.assert_array_equal(s.u[:, 1], 0.1)
    assert (s.multipliers.stage > 1e-2).any()


def _wall(m, t, q, v, u):
    """The distance to a wall after the step, whose force is the second control."""
    return 0.5 - (q[0] + DT * (v[0] + DT * 0.5 * (u[0] - u[1])))


@cache
def _bounce():
    """A sledge that comes back faster than its motor can: a wall has to push it."""
    stage = lambda m, t, q, v, u: 0.01 * u[0] ** 2 + 300.0 * _wall(m, t, q, v, u) * u[1]  # noqa: E731
    final = opt.StateCost(jnp.array([0.3]), 3 * jnp.ones(1), jnp.ones(1))
    push = jnp.array([[1.0, -1.0]])
    low, high = jnp.array([-0.6, 0.0]), jnp.array([0.6, jnp.inf])
    problem = opt.Problem(sledge(), stage, final, DT, 15, push, low, high)
    wall = opt.Constraint(lambda *x: -_wall(*x), "wall")
    start = jnp.zeros(1), jnp.array([1.0]), 0.01 * jnp.ones((15, 2))
    return problem, (wall,), start


def _solve(**how):
    problem, wall, start = _bounce()
    return jax.jit(lambda q, v, u: opt.interior_point(problem, q, v, u, wall, **how))(*start)


@cache
def _solved():
    return _solve(second_order=True, max_steps=200, iterates=True)


def test_a_force_that_acts_in_contact_alone_is_found():
    """In float32 too, whose rounding hides the last values of the barrier parameter."""
    problem, wall, _ = _bounce()
    near, product = within(1e-6, 1e-3), within(1e-6, 2e-2)
    s = _solved()
    assert tasks.optimality(problem, s, wall).within(near)
    distance = jax.vmap(lambda q, v, u: _wall(None, 0, q, v, u))(s.q[:-1], s.v[:-1], s.u)
    assert distance.min() > -near and jnp.abs(distance * s.u[:, 1]).max() < product
    assert s.u[:, 1].max() > 1.0  # more than the motor has


@pytest.mark.float64
def test_the_history_of_both_stages_is_one():
    seen = _solved()
    n = int(seen.steps)
    assert jnp.isfinite(seen.history.cost[:n]).all() and jnp.isnan(seen.history.cost[n:]).all()
    assert seen.history.u is not None
    np.testing.assert_allclose(seen.history.u[n - 1], seen.u, atol=1e-6)
    # the first controls have room to their bounds, and the last ones have none
    assert seen.history.u[0, :, 1].min() >= 0.01 and seen.u[:, 1].min() == 0
    # where the limit ends the first stage, its last point is the solution as it stands
    short = _solve(second_order=True, max_steps=12, throw=False)
    assert short.result == opt.RESULTS.max_steps_reached and short.steps == 12 < n
    np.testing.assert_allclose(short.u, seen.history.u[12], rtol=0, atol=1e-9)


@pytest.mark.float64
def test_models_of_first_order_have_a_minimum_without_regularization():
    """The product of force and distance is indefinite; the regularization starts at 1e-6."""
    short = _solve(max_steps=15, throw=False)
    assert short.result == opt.RESULTS.max_steps_reached and short.steps == 15
    assert short.history.regularization.max() <= 1e-6 and short.history.step.min() == 1


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_of_a_solution_agree_with_differences():
    """With respect to the limit of the speed, that of the motor, and the weight of the goal."""
    n = lambda x: jnp.array([x])  # noqa: E731
    stage = opt.StateCost(n(0.0), n(0.0), n(0.1), n(0.1))
    final = opt.StateCost(n(1.0), n(30.0), n(3.0))
    problem = opt.Problem(sledge(), stage, final, DT, 12, None, -2.6, 2.6)

    def numbers(x):
        most, force, weight = x
        leaves = lambda p: (p.lower, p.upper, p.final.q_weight)  # noqa: E731
        p = eqx.tree_at(leaves, problem, (-force[None], force[None], weight[None]))
        slow = opt.Constraint(lambda m, q, v: v - most, "speed", at="states")
        start = n(0.0), n(0.2), jnp.zeros((12, 1))
        s = opt.interior_point(p, *start, [slow], feasibility=1e-9, tol=1e-15, throw=False)
        wave = jnp.cos(jnp.arange(12.0))
        y = wave * s.u[:, 0], s.q, s.cost, wave * s.multipliers.stage[:, 0]
        return jnp.stack([jnp.sum(y) for y in y]), s

    x, h = jnp.array([1.0, 2.6, 30.0]), 1e-3
    derivatives, s = jax.jit(jax.jacrev(numbers, has_aux=True))(x)
    assert (s.multipliers.stage > 1e-2).any() and (jnp.abs(s.u) == 2.6).any()
    points = jnp.concatenate([x[None] + h * jnp.eye(3), x[None] - h * jnp.eye(3)])
    y = jax.jit(lambda points: jax.lax.map(lambda x: numbers(x)[0], points))(points)
    numeric = ((y[:3] - y[3:]) / (2 * h)).T
    print(numeric, derivatives)
    np.testing.assert_allclose(derivatives, numeric, rtol=1e-4, atol=1e-5)
    assert jnp.abs(derivatives).max(0).min() > 0.1


@pytest.mark.float64
def test_what_cannot_be_held_is_not_solved():
    problem, wall, start = _bounce()
    far = opt.Constraint(lambda m, q, v: 3.0 - q[0], "behind the wall", at="final")
    both = *wall, far
    solve = jax.jit(lambda q, v, u: opt.interior_point(problem, q, v, u, both, throw=False))
    s = solve(*start)
    assert s.result != GOOD and s.violation.final.max() > 0.1
    assert "behind the wall" in s.explain()


def test_options_are_checked_by_name():
    problem, wall, start = _bounce()
    for name, value in {"tol": jnp.nan, "feasibility": -1.0, "max_steps": 0}.items():
        with pytest.raises((ValueError, TypeError), match=f"interior_point.*{name}"):
            opt.interior_point(problem, *start, wall, **{name: value})


@pytest.mark.float64
def test_stages_are_made_convex_by_the_signs_of_their_eigenvalues():
    rng = np.random.default_rng(0)
    H = rng.normal(size=(4, 5, 5))
    H = H + H.swapaxes(1, 2)
    part = lambda a, b: jnp.asarray(H[:, a, b])  # noqa: E731
    x, u = slice(3), slice(3, 5)
    l = Quadratic(jnp.ones((4, 3)), jnp.ones((4, 2)), part(x, x), part(u, x), part(u, u))
    end = jax.tree.map(lambda a: a[0], l)
    c, last = _convex(l, end)
    new = np.block([[c.xx, np.swapaxes(c.ux, 1, 2)], [c.ux, c.uu]])
    size = np.linalg.eigvalsh(H)
    np.testing.assert_allclose(np.linalg.eigvalsh(new), np.sort(abs(size)), atol=1e-12)
    np.testing.assert_allclose(new @ new, H @ H, atol=1e-11)
    np.testing.assert_allclose(last.xx @ last.xx, end.xx @ end.xx, atol=1e-11)
