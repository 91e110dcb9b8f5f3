"""The sweep for semi-implicit Euler against the one for any step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within
from support.problems import random_problem, short

import rbd_jax as rbd
from rbd_jax.optimize import lqr_rollout, riccati_backward
from rbd_jax.optimize.linear_quadratic._euler_sweep import Direction, direction
from rbd_jax.optimize.linear_quadratic._lq_approximation import costates, gauss_newton
from rbd_jax.optimize.solvers._ilqr import gradient


def _general(problem, q, v, u, mu, box, limits):
    """The same through ``x⁺ = A x + B u + d``, with a regularization of its own in each step."""
    f, l, end = gauss_newton(problem, q, v, u)
    size = jnp.mean(jnp.abs(jnp.diagonal(l.uu, axis1=1, axis2=2)), axis=1)
    more = mu * jnp.where(size > 0, size, 1)[:, None, None] * jnp.eye(u.shape[1])[None]
    g = riccati_backward(f, l._replace(uu=l.uu + more), end, jnp.zeros(()), box)
    dx, du = lqr_rollout(f, g, box)
    multipliers = g.Vx + jnp.sum(g.Vxx * dx[1:, None, :], axis=-1)
    slope = jnp.sum(l.x * dx[:-1]) + jnp.sum(l.u * du) + jnp.sum(end.x * dx[-1])
    by_u, reduced = (gradient(f, l, costates(f, l, end, K)) for K in (g.K, None))
    return Direction(dx, du, g.K, multipliers, slope, by_u, reduced, g.definite)


def _states(problem, v0, seed=0):
    """States with gaps between them, and controls."""
    model, n = problem.model, problem.steps
    keys = jax.random.split(jax.random.key(seed), 4)
    noise = lambda k, shape: 0.2 * jax.random.normal(keys[k], shape)  # noqa: E731
    start = rbd.random_configuration(model, keys[3])
    q = jax.vmap(lambda d: rbd.integrate(model, start, d))(noise(0, (n + 1, model.nv)))
    return q, v0[None] + noise(1, (n + 1, model.nv)), noise(2, (n, problem.controls))


@pytest.mark.parametrize("bounded", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("legged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_direction_is_that_of_the_general_sweep(legged, bounded):
    """With ball and free joints, gaps, a landing, bounds; alone and in a batch."""
    problem = short().problem if legged else random_problem()
    assert (
        problem.kind.robot(problem) is not None
        and bool(getattr(problem.kind, "steps", ())) == legged
    )
    v0 = jnp.cos(jnp.arange(float(problem.model.nv)))
    one, two = jax.jit(lambda v0: [_states(problem, v0, seed) for seed in (0, 1)])(v0)
    batch = jax.tree.map(lambda *x: jnp.stack(x), one, two, one, one)

    def run(solve, q, v, u):
        box = (-0.1 - u, 0.1 - u) if bounded else None
        return solve(problem, q, v, u, jnp.asarray(1e2), box, box)

    wanted = jax.jit(lambda *x: run(_general, *x))(*one)
    alone = jax.jit(lambda *x: run(direction, *x))(*one)
    many = jax.jit(jax.vmap(lambda *x: run(direction, *x)))(*batch)
    assert wanted.definite
    for name, a, b, c in zip(Direction._fields, wanted, alone, many, strict=True):
        for found in (b, c[0], c[2]):
            size = float(np.abs(np.asarray(a, float)).max())
            np.testing.assert_allclose(
                found, a, rtol=0, atol=within(1e-10, 1e-5) * size, err_msg=name
            )
    if bounded:
        held = jnp.isclose(jnp.abs(one[2] + wanted.du), 0.1)
        assert 0 < int(held.sum()) < held.size
