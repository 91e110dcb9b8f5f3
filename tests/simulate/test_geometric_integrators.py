"""Integrators of the whole robot: order, symmetry, symplecticity, energy over long times."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import Compiled, assert_close, random_state
from support.integration import difference, runner, slope, without

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.simulate import INTEGRATORS, TABLEAUS, momentum_munthe_kaas

ORDERS = {
    "momentum_rk4": 4,
    "kutta3": 3,
    "euler": 1,
    "midpoint": 2,
    "heun": 2,
    "variational": 2,
    "generalized_alpha": 2,
}


# --- order ------------------------------------------------------------------------------------


def test_tableaus_meet_the_order_conditions():
    """Of trees with up to four nodes. Source: Hairer, Lubich, Wanner, table III.1.1."""
    for name, (rows, weights, order) in TABLEAUS.items():
        n = len(weights)
        a = np.array([[*r, *[0.0] * (n - len(r))] for r in rows])
        b, c = np.array(weights), a.sum(axis=1)
        conditions = [
            [(b.sum(), 1)],
            [(b @ c, 1 / 2)],
            [(b @ c**2, 1 / 3), (b @ a @ c, 1 / 6)],
            [(b @ c**3, 1 / 4), (b * c @ a @ c, 1 / 8), (b @ a @ c**2, 1 / 12),
             (b @ a @ a @ c, 1 / 24)],
        ]  # fmt: skip
        for p, group in enumerate(conditions, start=1):
            met = all(abs(x - y) < 1e-15 for x, y in group)
            assert met == (p <= order), name


@pytest.mark.slow
@pytest.mark.parametrize("method", ORDERS)
def test_order_on_the_manifold(method):
    """Of q and of v, with rotor inertia on spherical and free joints, damping and gravity."""
    m = samples.random_tree(3, kinds=("free", "spherical", "revolute"))
    s, time = random_state(m, 2), jnp.asarray(0.3)
    end = lambda method, n: runner(method)(m, s.tau, s.q, s.v, time / n, jnp.asarray(n))  # noqa: E731
    q, v = end("rk4", 1000)
    errors = []
    for n in (20, 40, 80):
        qn, vn = end(method, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (difference(m, q, qn), vn - v)])
    print(method, "orders", slope(errors).round(2).tolist(), "errors", errors[-1])
    assert (np.abs(slope(errors)[-1] - ORDERS[method]) < 0.15).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heun", "euler", "kutta3"])
def test_momentum_form_takes_other_tableaus(name):
    """With the order of the tableau given, and momentum exact with any: Müller (36), (79)."""
    m = samples.tree(2, 1, floating_base=True)
    s, time = random_state(m, 2), jnp.asarray(0.2)
    method = partial(momentum_munthe_kaas, tableau=TABLEAUS[name])
    end = lambda method, n: runner(method)(m, s.tau, s.q, s.v, time / n, jnp.asarray(n))  # noqa: E731
    q, v = end("rk4", 400)
    errors = []
    for n in (40, 80):
        qn, vn = end(method, n)
        errors.append([float(jnp.linalg.norm(x)) for x in (difference(m, q, qn), vn - v)])
    print(name, "orders", slope(errors).round(2).tolist(), "errors", errors[-1])
    assert abs(slope(errors)[-1].min() - TABLEAUS[name].order) < 0.3

    free = without(m, "gravity", "damping", "armature")
    n = jnp.asarray(3)
    moved = runner(method)(free, 0 * s.tau, s.q, s.v, jnp.asarray(0.15), n)
    before, after = (rbd.algorithms.spatial_momentum(free, *x) for x in ((s.q, s.v), moved))
    assert_close(after, before, atol=1e-13 * float(jnp.abs(before).max()))


# --- a free body in absolute coordinates --------------------------------------------------------


@pytest.mark.slow
def test_forces_of_the_momentum_form_are_those_of_the_accelerations():
    """Under external wrenches and damping, where they are computed without an acceleration."""
    m = samples.random_tree(3, kinds=("free", "revolute"))
    s = random_state(m, 4)
    end = lambda how: rbd.rollout(  # noqa: E731
        m, s.q, s.v, jnp.tile(s.tau, (50, 1)), 0.002, integrator=how, f_ext=s.f_ext
    )
    ours, rk4 = quick_jit(lambda: (end("momentum_rk4"), end("rk4")))()
    assert float(jnp.abs(m.damping).max()) > 0
    assert_close(difference(m, rk4.q[-1], ours.q[-1]), jnp.zeros(m.nv), atol=1e-8)
    assert_close(ours.v[-1], rk4.v[-1], rtol=1e-7, atol=1e-7)


# --- structure ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_variational_step_is_symmetric():
    """A step forward and a step back are no step; damping aside."""
    m = without(samples.random_tree(3, kinds=("free", "spherical", "revolute")), "damping")
    s = random_state(m, 1)
    step = lambda q, v, h: runner("variational")(  # noqa: E731
        m, 0 * s.tau, q, v, jnp.asarray(h), jnp.asarray(1)
    )
    q, v = step(*step(s.q, s.v, 0.05), -0.05)
    assert_close(difference(m, s.q, q), jnp.zeros(m.nv), atol=1e-12)
    assert_close(v, s.v, atol=1e-11)


def _symplectic_defect(m, s, method):
    """How far a step of 0.05 s changes the symplectic form, by central differences in (δq, δp).

    With momenta p in the moving frame it is ``δp₂·δq₁ − δp₁·δq₂ + p·[δq₁, δq₂]``, the bracket
    being that of the joints (Abraham, Marsden, Foundations of mechanics, §4.4).
    """
    one, nv, mass = np.eye(m.nv), m.nv, Compiled(rbd).mass_matrix
    brackets = jax.jit(lambda p: jax.vmap(lambda e: rbd.model.coadjoint(m, e, p))(jnp.eye(nv)))

    def form(p):
        return np.block([[np.array(brackets(p)), one], [-one, 0 * one]])

    def end(q, p):
        v = jnp.linalg.solve(mass(m, q), p)
        q, v = runner(method)(m, 0 * s.tau, q, v, jnp.asarray(0.05), jnp.asarray(1))
        return q, mass(m, q) @ v

    p0 = mass(m, s.q) @ s.v
    q1, p1 = end(s.q, p0)

    def moved(x):
        q, p = end(Compiled(rbd).integrate(m, s.q, x[:nv]), p0 + x[nv:])
        return np.concatenate([difference(m, q1, q), p])

    columns = []
    for d in 1e-3 * np.eye(2 * nv):
        near, far = moved(d) - moved(-d), moved(2 * d) - moved(-2 * d)
        columns.append((8 * near - far) / 12e-3)
    D = np.array(columns).T
    return np.abs(D.T @ form(p1) @ D - form(p0)).max() / np.abs(D).max() ** 2


@pytest.mark.slow
def test_variational_step_is_symplectic():
    """The form of the canonical momenta is kept, on spherical and free joints too.

    No damping; no rotor inertia at the joints of several degrees of freedom, where the library's
    is no part of a Lagrangian. The method of order 4 changes the form at this long step.
    """
    m = without(samples.random_tree(3, kinds=("free", "spherical", "revolute")), "damping")
    alone = np.bincount(m.topology.dof_bodies)[m.topology.dof_bodies] == 1
    m = eqx.tree_at(lambda m: m.armature, m, jnp.where(alone, 0.1, 0.0))
    s = random_state(m, 1)
    ours, other = (_symplectic_defect(m, s, x) for x in ("variational", "rk4"))
    print("variational", ours, "rk4", other)
    assert ours < 1e-10 and other > 1e-7


@pytest.mark.slow
def test_variational_energy_of_a_double_pendulum_is_bounded():
    """Over 200 s in steps of 0.05 s the error swings, but does not grow; that of Heun does."""
    m = samples.double_pendulum()
    q0, v0 = jnp.array([0.6, 0.3]), jnp.zeros(2)

    def errors(method):
        path = rbd.rollout(m, q0, v0, jnp.zeros((4000, 2)), 0.05, integrator=method)
        E = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
        return jnp.abs(E(path.q, path.v) - rbd.potential_energy(m, q0))

    swing, drift = (np.asarray(quick_jit(partial(errors, x))()) for x in ("variational", "heun"))
    print(
        "variational",
        swing[:500].max(),
        swing[3500:].max(),
        "Heun",
        drift[:500].max(),
        drift[3500:].max(),
    )
    assert swing[3500:].max() < 1.1 * swing[:500].max() < 0.05
    assert not drift[3500:].max() < 4 * drift[:500].max()


# --- generalized-α --------------------------------------------------------------------------------


@pytest.mark.parametrize("a, b", [(((0.5,),), (1.0,)), (((),), (0.5, 0.5))])
def test_tableaus_that_are_not_explicit_are_refused(a, b):
    m = samples.pendulum()
    x, h = jnp.zeros(1), jnp.asarray(0.1)
    with pytest.raises(ValueError, match="the tableau is not explicit"):
        rbd.simulate.munthe_kaas(m, lambda t, q, v: v, h, x, x, h, rbd.simulate.Tableau(a, b, 2))


@pytest.mark.slow
def test_a_step_too_long_for_newtons_method_is_nan():
    """A spring that hardens without end: no step of 100 s has a midpoint near the start."""
    m = samples.pendulum()
    stiff = lambda t, q, v: -jnp.exp(50 * q) * jnp.sign(v) * 1e6  # noqa: E731
    x = jnp.ones(1)
    q, v = jax.jit(lambda x: rbd.simulate.variational(m, stiff, x[0], x, x, 100.0 * x[0]))(x)
    assert bool(jnp.isnan(q).all() & jnp.isnan(v).all())


# --- by name ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_names_are_steps_of_rollout_in_single_precision():
    m = samples.double_pendulum(dtype=jnp.float32)
    q = jnp.array([0.3, 0.1], jnp.float32)
    assert set(TABLEAUS) | {"heun", "momentum_rk4", "variational"} <= set(INTEGRATORS)
    for name in ("heun", "momentum_rk4", "variational", "generalized_alpha"):
        run = lambda q, n, name=name: rbd.rollout(  # noqa: E731
            m, q, q, jnp.zeros((n, 2), q.dtype), 0.01, integrator=name
        )
        path = jax.eval_shape(partial(run, n=3), q)
        assert {x.dtype for x in jax.tree.leaves(path)} == {
            jnp.dtype(jnp.float32)
        } and path.q.shape == (4, 2)
    assert jax.eval_shape(partial(run, n=0), q).q.shape == (1, 2)
