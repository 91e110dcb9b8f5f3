"""Forward dynamics in all representations, and the systems in twists and momenta, in O(n)."""

import dataclasses
import inspect
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.driven import MODELS
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax import screw

KINDS = screw.REPRESENTATIONS


@cache
def robot(n: int = 3):
    """A tree with springs, rotors, damping, and gravity that is not aligned with any axis."""
    kinds = ("revolute", "spherical", "helical", "universal")
    m = rbd.samples.random_tree(1, kinds=kinds[:n])
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))
    rest = quick_jit(rbd.random_configuration)(m, jax.random.key(5))
    return dataclasses.replace(m, stiffness=jnp.linspace(1.0, 2.0, m.nv), rest=rest)


def close(found, expected, digits=10):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(x, y, atol=10.0**-digits * (1 + float(jnp.abs(y).max())))


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_forward_dynamics_and_momenta_are_those_of_the_articulated_bodies(n):
    """§5.1 and (79), against ABA and the derivatives of the momenta along its motion."""
    m = robot(n)
    s = random_state(m, 3)

    @quick_jit
    def run(m, s):
        a = rbd.aba(m, s.q, s.v, s.tau, s.f_ext)
        rate = rbd.rate_from_velocity(m, s.q, s.v), a
        moving = lambda q, v: (screw.spatial_momenta(m, q, v), rbd.crba(m, q) @ v)  # noqa: E731
        (Pi, p), (dPi, dp) = jax.jvp(moving, (s.q, s.v), rate)
        V, dV = screw.twists(m, s.q, s.v), screw.accelerations(m, s.q, s.v, a)
        found = (
            [screw.forward_dynamics(m, s.q, s.v, s.tau, s.f_ext, kind) for kind in KINDS],
            screw.phase_rates(m, s.q, Pi, s.tau, s.f_ext),
            screw.canonical_momenta(m, s.q, s.v),
            screw.canonical_rates(m, s.q, p, s.tau, s.f_ext),
            screw.body_twist_rates(m, s.q, V, s.tau, s.f_ext),
        )
        return found, ([a] * 4, (s.v, dPi), p, (s.v, dp), (s.v, dV))

    close(*run(m, s))


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_joint_rates_of_the_motion_of_the_bodies(n):
    """(11), (18) and (111) solved for the joints, in both representations that have them."""
    m = robot(n)
    s = random_state(m, 3)

    @quick_jit
    def run(m, s):
        found = []
        for kind in ("body_fixed", "spatial"):
            V = screw.twists(m, s.q, s.v, kind)
            dV = screw.accelerations(m, s.q, s.v, s.a, kind)
            found += [screw.joint_velocities(m, s.q, V, kind)]
            found += [screw.joint_accelerations(m, s.q, V, dV, kind)]
        return found, [s.v, s.a] * 2

    close(*run(m, s))


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", ["hybrid", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS if k != "hybrid")]
)
def test_twist_rates_are_the_derivatives_of_twists_to_any_order(kind, n):
    """§4.2: jounce and its rate, by forward mode along the motion."""
    m = robot(n)
    s = random_state(m, 3)
    rates = jax.random.normal(jax.random.key(4), (4, m.nv))

    @quick_jit
    def run(m, s, rates):
        def lower(q, v, a, j, k):
            return screw.twist_rates(m, q, v, jnp.stack([a, j, k]), kind)

        state = s.q, s.v, *rates[:3]
        x, dx = jax.jvp(lower, state, (rbd.rate_from_velocity(m, s.q, s.v), *rates))
        found = screw.twist_rates(m, s.q, s.v, rates, kind)
        jounce = screw.jerks(m, s.q, s.v, rates[0], rates[1], kind)
        return (found[:-1], found[1:], found[0], found[2]), (
            x, dx, screw.twists(m, s.q, s.v, kind), jounce,
        )  # fmt: skip

    close(*run(m, s, rates))


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_rates_of_forward_dynamics_invert_those_of_inverse_dynamics(n):
    """§6.3: ``(a, j, s) ↔ (τ, τ̇, τ̈)``; the jerk against the derivative of ABA along the motion."""
    m = robot(n)
    s = random_state(m, 3)
    torques = jax.random.normal(jax.random.key(4), (3, m.nv))

    @quick_jit
    def run(m, s, torques):
        rates = screw.forward_dynamics_rates(m, s.q, s.v, torques, s.f_ext)
        back = screw.inverse_dynamics_rates(m, s.q, s.v, rates, s.f_ext)
        along = rbd.rate_from_velocity(m, s.q, s.v), rates[0], torques[1]
        aba = lambda q, v, tau: rbd.aba(m, q, v, tau, s.f_ext)  # noqa: E731
        return (back, tuple(rates[:2])), (torques, jax.jvp(aba, (s.q, s.v, torques[0]), along))

    close(*run(m, s, torques))


@pytest.mark.slow
def test_springs_act_in_every_form_of_the_equations():
    """RNEA has the joint springs, and so do all recursions and projections of this room."""
    m = robot(4)
    s = random_state(m, 3)

    @quick_jit
    def run(m, s):
        x = m, s.q, s.v, s.a, s.f_ext
        found = [screw.inverse_dynamics(*x, kind) for kind in KINDS]
        found += [screw.euler_jourdain_torque(*x), screw.component_inverse_dynamics(*x)]
        rates = jnp.stack([s.a, s.a])
        found += [screw.inverse_dynamics_rates(m, s.q, s.v, rates, s.f_ext, kind)[0]
                  for kind in ("body_fixed", "hybrid")]  # fmt: skip
        return found, [rbd.rnea(*x)] * len(found)

    close(*run(m, s))


@pytest.mark.slow
def test_robots_with_driven_joints():
    """Torques, twists and Jacobians in the independent coordinates, in all representations."""
    m = MODELS["knee"]()
    s = random_state(m, 3)

    @quick_jit
    def run(m, s):
        x, M = (m, s.q, s.v, s.a, s.f_ext), rbd.crba(m, s.q)
        found = [screw.inverse_dynamics(*x, kind) for kind in KINDS]
        found += [screw.euler_jourdain_torque(*x), screw.component_inverse_dynamics(*x)]
        expected = [rbd.rnea(*x)] * len(found)
        for kind in KINDS:
            found += [screw.jacobians(m, s.q, kind) @ s.v]
            expected += [screw.twists(m, s.q, s.v, kind)]
        moving = lambda q, v: screw.twists(m, q, v)  # noqa: E731
        rate = rbd.rate_from_velocity(m, s.q, s.v), s.a
        found += [screw.accelerations(m, s.q, s.v, s.a), screw.canonical_momenta(m, s.q, s.v)]
        expected += [jax.jvp(moving, (s.q, s.v), rate)[1], M @ s.v]
        return [*found, screw.lagrange_mass_matrix(m, s.q)], [*expected, M]

    close(*run(m, s))


def test_what_is_refused():
    m = robot(2)
    s = random_state(m)
    plain = inspect.unwrap
    with pytest.raises(
        ValueError, match=r"twist_rates: rates has shape \(2,\), expected \(k, nv\)"
    ):
        plain(screw.twist_rates)(m, s.q, s.v, jnp.zeros(2))
    with pytest.raises(ValueError, match=r"torques has shape \(0, \d\), expected \(k, nv\)"):
        plain(screw.forward_dynamics_rates)(m, s.q, s.v, jnp.zeros((0, m.nv)))
    with pytest.raises(ValueError, match="must be 'body_fixed' or 'spatial', got 'hybrid'"):
        plain(screw.joint_velocities)(m, s.q, jnp.zeros((m.nb, 6)), "hybrid")
    with pytest.raises(ValueError, match="forward_dynamics: representation must be one of"):
        plain(screw.forward_dynamics)(m, s.q, s.v, s.tau, None, "world")
