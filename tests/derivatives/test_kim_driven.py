"""Hybrid dynamics and Kim's Tables 4 to 7 of robots with driven joints: S(q), and Ṡ that moves."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.driven import MODELS
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax.derivatives.kim.perturbation import Perturbation, perturbation_of
from rbd_jax.derivatives.kim.table5 import kim_inverse_dynamics_derivative
from rbd_jax.derivatives.kim.tables6_7 import (
    kim_forward_dynamics_derivative,
    kim_hybrid_dynamics_derivative,
)


@cache
def crank() -> rbd.Model:
    """Two links, of which the second one turns by a law of the first."""
    return rbd.with_coordinates(
        rbd.samples.chain(2), lambda u: jnp.sin(2 * u), ["joint1"], ["joint0"]
    )


ROBOTS = MODELS | {"crank": crank}
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in MODELS]
names = pytest.mark.parametrize("name", ["crank", *SLOW])


def state(m):
    s = random_state(m, 3)
    joints = len(m.space.joint_names)
    some = jax.random.bernoulli(jax.random.key(3), 0.5, (joints,))
    flags = jnp.stack([some, ~some, some | True, some & False])
    return s, flags


def tangents(tree, seed=7):
    """Random tangents of the arrays of a pytree."""
    leaves, treedef = jax.tree.flatten(eqx.filter(tree, eqx.is_inexact_array))
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    some = [0.1 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(treedef, some)


def per_coordinate(m, flags):
    return flags[m.space.dof_bodies]


@names
def test_hybrid_dynamics_solves_the_equations_of_motion(name):
    """Inverse dynamics at the accelerations gives the torques back; what is prescribed stays."""
    m = ROBOTS[name]()
    s, flags = state(m)

    @quick_jit
    def run(m, s, flags):
        def one(flags):
            a, tau = rbd.hybrid_aba(m, s.q, s.v, s.a, s.tau, flags, s.f_ext)
            held = per_coordinate(m, flags)
            kept = jnp.where(held, a - s.a, tau - s.tau)
            return a, tau, kept, rbd.rnea(m, s.q, s.v, a, s.f_ext)

        return jax.vmap(one)(flags), rbd.aba(m, s.q, s.v, s.tau, s.f_ext)

    (a, tau, kept, back), forward = run(m, s, flags)
    scale = 1 + float(jnp.abs(tau).max())
    assert_close(back, tau, atol=1e-10 * scale)
    assert_close(kept, jnp.zeros_like(kept), atol=0)
    assert_close(a[3], forward, atol=1e-10 * scale)


def against_autodiff(m, tables, functions):
    """Tables along everything at once, laws too, and the same by autodiff of functions."""
    s, flags = state(m)

    @quick_jit
    def run(m, dm, s, ds):
        p = perturbation_of(m, s.q, dm, ds.q, dv=ds.v, da=ds.a, dtau=ds.tau, df_ext=ds.f_ext)
        found = [tuple(table(m, s, flags[0], p)) for table in tables]
        return found, [
            eqx.filter_jvp(lambda m, s, f=f: f(m, s, flags[0]), (m, s), (dm, ds)) for f in functions
        ]

    found, expected = run(m, tangents(m), s, tangents(s))
    while len(found) < len(expected):  # the rule is the last function
        found.append(found[-1])
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(x, y, atol=1e-9 * (1 + float(jnp.abs(y).max())))


def hybrid_table(m, s, flags, p):
    return kim_hybrid_dynamics_derivative(m, s.q, s.v, s.a, s.tau, flags, p, s.f_ext)


def raw_hybrid(m, s, flags):
    return rbd.hybrid_aba(m, s.q, s.v, s.a, s.tau, flags, s.f_ext)


def ruled_hybrid(m, s, flags):
    return rbd.hybrid_dynamics(m, s.q, s.v, s.a, s.tau, flags, s.f_ext)


@names
def test_table_7_and_the_rule_against_autodiff(name):
    against_autodiff(ROBOTS[name](), [hybrid_table], [raw_hybrid, ruled_hybrid])


@pytest.mark.slow
@names
def test_tables_5_and_6_against_autodiff(name):
    def table5(m, s, flags, p):
        return kim_inverse_dynamics_derivative(m, s.q, s.v, s.a, p, s.f_ext)

    def table6(m, s, flags, p):
        return kim_forward_dynamics_derivative(m, s.q, s.v, s.tau, p, s.f_ext)

    functions = [
        lambda m, s, _: rbd.rnea(m, s.q, s.v, s.a, s.f_ext),
        lambda m, s, _: rbd.aba(m, s.q, s.v, s.tau, s.f_ext),
    ]
    against_autodiff(ROBOTS[name](), [table5, table6], functions)


@pytest.mark.slow
def test_tables_without_changes_and_along_one_quantity():
    m = MODELS["knee"]()
    s, flags = state(m)
    nothing = perturbation_of(m, s.q)
    assert not jax.tree.leaves(nothing)
    hybrid = partial(quick_jit(kim_hybrid_dynamics_derivative), m, s.q, s.v, s.a, s.tau, flags[0])
    zero = jnp.zeros(m.nv)
    assert_close(hybrid(nothing).derivative, (zero, zero), atol=1e-12)
    full = Perturbation(dv=s.a, dlaws=None)
    expected = jax.jvp(
        lambda v: rbd.hybrid_dynamics(m, s.q, v, s.a, s.tau, flags[0]), (s.v,), (s.a,)
    )
    for x, y in zip(hybrid(full), expected, strict=True):
        assert_close(x, y, rtol=1e-9, atol=1e-9)


def test_wrong_shapes_are_named():
    m = MODELS["knee"]()
    s, flags = state(m)
    message = r"hybrid_aba: prescribed has shape \(9,\), expected \(nj,\) = \(5,\)"
    with pytest.raises(ValueError, match=message):
        rbd.hybrid_aba(m, s.q, s.v, s.a, s.tau, jnp.zeros(9, bool))
    plain = rbd.samples.pendulum()
    z = jnp.zeros(1)
    with pytest.raises(ValueError, match="dcoordinates and dlaws are of robots with driven joints"):
        kim_inverse_dynamics_derivative(plain, z, z, z, Perturbation(dcoordinates=z))
