"""The parts of the optimizers: expansions, box QP, Riccati sweeps."""

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state
from support.problems import linear_quadratic, random_problem

import rbd_jax as rbd
from rbd_jax import optimize as opt
from rbd_jax.optimize.linear_quadratic import _lq_approximation as expansion
from rbd_jax.optimize.solvers._solution import checked_arguments
from rbd_jax.simulate import INTEGRATORS


def _trajectory(problem, seed=0):
    s = random_state(problem.model, seed)
    u = jax.random.normal(jax.random.key(seed), (problem.steps, problem.controls))
    return s.q, s.v, u


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
def test_expansion_of_the_dynamics_to_second_order(integrator):
    """Against plain autodiff of a step in charts, with gaps and a drive that is not linear."""
    problem = random_problem(integrator)
    model, nv = problem.model, problem.model.nv
    q0, v0, u = _trajectory(problem)
    lam = jnp.cos(jnp.arange(3.0 * 2 * nv)).reshape(3, 2 * nv)
    other = random_state(model, 7)

    def chart(z, k, q, v, u, q_next):
        at = rbd.integrate(model, q, z[:nv]), v + z[nv : 2 * nv], u + z[2 * nv :]
        q1, v1 = problem.step(k, *at)
        return jnp.concatenate([rbd.difference(model, q_next, q1), v1])

    @quick_jit
    def run(q0, v0, u):
        path = problem.simulate(q0, v0, u)
        f = expansion.linear_dynamics(problem, path.q, path.v, u)
        H = expansion.curvature(problem, path.q, path.v, u, lam)
        k, zero = jnp.asarray(1), jnp.zeros(2 * nv + 3)
        row = k, path.q[1], path.v[1], u[1], path.q[2]
        J = jax.jacfwd(chart)(zero, *row)
        K = jax.jacfwd(jax.jacrev(lambda z: jnp.sum(lam[1] * chart(z, *row))))(zero)
        # now with a gap in front of the third state
        q, v = path.q.at[2].set(other.q), path.v.at[2].set(other.v)
        g = expansion.linear_dynamics(problem, q, v, u)
        row = k, q[1], v[1], u[1], q[2]
        return (
            f,
            H,
            J,
            K,
            g,
            jax.jacfwd(chart)(zero, *row),
            chart(zero, *row) - jnp.concatenate([jnp.zeros(nv), v[2]]),
        )

    f, H, J, K, g, J_gap, gap = run(q0, v0, u)
    assert_close(jnp.concatenate([f.A[1], f.B[1]], axis=1), J, atol=1e-11)
    assert_close(f.d, jnp.zeros_like(f.d), atol=1e-13)
    assert_close(H[1], K, atol=1e-10 * (1 + float(jnp.abs(K).max())))
    assert_close(jnp.concatenate([g.A[1], g.B[1]], axis=1), J_gap, atol=1e-11)
    assert_close(g.d[1], gap, atol=1e-12)
    assert float(jnp.abs(gap).max()) > 0.1


@pytest.mark.slow
def test_expansion_of_the_costs():
    problem = random_problem()
    model, nv = problem.model, problem.model.nv
    q0, v0, u = _trajectory(problem)

    def stage(z, k, q, v, u):
        at = rbd.integrate(model, q, z[:nv]), v + z[nv : 2 * nv], u + z[2 * nv :]
        return problem.stage_cost(k, *at)

    def residual(z, q, v):
        return problem.final(model, rbd.integrate(model, q, z[:nv]), v + z[nv:])

    @quick_jit
    def run(q0, v0, u):
        path = problem.simulate(q0, v0, u)
        l, end = expansion.quadratic(problem, path.q, path.v, u)
        exact = expansion.quadratic(problem, path.q, path.v, u, exact=True)[1]
        zero = jnp.zeros(2 * nv + 3)
        row = jnp.asarray(1), path.q[1], path.v[1], u[1]
        g, H = jax.grad(stage)(zero, *row), jax.hessian(stage)(zero, *row)
        zero, last = jnp.zeros(2 * nv), (path.q[-1], path.v[-1])
        r, J = residual(zero, *last), jax.jacfwd(residual)(zero, *last)
        whole = jax.hessian(lambda z: 0.5 * jnp.sum(residual(z, *last) ** 2))(zero)
        return l, end, exact, g, H, r, J, whole

    l, end, exact, g, H, r, J, whole = run(q0, v0, u)
    n = 2 * nv
    assert_close(jnp.concatenate([l.x[1], l.u[1]]), g)
    assert_close((l.xx[1], l.ux[1], l.uu[1]), (H[:n, :n], H[n:, :n], H[n:, n:]), atol=1e-11)
    assert_close((end.x, end.xx), (J.T @ r, J.T @ J), atol=1e-11)
    assert_close((exact.x, exact.xx), (J.T @ r, whole), atol=1e-11)


@pytest.mark.float64
def test_box_qp_finds_the_best_of_all_active_sets():
    def one(key):
        a, b, c = jax.random.split(key, 3)
        A = jax.random.normal(a, (3, 3))
        H = A @ A.T + 0.1 * jnp.eye(3)
        g = 2 * jax.random.normal(b, (3,))
        low = -jax.random.uniform(c, (3,))
        high = low + 1.2
        return (H, g, low, high), opt.box_qp(H, g, low, high)

    problems, (x, free) = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 40))
    held_somewhere = 0
    for H, g, low, high, found, moving in zip(*map(np.asarray, (*problems, x, free)), strict=True):
        best, at = np.inf, None
        for choice in itertools.product((-1, 0, 1), repeat=3):
            f = np.array(choice) == 0
            y = np.where(np.array(choice) < 0, low, high)
            if f.any():
                y[f] = np.linalg.solve(H[np.ix_(f, f)], -g[f] - H[np.ix_(f, ~f)] @ y[~f])
            if (y >= low - 1e-12).all() and (y <= high + 1e-12).all():
                value = 0.5 * y @ H @ y + g @ y
                if value < best:
                    best, at = value, y
        np.testing.assert_allclose(found, at, atol=1e-9)
        held = (at == low) | (at == high)
        np.testing.assert_array_equal(~moving, held)
        held_somewhere += held.any()
    assert 10 < held_somewhere < 40


@pytest.mark.float64
@pytest.mark.parametrize("m", [2, 6])
def test_box_qp_does_not_get_stuck(m):
    """Badly scaled problems, in which projected Newton alone stops before the minimum."""

    def one(key):
        a, b, c, d = jax.random.split(key, 4)
        scales = 10.0 ** jax.random.uniform(d, (m,), minval=-2, maxval=1)
        A = jax.random.normal(a, (m, m)) * scales[None]
        H, g = A @ A.T + 1e-3 * jnp.eye(m), 3 * jax.random.normal(b, (m,))
        low = -jax.random.uniform(c, (m,))
        x, free = opt.box_qp(H, g, low, low + 1.2)
        slope = H @ x + g
        held = ((x <= low) & (slope > 0)) | ((x >= low + 1.2) & (slope < 0))
        return jnp.max(jnp.abs(jnp.where(held, 0, slope))), jnp.array_equal(free, ~held)

    residual, consistent = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 2000))
    assert float(residual.max()) < 1e-11 and bool(consistent.all())


@pytest.mark.float64
@pytest.mark.parametrize(
    "T", [pytest.param(1, marks=pytest.mark.slow), 6, pytest.param(13, marks=pytest.mark.slow)]
)
def test_riccati_sweeps_solve_the_linear_quadratic_problem(T):
    """Sequential and associative, against the dense KKT system of all states and controls."""
    n, m = 4, 2
    f, l, end = linear_quadratic(T, n, m)
    zero = jnp.zeros(())

    @jax.jit
    def run(f, l, end):
        gains, other = opt.riccati_backward(f, l, end, zero), opt.parallel_backward(f, l, end)
        return gains, other, opt.lqr_rollout(f, gains), opt.parallel_forward(f, other)

    gains, other, (x, u), (x2, u2) = run(f, l, end)
    size = T * (n + m)  # unknowns: u_0, x_1, u_1, …, x_T
    H, g, C, c = np.zeros((size, size)), np.zeros(size), np.zeros((T * n, size)), np.zeros(T * n)
    at_u = [slice(k * (n + m), k * (n + m) + m) for k in range(T)]
    at_x = [slice(k * (n + m) - n, k * (n + m)) for k in range(T + 1)]
    for k in range(T):
        row = slice(k * n, (k + 1) * n)
        H[at_u[k], at_u[k]], g[at_u[k]] = l.uu[k], l.u[k]
        C[row, at_u[k]], C[row, at_x[k + 1]], c[row] = -f.B[k], np.eye(n), f.d[k]
        if k:
            H[at_x[k], at_x[k]], g[at_x[k]] = l.xx[k], l.x[k]
            H[at_u[k], at_x[k]], H[at_x[k], at_u[k]] = l.ux[k], l.ux[k].T
            C[row, at_x[k]] = -f.A[k]
    H[at_x[T], at_x[T]], g[at_x[T]] = end.xx, end.x
    kkt = np.block([[H, C.T], [C, np.zeros((T * n, T * n))]])
    y = np.linalg.solve(kkt, np.concatenate([-g, c]))
    for k in range(T):
        np.testing.assert_allclose(u[k], y[at_u[k]], atol=1e-8)
        np.testing.assert_allclose(x[k + 1], y[at_x[k + 1]], atol=1e-8)
    # multipliers: λ_{k+1} = Vx + Vxx x_{k+1}, of the constraint x⁺ − A x − B u = d
    lam = gains.Vx + jnp.einsum("kij,kj->ki", gains.Vxx, x[1:])
    np.testing.assert_allclose(lam, -y[size:].reshape(T, n), atol=1e-7)
    value = lambda z: 0.5 * z @ H @ z + g @ z  # noqa: E731
    # without gaps the promised decrease is that of the quadratic
    flat = f._replace(d=jnp.zeros_like(f.d))
    promise = opt.riccati_backward(flat, l, end, zero)
    z = np.linalg.solve(kkt, np.concatenate([-g, 0 * c]))[:size]
    np.testing.assert_allclose(promise.slope + promise.bend, value(z), rtol=1e-8)
    for a, b in zip((*other, x2, u2), (*gains, x, u), strict=True):
        assert_close(a, b, atol=1e-7 * (1 + float(jnp.abs(b).max())))


def test_problems_say_what_is_wrong():
    model = rbd.samples.pendulum()
    cost = lambda *a: jnp.zeros(())  # noqa: E731
    with pytest.raises(ValueError, match="pass the number of controls: nu="):
        opt.Problem(model, cost, cost, 0.1, 5, lambda m, t, q, v, u: u)
    for options, says in (
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"dt": jnp.ones(3)}, r"dt has shape \(3,\), expected a number"),
        ({"actuation": jnp.ones((2, 1))}, r"actuation has shape \(2, 1\), expected \(nv, nu\)"),
        ({"lower": jnp.ones(2)}, r"lower has shape \(2,\), expected \(1,\)"),
        ({"lower": 1, "upper": [0.5]}, "no controls lie between lower .* and upper"),
        ({"integrator": "generalized_alpha"}, "'generalized_alpha' has a memory"),
        ({"integrator": rbd.simulate.GeneralizedAlpha()}, "has a memory"),
        ({"integrator": "magic"}, "integrator must be one of"),
    ):
        with pytest.raises(ValueError, match=says):
            opt.Problem(**{"plant": model, "stage": cost, "final": cost, "dt": 0.1, "steps": 5,
                           **options})  # fmt: skip
    problem = opt.Problem(model, cost, cost, 0.1, 5)
    one, u = jnp.zeros(1), jnp.zeros((5, 1))
    for solver in (opt.ilqr, opt.ddp, opt.multiple_shooting, opt.single_shooting):
        plain = inspect.unwrap(solver)  # else the check of the annotations comes first
        with pytest.raises(ValueError, match=rf"{solver.__name__}: u has shape \(4, 1\), expected"):
            plain(problem, one, one, u[1:])
        with pytest.raises(ValueError, match="q0 has shape .*use jax.vmap for a batch"):
            plain(problem, one[None], one, u)
        with pytest.raises(TypeError, match=rf"{solver.__name__}: u must be an array.*got list"):
            plain(problem, one, one, u.tolist())
        with pytest.raises(TypeError, match="u must be floating point, got int.*astype"):
            plain(problem, one, one, u.astype(int))
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        opt.ilqr(problem, one, one, u, max_steps=0)
    plain = inspect.unwrap(opt.multiple_shooting)
    with pytest.raises(ValueError, match=r"v has shape \(5, 1\), expected \(6, 1\)"):
        plain(problem, one, one, u, q=jnp.zeros((6, 1)), v=u)
    whole, end = opt.StateCost(one, one, one, one), opt.StateCost(one, one, one)
    for wrong, says in (({"final": whole}, "leave u_weight out"), ({"stage": end}, "needs u_w")):
        problem = opt.Problem(**{"plant": model, "stage": whole, "final": end, "dt": 0.1,
                                 "steps": 5, **wrong})  # fmt: skip
        with pytest.raises(ValueError, match=f"StateCost: .*{says}"):
            opt.ilqr(problem, one, one, u)


def test_problems_take_numbers_of_any_kind():
    """Bounds as one number or a list, NumPy's arrays, and floats of another precision."""
    model = rbd.samples.double_pendulum(dtype=jnp.float32)
    cost = lambda *a: jnp.zeros((), jnp.float32)  # noqa: E731
    p = opt.Problem(model, cost, cost, np.float64(0.1), 3, np.eye(2), -1, [2, 3.5])
    for x, want in (
        (p.dt, 0.1),
        (p.plant.actuation, np.eye(2)),
        (p.lower, [-1, -1]),
        (p.upper, [2, 3.5]),
    ):
        assert x.dtype == jnp.float32
        np.testing.assert_allclose(x, want, rtol=1e-7)
    q, v, u = checked_arguments("ilqr", p, np.zeros(2), jnp.zeros(2), np.array([[1.0, 2.0]] * 3))
    assert {x.dtype for x in (q, v, u)} == {jnp.dtype("float32")} and u.shape == (3, 2)
    assert p.step(0, q, v, u[0])[0].dtype == jnp.float32
    assert (
        jax.jit(lambda low: opt.Problem(model, cost, cost, 0.1, 3, lower=low).lower)(1.0).size == 2
    )


TAKEN = [n for n, f in INTEGRATORS.items() if not f.has_memory]


def _single(*state):
    """A method with memory, begun anew in each step."""
    return rbd.simulate.GeneralizedAlpha()(*state)


@pytest.mark.parametrize(
    "integrator",
    [i if i == "rk4" else pytest.param(i, marks=pytest.mark.slow) for i in (*TAKEN, _single)],
)
def test_a_simulation_is_the_loop_over_its_steps(integrator):
    """With every integrator that a problem takes: what is optimized is what is returned."""
    model = rbd.samples.pendulum()
    cost = lambda *a: jnp.zeros(())  # noqa: E731
    drive = lambda m, t, q, v, u: u * (1 + t)  # noqa: E731
    problem = opt.Problem(model, cost, cost, 0.1, 3, drive, nu=1, integrator=integrator)

    @quick_jit
    def run(q, v, u):
        def step(x, row):
            new = problem.step(row[0], *x, row[1])
            return new, new

        path = problem.simulate(q, v, u)
        return jax.lax.scan(step, (q, v), (jnp.arange(3), u))[1], (path.q[1:], path.v[1:])

    loop, path = run(jnp.array([0.3]), jnp.array([-1.0]), jnp.array([[2.0], [-1.0], [3.0]]))
    assert_close(loop, path, atol=1e-13)


SOLVERS = (opt.ilqr, opt.ddp, opt.multiple_shooting, opt.single_shooting, opt.augmented_lagrangian)


@pytest.mark.parametrize("solver", SOLVERS)
def test_options_say_what_is_wrong(solver):
    """A negative penalty or a tolerance of NaN would end in wrong numbers, not in an error."""
    cost = lambda *a: jnp.zeros(())  # noqa: E731
    problem = opt.Problem(rbd.samples.pendulum(), cost, cost, 0.1, 5)
    args = [problem, jnp.zeros(1), jnp.zeros(1), jnp.zeros((5, 1))]
    cases = [
        ({"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
        ({"max_steps": 10.0}, TypeError, "max_steps must be an integer, got 10.0"),
        ({"tol": -1.0}, ValueError, "tol must be at least 0, got -1.0"),
        ({"tol": jnp.nan}, ValueError, "tol must be at least 0, got nan"),
        ({"tol": "a"}, TypeError, "tol must be a number, got str"),
        ({"tol": jnp.ones(2)}, ValueError, r"tol has shape \(2,\), expected a number"),
    ]
    if solver is not opt.single_shooting:
        cases += [
            ({"regularization": -1.0}, ValueError, "regularization must be at least 0"),
            ({"regularization": jnp.inf}, ValueError, "regularization must be finite, got inf"),
        ]
    if solver is opt.augmented_lagrangian:
        args.append([])
        cases += [
            ({name: 0.0}, ValueError, f"{name} must be positive, got 0.0")
            for name in ("penalty", "max_penalty", "feasibility")
        ]
        cases += [
            ({"penalty": jnp.ones(2)}, ValueError, r"penalty has shape \(2,\)"),
            ({"multipliers": ((), ())}, TypeError, "multipliers must be those of a solution"),
        ]
    plain = inspect.unwrap(solver)  # else the check of the annotations comes first
    for options, error, says in cases:
        with pytest.raises(error, match=f"{solver.__name__}: {says}"):
            plain(*args, **options)
    with pytest.raises(TypeError, match="max_steps decides shapes, so it cannot be traced"):
        jax.jit(lambda n: plain(*args, max_steps=n).u)(3)


@pytest.mark.parametrize(
    "value, error, says",
    [
        (lambda: 0, TypeError, "it returns int32|it returns int64"),
        (lambda: jnp.zeros((2, 2)), ValueError, r"it returns an array of shape \(2, 2\)"),
        (lambda: (0.0, 1.0), TypeError, "it has to return a number or a vector, not tuple"),
        (lambda: None, TypeError, "it has to return a number or a vector, not NoneType"),
        (lambda: jnp.zeros(2) > 0, TypeError, "it returns bool"),
    ],
)
def test_costs_and_constraints_of_a_wrong_kind(value, error, says):
    cost, wrong = lambda *a: jnp.zeros(()), lambda *a: value()
    model, zero, u = rbd.samples.pendulum(), jnp.zeros(1), jnp.zeros((5, 1))
    for costs, name in (((wrong, cost), "stage"), ((cost, wrong), "final")):
        problem = opt.Problem(model, *costs, 0.1, 5)
        for solve in (opt.ilqr, opt.multiple_shooting):
            with pytest.raises(error, match=f"Problem: {name}: ({says})"):
                solve(problem, zero, zero, u)
        with pytest.raises(error, match=f"Problem: {name}: ({says})"):
            opt.controller(problem)
    limit = opt.Constraint(wrong, "limit")
    with pytest.raises(error, match=f"Constraint 'limit': ({says})"):
        opt.augmented_lagrangian(opt.Problem(model, cost, cost, 0.1, 5), zero, zero, u, [limit])


def test_floats_of_any_precision_are_costs():
    """They are cast to that of the robot."""
    model = rbd.samples.pendulum(dtype=jnp.float32)
    far = jnp.asarray(1.0, float)  # float64 if x64 is on
    effort = lambda m, t, q, v, u: u @ u + far * q @ q  # noqa: E731
    problem = opt.Problem(model, effort, lambda *a: 0.0, 0.1, 5)
    zero = jnp.zeros(1, jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        s = quick_jit(lambda u: opt.ilqr(problem, zero, zero, u))(jnp.ones((5, 1), jnp.float32))
    assert s.cost < 1e-6 and s.u.dtype == s.cost.dtype == jnp.float32


def test_problems_without_controls_or_room_between_the_bounds():
    cost = lambda *a: jnp.zeros(())  # noqa: E731
    model, zero = rbd.samples.pendulum(), jnp.zeros(1)
    still = opt.Problem(model, cost, cost, 0.1, 5, jnp.zeros((1, 0)))
    with pytest.raises(ValueError, match="ilqr: a plant without controls leaves nothing"):
        opt.ilqr(still, zero, zero, jnp.zeros((5, 0)))
    for bounds in ({"lower": jnp.inf}, {"upper": -jnp.inf}, {"lower": jnp.nan}):
        with pytest.raises(ValueError, match="no controls lie between lower .* and upper"):
            opt.Problem(model, cost, cost, 0.1, 5, **bounds)
    for dt in (0.0, -0.1, jnp.nan):
        with pytest.raises(ValueError, match="Problem: dt must be positive, got"):
            opt.Problem(model, cost, cost, dt, 5)


def test_controllers_tell_of_bounds_that_cross():
    """They cross at run time, where no error can be raised."""
    cost = opt.StateCost(jnp.zeros(1), jnp.ones(1), jnp.ones(1), jnp.ones(1))
    end = opt.StateCost(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
    model, zero, u = rbd.samples.pendulum(), jnp.ones(1), jnp.zeros((5, 1))
    found = []
    for make in (
        lambda p: opt.controller(p),
        lambda p: opt.sampler(p, jax.random.key(0), noise=0.1, samples=4),
    ):

        def closed(upper, make=make):
            problem = opt.Problem(model, cost, end, 0.1, 5, lower=-1.0, upper=upper)
            return opt.mpc(make(problem), zero, zero, u, 2).result

        found.append(quick_jit(jax.vmap(closed))(jnp.array([1.0, -2.0])))
    for result in found:
        good, crossed = (result == x for x in (opt.RESULTS.successful, opt.RESULTS.crossed))
        assert good[0].all() and not crossed[0].any() and crossed[1].all()


@pytest.mark.parametrize(
    "solver",
    [
        opt.ilqr,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (opt.ddp, opt.multiple_shooting)),
    ],
)
def test_a_cost_without_a_derivative_at_the_guess(solver):
    """The norm of a velocity at rest has the gradient NaN, although it is zero itself."""
    cost = lambda m, t, q, v, u: jnp.linalg.norm(v) + u @ u  # noqa: E731
    end = lambda m, q, v: jnp.sum(q * q)  # noqa: E731
    problem = opt.Problem(rbd.samples.pendulum(), cost, end, 0.1, 5)
    s = quick_jit(lambda u: solver(problem, jnp.zeros(1), jnp.zeros(1), u, throw=False))(
        jnp.zeros((5, 1))
    )
    assert s.result == opt.RESULTS.nonfinite
