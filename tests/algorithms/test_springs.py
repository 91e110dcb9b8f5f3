"""Joint springs in inverse and forward dynamics, their rules, Kim's tables and the energy."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from support.helpers import assert_close, central_difference, random_state, tangent_difference

import rbd_jax as rbd
from rbd_jax.algorithms.passive import spring_torque, without_springs
from rbd_jax.derivatives.kim.perturbation import perturbation_of
from rbd_jax.model import displacement

KINDS = ("free", "spherical", "revolute", "translation", "prismatic")


@pytest.fixture(scope="module")
def sprung():
    """A robot of several kinds of joints, each with a spring away from its neutral place."""
    model = rbd.samples.random_tree(3, kinds=KINDS, n=6)
    assert {"free", "spherical"} & set(model.topology.kinds)
    stiffness = jnp.linspace(1.0, 4.0, model.nv)
    rest = rbd.random_configuration(model, jax.random.key(5))
    return dataclasses.replace(model, stiffness=stiffness, rest=rest)


def functions(given):
    """(ruled, raw) of (model, q, v, x, f_ext)."""
    return {
        "inverse": (rbd.inverse_dynamics, rbd.rnea),
        "forward": (rbd.forward_dynamics, rbd.aba),
        "hybrid": (
            lambda m, q, v, x, f: rbd.hybrid_dynamics(m, q, v, x, x, given, f),
            lambda m, q, v, x, f: rbd.hybrid_aba(m, q, v, x, x, given, f),
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["forward", *(pytest.param(n, marks=pytest.mark.slow) for n in ("inverse", "hybrid"))]
)
def test_rules_agree_with_the_raw_algorithms(sprung, name):
    """Value, jvp and vjp in state, stiffness and rest."""
    s = random_state(sprung)
    ruled, raw = functions(jnp.arange(sprung.nb) % 2 == 0)[name]
    ones = jax.tree.map(jnp.ones_like, (sprung.stiffness, sprung.rest, s.q, s.v, s.a, s.f_ext))

    def derivatives(f):
        def of(k, r, q, v, x, f_ext):
            return f(dataclasses.replace(sprung, stiffness=k, rest=r), q, v, x, f_ext)

        inputs = sprung.stiffness, sprung.rest, s.q, s.v, s.a, s.f_ext
        value, pull = jax.vjp(of, *inputs)
        cotangent = jax.tree.map(lambda y: jnp.linspace(1.0, 2.0, y.size), value)
        return value, jax.jvp(of, inputs, ones)[1], pull(cotangent)

    assert_close(*(jax.jit(derivatives, static_argnums=0)(f) for f in (ruled, raw)), atol=1e-8)


def test_springs_add_their_torque_and_forward_dynamics_inverts(sprung):
    s = random_state(sprung)

    @jax.jit
    def values():
        free = without_springs(sprung)
        k = sprung.stiffness * displacement(sprung, sprung.rest, s.q)
        tau = rbd.rnea(sprung, s.q, s.v, s.a, s.f_ext)
        weight = rbd.gravity_torque(sprung, s.q), rbd.gravity_torque(free, s.q)
        a = rbd.forward_dynamics(sprung, s.q, s.v, tau, s.f_ext)
        return tau, rbd.rnea(free, s.q, s.v, s.a, s.f_ext) + k, a, weight

    tau, expected, a, weight = values()
    assert_close(tau, expected)
    assert_close(a, s.a, atol=1e-8)
    assert_close(*weight)


@pytest.mark.float64
def test_explicit_derivatives_and_energy(sprung):
    """IDSVA, FDSVA and the potential against differences on the manifold."""
    s = random_state(sprung)
    isotropic = dataclasses.replace(sprung, stiffness=jnp.full(sprung.nv, 2.0))

    @jax.jit
    def both():
        inverse = lambda q: rbd.rnea(sprung, q, s.v, s.a)  # noqa: E731
        forward = lambda q: rbd.aba(sprung, q, s.v, s.tau)  # noqa: E731
        energy = lambda q: rbd.potential_energy(isotropic, q)  # noqa: E731
        return (
            (
                rbd.inverse_dynamics_derivatives(sprung, s.q, s.v, s.a)[0],
                rbd.forward_dynamics_derivatives(sprung, s.q, s.v, s.tau)[0],
                rbd.gravity_torque(isotropic, s.q) + spring_torque(isotropic, s.q),
            ),
            tuple(tangent_difference(sprung, f, s.q) for f in (inverse, forward, energy)),
        )

    ours, differences = both()
    for x, y in zip(ours, differences, strict=True):
        assert_close(x, y, atol=1e-7 * float(jnp.max(jnp.abs(y)) + 1))


@pytest.mark.slow
def test_kims_tables_along_a_motion_of_all(sprung):
    """Tables 5 to 7 with ∂ of the springs, along one scalar p that moves everything."""
    s = random_state(sprung)
    given = jnp.arange(sprung.nb) % 2 == 0
    u = jnp.linspace(-1.0, 1.0, sprung.nv)

    def moved(p):
        k, r = sprung.stiffness * (1 + p), sprung.rest + 0.1 * p
        return dataclasses.replace(sprung, stiffness=k, rest=r)

    def at(p):
        m = moved(p)
        q = rbd.integrate(sprung, s.q, p * u)
        return (
            rbd.rnea(m, q, s.v, s.a),
            rbd.hybrid_aba(m, q, s.v, s.a, s.tau, given),
        )

    @jax.jit
    def both():
        _, dmodel = jax.jvp(moved, (0.0,), (1.0,))
        p = perturbation_of(sprung, s.q, dmodel, rbd.rate_from_velocity(sprung, s.q, u))
        five = rbd.derivatives.kim_inverse_dynamics_derivative(sprung, s.q, s.v, s.a, p)
        seven = rbd.derivatives.kim_hybrid_dynamics_derivative(
            sprung, s.q, s.v, s.a, s.tau, given, p
        )
        differences = central_difference(lambda x: at(x[0]), jnp.zeros(1))
        return (five[0], seven[0], five[1], seven[1]), (*at(0.0), *differences)

    ours, theirs = both()
    theirs = jax.tree.map(lambda y: y.reshape(-1), theirs)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert_close(x, y, atol=1e-7 * float(jnp.max(jnp.abs(y)) + 1))
