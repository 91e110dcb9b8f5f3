"""Constraints in trajectory optimization: against quadratic programs, SLSQP, differences."""

from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, within
from support.problems import sledge

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks
from rbd_jax.tasks.judges import _optimality as optimality

DT = 0.1
GOOD = opt.RESULTS.successful


def _zero(*_):
    return jnp.zeros(())


def _response(T):
    """``[q; v]`` after each step as a linear function of the forces, from rest."""
    A, B = np.array([[1, DT], [0, 1]]), np.array([DT * DT, DT]) / 2.0
    G = np.zeros((T + 1, 2, T))
    for k in range(T):
        G[k + 1] = A @ G[k]
        G[k + 1, :, k] += B
    return G


def _qp(H, g, rows, ends, G, h):
    """The minimizer of ``½ uᵀHu + gᵀu`` with ``rows u ≤ ends``, ``G u = h``, and the multipliers.

    SLSQP finds the active rows; their KKT system gives the digits.
    """
    from scipy.optimize import minimize

    found = minimize(
        lambda u: 0.5 * u @ H @ u + g @ u,
        np.zeros(len(g)),
        jac=lambda u: H @ u + g,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda u: ends - rows @ u, "jac": lambda u: -rows},
            {"type": "eq", "fun": lambda u: G @ u - h, "jac": lambda u: G},
        ],
        options={"ftol": 1e-16, "maxiter": 500},
    )
    on = rows @ found.x > ends - 1e-7
    C, d = np.concatenate([rows[on], G]), np.concatenate([ends[on], h])
    kkt = np.block([[H, C.T], [C, np.zeros((len(C), len(C)))]])
    y = np.linalg.solve(kkt, np.concatenate([-g, d]))
    u, mu = y[: len(g)], y[len(g) :]
    lam = np.zeros(len(rows))
    lam[on] = mu[: on.sum()]
    assert (rows @ u <= ends + 1e-9).all() and (lam >= -1e-9).all()  # it is the solution
    return u, lam, mu[on.sum() :]


@pytest.mark.float64
@pytest.mark.slow
def test_a_linear_problem_agrees_with_a_quadratic_program():
    """Speed limit, a limit on force and speed together, bounds of forces, a given end."""
    T = 24
    stage = lambda m, t, q, v, u: 0.5 * jnp.sum(u * u) + 0.05 * jnp.sum(v * v) + 0.2 * q[0]  # noqa: E731
    problem = opt.Problem(sledge(), stage, _zero, DT, T, None, -2.6, 2.6)
    constraints = (
        opt.Constraint(lambda m, q, v: v - 0.7, "speed", at="states"),
        opt.Constraint(lambda m, t, q, v, u: u + 2 * v - 2.8, "power"),
        opt.Constraint(lambda m, q, v: jnp.stack([q[0] - 1.25, v[0]]), "goal", True, "final"),
    )
    one = jnp.zeros(1)
    solve = lambda u: opt.augmented_lagrangian(  # noqa: E731
        problem, one, one, u, constraints, throw=False, feasibility=1e-9, tol=1e-14
    )
    s = jax.jit(solve)(jnp.zeros((T, 1)))
    assert bool(s.result == GOOD)
    X = _response(T)
    Q, V = X[:, 0], X[:, 1]
    H = DT * (np.eye(T) + 0.1 * V[:-1].T @ V[:-1])
    g = 0.2 * DT * Q[:-1].sum(0)
    I, one = np.eye(T), np.ones(T)
    rows = np.concatenate([V[1:], I + 2 * V[:-1], I, -I])
    ends = np.concatenate([0.7 * one, 2.8 * one, 2.6 * one, 2.6 * one])
    u, lam, mu = _qp(H, g, rows, ends, X[-1], np.array([1.25, 0.0]))
    speed, power = lam[:T], lam[T : 2 * T]
    print(int(s.steps), "iterations;", (speed > 1e-6).sum(), (power > 1e-6).sum(), "active",
          (lam[2 * T :] > 1e-6).sum(), "at bounds")  # fmt: skip
    for x in (speed, power, lam[2 * T :]):
        assert (x > 1e-4).sum() >= 2
    np.testing.assert_allclose(s.u[:, 0], u, atol=1e-6)
    found = s.multipliers
    # columns: power, then speed; the row of the speed at step 0 does not exist, the last is final
    np.testing.assert_allclose(found.stage[:, 1], power, atol=1e-5)
    np.testing.assert_allclose(found.stage[1:, 0], speed[:-1], atol=1e-5)
    np.testing.assert_allclose(found.final, [speed[-1], *mu], rtol=1e-5, atol=1e-5)
    assert float(found.stage[0, 0]) == 0


@cache
def _rest_to_rest(T):
    problem = opt.Problem(
        sledge(), lambda m, t, q, v, u: 0.5 * jnp.sum(u * u), _zero, DT, T, None, -1.0, 1.0
    )

    def solve(distance):
        h = lambda m, q, v: jnp.stack([q[0] - distance, v[0]])  # noqa: E731
        goal = opt.Constraint(h, "goal", equality=True, at="final")
        zero = jnp.zeros(1)
        push = jnp.where(jnp.arange(T) < T // 2, 0.3, -0.3)[:, None]
        return opt.augmented_lagrangian(problem, zero, zero, push, [goal], throw=False)

    return jax.jit(jax.vmap(solve))


def test_the_last_feasible_problem_is_bang_bang_and_the_next_infeasible():
    """The farthest that a force of at most 1 N reaches: full force for half the time, then back."""
    T = 20
    farthest = _response(T)[-1, 0] @ np.where(np.arange(T) < T // 2, 1.0, -1.0)
    s = _rest_to_rest(T)(farthest * jnp.array([0.999, 0.5, 1.05]))
    print(s.steps, s.violation.final)
    assert (s.result == GOOD).tolist() == [True, True, False]
    assert (s.result == opt.RESULTS.infeasible).tolist() == [False, False, True]
    u = np.asarray(s.u[0, :, 0])
    assert (u[:9] == 1).all() and (u[11:] == -1).all()  # the switch itself is in between
    # with half the way to go the least energy is a straight line of forces, as without bounds
    G = _response(T)[-1]
    least = G.T @ np.linalg.solve(G @ G.T, [0.5 * farthest, 0])
    np.testing.assert_allclose(s.u[1, :, 0], least, atol=within(1e-5, 1e-2))
    lost = jax.tree.map(lambda x: x[2], s)
    text = lost.explain()
    print(text)
    assert "cannot" in text or "do not hold" in text
    short = float(jnp.abs(lost.q[-1, 0] - 1.05 * farthest))
    assert f"{short:.3g} too much: 'goal', entry 0, at the end (t = 2 s)" in text
    # least squares of both rows: what no force can give
    assert 0.2 * 0.05 * farthest < short < 1.01 * 0.05 * farthest


@cache
def swing():
    """A pendulum that is brought to 2 rad with limits on speed and torque, not at bounds."""
    T = 30
    model = rbd.samples.pendulum()
    n = lambda *x: jnp.asarray(x)  # noqa: E731
    stage, final = (
        opt.StateCost(n(2.0), n(0.1), n(0.1), n(0.1)),
        opt.StateCost(n(2.0), n(1.0), n(0.3)),
    )
    problem = opt.Problem(model, stage, final, 1.5 / T, T)

    def constraints(x=(1.6, 6.5)):
        return (
            opt.Constraint(lambda m, q, v: v - x[0], "speed", at="states"),
            opt.Constraint(lambda m, t, q, v, u: jnp.abs(u) - x[1], "torque"),
            opt.Constraint(lambda m, q, v: jnp.sin(q) - np.sin(2.0), "goal", True, "final"),
        )

    @jax.jit
    @jax.vmap
    def solve(x, u, lam, penalty):
        return opt.augmented_lagrangian(
            problem, n(0.0), n(0.0), u, constraints(x), multipliers=lam, penalty=penalty,
            feasibility=1e-9, throw=False,
        )  # fmt: skip

    return problem, constraints, solve


def _first(T=30, batch=1):
    lam = opt.Rows(jnp.zeros((batch, T, 2)), jnp.zeros((batch, 2)))
    return jnp.zeros((batch, T, 1)), lam, jnp.full((batch,), 100.0)


@pytest.mark.float64
@pytest.mark.slow
def test_a_swing_with_limits_agrees_with_slsqp_and_warm_starts():
    from scipy.optimize import minimize

    problem, constraints, solve = swing()
    limits = jnp.array([[1.6, 6.5], [1.6, 6.4]])
    many = solve(limits, *_first(batch=2))
    assert bool((many.result == GOOD).all())
    s = jax.tree.map(lambda x: x[0], many)

    @jax.jit
    def values(u):
        def objective(u):
            path = problem.simulate(jnp.zeros(1), jnp.zeros(1), u)
            g = jnp.concatenate([path.v[1:, 0] - 1.6, jnp.abs(u[:, 0]) - 6.5])
            return problem.cost(path.q, path.v, u), g, jnp.sin(path.q[-1]) - np.sin(2.0)

        return objective(u), jax.jacrev(objective)(u)

    f = lambda u: jax.tree.map(np.asarray, values(jnp.asarray(u)[:, None]))  # noqa: E731
    found = minimize(
        lambda u: f(u)[0][0], np.zeros(30), jac=lambda u: f(u)[1][0][:, 0], method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda u: -f(u)[0][1], "jac": lambda u: -f(u)[1][1][..., 0]},
            {"type": "eq", "fun": lambda u: f(u)[0][2], "jac": lambda u: f(u)[1][2][..., 0]},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    print(jnp.abs(s.u).max(), "SLSQP", found.fun, "here", float(s.cost), int(s.steps), s.explain())
    assert found.success and abs(float(s.cost) - found.fun) < 1e-6 * found.fun
    np.testing.assert_allclose(s.u[:, 0], found.x, atol=1e-3)
    assert int((s.multipliers.stage[:, 0] > 1e-4).sum()) > 3  # both limits are reached
    assert int((s.multipliers.stage[:, 1] > 1e-4).sum()) > 0
    # the next problem, from this solution and its multipliers or from nothing
    lift = lambda tree: jax.tree.map(lambda x: jnp.stack([x, x]), tree)  # noqa: E731
    again = solve(limits, *lift((s.u, s.multipliers, s.penalty)))
    assert bool((again.result == GOOD).all())
    assert_close(again.u[1], many.u[1], atol=2e-4)
    print(many.steps, again.steps)
    assert int(again.steps[0]) <= 3
    assert int(again.steps[1]) < 0.7 * int(many.steps[1])


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_of_a_constrained_solution():
    """With respect to a limit of the states, of the controls, and a weight; against differences."""
    problem, constraints, _ = swing()

    def numbers(x):
        p = eqx.tree_at(lambda p: p.final.q_weight, problem, x[2:])
        u, lam, penalty = jax.tree.map(lambda x: x[0], _first())
        s = opt.augmented_lagrangian(
            p, jnp.zeros(1), jnp.zeros(1), u, constraints(x), multipliers=lam, penalty=penalty,
            feasibility=1e-9, tol=1e-15, throw=False,
        )  # fmt: skip
        wave = jnp.cos(jnp.arange(30.0))
        lam = s.multipliers
        y = wave * s.u[:, 0], jnp.sin(s.q), s.cost, wave[:, None] * lam.stage, lam.final[1]
        return jnp.stack([jnp.sum(y) for y in y]), s.result == GOOD

    x, h = jnp.array([1.6, 6.5, 1.0]), 4e-3
    points = jnp.concatenate([x[None] + h * jnp.eye(3), x[None] - h * jnp.eye(3)])
    y, fine = jax.jit(jax.vmap(numbers))(points)
    numeric = ((y[:3] - y[3:]) / (2 * h)).T
    run = jax.jit(
        lambda x: (jax.jacfwd(numbers, has_aux=True)(x), jax.jacrev(numbers, has_aux=True)(x))
    )
    (forward, good), (reverse, _) = run(x)
    assert bool(fine.all() & good)
    np.testing.assert_allclose(forward, reverse, rtol=1e-6, atol=1e-8)
    print(numeric, forward)
    np.testing.assert_allclose(forward, numeric, rtol=1e-4, atol=1e-4)
    assert float(jnp.abs(forward).max(0).min()) > 0.1


def test_ready_constraints_are_what_they_say():
    model = rbd.samples.arm()
    q, v = 0.3 * jnp.arange(1.0, model.nv + 1), jnp.linspace(-1, 2, model.nv)
    u = 5 * v
    problem = opt.Problem(model, _zero, _zero, 0.1, 3, 2 * jnp.eye(model.nv))
    state = (model, jnp.zeros(()), q, v, u)
    low, high = model.position_lower + 0.1, model.position_upper - 0.1
    rows = opt.joint_limits(model, margin=0.1).function(model, q, v)
    want = np.concatenate([low - q, q - high])
    np.testing.assert_allclose(rows, want[np.isfinite(want)])
    rows = opt.velocity_limits(model, scale=0.5).function(model, q, v)
    want = np.concatenate([-0.5 * model.velocity_limit - v, v - 0.5 * model.velocity_limit])
    np.testing.assert_allclose(rows, want[np.isfinite(want)])
    rows = opt.torque_limits(problem, scale=2.0).function(*state)
    want = np.concatenate([-2 * model.effort_limit - 2 * u, 2 * u - 2 * model.effort_limit])
    np.testing.assert_allclose(rows, want[np.isfinite(want)])
    frame = model.frame_names[-1]
    R, p = rbd.frame_placement(model, q, frame)
    c = opt.half_space(model, frame, [0.6, 0, 0.8], 0.5, (0.1, 0.2, 0.3))
    point = p + R @ jnp.array([0.1, 0.2, 0.3])
    assert c.at == "states"
    np.testing.assert_allclose(c.function(model, q, v), point @ np.array([0.6, 0, 0.8]) - 0.5)
    up = jnp.array([0.0, 0.6, 0.8])
    force = lambda m, t, q, v, u: jnp.stack([10 * up + jnp.array([3.0, 0, 0]), up])  # noqa: E731
    cone = opt.friction_cone(force, 0.4, up, smoothing=0.0).function(*state)
    np.testing.assert_allclose(cone, [3 - 4.0, -0.4], atol=1e-12)
    round_ = opt.friction_cone(force, 0.4, up, smoothing=0.5).function(*state)
    np.testing.assert_allclose(round_, [np.hypot(3, 0.5) - 0.5 - 4.0, -0.4], atol=1e-12)


def test_errors_name_the_constraint():
    problem, _, _ = swing()
    u, zero = jnp.zeros((30, 1)), jnp.zeros(1)
    c = opt.Constraint(lambda m, t, q, v, u: u, "a")
    run = lambda *c, **o: opt.augmented_lagrangian(problem, zero, zero, u, c, **o)  # noqa: E731
    for constraints, options, says in (
        ((c, c), {}, "several are called 'a'"),
        ((opt.Constraint(lambda m, q, v: q[None], "b", at="final"),), {}, r"'b'.*shape \(1, 1\)"),
        ((eqx.tree_at(lambda c: c.active, c, jnp.ones(3, bool), is_leaf=lambda x: x is None),), {},
         r"'a': active has shape \(3,\), expected \(30,\)"),
        ((c,), {"multipliers": opt.Rows(u[1:], jnp.zeros(0))}, r"multipliers.stage has shape"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            run(*constraints, **options)
    with pytest.raises(ValueError, match="at must be"):
        opt.Constraint.__post_init__(SimpleNamespace(name="c", at="end", active=None))
    with pytest.raises(ValueError, match="active is of no use"):
        opt.Constraint(_zero, "c", at="final", active=jnp.ones(3, bool))
    with pytest.raises(ValueError, match="no such limit"):
        opt.joint_limits(sledge())


@pytest.mark.slow
def test_what_cannot_be_held_is_thrown_by_name():
    problem, _, _ = swing()
    fast = opt.Constraint(lambda m, q, v: 1.0 - v, "fast at the end", at="final")
    slow = opt.Constraint(lambda m, q, v: v + 1.0, "and slow", at="final")
    with pytest.raises(RuntimeError, match="'(fast at the end|and slow)' cannot be held"):
        s = opt.augmented_lagrangian(
            problem, jnp.zeros(1), jnp.zeros(1), jnp.zeros((30, 1)), (fast, slow)
        )
        jax.block_until_ready(s.u)


def test_a_constraint_may_hold_at_some_steps_alone():
    """A waypoint, and a controller that rests for a while."""
    T = 20
    problem = opt.Problem(sledge(), lambda m, t, q, v, u: 0.5 * jnp.sum(u * u), _zero, DT, T)
    k, ks = jnp.arange(T), np.arange(T)
    moves = np.where((ks <= 2) | (ks >= 6), 1.0, 0.0)

    @jax.jit
    def solve(at):
        way = opt.Constraint(lambda m, q, v: q - 1.0, "way", True, "states", k == at - 1)
        rest = opt.Constraint(lambda m, t, q, v, u: u, "rest", True, "stage", (k > 2) & (k < 6))
        zero = jnp.zeros(1)
        return opt.augmented_lagrangian(
            problem,
            zero,
            zero,
            jnp.zeros((T, 1)),
            (way, rest),
            tol=within(1e-13, 1e-6),
            feasibility=within(1e-9, 1e-5),
        )

    s = solve(12)
    X = _response(T)[12, 0] * moves
    np.testing.assert_allclose(s.u[:, 0], X / (X @ X), atol=within(1e-6, 1e-4))
    s = solve(T)  # the last state, whose row is elsewhere
    X = _response(T)[T, 0] * moves
    np.testing.assert_allclose(s.u[:, 0], X / (X @ X), atol=within(1e-6, 1e-4))


def test_constraints_may_come_from_an_iterator_and_masks_from_a_list():
    T, zero = 10, jnp.zeros(1)
    costs = lambda m, t, q, v, u: jnp.sum(u * u), lambda m, q, v: 10 * (q[0] - 2.0) ** 2  # noqa: E731
    problem = opt.Problem(sledge(), *costs, DT, T)
    late = [k > 5 for k in range(T)]
    for mask in (None, late, np.array(late)):
        limit = opt.Constraint(lambda m, q, v: q - 1.0, "limit", at="states", active=mask)
        solve = lambda u, limit=limit: opt.augmented_lagrangian(  # noqa: E731
            problem, zero, zero, u, (c for c in [limit]), throw=False
        )
        s = jax.jit(solve)(jnp.zeros((T, 1)))
        assert bool(s.result == GOOD) and s.q[-1] < 1.01
        found = tasks.optimality(problem, s, (c for c in [limit]))
        assert found.violation < 2e-3 and found.slope < within(1e-5, 1e-3)


def test_masks_and_lists_of_another_kind_are_refused():
    first = "|Type-check error"  # of annotations that are checked at run time
    limit = lambda m, q, v: q - 1.0  # noqa: E731
    for mask in (jnp.array([0, 2]), [0.0, 1.0]):
        with pytest.raises(
            TypeError, match=r"'limit': active has to be an array of booleans" + first
        ):
            opt.Constraint(limit, "limit", at="states", active=mask)
    problem = opt.Problem(sledge(), _zero, _zero, DT, 2)
    start = problem, jnp.zeros(1), jnp.zeros(1), jnp.zeros((2, 1))
    with pytest.raises(TypeError, match=r"got one alone; write \[it\]" + first):
        opt.augmented_lagrangian(*start, opt.Constraint(limit, "limit", at="states"))
    with pytest.raises(TypeError, match=r"got function; wrap a function with Constraint" + first):
        opt.augmented_lagrangian(*start, [limit])


def test_a_speed_limit_that_does_not_act_at_first_is_held_in_few_steps():
    """In float32 too, where differences of large numbers left no definite Quu."""
    model = rbd.samples.arm()
    goal, still = 0.5 * jnp.ones(model.nq), jnp.ones(model.nv)
    effort = lambda m, t, q, v, u: 1e-3 * jnp.sum(u * u)  # noqa: E731
    problem = opt.Problem(model, effort, opt.StateCost(goal, 50 * still, 5 * still), 0.02, 20)
    limit = (opt.Constraint(lambda m, q, v: jnp.abs(v) - 2.0, "speed", at="states"),)
    start = 0.2 * jax.random.normal(jax.random.key(0), (8, model.nq), model.dtype).at[0].set(0)
    u = jnp.zeros((20, model.nv))
    solve = lambda q: opt.augmented_lagrangian(problem, q, 0 * still, u, limit, throw=False)  # noqa: E731
    found = jax.jit(jax.vmap(solve))(start)
    assert (found.result == opt.RESULTS.successful).all()
    assert found.steps.max() < 100
    models = jax.jit(jax.vmap(optimality.expansion(problem, limit)))(found.q, found.v, found.u)
    active = within(optimality.ACTIVE, optimality.ACTIVE_FLOAT32)
    for k in range(len(start)):
        u, model = jax.tree.map(lambda x, k=k: np.asarray(x[k]), (found.u, models))
        met = optimality.residual(problem, limit, u, model, active)
        assert met.within(within(1e-6, 1e-3))
    assert jnp.abs(found.v).max() > 1.99
