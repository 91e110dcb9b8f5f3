"""The regularization of the Riccati sweep: its step lowers the cost, whatever its weight is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within
from support.problems import linear_quadratic

from rbd_jax import optimize as opt


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
