"""The receding horizon that searches by samples, alone and before the steps of iLQR."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close
from test_sampling import DT, T, _problem

from rbd_jax import optimize as opt
from rbd_jax.optimize import tasks


@cache
def loops():
    """A sledge goes to 0.3 m in 20 steps: by samples, by iLQR, and by both."""
    problem, zero, guess = _problem(), jnp.zeros(1), jnp.zeros((T, 1))
    newton, key = opt.controller(problem, max_steps=1), jax.random.key(0)
    search = opt.sampler(problem, key, noise=1.0, samples=64, max_steps=4)
    both = opt.sampler(problem, key, noise=1.0, samples=32, refine=newton)
    run = lambda c: opt.mpc(c, zero, zero, guess, 20)  # noqa: E731
    return jax.jit(lambda: tuple(map(run, (search, newton, both))))()


def test_samples_bring_it_there_and_newton_steps_keep_it_smooth():
    search, newton, both = loops()
    for s in (search, both):
        assert bool((s.result == opt.RESULTS.successful).all())
        assert bool((jnp.abs(s.u) <= 2).all())
    assert abs(float(search.q[-1, 0]) - 0.3) < 0.05
    assert_close(both.q[-1], newton.q[-1], atol=0.02)
    jerk = lambda s: float(jnp.abs(jnp.diff(s.u[:, 0], 2)).max())  # noqa: E731
    assert jerk(both) < jerk(search)
    assert both.steps.tolist() == [2] * 20


def test_each_step_has_its_own_samples_and_a_time_its_own_key():
    problem, zero = _problem(), jnp.zeros(1)
    control = opt.sampler(problem, jax.random.key(0), noise=1.0, samples=8)
    plan = control.plan(zero, zero, jnp.zeros((T, 1)))

    @jax.jit
    def run(t):
        return control.step(plan, zero, zero, t=t, shift=False).plan.u

    first, again, later = run(0.0), run(0.0), run(DT)
    np.testing.assert_array_equal(first, again)
    assert float(jnp.abs(first - later).max()) > 0


def test_no_finite_sample_keeps_the_plan():
    problem, zero = _problem(), jnp.zeros(1)
    control = opt.sampler(problem, jax.random.key(0), noise=1.0, samples=8)
    plan = control.plan(zero, zero, jnp.ones((T, 1)))
    lost = jax.jit(lambda q: control.step(plan, q, zero, shift=False))(jnp.nan * zero)
    assert bool(lost.result == opt.RESULTS.nonfinite)
    np.testing.assert_array_equal(lost.plan.u, plan.u)


def test_arguments_are_checked():
    problem, key = _problem(), jax.random.key(0)
    for options, says in (
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"knots": 0}, "knots must be at least 1"),
        ({"noise": jnp.ones(3)}, r"noise has shape \(3,\), expected \(1,\) or \(\)"),
    ):
        with pytest.raises(ValueError, match=says):
            opt.sampler(problem, key, **({"noise": 1.0} | options))


@pytest.mark.slow
def test_64_quadrupeds_stand_up_and_take_a_push():
    """From random heaps on the ground, and from their stance under 30 N s on 30 kg."""
    task, n = tasks.stand_up(dtype=jnp.float32), 64
    keys = jax.random.split(jax.random.key(0), n)
    q, v = jax.jit(jax.vmap(tasks.lying, (None, 0)))(task, keys)
    assert not bool(tasks.stands(task, q, v).any())
    control = opt.sampler(task.problem, jax.random.key(1), noise=0.4, samples=16, knots=3)

    @jax.jit
    @jax.vmap
    def run(q, v, impulse):
        loop = opt.mpc(control, q, v, task.u, 60, plant=tasks.pushed(task, impulse))
        return tasks.stands(task, loop.q[-1], loop.v[-1]), loop.q[:, 2].min()

    good, _ = run(q, v, jnp.zeros((n, 3), jnp.float32))
    angle = jnp.linspace(0, 2 * jnp.pi, n, endpoint=False, dtype=jnp.float32)
    push = 30 * jnp.stack([jnp.cos(angle), jnp.sin(angle), 0 * angle], axis=1)
    stance = [jnp.tile(x, (n, 1)) for x in (task.q0, task.v0)]
    held, lowest = run(*stance, push)
    print(int(good.sum()), "stand up,", int(held.sum()), "stand after the push")
    assert bool(good.all()) and bool((held & (lowest > 0.5 * task.q0[2])).all())
