"""The rule of constrained dynamics and impacts: every mode, every leaf, and defined results."""

import dataclasses
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import within
from support.inputs import assert_relative, inputs, random_like, with_leaves

import rbd_jax as rbd
from rbd_jax import constraints
from rbd_jax.constraints import _rows

FLOATS = ("R_1", "p_1", "p_2", "coupling", "offset", "position_gain", "velocity_gain",
          "restitution")  # fmt: skip


@cache
def robot():
    """Springs, hinges of every kind on a floating body, and ties to the world and each other."""
    m = rbd.samples.random_tree(21, kinds=("free", "revolute", "helical"), n=3)
    rest = rbd.random_configuration(m, jax.random.key(2))
    m = dataclasses.replace(m, stiffness=jnp.linspace(1.0, 4.0, m.nv), rest=rest)
    moving = [n for n, b in zip(m.frame_names, m.topology.frame_bodies, strict=True) if b >= 0]
    ones = [j for j in m.joint_names if m.v_slice(j).stop - m.v_slice(j).start == 1]
    gains = dict(position_gain=3.0, velocity_gain=2.0, restitution=0.3)
    R = rbd.spatial.so3.exp(jnp.array([0.3, -0.5, 0.2]))
    c = constraints.join(
        constraints.point(m, moving[-1], at=[0.3, 0.1, 0.2], offset=[0.1, 0.2, -0.1], **gains),
        constraints.frame(m, moving[0], moving[-1], at=(R, jnp.ones(3)), rows=(4,), **gains),
        constraints.coupling(m, {ones[0]: 1.0, ones[1]: -2.0}, 0.3, **gains),
    )
    return m, c


def all_inputs(dtype=None):
    m, c = robot()
    return inputs(m) | {name: getattr(c, name) for name in FLOATS}


def with_numbers(x):
    m, c = robot()
    where = lambda c: [getattr(c, name) for name in FLOATS]  # noqa: E731
    return with_leaves(m, x), eqx.tree_at(where, c, [x[name] for name in FLOATS])


def raw(m, q, v, tau, c, f_ext):
    """The saddle system as one dense matrix, solved by LU: plain autodiff."""
    active = c.per_row(c.active)[:, None]
    J = jnp.where(active, jax.vmap(lambda e: _rows.velocities(m, c, q, e), out_axes=1)(
        jnp.eye(m.nv, dtype=q.dtype)), 0)  # fmt: skip
    gamma = jnp.where(active[:, 0], _rows.accelerations(m, c, q, v, jnp.zeros_like(v)), 0)
    return saddle(m, q, tau - rbd.rnea(m, q, v, jnp.zeros_like(v), f_ext), J, -gamma, active)


def saddle(m, q, torque, J, rows, active):
    idle = jnp.diag(1.0 - active[:, 0].astype(q.dtype))
    A = jnp.block([[rbd.crba(m, q), -J.T], [J, idle]])
    return jnp.split(jnp.linalg.solve(A, jnp.concatenate([torque, rows])), [m.nv])


def raw_impact(m, q, v, c):
    active = c.per_row(c.active)[:, None]
    J = jnp.where(active, jax.vmap(lambda e: _rows.velocities(m, c, q, e), out_axes=1)(
        jnp.eye(m.nv, dtype=q.dtype)), 0)  # fmt: skip
    rows = -(1 + c.per_row(c.restitution)) * (J @ v)
    change, impulses = saddle(m, q, jnp.zeros_like(v), J, rows, active)
    return v + change, impulses


def dynamics(function, x):
    m, c = with_numbers(x)
    return tuple(function(m, x["q"], x["v"], x["tau"], c, x["f_ext"]))


def struck(function, x):
    m, c = with_numbers(x)
    return tuple(function(m, x["q"], x["v"], c))


@quick_jit
def blocks_of_an_impact(x):
    """The explicit blocks, and autodiff of the rule and of the dense system."""
    m, c = with_numbers(x)

    def along(function):
        def f(d):
            dq, dv = jnp.split(d, 2)
            return jnp.concatenate(function(m, rbd.integrate(m, x["q"], dq), x["v"] + dv, c))

        return jax.jacfwd(f)(jnp.zeros(2 * m.nv, m.dtype))

    d = constraints.impact_derivatives(m, x["q"], x["v"], c)
    explicit = jnp.block([[d.dv_dq, d.dv_dv], [d.dimpulses_dq, d.dimpulses_dv]])
    return explicit, along(rbd.impact), along(raw_impact)


@pytest.mark.slow
def test_derivatives_of_impacts_as_matrices():
    """Points, frames and couplings that bounce; springs and gravity do not count."""
    explicit, by_rule, dense = blocks_of_an_impact(all_inputs())
    scale = np.abs(dense).max()
    assert scale > 1 and (np.abs(dense).max(axis=0) > 1e-3).sum() > dense.shape[1] // 2
    tolerance = within(1e-10, 1e-4) * scale
    np.testing.assert_allclose(explicit, dense, rtol=0, atol=tolerance)
    np.testing.assert_allclose(explicit, by_rule, rtol=0, atol=tolerance)


RULES = {
    "dynamics": (partial(dynamics, rbd.constrained_dynamics), partial(dynamics, raw)),
    "impact": (partial(struck, rbd.impact), partial(struck, raw_impact)),
}


def dot(x, y):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


@partial(quick_jit, static_argnums=0)
def first_order(f, x, ds, ct):
    value, pull = jax.vjp(f, x)
    forward = jax.vmap(lambda d: jax.jvp(f, (x,), (d,))[1])(ds)
    return value, forward, pull(ct)[0]


@partial(quick_jit, static_argnums=0)
def second_order(f, x, ct, w):
    gradient = jax.grad(lambda x: dot(f(x), ct))
    second = jax.jvp(gradient, (x,), (w,))[1]
    return second, jax.grad(lambda x: dot(gradient(x), w))(x)


def directions(name):
    """The inputs, a direction of all of them, and weights of the results."""
    x = all_inputs()
    full = random_like(x, 1)
    full["R_1"] = x["R_1"] @ rbd.spatial.so3.hat(full["p_1"])
    return x, full, random_like(jax.eval_shape(RULES[name][0], x), 2)


def assert_gradients(found, expected):
    for key in found:
        if key != "R_1":  # the raw one differentiates orthonormalize the same way
            a, b = np.asarray(found[key]), np.asarray(expected[key])
            assert_relative(a, b, 1e-8, lead=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_every_leaf(name):
    """Value, jvp along every input, and vjp equal autodiff's of the raw system."""
    x, full, ct = directions(name)
    ds = {n: jnp.stack([d if k == n else 0 * d for k in x] + [d]) for n, d in full.items()}
    found, expected = (first_order(f, x, ds, ct) for f in RULES[name])
    assert_relative(found[0], expected[0], 1e-9, lead=0)
    assert_relative(found[1], expected[1], 1e-9)
    assert_gradients(found[2], expected[2])
    moved = np.abs(np.asarray(found[1][0])).max(axis=1)
    # of all inputs and their sum; an impact sees no torque, gravity, damping or gain
    assert (moved > 0).sum() >= len(x) - {"dynamics": 5, "impact": 8}[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_second_order(name):
    """jvp of vjp and vjp of vjp, of every input, equal autodiff's of the raw system."""
    x, full, ct = directions(name)
    found, expected = (second_order(f, x, ct, full) for f in RULES[name])
    for a, b in zip(found, expected, strict=True):
        assert_gradients(a, b)
