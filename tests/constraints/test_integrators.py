"""The order of integrators under constraints, on a four-bar, against its reduced equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.four_bar import closed_form, four_bar

import rbd_jax as rbd
from rbd_jax import constraints

START, STEPS = jnp.array([1.0, 1.5]), 192  # angle and speed of the crank; steps of the finest run
END = 0.48  # s
ConstrainedRobot = rbd.simulate.ConstrainedRobot
POSITIONS = rbd.simulate.GeneralizedAlpha(level="position")


def crank_motion(model):
    """Angle and speed of the crank at the end: its own equation, by projection on the closed form.

    ``m(θ) θ̈ + ½ m'(θ) θ̇² + V'(θ) = 0`` with ``m = φ'ᵀ M φ'``, by many steps of RK4.
    """

    def inertia(angle):
        q, slope = jax.jvp(closed_form, (angle,), (jnp.ones_like(angle),))
        return slope @ rbd.mass_matrix(model, q) @ slope

    def rate(x):
        m, dm = jax.value_and_grad(inertia)(x[0])
        dV = jax.grad(lambda a: rbd.potential_energy(model, closed_form(a)))(x[0])
        return jnp.stack([x[1], -(dm * x[1] ** 2 / 2 + dV) / m])

    def step(_, x, h=END / 2000):
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        return x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))

    return quick_jit(lambda x: jax.lax.fori_loop(0, 2000, step, x))(START)


@pytest.mark.slow
@pytest.mark.parametrize(
    "integrator, project, order",
    [
        pytest.param("generalized_alpha", False, 2, marks=pytest.mark.slow),
        pytest.param("generalized_alpha", True, 2, marks=pytest.mark.slow),
        pytest.param(POSITIONS, False, 2, marks=pytest.mark.slow, id="position_level"),
        pytest.param("rk4", True, 4, marks=pytest.mark.slow),
        ("semi_implicit_euler", True, 1),
    ],
)
def test_order_under_constraints(integrator, project, order):
    model, loop = four_bar()
    q0, v0 = jax.jvp(closed_form, (START[0],), (START[1],))

    plant = ConstrainedRobot(model, integrator, constraints=loop, project=project)

    def run(dt):
        path = rbd.rollout(plant, q0, v0, jnp.zeros((STEPS, 3)), dt)
        return path.q, path.v

    many = np.array([1, 2, 4])  # steps of one, two and four times the finest length
    q, v = quick_jit(jax.vmap(run))(jnp.asarray(END / STEPS * many))
    ends = np.array([[q[k, STEPS // n, 0], v[k, STEPS // n, 0]] for k, n in enumerate(many)])
    errors = np.linalg.norm(ends - np.asarray(crank_motion(model)), axis=1)
    rates = np.log2(errors[1:] / errors[:-1])
    print(integrator, "errors", errors, "orders", rates)
    assert abs(rates[0] - order) < 0.2


@pytest.mark.slow
def test_position_level_does_not_drift():
    """Ten seconds with long steps: no position error, and energy that is nearly kept."""
    model, loop = four_bar()
    q0, v0 = jax.jvp(closed_form, (START[0],), (START[1],))

    plant = ConstrainedRobot(model, POSITIONS, constraints=loop)

    def run(dt):
        path = rbd.rollout(plant, q0, v0, jnp.zeros((2000, 3)), dt)
        gap = jax.vmap(lambda q: constraints.residual(model, q, loop))(path.q)
        energy = jax.vmap(
            lambda q, v: rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)
        )(path.q, path.v)
        return gap, energy

    gap, energy = quick_jit(run)(jnp.asarray(0.005))
    np.testing.assert_allclose(gap, 0, atol=1e-13)
    np.testing.assert_allclose(energy, energy[0], rtol=2e-3)


@pytest.mark.slow
def test_gradients_at_position_level():
    """Forward mode against differences, reverse against forward mode; masses, start, torques."""
    model, loop = four_bar()

    def end(x):
        q0, v0 = jax.jvp(closed_form, (x[0],), (x[1],))
        heavier = model.inertia * (1 + x[2] * jnp.array([1.0, 0.0, 0.0])[:, None])
        robot = eqx.tree_at(lambda m: m.inertia, model, heavier)
        place = eqx.tree_at(lambda c: c.p_2, loop, loop.p_2 + x[3] * jnp.array([[1.0, 0, 0]]))
        held = constraints.project(robot, q0, v0, place, 6)  # the start satisfies the constraints
        plant = ConstrainedRobot(robot, POSITIONS, constraints=place)
        path = rbd.rollout(plant, held.q, held.v, jnp.tile(x[4:], (12, 1)), 0.01)
        return jnp.concatenate([path.q[-1], path.v[-1]])

    x, way = jnp.array([1.0, 1.5, 0.1, 0.02, 0.2, -0.1, 0.05]), jnp.linspace(1.0, -1.0, 7)
    weights = jnp.linspace(-1.0, 2.0, 6)

    def both(x):
        slope = jax.jvp(end, (x,), (way,))[1]
        return slope, jax.vjp(end, x)[1](weights)[0]

    slope, gradient = quick_jit(both)(x)
    h = 1e-5
    ends = quick_jit(jax.vmap(end))(jnp.stack([x + h * way, x - h * way]))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(weights @ slope, gradient @ way, rtol=1e-10)


def test_the_level_is_one_of_two():
    with pytest.raises(ValueError, match="level must be 'acceleration' or 'position', got 'speed'"):
        rbd.simulate.GeneralizedAlpha(level="speed")  # pyright: ignore[reportArgumentType]
