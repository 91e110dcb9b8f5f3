"""Legged motion: steps with contacts and landings, their derivatives, whole tasks."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close
from support.problems import short

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize.linear_quadratic import _lq_approximation as expansion
from rbd_jax.optimize.problems import _contact_schedule
from rbd_jax.optimize.problems._kinds import Kind


def _chart(problem, z, k, q, v, u, q_next):
    q1, v1 = problem.step(k, *problem.moved(q, v, u, z))
    return jnp.concatenate([rbd.difference(problem.model, q_next, q1), v1])


@pytest.mark.slow
def test_derivatives_of_steps_and_landings():
    """Step 1 stands, step 3 swings, step 4 lands: against central differences in charts."""
    problem, q0, v0, u = short()
    assert problem.kind.steps == (4,)

    @quick_jit
    def run(q0, v0, u):
        path = problem.simulate(q0, v0, u)
        A, B = problem.derivatives(path.q[:-1], path.v[:-1], u)
        J = jnp.concatenate([A, B], axis=-1)

        def column(k, d):
            row = k, path.q[k], path.v[k], u[k], path.q[k + 1]
            f = lambda h: _chart(problem, h * d, *row)  # noqa: E731
            return (8 * (f(1e-4) - f(-1e-4)) - f(2e-4) + f(-2e-4)) / 12e-4

        eye = jnp.eye(J.shape[-1])
        D = jax.lax.map(lambda k: jax.vmap(lambda d: column(k, d), out_axes=1)(eye), steps)
        return path, J[steps], D

    steps = jnp.array([1, 3, 4])
    path, J, D = run(q0, v0, u)
    for a, b in zip(J, D, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7 * float(jnp.abs(b).max()))
    # the landing changes the derivatives: those of the step after it alone are far away
    plain = eqx.tree_at(lambda p: p.plant.active, problem, problem.plant.active.at[2:4].set(True))
    A, _ = quick_jit(lambda q, v, u: plain.derivatives(q, v, u))(path.q[:-1], path.v[:-1], u)
    assert float(jnp.abs(A[4] - J[2][:, :36]).max()) > 0.1


@pytest.mark.slow
def test_feet_stand_or_fall_as_the_schedule_says():
    """Forces obey Newton's law, feet that stand do not move, feet in the air bear nothing."""
    problem, q0, v0, u = short()
    model = problem.model

    @quick_jit
    def run(q0, v0, u):
        path = problem.simulate(q0, v0, u)
        t, q, v = path.t[:-1], path.q[:-1], path.v[:-1]
        forces = jax.vmap(problem.outputs)(t, q, v, u)[0].reshape(7, 4, 3)
        after = jax.vmap(problem.begun)(jnp.arange(7), q, v).v

        def rate(q, v, v1):  # of the linear momentum
            def along(e):
                a = (v1 - v) / problem.dt
                return rbd.centroidal_momentum(model, rbd.integrate(model, q, e * v), v + e * a)[3:]

            return jax.jvp(along, (0.0,), (1.0,))[1]

        h = jax.vmap(rate)(q, after, path.v[1:])
        foot = lambda q, v: jnp.stack([  # noqa: E731
            rbd.frame_velocity(model, q, v, f, "local_world_aligned")[3:] for f in tasks.FEET
        ])  # fmt: skip
        return path, forces, h, jax.vmap(foot)(q, after), jax.vmap(foot)(q, v)

    path, forces, rate, moving, arriving = run(q0, v0, u)
    active = np.asarray(problem.plant.active)
    assert (np.asarray(forces)[~active] == 0).all()
    assert (np.abs(np.asarray(forces)[active]).max(axis=1) > 1).all()
    weight = float(rbd.total_mass(model)) * np.array([0, 0, -9.81])
    forces, moving, arriving = map(np.asarray, (forces, moving, arriving))
    np.testing.assert_allclose(rate, forces.sum(1) + weight, atol=1e-6)
    # the diagonal feet arrive with a velocity and leave the landing without
    assert np.abs(arriving[4])[~active[3]].max() > 0.05
    np.testing.assert_allclose(moving[4], 0, atol=1e-8)


@pytest.mark.slow
def test_landings_are_found_and_may_be_data():
    """A traced schedule treats every step as a landing and gives the same motion."""
    problem, q0, v0, u = short()

    def run(active):
        plant = dataclasses.replace(problem.plant, active=active)
        p = opt.Problem(plant, problem.stage, problem.final, problem.dt, 7)
        assert p.kind.steps == tuple(range(7))
        path = p.simulate(q0, v0, u)
        return path.q, path.v, p.cost(path.q, path.v, u)

    traced = quick_jit(run)(problem.plant.active)
    path = quick_jit(lambda u: problem.simulate(q0, v0, u))(u)
    assert_close(traced[:2], (path.q, path.v), atol=1e-12)
    # started 4 steps later, the first step is the landing, and the last row holds for ever
    again = problem.plant, problem.stage, problem.final, problem.dt, 7
    late = opt.Problem(*again, start=4 * problem.dt)
    assert late.kind.steps == (0,)
    with pytest.raises(ValueError, match=r"shape \(T, c\) = \(T, 4\), got bool of shape \(7, 3\)"):
        dataclasses.replace(problem.plant, active=problem.plant.active[:, :3])
    switching = dataclasses.replace(problem.plant, active=lambda t, q, v, before: before)
    with pytest.raises(ValueError, match="the state decides which constraints hold"):
        opt.Problem(switching, *again[1:])


@pytest.mark.slow
def test_the_rules_of_a_schedule_agree_with_autodiff_through_the_plant():
    """Steps, slopes and models of the costs, against those that any plant has."""
    problem, q0, v0, u = short()
    costs = problem.stage, problem.final, problem.dt, 7
    plain = opt.Problem(problem.plant, *costs, kind=Kind())

    @quick_jit
    def both():
        path = problem.simulate(q0, v0, u)
        row = path.q[:-1], path.v[:-1], u
        found = []
        for p in (problem, plain):
            ends = jax.vmap(p.step)(jnp.arange(7), *row)
            found.append((ends, p.derivatives(*row), expansion.quadratic(p, path.q, path.v, u)))
        return found

    ours, autodiff = both()
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(autodiff), strict=True):
        assert_close(a, b, atol=1e-8 * (1 + float(jnp.abs(b).max(initial=0))))


def test_a_swing_begins_and_ends_at_rest_on_the_ground():
    start, stride = jnp.array([0.1, 0.2, 0.0]), jnp.array([0.3, 0.0, 0.0])
    p = np.asarray(opt.swing_path(start, stride, 0.1, 200))
    ends = np.asarray(start), np.asarray(start + stride)
    np.testing.assert_allclose(p[0], ends[0])
    np.testing.assert_allclose(p[-1], ends[1], atol=1e-4)  # one of 200 steps before the end
    assert np.abs(p[1] - p[0]).max() < 1e-4
    assert abs(p[:, 2].max() - 0.1) < 1e-9 and (p[:, 2] >= 0).all()


@pytest.mark.slow
def test_a_horizon_that_moves_has_the_derivatives_of_its_landings():
    """Started one step later, as in a receding horizon, with a time that is traced."""
    problem, q0, v0, u = short()
    assert problem.starting(problem.dt).kind.slots == 1

    @quick_jit
    def run(t):
        path = problem.simulate(q0, v0, u)
        row = path.q[1:7], path.v[1:7], u[1:]
        whole = (
            problem.derivatives(path.q[:-1], path.v[:-1], u),
            problem.kind.expansions(problem, path.q[:-1], path.v[:-1], u, slopes=False)[1],
        )
        late = opt.Problem(problem.plant, problem.stage, problem.final, problem.dt, 6).starting(t)
        models = late.kind.expansions(late, *row, slopes=False)[1]
        return whole, (late.derivatives(*row), models)

    whole, late = run(problem.dt)
    assert_close(jax.tree.map(lambda x: x[1:], whole), late, atol=1e-9)


@pytest.mark.slow
def test_the_objective_is_the_sum_of_the_costs_of_steps_some_of_which_land():
    """The objective computes landings before its steps, and a step computes its own."""
    problem, q0, v0, u = short()
    v = v0[None] + 0.1 * jax.random.normal(jax.random.key(0), (problem.steps + 1, v0.size))
    q = jnp.tile(q0, (problem.steps + 1, 1))

    @quick_jit
    def both(q, v, u):
        each = jax.vmap(problem.stage_cost)(jnp.arange(problem.steps), q[:-1], v[:-1], u)
        return problem.cost(q, v, u), each, problem.final_cost(q[-1], v[-1])

    whole, each, last = both(q, v, u)
    assert_close(whole, jnp.sum(each) + last)
    (at,) = problem.kind.steps
    flying, after = problem.kind.past_landings(problem, q[:-1], v[:-1])
    assert not flying.kind.steps
    changed = np.flatnonzero(np.abs(after - v[:-1]).max(axis=1))
    assert changed.tolist() == [at]


def test_costs_may_mix_states_controls_and_forces():
    """The model of such a stage cost is that of its whole Jacobian."""
    problem, q0, *_ = short()
    rng, n = np.random.default_rng(0), 2 * problem.model.nv

    def stage(model, t, q, v, u, forces):
        return jnp.concatenate([q[7:] * forces, v[:12] * u, forces[:4] * u[:4], jnp.sin(forces)])

    problem = dataclasses.replace(problem, stage=stage)
    v, u, f = (jnp.asarray(rng.normal(size=k)) for k in (n // 2, 12, 12))
    S = jnp.asarray(rng.normal(size=(12, n + 12)))

    def residuals(z):
        q = rbd.integrate(problem.model, q0, z[: n // 2])
        return stage(None, 0, q, v + z[n // 2 : n], u + z[n:], f + S @ z)

    @quick_jit
    def both():
        z = jnp.zeros(n + 12)
        J, r = jax.jacfwd(residuals)(z), residuals(z)
        return (
            _contact_schedule.stage_of_forces(problem, problem.time(0), q0, v, u, f, S),
            J.T @ r,
            J.T @ J,
        )

    m, g, H = both()
    found = m.x, m.u, m.xx, m.ux, m.uu
    for x, y in zip(found, (g[:n], g[n:], H[:n, :n], H[n:, :n], H[n:, n:]), strict=True):
        assert_close(x, problem.dt * y, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "name"),
    [("sample", n) for n in ("walk", "trot", "jump")]
    + [("hyq_no_sensors", n) for n in ("walk", "trot", "pace", "jump")],
)
def test_a_quadruped_from_a_guess_that_stands_still(robot, name):
    """It converges, keeps its limits, and its feedback walks on the ground of the simulator."""
    model = None
    if robot != "sample":
        model = rbd.load_urdf(rbd.example_robot(robot), floating_base=True)
    task = tasks.LEGGED[name](model)
    problem, model = task.problem, task.problem.model
    feet_at = jax.vmap(
        lambda q: jnp.stack([rbd.frame_placement(model, q, f)[1] for f in tasks.FEET])
    )

    @jax.jit
    def run(task):
        s = opt.multiple_shooting(*task, **tasks.standing_guess(task), max_steps=100, throw=False)
        return s, feet_at(s.q), jax.vmap(problem.outputs)(s.t[:-1], s.q[:-1], s.v[:-1], s.u)[0]

    s, feet, forces = run(task)
    assert bool(s.result == opt.RESULTS.successful)
    limit = np.asarray(problem.bounds()[1])
    load = (np.abs(s.u) / limit).max()
    print(robot, name, int(s.steps), "steps, cost", float(s.cost), "torques", load, "of the limits")
    assert load <= 1 + 1e-12 and np.isfinite(limit).all()
    feet, active = np.asarray(feet), np.asarray(problem.plant.active)
    forward = {"walk": 0.15, "trot": 0.15, "pace": 0.1, "jump": 0.2}[name]
    assert np.abs(feet[-1, :, 0] - feet[0, :, 0] - forward).max() < 0.03
    assert np.abs(feet[-1, :, 2]).max() < 0.02
    still = active[1:] & active[:-1]
    assert np.abs(np.diff(feet, axis=0)[1:][still]).max() < 2e-3
    high = np.where(active, 0, feet[:-1, :, 2]).max(axis=0)
    assert (high > (0.03 if name == "pace" else 0.05)).all()
    f = np.asarray(forces).reshape(len(active), 4, 3)[active]
    outside = np.hypot(f[:, 0], f[:, 1]) - 0.7 * np.sqrt(2) * f[:, 2]
    print("outside of the cone by", outside.max(), "N of", f[:, 2].max())
    assert outside.max() < 0.05 * f[:, 2].max()

    # soft contact with friction at a tenth of the time step, and half a second of standing
    short, more = 10, 25
    feet_points, ground = rbd.contact.points(tasks.FEET), rbd.contact.Surface((0.7, 0.005, 1e-4))
    scene = rbd.contact.scene_on_ground(model, feet_points, surface=ground, reference=task.q0)
    follow = opt.feedback(problem, s)

    @jax.jit
    @jax.vmap
    def play(gain):
        policy = eqx.tree_at(lambda f: f.K, follow, gain * follow.K)
        r = rbd.rollout(
            scene, task.q0, task.v0, policy, problem.dt / short,
            steps=(problem.steps + more) * short, stride=short,
        )  # fmt: skip
        return r.q, feet_at(r.q)

    q, feet = map(np.asarray, play(jnp.array([1.0, 0.0])))
    away = np.abs(q[0, : problem.steps + 1, :7] - np.asarray(s.q[:, :7])).max()
    print("trunk off the plan by", away, "at rest", q[0, -1, :7])
    assert away < 0.08
    assert np.abs(q[0, -1, 2] - task.q0[2]) < 0.03 and q[0, -1, 3] > 0.99  # it stands
    assert np.abs(feet[0, -1, :, 0] - feet[0, 0, :, 0] - forward).max() < 0.04
    slip = np.diff(feet[0, : problem.steps], axis=0)[1:][still[1:] & active[:-2]]
    assert np.abs(slip[:, :2]).max() < 0.01
    alone = np.abs(q[1, : problem.steps + 1, :3] - np.asarray(s.q[:, :3])).max()
    print("trunk off the plan by", alone, "m without feedback")
    if (robot, name) == ("hyq_no_sensors", "trot"):
        assert alone > 0.1  # the torques alone lose the plan: it rises and drifts away
    else:
        assert q[1, -1, 2] < 0.7 * float(task.q0[2])  # the torques alone let it fall
