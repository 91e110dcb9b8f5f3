"""Frames that are free to turn: their constraints hold however far they have turned."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.four_bar import LENGTHS, closed_form, four_bar

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.spatial import so3

HINGES = [(0, 1, 3, 4, 5), (0, 2, 3, 4, 5), (1, 2, 3, 4, 5)]


@pytest.fixture(scope="module")
def body():
    return rbd.samples.chain(0, floating_base=True)


def turned(w) -> jax.Array:
    """The configuration of a floating body after a turn about its origin."""
    return jnp.concatenate([jnp.zeros(3), so3.quat_exp(jnp.asarray(w, float))])


@pytest.mark.float64
@pytest.mark.parametrize(
    "reference", ["local", pytest.param("local_world_aligned", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "rows",
    [HINGES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in [*HINGES[1:], (3, 4, 5)])],
)
def test_errors_have_the_velocities_as_their_rates(body, rows, reference):
    """So two steps of Gauss and Newton remove an error of a millimetre."""
    c = constraints.frame(body, 0, rows=rows, reference=reference)
    free = np.array([float(k not in rows) for k in range(3)])
    aside = 1e-3 * jax.random.normal(jax.random.key(0), (body.nv,))

    def at(angle):
        q = turned(angle * free / jnp.sqrt(jnp.sum(free)))
        slope = jax.jacfwd(lambda d: constraints.residual(body, rbd.integrate(body, q, d), c))
        J = constraints.jacobian(body, q, c)
        new = constraints.project(body, rbd.integrate(body, q, aside), aside, c)
        return slope(jnp.zeros(body.nv)), J, constraints.residual(body, new.q, c)

    for angle in (0.0, 0.7, 2.0, 3.0):
        slope, J, left = quick_jit(at)(angle)
        np.testing.assert_allclose(slope, J, atol=1e-12)
        assert jnp.abs(left).max() < 1e-10


@pytest.mark.float64
@pytest.mark.parametrize(
    "rows", [HINGES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in HINGES[1:])]
)
def test_axes_that_are_apart(body, rows):
    """The error is the angle between them, also near and at half a turn."""
    c = constraints.frame(body, 0, rows=rows)
    free = next(k for k in range(3) if k not in rows)
    tilt = np.eye(3)[(free + 2) % 3]
    for angle in (1e-9, 0.3, 3.0, np.pi - 1e-5, np.pi):
        error = constraints.residual(body, turned(angle * tilt), c)
        assert jnp.linalg.norm(error) == pytest.approx(angle, rel=1e-7)
    error = lambda q: jnp.sum(constraints.residual(body, q, c))  # noqa: E731
    for angle in (2.0, np.pi):
        q = turned(angle * np.eye(3)[free])
        chex.assert_tree_all_finite((jax.jacrev(error)(q), jax.jacfwd(jax.jacrev(error))(q)))


def test_gains_hold_a_hinge_that_has_turned(body):
    """One second of a damped error; a screw in the place of the error would make it a spiral."""
    c = constraints.hinge(body, 0, position_gain=400.0, velocity_gain=40.0)
    q = rbd.integrate(body, turned([0, 0, 3.0]), jnp.array([0.01, 0.02, 0.0, 1e-3, 0.0, 1e-3]))
    still = jnp.zeros(body.nv)
    plant = rbd.simulate.ConstrainedRobot(body, "rk4", constraints=c)
    run = lambda q: rbd.rollout(plant, q, still, jnp.zeros((1000, body.nv)), 1e-3)  # noqa: E731
    end = quick_jit(run)(q)
    assert jnp.abs(constraints.residual(body, end.q[-1], c)).max() < 1e-8


@pytest.mark.slow
@pytest.mark.float64
def test_a_four_bar_closed_by_a_hinge():
    """It falls as with a point, although its parts have turned against each other."""
    model, point = four_bar()
    _, coupler, rocker, _ = LENGTHS
    sides = {"offset": [coupler, 0, 0], "at": [rocker, 0, 0]}
    hinge = constraints.hinge(model, "coupler", "rocker", **sides)
    q = closed_form(jnp.asarray(2.0))
    assert jnp.abs(q[2] - q[0] - q[1]) > 1.0
    near = q + jnp.array([0.0, 0.02, -0.03])
    still = jnp.zeros(model.nv)
    new = quick_jit(lambda q: constraints.project(model, q, still, hinge, 4))(near)
    for c in (hinge, point):
        assert jnp.abs(constraints.residual(model, new.q, c)).max() < 1e-12
    run = quick_jit(lambda c: rbd.constrained_dynamics(model, new.q, still, still, c)[0])
    np.testing.assert_allclose(run(hinge), run(point), rtol=1e-9)
