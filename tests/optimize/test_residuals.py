"""Gauss–Newton models of residuals whose parts depend on few arguments."""

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.optimize.problems._residuals import dense, gauss_newton_blocks


def residuals(a, b, c):
    inner = jnp.concatenate([2 * b, a[:1] * b[:1]])
    return jnp.concatenate([jnp.sin(a), inner, c * b[:1], jnp.ones(2)])


def test_blocks_are_those_of_the_whole_jacobian_and_zero_ones_are_left_out():
    at = [jnp.arange(1.0, 4.0), jnp.arange(2.0), jnp.ones(1), jnp.zeros(0)]
    with_idle = lambda a, b, c, d: residuals(a, b, c)  # noqa: E731
    g, H = jax.jit(lambda at: gauss_newton_blocks(with_idle, at))(at)
    missing = {(i, j) for i, row in enumerate(H) for j, x in enumerate(row) if x is None}
    assert missing == {(0, 2), (2, 0)} | {(3, k) for k in range(4)} | {(k, 3) for k in range(3)}
    both = jax.jit(lambda *at: (jax.jacfwd(residuals, (0, 1, 2))(*at), residuals(*at)))
    J, r = jax.tree.map(np.asarray, both(*at[:3]))
    J = np.concatenate(J, axis=1)
    np.testing.assert_allclose(dense(H, [3, 2, 1, 0], J.dtype), J.T @ J, atol=1e-14)
    np.testing.assert_allclose(jnp.concatenate(g), J.T @ r, atol=1e-14)


def test_one_part_alone():
    g, H = gauss_newton_blocks(lambda a: a**2, [jnp.arange(3.0)])
    np.testing.assert_allclose(g[0], 2 * jnp.arange(3.0) ** 3)
    np.testing.assert_allclose(H[0][0], jnp.diag(4 * jnp.arange(3.0) ** 2))
