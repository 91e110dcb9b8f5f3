"""Integrators on the manifold: order, conservation, derivatives of a step."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import model, random_state
from support.integrator_cases import METHODS, ORDERS, run, small

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import INTEGRATORS

ROBOTS = {
    "free": lambda: samples.random_tree(1, kinds=("free",)),
    "spherical": lambda: samples.random_tree(2, kinds=("spherical", "spherical")),
    "all_kinds": lambda: samples.random_tree(0),
    "planar": lambda: model("only_planar"),
    "helical": lambda: model("only_helical"),
}


# --- order ------------------------------------------------------------------------------------


def _actuated(m, w, t, q, v):
    """Accelerations under torques that depend on the time, so that the nodes in time matter."""
    return rbd.aba(m, q, v, w * jnp.cos(3 * t))


@cache
def _stepper(method: str):
    def many(m, w, q, v, dt, steps):
        def step(k, state):
            t = k.astype(dt.dtype) * dt
            return METHODS[method](m, partial(_actuated, m, w), t, *state, dt)

        return jax.lax.fori_loop(0, steps, step, (q, v))

    return quick_jit(many)


def _end(method, m, s, time, steps):
    dt = jnp.asarray(time / steps, m.dtype)
    return _stepper(method)(m, s.tau, s.q, s.v, dt, jnp.asarray(steps))


@cache
def _exact(name, time):
    m = ROBOTS[name]()
    return _end("rk4", m, random_state(m, 2), time, 4096)


@pytest.mark.float64
@pytest.mark.parametrize(
    "name",
    ["free", "spherical", "all_kinds"]
    + [pytest.param(n, marks=pytest.mark.slow) for n in ("planar", "helical")],
)
@pytest.mark.parametrize("method", ORDERS)
def test_order_on_the_manifold(method, name):
    """Halving the step divides the error at the end by 2ᵖ, in q (on the manifold) and in v."""
    m, time = ROBOTS[name](), 0.25
    s = random_state(m, 2)
    q, v = _exact(name, time)
    steps = (128, 256, 512) if method == "semi_implicit_euler" else (32, 64, 128)
    errors = []
    for n in steps:
        qn, vn = _end(method, m, s, time, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (run.difference(m, q, qn), vn - v)])
    orders = np.log2(np.array(errors)[:-1] / np.array(errors)[1:])
    print(name, method, "orders", orders.round(2).tolist(), "errors", errors)
    assert (np.abs(orders[-1] - ORDERS[method]) < 0.25).all()


# --- conservation -----------------------------------------------------------------------------


def _spinning_body():
    link = rbd.LinkSpec("body", 1.5, np.array([0.1, -0.2, 0.05]), np.diag([0.3, 0.5, 0.7]))
    spec = rbd.RobotSpec("body", (link,), ())
    return rbd.build_model(spec, floating_base=True, gravity=(0.0, 0.0, 0.0))


@pytest.mark.float64
@pytest.mark.parametrize("method", ORDERS)
def test_a_free_body_conserves_momentum_to_the_order_of_the_method(method):
    m = _spinning_body()
    s = random_state(m, 1)
    free = s._replace(tau=jnp.zeros_like(s.tau), v=2 * s.v)
    before = run.centroidal_momentum(m, free.q, free.v)
    energy = run.kinetic_energy(m, free.q, free.v)
    drift = []
    for n in (100, 200, 400):
        q, v = _end(method, m, free, 1.0, n)
        change = jnp.linalg.norm(run.centroidal_momentum(m, q, v) - before)
        drift.append([float(change), float(abs(run.kinetic_energy(m, q, v) - energy))])
    orders = np.log2(np.array(drift)[:-1] / np.array(drift)[1:])
    print(method, "drift of momentum and energy", drift, "orders", orders.round(2).tolist())
    assert (orders[-1] > ORDERS[method] - 0.25).all()
    assert drift[-1][0] < (1e-1 if method == "semi_implicit_euler" else 1e-6)


@pytest.mark.float64
@pytest.mark.parametrize("name", ["double_pendulum", "only_spherical"])
def test_energy_drift_of_a_passive_robot_falls_with_the_order(name):
    """Without damping and torques, over 2 s."""
    m = model(name)
    m = eqx.tree_at(lambda m: m.damping, m, jnp.zeros_like(m.damping))
    s = random_state(m, 4)
    s = s._replace(tau=jnp.zeros_like(s.tau))
    energy = lambda q, v: run.kinetic_energy(m, q, v) + run.potential_energy(m, q)  # noqa: E731
    start = energy(s.q, s.v)
    for method, p in ORDERS.items():
        drift = [abs(float(energy(*_end(method, m, s, 2.0, n)) - start)) for n in (1000, 2000)]
        print(name, method, "energy drift", drift, "of", float(start))
        assert np.log2(drift[0] / drift[1]) > p - 0.3
    assert drift[-1] < 1e-7 * abs(float(start))


def test_semi_implicit_euler_keeps_the_energy_of_a_pendulum_bounded():
    """A symplectic method: over 200 s the error swings, but does not grow."""
    m = samples.pendulum()
    q0, v0 = jnp.array([1.0]), jnp.zeros(1)
    run = jax.jit(lambda u: rbd.rollout(m, q0, v0, u, 0.01))
    path = run(jnp.zeros((20_000, 1)))
    energy = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
    E = np.asarray(jax.jit(energy)(path.q, path.v))
    error = np.abs(E - E[0])
    early, late = error[:10_000].max(), error[10_000:].max()
    assert 1e-3 < early < 0.5
    assert late < 1.01 * early


def test_damping_takes_energy_away():
    m = ROBOTS["all_kinds"]()
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.zeros(3))
    s = random_state(m)
    s = s._replace(tau=jnp.zeros_like(s.tau))
    energies = [float(run.kinetic_energy(m, s.q, s.v))]
    for n in (20, 40, 60):
        energies.append(float(run.kinetic_energy(m, *_end("rk4", m, s, 0.002 * n, n))))
    assert (np.diff(energies) < -1e-3 * energies[0]).all()


# --- derivatives of a step --------------------------------------------------------------------


STEPS = [
    ("no free joint", "semi_implicit_euler"),
    pytest.param("no free joint", "kutta3", marks=pytest.mark.slow),
    *(pytest.param("small", method, marks=pytest.mark.slow) for method in INTEGRATORS),
]


@pytest.mark.float64
@pytest.mark.parametrize("name, method", STEPS)
def test_step_derivatives_equal_differences_on_the_manifold(name, method):
    """All of A and B, at a long step, by differences of fourth order: ``(4 D(h) − D(2h)) / 3``."""
    m = small() if name == "small" else samples.random_tree(4, kinds=("spherical", "revolute"))
    s = random_state(m, 3)
    dt, h = jnp.asarray(0.05), 1e-3

    @quick_jit
    def both(m, s):
        def end(d):
            dq, dv, dtau = jnp.split(d, 3)
            x = rbd.integrate(m, s.q, dq), s.v + dv, s.tau + dtau
            return rbd.step(m, *x, dt, integrator=method, f_ext=s.f_ext)

        at = h * jnp.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * jnp.eye(3 * m.nv)[None]
        q, v = jax.vmap(jax.vmap(end))(at)
        move = jax.vmap(partial(rbd.difference, m))  # to second order the tangent at the middle
        near, far = (
            jnp.concatenate([move(q[k + 1], q[k]), v[k] - v[k + 1]], axis=1) for k in (0, 2)
        )
        blocks = rbd.simulate.step_derivatives(
            m, s.q, s.v, s.tau, dt, integrator=method, f_ext=s.f_ext
        )
        return jnp.concatenate(blocks, axis=1), (8 * near - far).T / (12 * h)

    found, expected = (np.asarray(x) for x in both(m, s))
    scale = np.abs(expected).max()
    print(name, method, "error", np.abs(found - expected).max(), "of", scale)
    assert found.shape == (2 * m.nv, 3 * m.nv)
    assert np.abs(expected - np.eye(*expected.shape)).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)
