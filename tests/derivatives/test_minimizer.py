"""Derivatives of what follows from a minimizer, against a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

from rbd_jax.derivatives.custom_jvp.implicit_solve import (
    Stationary,
    implicit_solve_custom_jvp,
    minimizer_custom_jvp,
)


def residual(theta, x):
    """The gradient of ``¼ x⁴ + θ₁ x − θ₀ x`` for each x."""
    return x**3 + theta[1] * x - theta[0]


def solver(theta, x, kept):
    """The inverse of the derivative of the residual, from what the search has kept of it."""
    slope = 3 * x**2 + theta[1] if kept is None else kept
    return lambda r: r / slope


PROBLEM = Stationary(residual, solver)


def known(theta, x, kept):
    x = minimizer_custom_jvp(PROBLEM, theta, x, kept)
    return jnp.sin(theta[0]) * x, x


def search(theta, start, keep):
    """Newton's method in a while loop, which reverse mode cannot pass."""

    def step(x):
        return x - residual(theta, x) / (3 * x**2 + theta[1])

    x = jax.lax.while_loop(lambda x: jnp.abs(residual(theta, x)).max() > 1e-13, step, start)
    slope = 3 * x**2 + theta[1] if keep else None
    return jnp.sin(theta[0]) * x, x, jnp.array(7), slope


def search_that_keeps_nothing(theta, start, keep):
    return search(theta, start, False)


def follows(theta, search=search):
    out, x, note, kept = implicit_solve_custom_jvp(search, known, theta, jnp.ones(2), False)
    assert kept is None
    return jnp.sum(out * x), note


def exact(theta):
    """Cardano's formula for the same."""
    half, third = theta[0] / 2, theta[1] / 3
    root = jnp.sqrt(half**2 + third**3)
    x = jnp.cbrt(half + root) + jnp.cbrt(half - root)
    return jnp.sum(jnp.sin(theta[0]) * x * x)


@pytest.mark.float64
@pytest.mark.parametrize("search", [search, search_that_keeps_nothing])
def test_first_and_second_derivatives_are_those_of_the_closed_form(search):
    theta = jnp.array([[1.3, -0.4], [0.8, 1.7]])
    value, note = follows(theta, search)
    np.testing.assert_allclose(value, exact(theta), rtol=1e-13)
    assert note == 7
    alone = lambda theta: follows(theta, search)[0]  # noqa: E731
    modes = jax.jacfwd, jax.jacrev

    @quick_jit
    def both(theta):
        first = [f(alone)(theta) for f in modes]
        second = [g(f(alone))(theta) for f in modes for g in modes]
        return first, second, jax.jacfwd(exact)(theta), jax.hessian(exact)(theta)

    first, second, slope, curvature = both(theta)
    for found in first:
        np.testing.assert_allclose(found, slope, rtol=1e-11)
    for found in second:
        np.testing.assert_allclose(found, curvature, rtol=1e-10, atol=1e-12)
