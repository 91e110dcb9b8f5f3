"""The order of integrators under constraints, on a four-bar, against its reduced equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from test_constraints_motion import closed_form, four_bar

import rbd_jax as rbd

START, STEPS = jnp.array([1.0, 1.5]), 192  # angle and speed of the crank; steps of the finest run
END = 0.48  # s


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


@pytest.mark.parametrize(
    "integrator, project, order",
    [
        pytest.param("generalized_alpha", False, 2, marks=pytest.mark.slow),
        pytest.param("generalized_alpha", True, 2, marks=pytest.mark.slow),
        pytest.param("rk4", True, 4, marks=pytest.mark.slow),
        ("semi_implicit_euler", True, 1),
    ],
)
def test_order_under_constraints(integrator, project, order):
    model, loop = four_bar()
    q0, v0 = jax.jvp(closed_form, (START[0],), (START[1],))

    def run(dt):
        path = rbd.rollout(model, q0, v0, jnp.zeros((STEPS, 3)), dt, integrator=integrator,
                           constraints=loop, project=project)  # fmt: skip
        return path.q, path.v

    many = np.array([1, 2, 4])  # steps of one, two and four times the finest length
    q, v = quick_jit(jax.vmap(run))(jnp.asarray(END / STEPS * many))
    ends = np.array([[q[k, STEPS // n, 0], v[k, STEPS // n, 0]] for k, n in enumerate(many)])
    errors = np.linalg.norm(ends - np.asarray(crank_motion(model)), axis=1)
    rates = np.log2(errors[1:] / errors[:-1])
    print(integrator, "errors", errors, "orders", rates)
    assert abs(rates[0] - order) < 0.2
