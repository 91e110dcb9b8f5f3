"""What each parameter of a robot does to its dynamics, and what changes nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.helpers import assert_close, cast, jit, random_state
from support.physical_facts import robot

import rbd_jax as rbd
from rbd_jax.spatial import se3, so3


def _change(name, leaf, change):
    m = robot(name)
    return m, eqx.tree_at(lambda m: getattr(m, leaf), m, getattr(m, leaf) + change)


def test_armature_is_added_to_the_diagonal_of_the_mass_matrix():
    extra = jnp.linspace(0.1, 0.9, robot("random_tree0").nv)
    old, new = _change("random_tree0", "armature", extra)
    s = random_state(old)
    assert_close(jit(rbd.crba)(new, s.q) - jit(rbd.crba)(old, s.q), jnp.diag(extra))
    tau = jit(rbd.rnea)(new, s.q, s.v, s.a) - jit(rbd.rnea)(old, s.q, s.v, s.a)
    assert_close(tau, extra * s.a)
    energy = [jit(rbd.kinetic_energy)(m, s.q, s.v) for m in (old, new)]
    assert_close(energy[1] - energy[0], 0.5 * jnp.sum(extra * s.v**2))
    a = jit(rbd.aba)(new, s.q, s.v, s.tau)
    assert_close(jit(rbd.rnea)(new, s.q, s.v, a), s.tau, atol=1e-11)


def test_damping_is_a_torque_against_the_velocity():
    extra = jnp.linspace(0.1, 0.9, robot("random_tree0").nv)
    old, new = _change("random_tree0", "damping", extra)
    s = random_state(old)
    tau = jit(rbd.rnea)(new, s.q, s.v, s.a) - jit(rbd.rnea)(old, s.q, s.v, s.a)
    assert_close(tau, extra * s.v)
    a = jit(rbd.aba)(old, s.q, s.v, s.tau - extra * s.v)
    assert_close(jit(rbd.aba)(new, s.q, s.v, s.tau), a, atol=1e-10)


def test_gravity_is_linear_and_may_point_anywhere():
    m = robot("random_tree0")
    s = random_state(m)
    pull = lambda g: jit(rbd.gravity_torque)(eqx.tree_at(lambda m: m.gravity, m, g), s.q)  # noqa: E731
    columns = jnp.stack([pull(e) for e in jnp.eye(3)], axis=1)
    assert_close(pull(m.gravity), columns @ m.gravity, atol=1e-11)
    assert not jnp.any(pull(jnp.zeros(3)))


@pytest.mark.slow
def test_dynamics_do_not_depend_on_where_the_robot_is():
    """A floating robot 10 km away in float32 has the mass matrix and torques it has at home."""
    m = cast(robot("quadruped"), jnp.float32)
    s = random_state(m)
    away = s.q.at[:3].set(jnp.array([1e4, -7e3, 4e3], jnp.float32))
    by_torque, by_motion = (s.v, s.tau, s.f_ext), (s.v, s.a, s.f_ext)
    for f, arguments in (
        (rbd.crba, ()),
        (rbd.rnea, by_motion),
        (rbd.inverse_dynamics, by_motion),
        (rbd.inverse_dynamics_derivatives, by_motion),
        (rbd.aba, by_torque),
        (rbd.forward_dynamics, by_torque),
        (rbd.forward_dynamics_derivatives, by_torque),
    ):
        found = [jax.tree.leaves(jit(f)(m, q, *arguments)) for q in (s.q, away)]
        for home, there in zip(*found, strict=True):
            assert home.dtype == jnp.float32
            assert_close(there, home, rtol=2e-6, atol=2e-6 * float(jnp.abs(home).max()))


def test_a_turned_world_changes_nothing():
    """Turning the placement of the root body and gravity together leaves the dynamics alone."""
    m = robot("random_tree0")
    s = random_state(m)
    turn = so3.exp(jnp.array([0.4, -1.1, 0.7]))
    R, p = se3.compose((turn, jnp.array([3.0, 1.0, 2.0])), (m.placement_R[0], m.placement_p[0]))
    leaves = lambda m: (m.placement_R, m.placement_p, m.gravity)  # noqa: E731
    values = m.placement_R.at[0].set(R), m.placement_p.at[0].set(p), turn @ m.gravity
    turned = eqx.tree_at(leaves, m, values)
    args = s.q, s.v, s.tau, s.f_ext
    assert_close(jit(rbd.crba)(turned, s.q), jit(rbd.crba)(m, s.q), atol=1e-11)
    tau = [jit(rbd.rnea)(x, s.q, s.v, s.a, s.f_ext) for x in (m, turned)]
    assert_close(*tau, atol=1e-10)
    assert_close(*[jit(rbd.aba)(x, *args) for x in (m, turned)], rtol=1e-10)
