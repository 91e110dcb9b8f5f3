"""Search by samples: on a problem whose minimum is known, its options, failures and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.problems import T, sledge_problem

from rbd_jax import optimize as opt


@pytest.fixture(scope="module")
def solved():
    problem, zero, guess = sledge_problem(), jnp.zeros(1), jnp.zeros((T, 1))

    @jax.jit
    def run():
        least = opt.ilqr(problem, zero, zero, guess, throw=False)
        keys = jax.random.split(jax.random.key(0), 4)
        options = {"noise": 1.0, "samples": 64, "max_steps": 40}

        def by(search, problem=problem, **more):
            run = lambda key: search(problem, zero, zero, guess, key, **options, **more)  # noqa: E731
            return jax.vmap(run)(keys)

        # where a bound cuts the controls they are no lines, so this search has none
        lines = by(opt.cem, sledge_problem(100.0), knots=4)
        return least, by(opt.cem), by(opt.mppi), lines

    return run()


@pytest.mark.slow
def test_samples_come_near_to_the_minimum(solved):
    least, cem, mppi, _ = solved
    best, first = float(least.cost), float(least.history.cost[0])
    print(best, cem.cost, mppi.cost)
    for s, gap in ((cem, 0.01), (mppi, 0.05)):
        assert (np.asarray(s.cost) >= best * (1 - 1e-9)).all()
        assert (np.asarray(s.cost) - best < gap * (first - best)).all()
        assert (np.diff(np.asarray(s.costs), axis=1) <= 0).all()  # the best is kept
        np.testing.assert_allclose(s.costs[:, -1], s.cost, rtol=1e-9)
        assert (np.abs(s.u) <= 2).all()
        assert bool((s.result == opt.RESULTS.max_steps_reached).all())
    assert np.ptp(np.asarray(cem.cost)) > 0  # each key is a search of its own


@pytest.mark.slow
def test_between_knots_the_controls_are_lines(solved):
    u = np.asarray(solved[3].u)[..., 0]
    place = np.linspace(0, 3, T)
    bend = np.abs(np.diff(u, 2, axis=1))
    inside = np.floor(place[:-2]) == np.floor(place[2:])
    assert inside.sum() >= 3 and bend[:, inside].max() < 1e-9 < bend[:, ~inside].max()


FEW = {"noise": 1.0, "samples": 8, "max_steps": 2}


@pytest.mark.slow
def test_derivatives_of_a_search_are_nan():
    zero, guess, key = jnp.zeros(1), jnp.zeros((T, 1)), jax.random.key(0)
    cost = lambda q0: opt.cem(sledge_problem(), q0, zero, guess, key, elites=2, **FEW).cost  # noqa: E731
    assert bool(jnp.isnan(jax.jit(jax.grad(cost))(zero)).all())


def test_no_finite_sample_is_a_result():
    zero, guess, key = jnp.zeros(1), jnp.zeros((T, 1)), jax.random.key(0)
    problem = sledge_problem()
    lost = jax.jit(lambda q0: opt.mppi(problem, q0, zero, guess, key, **FEW))(zero * jnp.nan)
    assert bool(lost.result == opt.RESULTS.nonfinite)
    assert bool(jnp.isfinite(lost.u).all())  # the guess
    for f, o, says in (
        (opt.cem, {"elites": 1}, "elites must be from 2 to samples = 8, got 1"),
        (opt.mppi, {"temperature": 0.0}, "temperature must be positive"),
        (opt.mppi, {"knots": 0}, "knots must be at least 1"),
    ):
        with pytest.raises(ValueError, match=says):
            f(sledge_problem(), zero, zero, guess, key, **FEW, **o)
