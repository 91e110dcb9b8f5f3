"""IDSVA and all forms of FDSVA against autodiff of the raw algorithms."""

import dataclasses
from typing import get_args

import jax
import jax.numpy as jnp
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state

import rbd_jax as rbd
from rbd_jax.algorithms.aba import articulated_dynamics
from rbd_jax.algorithms.factor import solve_columns
from rbd_jax.algorithms.formulations import FORMULATIONS, for_columns, formulation
from rbd_jax.derivatives.explicit.fdsva import Method

FEW = ("universal", "spherical", "helical")
ROBOTS = {
    "few joints": lambda: rbd.samples.random_tree(3, kinds=FEW),
    "all kinds": lambda: rbd.samples.random_tree(0),
    "floating": lambda: rbd.samples.tree(4, 2, floating_base=True),
}
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in ROBOTS if n != "few joints"]


@pytest.mark.parametrize("name", ["few joints", *SLOW])
def test_explicit_derivatives_are_those_of_autodiff(name):
    m = ROBOTS[name]()
    s = random_state(m, 2)
    methods = get_args(Method)

    @quick_jit
    def run(m, s):
        def along(f):
            def at(d, v, u):
                return f(m, rbd.integrate(m, s.q, d), v, u, s.f_ext)

            return at

        zero = jnp.zeros_like(s.v)
        dtau = jax.jacfwd(along(rbd.rnea), (0, 1, 2))(zero, s.v, s.a)
        da = jax.jacfwd(along(rbd.aba), (0, 1, 2))(zero, s.v, s.tau)
        found = [rbd.inverse_dynamics_derivatives(m, s.q, s.v, s.a, s.f_ext)]
        for method in methods:
            x = m, s.q, s.v, s.tau, s.f_ext
            found.append(rbd.forward_dynamics_derivatives(*x, method=method))
        return [tuple(x) for x in found], [dtau, *[da] * len(methods)]

    for found, expected in zip(*run(m, s), strict=True):
        for x, y in zip(found, expected, strict=True):
            assert_close(x, y, atol=1e-10 * (1 + float(jnp.abs(y).max())))


@pytest.mark.parametrize("name", ["few joints", *SLOW])
def test_sparse_derivatives_are_the_dense_ones_without_zeros(name):
    """Every place is there once, and what has no place is zero; joint springs included."""
    m = ROBOTS[name]()
    s = random_state(m, 2)
    stiffness, rest = 3.0 + jnp.arange(m.nv, dtype=m.dtype), rbd.neutral(m)
    m = dataclasses.replace(m, stiffness=stiffness, rest=rest)
    rows, columns = m.topology.coupled
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)

    @quick_jit
    def both(m, s):
        x = m, s.q, s.v, s.a, s.f_ext
        sparse = rbd.derivatives.sparse_inverse_dynamics_derivatives(*x)
        zeros = jnp.zeros((m.nv, m.nv))
        dense = rbd.inverse_dynamics_derivatives(*x)
        return [zeros.at[rows, columns].set(y) for y in sparse], dense

    for x, y in zip(*both(m, s), strict=True):
        assert_close(x, y, atol=1e-12 * (1 + float(jnp.abs(y).max())))


@pytest.mark.parametrize("ancestors", [0, 10**6])
def test_columns_are_solved_for_over_bodies_or_over_ancestors(ancestors):
    """Long chains take the first form; both are the inverse of the mass matrix."""
    m = rbd.samples.random_tree(0)
    s = random_state(m, 2)

    def inverse(m, s):
        x = m, s.q, s.v, s.a, s.tau, None, None
        factor = articulated_dynamics(*x)[2]
        R, p = rbd.forward_kinematics(m, s.q)
        return solve_columns(m.topology, factor, R, p, jnp.eye(m.nv)), rbd.crba(m, s.q)

    with formulation("lanes", ancestors=ancestors):
        found, M = quick_jit(lambda m, s: inverse(m, s))(m, s)
    assert_close(M @ found, jnp.eye(m.nv), atol=1e-10)


def test_the_cheaper_product_with_the_inverse_is_taken():
    """AZA where few joints are ancestors of others, and for long chains; DMM for other robots."""
    chosen = {}
    with formulation("lanes"):
        for name, m in {
            "chain of 5": rbd.samples.chain(5),
            "chain of 120": rbd.samples.chain(120),
            "star": rbd.samples.tree(40, 39),
            "quadruped": rbd.samples.quadruped(),
            "tree": rbd.samples.tree(40, 2),
        }.items():
            chosen[name] = [
                for_columns(m.topology.dof_tree, single, inverse="dmm", solves="aza")
                for single in (False, True)
            ]
    assert chosen == {
        "chain of 5": ["dmm", "dmm"],
        "chain of 120": ["dmm", "aza"],
        "star": ["aza", "aza"],
        "quadruped": ["dmm", "dmm"],
        "tree": ["aza", "aza"],
    }
    for name, row in FORMULATIONS.items():
        assert (row.apart == 0) == (name != "lanes")


@pytest.mark.parametrize("method", get_args(Method))
def test_a_robot_that_cannot_move(method):
    rock = rbd.build_model(rbd.RobotSpec("rock", (rbd.LinkSpec("base", 1.0),), ()))
    x = jnp.zeros(0)
    out = rbd.forward_dynamics_derivatives(rock, x, x, x, method=method)
    assert [y.shape for y in out] == [(0, 0)] * 3


def test_methods_are_named():
    m, x = rbd.samples.pendulum(), jnp.zeros(1)
    with pytest.raises(ValueError, match="method must be one of .*'aba'.*, got 'abb'"):
        rbd.forward_dynamics_derivatives(m, x, x, x, method="abb")
