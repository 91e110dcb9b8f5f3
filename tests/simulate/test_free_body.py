"""A free body in absolute coordinates: momentum to the bit, orders, wrenches, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close
from support.integration import slope

import rbd_jax as rbd
from rbd_jax.simulate import TABLEAUS, FreeBody, free_body_at, free_body_path, free_body_step
from rbd_jax.spatial import se3, so3

BODY = jnp.array([1.5, 0.15, -0.3, 0.075, 0.9, 0.02, 1.1, -0.03, 0.05, 1.4])


def _thrown() -> FreeBody:
    pose = so3.exp(jnp.array([0.3, -0.5, 0.2])), jnp.array([0.1, 0.2, 0.3])
    return free_body_at(BODY, pose, jnp.array([2.0, 0.3, -0.4, 0.5, -0.2, 0.1]))


@jax.jit
def _energy(body: FreeBody):
    I = rbd.spatial.inertia.matrix(BODY)
    Pi = rbd.spatial.motion.wrench_to_child((body.R, body.p), body.momentum)
    return 0.5 * Pi @ jnp.linalg.solve(I, Pi)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n if n in ("heun", "rk4") else pytest.param(n, marks=pytest.mark.slow) for n in TABLEAUS],
)
def test_free_body_keeps_its_spatial_momentum_exactly(name):
    """To the bit; pose and energy to the order of the tableau."""
    body, order = _thrown(), TABLEAUS[name].order
    finals, energies = [], []
    for n in (40, 80, 160, 1280):
        tableau = TABLEAUS[name] if n < 1000 else TABLEAUS["rk4"]
        path = quick_jit(lambda b, h, n=n, t=tableau: free_body_path(BODY, b, h, n, tableau=t))(
            body, 2.0 / n
        )
        assert (np.asarray(path.momentum) == np.asarray(body.momentum)).all()
        finals.append(jax.tree.map(lambda x: x[-1], path))
        energies.append(float(abs(_energy(finals[-1]) - _energy(body))))
    truth = finals.pop()
    between = jax.jit(lambda x, y: se3.log(se3.compose(se3.inverse(x), y)))
    gap = [between(truth[:2], x[:2]) for x in finals]
    errors = [[float(jnp.linalg.norm(x)), e] for x, e in zip(gap, energies, strict=False)]
    print(name, slope(errors).round(2).tolist())
    assert (slope(errors)[-1] > order - 0.2).all()


@pytest.mark.float64
def test_free_body_under_a_wrench_is_the_robot_of_one_free_body():
    """Gravity as a spatial wrench (36) against a free joint, momentum form against velocities."""
    m = rbd.build_model(rbd.RobotSpec("body", (rbd.LinkSpec("body", 1.0),), ()), floating_base=True)
    m = eqx.tree_at(lambda m: m.inertia, m, BODY[None])
    body, g = _thrown(), m.gravity

    def weight(t, b):
        f = BODY[0] * g
        at = b.p + so3.rotate(b.R, BODY[1:4]) / BODY[0]
        return jnp.concatenate([so3.cross(at, f), f])

    path = quick_jit(lambda b: free_body_path(BODY, b, 0.002, 500, weight))(body)
    q0 = jnp.concatenate([body.p, so3.quat_from_matrix(body.R)])
    v0 = jnp.array([2.0, 0.3, -0.4, 0.5, -0.2, 0.1])
    run = quick_jit(lambda q, v: rbd.rollout(m, q, v, jnp.zeros((500, 6)), 0.002, integrator="rk4"))
    other = run(q0, v0)
    assert_close(path.p, other.q[:, :3], atol=1e-9)
    assert_close(path.R[-1], so3.quat_to_matrix(other.q[-1, 3:]), atol=1e-9)
    assert_close(
        path.momentum[-1], rbd.algorithms.spatial_momentum(m, other.q[-1], other.v[-1]), atol=1e-8
    )
    fallen = body.momentum[3:] + BODY[0] * g
    assert_close(path.momentum[-1, 3:], fallen, atol=1e-12)


def test_free_body_under_a_wrench_of_time_alone_is_a_quadrature():
    """Exact for a cubic in t and order 4, so that every node of every step counts."""
    body = _thrown()
    c = jnp.asarray(np.random.default_rng(3).normal(size=(4, 6)))

    def wrench(t, _):
        return jnp.sum(c * t ** jnp.arange(4.0)[:, None], axis=0)

    def impulse(t):
        return np.sum(c * t ** np.arange(1.0, 5.0)[:, None] / np.arange(1.0, 5.0)[:, None], axis=0)

    run = lambda b: (  # noqa: E731
        free_body_path(BODY, b, 0.3, 5, wrench),
        free_body_step(BODY, b, 0.3, wrench, 0.9),
    )
    path, one = quick_jit(run)(body)
    for k in range(6):
        assert_close(path.momentum[k], body.momentum + impulse(0.3 * k), atol=1e-13)
    assert_close(one.momentum, body.momentum + impulse(1.2) - impulse(0.9), atol=1e-13)


@pytest.mark.slow
def test_gradients_of_free_bodies_in_a_batch():
    """With respect to inertia, pose and momentum, against central differences."""
    bodies = jax.vmap(lambda x: _thrown()._replace(momentum=x))(
        _thrown().momentum[None] * jnp.array([1.0, -0.5])[:, None]
    )

    def score(I10, body):
        end = jax.tree.map(lambda x: x[-1], free_body_path(I10, body, 0.05, 10))
        return jnp.sum(jnp.sin(end.p)) + end.R[0, 1] + jnp.sum(end.momentum**2)

    slope = quick_jit(jax.vmap(jax.grad(score, (0, 1)), (None, 0)))(BODY, bodies)
    rng, h = np.random.default_rng(0), 1e-6
    step = [jnp.asarray(rng.normal(size=x.shape)) for x in (BODY, bodies.p, bodies.momentum)]
    at = lambda e: jax.vmap(score, (None, 0))(  # noqa: E731
        BODY + e * step[0],
        bodies._replace(p=bodies.p + e * step[1], momentum=bodies.momentum + e * step[2]),
    )
    numeric = quick_jit(lambda: (at(h) - at(-h)) / (2 * h))()
    exact = slope[0] @ step[0] + sum(
        jnp.sum(x * d, axis=1)
        for x, d in zip((slope[1].p, slope[1].momentum), step[1:], strict=True)
    )
    assert_close(exact, numeric, rtol=1e-7, atol=1e-7)
