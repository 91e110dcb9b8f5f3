"""The regularization of the Riccati sweep: its step lowers the cost, whatever its weight is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within
from support.problems import linear_quadratic

from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize import RESULTS, lqr_rollout
from rbd_jax.optimize.linear_quadratic._active_set import active_set_gains, change


@pytest.mark.parametrize("mu", [1e-3, 1e3])
def test_a_regularized_step_lowers_the_cost(mu):
    """However short it is, and by at least its part of what is promised for the whole step."""
    T, n, m = 12, 3, 2
    f, l, end = linear_quadratic(T, n, m)
    f = f._replace(d=jnp.zeros_like(f.d), A=1.5 * f.A)  # an unstable system

    def value(x, u):
        slope = jnp.sum(l.x * x[:-1]) + jnp.sum(l.u * u) + end.x @ x[-1]
        bend = jnp.einsum("ki,kij,kj->", x[:-1], l.xx, x[:-1]) + x[-1] @ end.xx @ x[-1]
        bend = bend + jnp.einsum("ki,kij,kj->", u, l.uu, u)
        return slope + 0.5 * bend + jnp.einsum("ki,kij,kj->", u, l.ux, x[:-1])

    @jax.jit
    def run(lengths):
        gains = opt.riccati_backward(f, l, end, jnp.asarray(mu))
        at = lambda t: opt.lqr_rollout(f, gains._replace(k=t * gains.k))  # noqa: E731
        x, u = at(1.0)
        regularized = value(x, u) + 0.5 * mu * jnp.sum(u * u)
        return gains.slope + gains.bend, regularized, jax.vmap(lambda t: value(*at(t)))(lengths)

    lengths = jnp.array([1.0, 0.5, 0.1, 1e-3])
    promise, regularized, values = run(lengths)
    np.testing.assert_allclose(promise, regularized, rtol=within(1e-9, 1e-5))
    assert float(promise) < 0
    assert (
        np.asarray(values) <= np.asarray(lengths) * float(promise) * (1 - within(1e-9, 1e-4))
    ).all()


@pytest.mark.float64
def test_a_step_within_bounds_lowers_the_cost():
    """K x may push a control that k does not move out of its bounds.

    Clipped there, the motion of plain gains can raise the cost at each length that is tried.
    """
    T, n, m = 12, 3, 2
    f, l, end = linear_quadratic(T, n, m)
    f = f._replace(d=jnp.zeros_like(f.d), A=2.5 * f.A)
    zero, lengths = jnp.zeros(()), jnp.array([1.0, 0.1, 1e-3])

    def along(l, box, gains, t):
        x, u = lqr_rollout(f, gains._replace(k=t * gains.k), box)
        return sum(change(l, end, x, u))

    @jax.jit
    @jax.vmap
    def run(slopes, at_low, at_high):
        box = jnp.where(at_low, 0.0, -10.0), jnp.where(at_high, 0.0, 10.0)
        here = l._replace(u=slopes)
        plain = opt.riccati_backward(f, here, end, zero, box)
        gains = active_set_gains(f, here, end, zero, box, slopes)
        values = [jax.vmap(lambda t, g=g: along(here, box, g, t))(lengths) for g in (plain, gains)]
        return gains.slope + gains.bend, *values

    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(64, T, m))
    which = rng.uniform(size=(64, T, m))
    at_low, at_high = which < 0.25, which > 0.75
    promise, plain, values = (np.asarray(x) for x in run(slopes, at_low, at_high))
    falls = promise < 0  # a solver rejects the others and regularizes more
    assert (plain[:, 0] >= 0).mean() > 0.3 and (plain[:, 1] >= 0).any()
    assert falls.mean() > 0.9
    np.testing.assert_allclose(values[:, 0], promise, rtol=1e-9, atol=1e-12)
    promise, values = promise[falls], values[falls]
    assert (values <= np.asarray(lengths) * promise[:, None] + 1e-12).all()


@pytest.mark.float64
def test_multiple_shooting_within_bounds_cuts_its_model_off_where_it_has_to():
    """Two starts of a quadrotor never end if the model goes on beyond the bounds of the thrusts."""
    trials = tasks.PROBLEM_SET["hector"](dtype=jnp.float64)
    problem, which = trials.problem, np.array([2, 15])

    def solve(q, v, u):
        return opt.multiple_shooting(problem, q, v, u, throw=False, max_steps=300)

    starts = (x[which] for x in (trials.q0, trials.v0, trials.u))
    found = jax.jit(jax.vmap(solve))(*starts)
    assert bool(jnp.all(found.result == RESULTS.successful)), found.steps
