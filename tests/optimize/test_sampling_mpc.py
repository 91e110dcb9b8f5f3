"""The receding horizon that searches by samples, alone and before the steps of iLQR."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close
from support.problems import DT, T, sledge_problem

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks


@cache
def loops():
    """A sledge goes to 0.3 m in 20 steps: by samples, by iLQR, and by both."""
    problem, zero, guess = sledge_problem(), jnp.zeros(1), jnp.zeros((T, 1))
    newton, key = opt.controller(problem, max_steps=1), jax.random.key(0)
    search = opt.sampler(problem, key, noise=1.0, samples=64, max_steps=4)
    both = opt.sampler(problem, key, noise=1.0, samples=32, refine=newton)
    fitted = opt.sampler(problem, key, noise=1.0, samples=64, max_steps=8, elites=8)
    run = lambda c, **o: opt.mpc(c, zero, zero, guess, 20, **o)  # noqa: E731
    return jax.jit(lambda: (run(search), run(newton), run(both), run(fitted, every=5)))()


@pytest.mark.slow
def test_samples_bring_it_there_and_newton_steps_keep_it_smooth():
    search, newton, both, fitted = loops()
    assert fitted.steps.tolist() == [8] * 4
    for s in (search, both, fitted):
        assert bool((s.result == opt.RESULTS.successful).all())
        assert bool((jnp.abs(s.u) <= 2).all())
    assert abs(float(search.q[-1, 0]) - 0.3) < 0.05 and abs(float(fitted.q[-1, 0]) - 0.3) < 0.02
    assert_close(both.q[-1], newton.q[-1], atol=0.02)
    jerk = lambda s: float(jnp.abs(jnp.diff(s.u[:, 0], 2)).mean())  # noqa: E731
    assert jerk(both) < 0.5 * jerk(search)
    assert both.steps.tolist() == [2] * 20


def test_each_step_has_its_own_samples_and_a_time_its_own_key():
    problem, zero = sledge_problem(), jnp.zeros(1)
    control = opt.sampler(problem, jax.random.key(0), noise=1.0, samples=8)
    plan = control.plan(zero, zero, jnp.zeros((T, 1)))

    @jax.jit
    def run(t):
        return control.step(plan, zero, zero, t=t, shift=False).plan.u

    first, again, later = run(0.0), run(0.0), run(DT)
    np.testing.assert_array_equal(first, again)
    assert float(jnp.abs(first - later).max()) > 0


def test_no_finite_sample_keeps_the_plan():
    problem, zero = sledge_problem(), jnp.zeros(1)
    control = opt.sampler(problem, jax.random.key(0), noise=1.0, samples=8)
    plan = control.plan(zero, zero, 3 * jnp.ones((T, 1)))
    np.testing.assert_array_equal(plan.u, 2)  # within the limits, as it was simulated
    lost = jax.jit(lambda q: control.step(plan, q, zero, shift=False))(jnp.nan * zero)
    assert bool(lost.result == opt.RESULTS.nonfinite)
    np.testing.assert_array_equal(lost.plan.u, plan.u)


def test_a_shifted_plan_goes_on_with_its_last_controls_or_at_rest():
    problem, zero, u = sledge_problem(), jnp.zeros(1), jnp.linspace(0.0, 1.0, T)[:, None]
    for rest, end in ((None, [1.0, 1.0]), (jnp.array([-0.5]), [-0.5, -0.5])):
        control = opt.sampler(problem, jax.random.key(0), noise=1.0, samples=2, rest=rest)
        moved = control.shifted(control.plan(zero, zero, u), 2)
        np.testing.assert_allclose(moved.u[:, 0], [*u[2:, 0], *end])


def test_arguments_are_checked():
    problem, key = sledge_problem(), jax.random.key(0)
    for options, says in (
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"knots": 0}, "knots must be at least 1"),
        ({"rest": jnp.ones(3)}, r"sampler: rest has shape \(3,\), expected \(1,\)"),
        ({"samples": 8, "elites": 9}, "elites must be from 2 to samples = 8, got 9"),
        ({"noise": jnp.ones(3)}, r"noise has shape \(3,\), expected \(1,\) or \(\)"),
    ):
        with pytest.raises(ValueError, match=says):
            opt.sampler(problem, key, **({"noise": 1.0} | options))


@pytest.mark.slow
@pytest.mark.parametrize("substeps", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_a_push_gives_its_impulse_whatever_the_period_of_the_controls_is(substeps):
    """To a robot in the air, for which no contact counts."""
    task, impulse = tasks.stand_up(dtype=jnp.float32), jnp.array([30.0, -20.0, 0.0])
    plant = tasks.pushed(task, impulse, finer=1)
    period = 0.01 * substeps
    u = jnp.tile(task.u[0], (round(0.48 / period), 1))

    @jax.jit
    def run(q, v):
        path = rbd.rollout(plant, q, v, u, period, substeps=substeps)
        return rbd.centroidal_momentum(task.problem.model, path.q[-1], path.v[-1])[3:]

    moved = run(task.q0.at[2].set(5.0), task.v0)
    # the steps of the simulation keep the momentum of a turning robot to some parts of 10,000
    np.testing.assert_allclose(moved[:2], impulse[:2], rtol=2e-3)


@pytest.mark.slow
def test_heaps_lie_and_a_pushed_quadruped_stands():
    """No start of ``lying`` stands; servos that hold the stance withstand 30 N s on 30 kg."""
    task, n = tasks.stand_up(dtype=jnp.float32), 16
    keys = jax.random.split(jax.random.key(0), n)
    q, v = jax.jit(jax.vmap(tasks.lying, (None, 0)))(task, keys)
    standing = jax.vmap(tasks.stands, (None, 0, 0))(task, q, v)
    assert bool(jnp.isfinite(q).all()) and not bool(standing.any())

    @jax.jit
    @jax.vmap
    def run(impulse):
        p, u = task.problem, jnp.tile(task.u[0], (30, 1))
        plant = tasks.pushed(task, impulse)
        path = rbd.rollout(plant, task.q0, task.v0, u, p.dt, substeps=p.substeps)
        q, v = path.q[-1], path.v[-1]
        return tasks.stands(task, q, v), path.q[1:, 2].min(), jnp.abs(q[:2]).max()

    angle = jnp.linspace(0, 2 * jnp.pi, n, endpoint=False, dtype=jnp.float32)
    push = 30 * jnp.stack([jnp.cos(angle), jnp.sin(angle), 0 * angle], axis=1)
    good, lowest, moved = run(push)
    assert bool(good.all()) and bool((lowest > 0.5 * task.q0[2]).all())
    assert float(moved.min()) > 0.005  # the push is felt


def test_to_rise_the_legs_fold_before_they_stretch():
    task = tasks.stand_up(dtype=jnp.float32)
    u = jax.jit(lambda q: tasks.rise(task, q))(task.q0.at[7:].add(0.3))
    half, stance = len(task.u) // 2, task.q0[7:]
    np.testing.assert_allclose(u[half - 1], np.clip(2 * stance, -2.6, 2.6), rtol=1e-6)
    np.testing.assert_allclose(u[half // 2 - 1], (stance + 0.3 + u[half - 1]) / 2, atol=1e-6)
    np.testing.assert_allclose(u[-1], stance, atol=1e-6)


def ground_of(task):
    scene = task.problem.plant.scene
    return scene.constraints.contacts.terrain


def test_ground_rises_to_a_box_and_the_goal_is_on_it():
    task = tasks.jump_onto(dtype=jnp.float32, height=0.1, distance=0.9, steps=3)
    box = ground_of(task)
    heights = jax.vmap(box)(jnp.array([[0.3, 0.2], [0.38, 0.0], [0.6, -0.2]], jnp.float32))
    np.testing.assert_allclose(heights, [0.0, 0.05, 0.1], atol=0.01)
    on_top = task.problem.final.q
    np.testing.assert_allclose(on_top - task.q0, [0.9, 0, 0.1, *[0.0] * 16], atol=1e-6)
    at_goal = task.problem.final_cost(on_top, task.v0)
    assert at_goal == 0 and task.problem.final_cost(task.q0, task.v0) > 10


@pytest.mark.slow
def test_a_quadruped_gets_onto_a_box():
    """Samples find contacts that no derivative tells of: at the end all four feet are on the box.

    A foot may rest on the slope at its edge. Rounding decides which foot does, if any.
    """
    task = tasks.jump_onto(dtype=jnp.float32)
    p, box = task.problem, ground_of(task)

    @jax.jit
    def search(key):
        found = opt.cem(p, task.q0, task.v0, task.u, key, noise=0.6, samples=512, elites=32,
                        max_steps=80, knots=12, keep=0.5)  # fmt: skip
        place = lambda q: jnp.stack([rbd.frame_placement(p.model, q, f)[1] for f in tasks.FEET])  # noqa: E731
        feet = jax.vmap(place)(found.q)
        clear = feet[..., 2] - 0.02 - jax.vmap(jax.vmap(box))(feet[..., :2])
        return found, feet[-1], clear

    found, feet, clear = search(jax.random.key(0))
    assert jnp.any(jnp.all(clear > 0.01, axis=1))  # it leaves the ground
    ground = jax.vmap(box)(feet[:, :2])
    assert jnp.all(ground > 0.06) and jnp.all(jnp.abs(clear[-1]) < 0.03)
    assert jnp.sum(ground > 0.11) >= 3
    assert found.q[-1, 2] > task.q0[2] and tasks.uprightness(found.q[-1]) > 0.95


@pytest.mark.slow
def test_a_receding_horizon_raises_a_quadruped_and_keeps_it_under_pushes():
    """Servos alone raise a third of all robots, and withstand a third of these pushes."""
    task, n = tasks.stand_up(dtype=jnp.float32), 8
    keys = jax.random.split(jax.random.key(5), n)
    q, v = jax.jit(jax.vmap(tasks.lying, (None, 0)))(task, keys)
    angle = jnp.linspace(0, 2 * jnp.pi, n, endpoint=False, dtype=jnp.float32)
    push = 50 * jnp.stack([jnp.cos(angle), jnp.sin(angle), 0 * angle], axis=1)
    q, v = (jnp.concatenate([x, jnp.tile(y, (n, 1))]) for x, y in ((q, task.q0), (v, task.v0)))
    lies = jnp.arange(2 * n) < n

    @jax.jit
    @jax.vmap
    def run(q, v, key, impulse, lies):
        u = jnp.where(lies, tasks.rise(task, q), task.u)
        control = opt.sampler(task.problem, key, noise=0.6, samples=64, max_steps=4, knots=6,
                              elites=8, rest=task.u[-1])  # fmt: skip
        plant = tasks.pushed(task, impulse)
        loop = opt.mpc(control, q, v, u, 40, every=2, plant=plant)
        return tasks.stands(task, loop.q[-1], loop.v[-1]), loop.q[:, 2].min() / task.q0[2]

    good, lowest = run(q, v, jnp.tile(keys, 2), jnp.concatenate([0 * push, push]), lies)
    print(good, lowest)
    assert int(good[:n].sum()) >= 6
    assert int((good[n:] & (lowest[n:] > 0.5)).sum()) >= 5
