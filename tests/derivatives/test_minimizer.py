"""Derivatives of what follows from a minimizer, against a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rbd_jax.derivatives.custom_jvp.implicit_solve import (
    Stationary,
    implicit_solve_custom_jvp,
    minimizer_custom_jvp,
)


def residual(theta, x):
    """The gradient of ``¼ x⁴ + θ₁ x − θ₀ x`` for each x."""
    return x**3 + theta[1] * x - theta[0]


PROBLEM = Stationary(residual, lambda theta, x: lambda r: r / (3 * x**2 + theta[1]))


def known(theta, x):
    x = minimizer_custom_jvp(PROBLEM, theta, x)
    return jnp.sin(theta[0]) * x, x


def search(theta, start):
    """Newton's method in a while loop, which reverse mode cannot pass."""

    def step(x):
        return x - residual(theta, x) / (3 * x**2 + theta[1])

    x = jax.lax.while_loop(lambda x: jnp.abs(residual(theta, x)).max() > 1e-13, step, start)
    return jnp.sin(theta[0]) * x, x, jnp.array(7)


def follows(theta):
    out, x, note = implicit_solve_custom_jvp(search, known, theta, jnp.ones(2))
    return jnp.sum(out * x), note


def exact(theta):
    """Cardano's formula for the same."""
    half, third = theta[0] / 2, theta[1] / 3
    root = jnp.sqrt(half**2 + third**3)
    x = jnp.cbrt(half + root) + jnp.cbrt(half - root)
    return jnp.sum(jnp.sin(theta[0]) * x * x)


@pytest.mark.float64
def test_first_and_second_derivatives_are_those_of_the_closed_form():
    theta = jnp.array([[1.3, -0.4], [0.8, 1.7]])
    value, note = follows(theta)
    np.testing.assert_allclose(value, exact(theta), rtol=1e-13)
    assert note == 7
    alone = lambda theta: follows(theta)[0]  # noqa: E731
    for f in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(f(alone)(theta), jax.jacfwd(exact)(theta), rtol=1e-11)
        for g in (jax.jacfwd, jax.jacrev):
            second = g(f(alone))(theta)
            np.testing.assert_allclose(second, jax.hessian(exact)(theta), rtol=1e-10, atol=1e-12)
