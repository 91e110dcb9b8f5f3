"""The optimizers: against an independent solver, their derivatives, batches, results."""

import dataclasses
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, cast, random_state

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

T = 30
SOLVERS = {
    "ilqr": opt.ilqr,
    "ddp": opt.ddp,
    "multiple_shooting": opt.multiple_shooting,
    "associative": partial(opt.multiple_shooting, riccati="associative"),
    "single_shooting": partial(opt.single_shooting, max_steps=3000),
}

FAST = ("ilqr",)  # the others compile longer


@cache
def compiled(name: str):
    """A solver that does not throw, for any pendulum."""
    return jax.jit(lambda task: SOLVERS[name](*task, throw=False))


def swing(limit=None, dtype=None, steps=T) -> tasks.Task:
    """A pendulum to be brought from rest to 2 rad in 1.5 s."""
    model = rbd.samples.pendulum(dtype=dtype)
    number = lambda *x: jnp.asarray(x, model.dtype)  # noqa: E731
    stage = opt.StateCost(number(2.0), number(0.1), number(0.1), number(0.1))
    final = opt.StateCost(number(2.0), number(10.0), number(3.0))
    bounds = (None, None) if limit is None else (-number(limit), number(limit))
    dt = number(1.5 / steps)[0]
    problem = opt.Problem(model, stage, final, dt, steps, None, *bounds)
    return tasks.Task(problem, number(0.0), number(0.0), jnp.zeros((steps, 1), model.dtype))


def objective(task: tasks.Task, u):
    path = task.problem.simulate(task.q0, task.v0, u)
    return task.problem.cost(path.q, path.v, u)


def slsqp(task: tasks.Task, start, tolerance=1e-14):
    """SciPy's sequential quadratic programming on the controls alone, with exact gradients."""
    from scipy.optimize import minimize

    shape = task.u.shape
    f = jax.jit(jax.value_and_grad(lambda x: objective(task, x.reshape(shape))))
    low, high = (np.tile(np.asarray(b), shape[0]) for b in task.problem.bounds())
    found = minimize(
        lambda x: tuple(np.asarray(y) for y in f(x)),
        np.asarray(start).reshape(-1),
        jac=True,
        bounds=list(zip(low, high, strict=True)),
        method="SLSQP",
        options={"ftol": tolerance, "maxiter": 1000},
    )
    return found.fun, found.x.reshape(shape)


# --- solutions --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    return slsqp(swing(), jnp.zeros((T, 1)))


@pytest.mark.float64  # the reference is SciPy's, which takes float64 alone
@pytest.mark.parametrize(
    "name",
    [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in SOLVERS],
)
def test_solvers_agree_with_slsqp(reference, name):
    cost, u = reference
    s = compiled(name)(swing())
    assert bool(s.result == opt.RESULTS.successful)
    print(name, int(s.steps), "steps", float(s.cost), cost)
    assert abs(float(s.cost) - cost) < (1e-6 if name == "single_shooting" else 1e-8) * cost
    # gradients under 1e-5 leave that much in controls whose curvature is dt w² = 5e-4
    np.testing.assert_allclose(s.u, u, atol=2e-2 if name == "single_shooting" else 1e-3)
    assert s.q.shape == (T + 1, 1) and s.K.shape == (T, 1, 2)
    n = int(s.steps)
    history = np.asarray(s.history.cost)
    assert np.isfinite(history[:n]).all() and np.isnan(history[n:]).all()
    if name == "single_shooting":  # the last point met, which is stationary, not the cheapest
        assert abs(float(s.cost) - history[n - 1]) < 1e-12 * cost
        assert float(s.history.expected[n - 1]) <= 1e-5 * (1 + cost)
    if name in ("ilqr", "ddp"):
        assert (np.diff(history[:n]) <= 1e-9).all()


@pytest.fixture(scope="module")
def cart_pole():
    task = tasks.cart_pole(steps=60)
    return task, jax.jit(lambda t: opt.ilqr(*t, max_steps=300))(task)


def _assert_slsqp_agrees(task, s):
    """From near the solution: swing-ups have several minima."""
    limit = float(task.problem.upper.max())
    noise = 1e-3 * limit * jax.random.normal(jax.random.key(0), s.u.shape)
    cost, u = slsqp(task, task.problem.clip(s.u + noise))
    print("ilqr", float(s.cost), int(s.steps), "slsqp", cost)
    assert abs(float(s.cost) - cost) < 1e-6 * cost
    np.testing.assert_allclose(s.u, u, atol=2e-2 * limit)


@pytest.mark.slow
@pytest.mark.float64
def test_cart_pole_swings_up_within_its_bounds_as_slsqp_would(cart_pole):
    task, s = cart_pole
    assert float(jnp.abs(s.q[-1] - jnp.array([0, jnp.pi])).max()) < 0.02
    assert float(jnp.abs(s.u).max()) == float(task.problem.upper[0])  # reached, and kept
    _assert_slsqp_agrees(task, s)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ilqr", "ddp", "multiple_shooting"])
def test_double_pendulum_swings_up_as_slsqp_would(name):
    task = tasks.double_pendulum(steps=60)
    s = jax.jit(lambda t: SOLVERS[name](*t, tol=1e-12, max_steps=400))(task)
    assert float(jnp.abs(s.q[-1] - jnp.array([jnp.pi, 0])).max()) < 0.05
    most, upper = jnp.abs(s.u).max(0), task.problem.upper
    assert (most <= upper).all() and (most == upper).any()  # a bound is reached, and kept
    _assert_slsqp_agrees(task, s)


def test_feedback_gains_keep_to_the_solution(cart_pole):
    """Pushed off, the solution under its gains ends far nearer to the goal than without."""
    task, s = cart_pole
    problem, model = task.problem, task.problem.model

    def end(gain):
        def step(x, row):
            k, q, v, u, K = row
            e = jnp.concatenate([rbd.difference(model, q, x[0]), x[1] - v])
            new = problem.step(k, *x, problem.clip(u + gain * (K @ e)))
            return new, None

        start = task.q0 + 0.02, task.v0
        rows = jnp.arange(problem.steps), s.q[:-1], s.v[:-1], s.u, s.K
        return jnp.abs(jax.lax.scan(step, start, rows)[0][0] - s.q[-1]).max()

    without, with_gains = jax.jit(jax.vmap(end))(jnp.array([0.0, 1.0]))
    assert float(with_gains) < 0.2 * float(without)


@pytest.mark.slow
def test_ddp_converges_quadratically():
    task = swing()
    s = jax.jit(lambda t: opt.ddp(*t, tol=1e-15))(task)
    e = np.asarray(s.history.expected)[: int(s.steps)]
    print(e)
    fast = [b / a for a, b in zip(e, e[1:], strict=False) if a < 1e-2 and b > 1e-14]
    assert min(fast) < 1e-4


@pytest.mark.slow
def test_a_ball_is_turned_on_the_manifold():
    """Nearly half a turn about a skew axis; the other sign of the quaternion changes nothing."""
    model = rbd.samples.random_tree(2, kinds=("spherical",))
    axis = jnp.array([1.0, -2.0, 0.5])
    q0 = rbd.neutral(model)
    goal = rbd.integrate(model, q0, 3.0 * axis / jnp.linalg.norm(axis))
    three = jnp.ones(3)
    stage = opt.StateCost(goal, 0 * three, 0.1 * three, 0.1 * three)
    final = opt.StateCost(goal, 30 * three, 10 * three)
    problem = opt.Problem(model, stage, final, 0.05, 20)
    u = jnp.zeros((20, 3))
    solve = jax.jit(lambda q, goal: opt.ddp(
        eqx.tree_at(lambda p: (p.stage.q, p.final.q), problem, (goal, goal)), q, 0 * three, u
    ))  # fmt: skip
    s = solve(q0, goal)
    assert float(jnp.linalg.norm(rbd.difference(model, goal, s.q[-1]))) < 0.02
    slope = jax.jit(jax.grad(lambda u: objective(tasks.Task(problem, q0, 0 * three, u), u)))(s.u)
    assert float(jnp.abs(slope).max()) < 1e-4 * float(s.cost)
    other = solve(-q0, goal)
    assert_close(other.u, s.u, atol=1e-9)


# --- derivatives of solutions -----------------------------------------------------------------


@pytest.mark.slow
def test_derivative_of_the_solution_with_respect_to_the_problem():
    """Mass, target, weight, bound and start, with controls at their bounds, against differences."""
    task = swing(limit=9.5)

    def build(x):
        mass, target, weight, bound, start = x
        p = task.problem
        where = lambda p: (  # noqa: E731
            p.model.inertia, p.final.q, p.final.q_weight, p.lower, p.upper,
        )  # fmt: skip
        new = mass * p.model.inertia, target[None], weight[None], -bound[None], bound[None]
        return tasks.Task(eqx.tree_at(where, p, new), start[None], task.v0, task.u)

    weights = jnp.cos(jnp.arange(float(T)))[:, None]

    def number(x):
        s = opt.ddp(*build(x), tol=1e-14, throw=False)
        y = jnp.sum(weights * s.u) + jnp.sum(jnp.sin(s.q)) + s.cost
        return y, (s.u, s.result == opt.RESULTS.successful)

    x = jnp.array([1.1, 2.0, 10.0, 9.5, 0.1])
    h = 1e-4
    points = jnp.concatenate([x[None], x[None] + h * jnp.eye(5), x[None] - h * jnp.eye(5)])
    run = jax.jit(jax.vmap(jax.value_and_grad(number, has_aux=True)))  # one program for all
    (y, (u, fine)), slopes = run(points)
    at_bound = float(jnp.mean(jnp.abs(jnp.abs(u[0]) - 9.5) < 1e-9))
    assert 0.05 < at_bound < 0.8 and bool(fine.all())
    reverse = slopes[0]
    numeric = (y[1:6] - y[6:]) / (2 * h)
    print("reverse", reverse, "differences", numeric)
    np.testing.assert_allclose(reverse, numeric, rtol=2e-5, atol=2e-5)
    assert float(jnp.abs(reverse).min()) > 1e-3


@pytest.mark.float64
def test_the_cost_of_multiple_shooting_and_its_derivative():
    """The solver knows the cost; its derivative is that of the objective at the solution."""
    task = swing(limit=9.5, steps=10)

    def cost(target, weight, start, solution=None):
        where = lambda p: (p.final.q, p.final.q_weight)  # noqa: E731
        p = eqx.tree_at(where, task.problem, (target, weight))
        if solution is None:
            s = opt.multiple_shooting(p, start, task.v0, task.u, tol=1e-12)
            return s.cost, (s.q, s.v, s.u)
        return p.cost(*solution)

    at = jnp.array([2.0]), jnp.array([10.0]), jnp.array([0.1])
    (value, solution), found = jax.jit(jax.value_and_grad(cost, (0, 1, 2), has_aux=True))(*at)
    wanted = jax.grad(cost, (0, 1))(*at, solution)  # at a minimum, the path need not move
    np.testing.assert_allclose(value, cost(*at, solution), rtol=1e-13)
    for one, other in zip(found[:2], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
        assert float(jnp.abs(one).min()) > 1e-6
    assert float(jnp.abs(found[2]).min()) > 1e-2


@pytest.mark.parametrize(
    "solver", [pytest.param(opt.multiple_shooting, marks=pytest.mark.slow), opt.ilqr]
)
def test_each_problem_of_a_batch_ends_by_itself(solver):
    """A batch for a small robot is one kernel, with the steps of each problem alone."""
    task = swing(limit=4.0, steps=10)
    q0 = jnp.asarray([[0.0], [1.9], [-1.0]], task.q0.dtype)

    def solve(q0):
        s = solver(task.problem, q0, task.v0, task.u, throw=False)
        return s.u, s.cost, s.steps, s.result == opt.RESULTS.successful

    alone, batch = jax.jit(solve), jax.jit(jax.vmap(solve)).lower(q0)
    wanted = jax.tree.map(lambda *x: jnp.stack(x), *map(alone, q0))
    assert "stablehlo.while" in alone.lower(q0[0]).as_text()
    assert "stablehlo.while" not in batch.as_text()
    assert bool(wanted[-1].all()) and len(set(wanted[2].tolist())) > 1
    found = batch.compile()(q0)
    assert found[2].tolist() == wanted[2].tolist()
    assert_close(found, wanted, atol=1e-9)


@pytest.mark.slow
def test_derivative_of_the_solution_in_forward_mode_and_through_closures():
    """Costs that close over what is differentiated, on a robot with a ball joint."""
    model = rbd.samples.random_tree(2, kinds=("spherical",))
    goal = random_state(model).q
    u = jnp.zeros((8, 3))

    def solve(x):
        def stage(m, t, q, v, u):
            return 0.5 * x[0] * jnp.sum(u * u)

        def final(m, q, v):
            return jnp.concatenate([x[1] * rbd.difference(m, goal, q), v])

        problem = opt.Problem(model, stage, final, 0.1, 8)
        s = opt.ddp(problem, rbd.neutral(model), jnp.zeros(3), u, tol=1e-15)
        return jnp.sum(jnp.sin(s.u)) + jnp.sum(s.q[-1] ** 3)

    x = jnp.array([0.1, 5.0])
    f, steps = jax.jit(solve), 0.02 * jnp.diag(x)  # long: the solver stops at 1e-7 from the optimum
    at = lambda e, d: f(x + e * d) - f(x - e * d)  # noqa: E731
    numeric = [(8 * at(1, d) - at(2, d)) / (12 * 0.02 * y) for d, y in zip(steps, x, strict=True)]
    forward, reverse = jax.jit(jax.jacfwd(solve))(x), jax.jit(jax.grad(solve))(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(forward, numeric, rtol=1e-5)


@pytest.mark.slow
def test_derivatives_of_what_is_no_solution_are_nan():
    """In forward and reverse mode; those of the good samples of a batch can be picked out."""
    task = swing(limit=9.5)

    @jax.jit
    @jax.vmap
    def run(scale, good):
        def solve(weight):
            p = eqx.tree_at(lambda p: p.final.q_weight, task.problem, weight[None])
            u = jnp.where(good, s_good, jnp.cos(jnp.arange(T))[:, None])
            s = opt.ilqr(p, task.q0, task.v0, u, max_steps=3, throw=False)
            return s.cost + jnp.sum(s.q), s.result == opt.RESULTS.successful

        _, push, fine = jax.linearize(solve, scale, has_aux=True)
        pull = jax.linear_transpose(push, scale)
        return fine, push(jnp.ones(())), *(x[0] for x in map(pull, jnp.array([1.0, 0.0])))

    s_good = compiled("ilqr")(task).u
    fine, forward, reverse, nothing = run(jnp.full(2, 10.0), jnp.array([True, False]))
    assert fine.tolist() == [True, False]
    assert np.isfinite([forward[0], reverse[0]]).all() and abs(forward[0]) > 1e-3
    np.testing.assert_allclose(forward[0], reverse[0], rtol=1e-8)
    assert np.isnan([forward[1], reverse[1]]).all() and not np.any(nothing)


# --- batches, results, progress ---------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_of_256_swing_ups_from_random_starts():
    """Cart-poles: no force reaches the pole itself, so each has to be swung."""
    task = tasks.cart_pole(steps=60)
    q0 = jax.random.normal(jax.random.key(0), (256, 2)) * jnp.array([[0.3, 0.5]])
    v0 = 0.5 * jax.random.normal(jax.random.key(1), (256, 2))

    def one(q, v):
        s = opt.ilqr(task.problem, q, v, task.u, max_steps=300, throw=False)
        return s.q[-1], s.u, s.result == opt.RESULTS.successful

    end, u, good = jax.jit(jax.vmap(one))(q0, v0)
    up = jnp.abs(end - jnp.array([[0.0, jnp.pi]])).max(axis=1) < 0.05
    print(int(good.sum()), "converged", int((good & up).sum()), "up")
    assert int((good & up).sum()) > 250
    assert float(jnp.abs(u).max()) <= float(task.problem.upper[0])


def test_results_say_how_it_ended_and_throw(capsys):
    task = swing()
    s = compiled("ilqr")(task._replace(u=jnp.nan * task.u))
    assert bool(s.result == opt.RESULTS.nonfinite) and int(s.steps) == 0
    seen = []
    few = {"max_steps": 2, "progress": lambda *x: seen.append([float(y) for y in x])}

    @jax.jit
    def solve(u):
        return opt.ilqr(*task._replace(u=u), throw=False, **few)

    s = solve(task.u)
    assert bool(s.result == opt.RESULTS.max_steps_reached) and int(s.steps) == 2
    assert bool(jnp.isfinite(s.u).all())
    jax.effects_barrier()
    assert sorted(x[0] for x in seen) == [1, 2]
    np.testing.assert_allclose([x[1] for x in sorted(seen)], s.history.cost)
    opt.print_progress(*seen[0])
    assert "cost" in capsys.readouterr().out


@pytest.mark.slow
def test_solvers_throw():
    with pytest.raises(RuntimeError, match="maximum number of steps was reached"):
        jax.block_until_ready(opt.ilqr(*swing(), max_steps=2).u)


@pytest.mark.slow
def test_single_precision():
    task = swing(limit=6.0, dtype=jnp.float32)
    s = jax.jit(lambda t: opt.ilqr(*t))(task)
    assert {x.dtype for x in (s.q, s.v, s.u, s.K, s.cost, *s.history)} == {jnp.dtype("float32")}
    double = jax.jit(lambda t: opt.ilqr(*t))(cast(task, jnp.float64))
    assert abs(float(s.cost) / float(double.cost) - 1) < 1e-4


@pytest.mark.slow
def test_guesses_of_states_for_multiple_shooting():
    """From a straight line to the goal, which no torque follows; the gaps close."""
    task = swing()
    q, v = jnp.linspace(0, 2, T + 1)[:, None], jnp.ones((T + 1, 1))
    s = jax.jit(lambda t: opt.multiple_shooting(*t, q=q, v=v))(task)
    direct = jax.jit(lambda t: opt.multiple_shooting(*t))(task)
    assert_close(s.u, direct.u, atol=1e-3)
    with pytest.raises(ValueError, match="riccati='associative' takes no bounds"):
        opt.multiple_shooting(*swing(limit=1.0), riccati="associative")
    with pytest.raises(ValueError, match="guesses of both q and v"):
        opt.multiple_shooting(*task, q=q)


def test_the_first_step_from_a_guess_with_gaps_minimizes_a_model_without_bounds():
    """The controls are cut off after it. From a rollout, without gaps, the model has bounds."""
    task, far = swing(limit=1.0), jnp.full((1,), 1e3)
    free = dataclasses.replace(task.problem, lower=-far, upper=far)
    still = {"q": jnp.linspace(0, 2, T + 1)[:, None], "v": jnp.zeros((T + 1, 1))}
    how = {"max_steps": 2, "throw": False, "iterates": True}

    @jax.jit
    def first_steps(problem):
        start = problem, *task[1:]
        all_ = (opt.multiple_shooting(*start, **guess, **how) for guess in (still, {}))
        return [(s.history.u[1], s.history.step[0]) for s in all_]

    (u, full), (u_rolled, _) = first_steps(task.problem)
    (wanted, full_too), (far_rolled, _) = first_steps(free)
    assert full == full_too == 1 and np.abs(wanted).max() > 1.5
    np.testing.assert_allclose(u, np.clip(wanted, -1, 1), atol=1e-5)
    assert np.abs(u_rolled - np.clip(far_rolled, -1, 1)).max() > 1e-2
