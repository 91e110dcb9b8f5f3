"""Plants of a user's own in problems, solvers and receding horizons: the memory is a state too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state
from support.own_plants import Gimbal, Lagging, Networked, ball, lagging, lagging_sledge
from support.problems import DT, T, sledge

import rbd_jax as rbd
from rbd_jax import optimize as opt, samples
from rbd_jax.optimize.linear_quadratic import _lq_approximation as expansion
from rbd_jax.optimize.problems._kinds import Kind
from rbd_jax.simulate import NoTangent, Robot, ScenePlant, State, as_plant, fresh_state

pytestmark = pytest.mark.float64


def networked():
    network = eqx.nn.MLP(3, 1, 8, 1, jnp.tanh, key=jax.random.key(0), dtype=jnp.float64)
    return Networked(samples.double_pendulum(), network)


PLANTS = {
    "lag": lambda: lagging(samples.double_pendulum()),
    "network": networked,
    "manifold": lambda: Gimbal(ball()),
}


def problem_of(plant, steps=3, **options):
    def stage(m, t, q, v, u):
        return jnp.concatenate([jnp.cos(q), v, 0.1 * u])

    return opt.Problem(plant, stage, lambda m, q, v: v, 0.05, steps, **options)


@pytest.mark.parametrize("name", PLANTS)
def test_the_tangent_of_a_state_leads_to_another_state(name):
    plant = PLANTS[name]()
    m, nx = plant.model, plant.nx
    assert nx == 2 * m.nv + (3 if name == "manifold" else m.nv)
    s, dx = random_state(m), 0.3 * jnp.cos(jnp.arange(1.0 * nx))

    @quick_jit
    def run():
        a = fresh_state(plant, s.q, s.v, jnp.asarray(0.1))
        b = plant.integrate(a, dx)
        return plant.difference(a, b), plant.difference(a, a), plant.integrate(b, 0 * dx), b

    found, none, same, b = run()
    assert_close(found, dx, atol=1e-12)
    assert_close(none, 0 * dx, atol=1e-12)
    assert_close(tuple(same), tuple(b), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_steps_of_any_plant_are_linearized(name):
    """Slopes, gaps and second derivatives, against differences along the tangent of the state."""
    problem = problem_of(PLANTS[name]())
    m, nx = problem.model, problem.nx
    lam = jnp.cos(jnp.arange(3.0 * nx)).reshape(3, nx)
    u = jnp.sin(jnp.arange(3.0 * problem.controls)).reshape(3, -1)
    s = random_state(m)
    way = 0.4 * jnp.sin(1 + jnp.arange(1.0 * nx))

    @quick_jit
    def run():
        q, y = problem.stacked(problem.simulate(s.q, s.v, u))
        H = expansion.curvature(problem, q, y, u, lam)[1]
        moved = problem.integrate(q[2], y[2], way)  # a gap in front of the third state
        q, y = q.at[2].set(moved[0]), y.at[2].set(moved[1])
        f = expansion.linear_dynamics(problem, q, y, u)

        def end(z, to):
            return problem.difference(*to, *problem.step(1, *problem.moved(q[1], y[1], u[1], z)))

        zero, to = jnp.zeros(nx + u.shape[1]), problem.step(1, q[1], y[1], u[1])
        h, eye = 1e-3, jnp.eye(len(zero))
        ahead = lambda to, h: jax.vmap(lambda d: end(zero + h * d, to))(eye)  # noqa: E731
        J = [(8 * (ahead(x, h) - ahead(x, -h)) - ahead(x, 2 * h) + ahead(x, -2 * h)) / (12 * h)
             for x in (moved, to)]  # fmt: skip
        K = jax.jacfwd(jax.jacrev(lambda z: jnp.sum(lam[1] * end(z, to))))(zero)
        plain = problem.derivatives(q[:-1], y[:-1], u)
        return f, H, J, K, plain, end(zero, moved)

    f, H, J, K, plain, gap = run()
    assert_close(jnp.concatenate([f.A[1], f.B[1]], axis=1), J[0].T, atol=1e-8)
    assert_close(jnp.concatenate([x[1] for x in plain], axis=1), J[1].T, atol=1e-8)
    assert_close(H, K, atol=1e-10 * (1 + float(jnp.abs(K).max())))
    assert_close(f.d[1], gap, atol=1e-12)
    assert float(jnp.abs(gap).min()) > 0.01


@pytest.mark.slow
def test_the_rules_of_a_robot_agree_with_autodiff_through_its_step():
    """With constant wrenches and an actuation that depends on the state."""
    m = samples.random_tree(3, kinds=("spherical", "revolute"))
    drive = lambda m, t, q, v, u: u[0] * jnp.cos(v) + u[1] * t  # noqa: E731
    f_ext = jnp.sin(jnp.arange(6.0 * m.nb)).reshape(m.nb, 6)
    robot = Robot(m, "implicit_damping", f_ext, drive, 2)
    s, u = random_state(m), jnp.cos(jnp.arange(6.0)).reshape(3, 2)

    @quick_jit
    def both():
        found = []
        for how in ({}, {"kind": Kind()}):
            p = problem_of(robot, start=0.3, **how)
            q, v = p.stacked(p.simulate(s.q, s.v, u))
            f = expansion.linear_dynamics(p, q, v, u)
            found.append((q, f, expansion.curvature(p, q, v, u, jnp.cos(1.0 + f.d))))
        return found

    ours, autodiff = both()
    assert_close(ours, autodiff, atol=1e-8)


def linear_system(lag=0.2, mass=2.0):
    """``x⁺ = A x + B u`` of the sledge with x = (q, v, force)."""
    a = 1 - np.exp(-DT / lag)
    force = np.array([0, 0, 1 - a])
    v = np.array([0, 1, 0]) + DT / mass * force
    q = np.array([1, 0, 0]) + DT * v
    b = np.array([DT * DT * a / mass, DT * a / mass, a])
    return np.stack([q, v, force]), b[:, None]


@pytest.mark.slow
def test_all_solvers_solve_a_linear_problem_with_memory():
    """Against least squares; the states, the memory and the derivatives by the lag."""
    A, B = linear_system()
    M = np.concatenate([np.linalg.matrix_power(A, T - 1 - k) @ B for k in range(T)], axis=1)
    ones = np.array([0.2, -0.1, 0.4])
    end = np.linalg.matrix_power(A, T) @ ones
    rows = np.concatenate([np.sqrt(DT) * 0.3 * np.eye(T), 10 * M[:2]])
    right = np.concatenate([np.zeros(T), 10 * (np.array([0.3, 0]) - end[:2])])
    expected = np.linalg.lstsq(rows, right, rcond=None)[0]
    q, v, u = jnp.asarray(ones[:1]), jnp.asarray(ones[1:2]), jnp.zeros((T, 1))
    memory = jnp.asarray(ones[2:])

    def ilqr(lag):
        return opt.ilqr(lagging_sledge(lag, memory=memory), q, v, u, throw=False)

    @quick_jit
    def run():
        p = lagging_sledge(memory=memory)
        wide = opt.Constraint(lambda m, q, v: q - 9.0, "wide", at="states")
        found = {
            "ilqr": ilqr(0.2),
            "ddp": opt.ddp(p, q, v, u, throw=False),
            "multiple shooting": opt.multiple_shooting(p, q, v, u, throw=False),
            "augmented": opt.augmented_lagrangian(p, q, v, u, [wide], throw=False),
        }
        slope = jax.grad(lambda x: ilqr(x).cost)(0.2)
        h = 1e-4
        return found, slope, (ilqr(0.2 + h).cost - ilqr(0.2 - h).cost) / (2 * h)

    found, slope, difference = run()
    for name, s in found.items():
        assert bool(s.result == opt.RESULTS.successful), name
        np.testing.assert_allclose(s.u[:, 0], expected, atol=1e-6)
        x = np.stack([s.q[:, 0], s.v[:, 0], s.memory[:, 0]], axis=1)
        np.testing.assert_allclose(x[0], ones)
        np.testing.assert_allclose(x[1:], x[:-1] @ A.T + np.asarray(s.u) @ B.T, atol=1e-6)
        assert s.K.shape == (T, 1, 3)
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


class Told(Lagging):
    """Drives that lag, and whose forces at the end the final cost is told."""

    def final_outputs(self, state):
        return (state.memory,)


def test_the_final_cost_is_told_the_memory():
    """Only the force at the end matters: it is what the least controls of a linear lag make it."""
    steps, wanted, start = 4, 0.5, 0.1
    plant = lagging(sledge())
    plant = Told(plant.model, plant.robot, plant.lag)

    def solved(target):
        problem = opt.Problem(
            plant, lambda m, t, q, v, u: 0.1 * u, lambda m, q, v, force: force - target, DT, steps,
            memory=jnp.full(1, start),
        )  # fmt: skip
        guess = jnp.zeros((steps, 1))
        return opt.ilqr(problem, jnp.zeros(1), jnp.zeros(1), guess, throw=False)

    s = quick_jit(solved)(wanted)
    rest = np.exp(-DT / 0.2)
    M = (1 - rest) * rest ** np.arange(steps - 1, -1, -1)
    expected = M * (wanted - rest**steps * start) / (M @ M + DT * 0.1**2)
    assert bool(s.result == opt.RESULTS.successful)
    np.testing.assert_allclose(s.u[:, 0], expected, rtol=1e-6)


@pytest.mark.slow
def test_single_shooting_and_samples_take_any_plant():
    q, v, u = jnp.zeros(1), jnp.zeros(1), jnp.zeros((T, 1))

    @quick_jit
    def run():
        p = lagging_sledge()
        best = opt.ilqr(p, q, v, u, throw=False)
        shot = [
            opt.single_shooting(p, q, v, u, gradient=g, throw=False) for g in ("full", "adjoint")
        ]
        search = {"noise": 1.0, "samples": 64, "elites": 8, "max_steps": 40}
        return best, shot, opt.cem(p, q, v, u, jax.random.key(0), **search)

    best, shot, found = run()
    for s in shot:
        assert_close((s.u, s.memory), (best.u, best.memory), atol=1e-3)
    assert float(best.cost) <= float(found.cost) < 1.05 * float(best.cost)
    assert_close(found.memory[0], jnp.zeros(1))


@pytest.mark.slow
def test_a_receding_horizon_is_the_regulator_of_the_whole_state():
    """The memory is fed back, in the loop, between two plans and in a rollout."""
    from scipy.linalg import solve_discrete_are

    A, B = linear_system()
    Q, R = np.diag([2.0, 0.5, 0.0]), np.array([[0.3]])
    P = solve_discrete_are(A, B, DT * Q, DT * R)
    K = np.linalg.solve(DT * R + B.T @ P @ B, B.T @ P @ A)
    weights = jnp.sqrt(jnp.array([2.0, 0.5, 0.3]))
    stage = lambda m, t, q, v, u: weights * jnp.concatenate([q, v, u])  # noqa: E731
    # the end costs nothing, so the horizon is long
    steps = 150
    problem = opt.Problem(lagging(sledge()), stage, lambda m, q, v: 0 * q, DT, steps)
    control = opt.controller(problem, max_steps=1, regularization=0.0)
    other = lagging(sledge(), 0.2, jnp.eye(1))

    @jax.jit
    def run(q, v):
        u = jnp.zeros((steps, 1))
        loops = [opt.mpc(control, q, v, u, 12, every=n, plant=x)
                 for n, x in ((1, None), (4, None), (1, other))]  # fmt: skip
        plan = opt.ilqr(problem, q, v, u, throw=False)
        policy = opt.feedback(problem, plan)
        # a sledge that is not where the plan begins
        moved = rbd.rollout(problem.plant, q + 0.1, v, policy, DT, steps=12)
        return loops, moved

    loops, moved = run(jnp.array([1.0]), jnp.array([-0.3]))
    for s, start in (*((s, 1.0) for s in loops), (moved, 1.1)):
        x = np.array([start, -0.3, 0.0])
        controls = s.u if start == 1.0 else s.controls
        for k in range(12):
            np.testing.assert_allclose([s.q[k, 0], s.v[k, 0]], x[:2], atol=1e-6)
            np.testing.assert_allclose(controls[k], -K @ x, atol=1e-6)
            x = A @ x + B @ controls[k]
    q, y, u, K = (jnp.zeros((n, *shape)) for n, shape in
                  ((2, (1,)), (2, (2,)), (1, (1,)), (1, (1, 3))))  # fmt: skip
    with pytest.raises(ValueError, match="has a memory of 1 numbers, got 0"):
        opt.Feedback(problem, q, y, u, K)(0.0, q[0], q[0])


@pytest.mark.slow
def test_a_controller_takes_a_plant_with_another_memory():
    """The plant has no lag, so the controller goes by the memory that it predicts."""
    problem = lagging_sledge(0.05)
    control = opt.controller(problem)
    loop = jax.jit(lambda: opt.mpc(
        control, jnp.zeros(1), jnp.zeros(1), jnp.zeros((T, 1)), 30, plant=sledge()))()  # fmt: skip
    assert bool((loop.result == opt.RESULTS.successful).all())
    assert abs(float(loop.q[-1, 0]) - 0.3) < 0.02


def test_the_memory_of_a_trajectory_is_told():
    plant = lagging(sledge())
    u, zero = jnp.ones((5, 1)), jnp.zeros(1)
    path = quick_jit(lambda: rbd.rollout(plant, zero, zero, u, DT))()
    assert_close(path.memory[:, 0], 1 - jnp.exp(-DT / 0.2 * jnp.arange(6.0)), atol=1e-12)
    plain = rbd.rollout(sledge(), zero, zero, u, DT)
    assert plain.memory == ()


def test_wrong_plants_are_named():
    m = samples.pendulum()
    cost = lambda *a: jnp.zeros(())  # noqa: E731
    with pytest.raises(TypeError, match=r"Problem: the first argument must be an rbd_jax\.Model"):
        opt.Problem("pendulum", cost, cost, 0.1, 5)
    with pytest.raises(ValueError, match="actuation is an option of a robot, got it beside a Lag"):
        opt.Problem(lagging(m), cost, cost, 0.1, 5, jnp.eye(1))
    with pytest.raises(ValueError, match=r"memory has the shapes \(2,\), .* has \(1,\)"):
        opt.Problem(lagging(m), cost, cost, 0.1, 5, memory=jnp.zeros(2))
    with pytest.raises(ValueError, match="does not tell joint torques"):
        opt.Problem(lagging(m), cost, cost, 0.1, 5).torques(0.0, *jnp.zeros((3, 1)))
    wrong = eqx.tree_at(lambda p: p.model, Counting(m), m)
    with pytest.raises(ValueError, match="numbers of int32.*NoTangent"):
        opt.Problem(wrong, cost, cost, 0.1, 5)
    with pytest.raises(ValueError, match="memory at the start depends on the first controls"):
        opt.Problem(Eager(m), cost, cost, 0.1, 5)
    assert opt.Problem(Hidden(m), cost, cost, 0.1, 5).nx == 2


class Counting(Robot):
    """A robot that counts its steps."""

    def start(self, q, v, dt, controls):
        return State(q, v, jnp.zeros((), jnp.int32))


class Hidden(Robot):
    """A robot whose count has no tangent."""

    def start(self, q, v, dt, controls):
        return State(q, v, NoTangent(jnp.zeros((), jnp.int32)))


class Eager(Robot):
    """A robot whose memory begins with the first controls."""

    def start(self, q, v, dt, controls):
        return State(q, v, controls(jnp.zeros_like(dt), q, v))


def test_the_plants_of_the_library_have_the_tangent_of_a_robot():
    xml = """<mujoco><worldbody><body><joint type="slide"/><geom size=".1" mass="1"/></body>
    </worldbody></mujoco>"""
    for plant in (Robot(samples.quadruped()), as_plant(rbd.load_mjcf(xml))):
        assert plant.memory_size == 0 and plant.nx == 2 * plant.model.nv
    assert isinstance(plant, ScenePlant)
