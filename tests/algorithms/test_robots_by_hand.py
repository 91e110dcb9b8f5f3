"""Robots whose equations of motion are solved by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import assert_close, cast, computed_as, random_state
from support.physical_facts import run

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.algorithms import tree as passes
from rbd_jax.algorithms.formulations import FORMULATIONS

SWING = np.random.default_rng(0).normal(size=(5, 6))


@pytest.mark.parametrize("row", SWING)
def test_pendulum_by_hand(row):
    """``m l² q̈ + m g l sin q = τ``."""
    m, l, g = 1.7, 0.6, 9.81
    robot = samples.pendulum(m, l)
    q, v, a = (jnp.array([x]) for x in row[:3])
    tau = m * l**2 * a + m * g * l * jnp.sin(q)
    assert_close(run.rnea(robot, q, v, a), tau)
    assert_close(run.aba(robot, q, v, tau), a)
    assert_close(run.crba(robot, q), jnp.array([[m * l**2]]))
    assert_close(run.potential_energy(robot, q), -m * g * l * jnp.cos(q[0]))
    assert_close(run.kinetic_energy(robot, q, v), 0.5 * m * l**2 * v[0] ** 2)
    # axis y: at a small positive angle the bob swings to −x
    at = jnp.stack([-l * jnp.sin(q[0]), 0.0, -l * jnp.cos(q[0])])
    assert_close(run.center_of_mass(robot, q), at)


@pytest.mark.parametrize("row", SWING)
def test_double_pendulum_by_hand(row):
    """The equations of the textbooks in relative angles."""
    (m1, m2), (l1, l2), g = (1.3, 0.8), (0.9, 0.5), 9.81
    robot = samples.double_pendulum((m1, m2), (l1, l2))
    q, v, a = row.reshape(3, 2)
    (q1, q2), (v1, v2) = q, v
    c2, s2 = np.cos(q2), np.sin(q2)
    M = np.array(
        [
            [m1 * l1**2 + m2 * (l1**2 + l2**2 + 2 * l1 * l2 * c2), m2 * (l2**2 + l1 * l2 * c2)],
            [m2 * (l2**2 + l1 * l2 * c2), m2 * l2**2],
        ]
    )
    coriolis = m2 * l1 * l2 * s2 * np.array([-(2 * v1 * v2 + v2**2), v1**2])
    weight = g * np.array(
        [
            (m1 + m2) * l1 * np.sin(q1) + m2 * l2 * np.sin(q1 + q2),
            m2 * l2 * np.sin(q1 + q2),
        ]
    )
    tau = M @ a + coriolis + weight
    q, v, a, tau = (jnp.asarray(x) for x in (q, v, a, tau))
    assert_close(run.crba(robot, q), jnp.asarray(M))
    assert_close(run.bias_torque(robot, q, v), jnp.asarray(coriolis + weight))
    assert_close(run.rnea(robot, q, v, a), tau)
    assert_close(run.aba(robot, q, v, tau), a)
    # the elbow driven, the shoulder free
    driven = jnp.array([False, True])
    got_a, got_tau = run.hybrid_dynamics(robot, q, v, a.at[0].set(9.0), tau.at[1].set(9.0), driven)
    assert_close(got_a, a)
    assert_close(got_tau, tau)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_hybrid_dynamics_ignores_what_it_does_not_need(dtype, formulation):
    """Accelerations of free joints and torques of prescribed ones may be NaN, or huge."""
    m = cast(samples.random_tree(2, n=4), dtype)
    s = cast(random_state(m), dtype)
    prescribed = jnp.arange(m.nb) % 2 == 0
    given = passes.per_dof(m.topology, prescribed[:, None])[:, 0]

    def results(nothing):
        a, tau = jnp.where(given, s.a, nothing), jnp.where(given, nothing, s.tau)
        every = rbd.hybrid_dynamics, rbd.hybrid_aba
        return [f(m, s.q, s.v, a, tau, prescribed, s.f_ext) for f in every]

    with computed_as(formulation):
        expected, *others = [jax.tree.leaves(jax.jit(results)(x)) for x in (0.0, jnp.nan, 1e6)]
    for found in others:
        for x, y in zip(found, expected, strict=True):
            assert_close(x, y, atol=float(100 * jnp.finfo(dtype).eps * jnp.abs(y).max()))


def test_free_body_obeys_euler():
    """``I ω̇ + ω × I ω = n`` and ``m (v̇ + ω × v) = f + m g``, center of mass at the origin."""
    link = rbd.LinkSpec("body", 2.0, np.zeros(3), np.diag([1.0, 2.0, 2.5]))
    robot = rbd.build_model(rbd.RobotSpec("body", (link,), ()), floating_base=True)
    s = random_state(robot)
    w, u, n, f = s.v[:3], s.v[3:], s.f_ext[0, :3], s.f_ext[0, 3:]
    Iw = jnp.array([1.0, 2.0, 2.5])
    R = run.forward_kinematics(robot, s.q)[0][0]
    dw = (n + s.tau[:3] - jnp.cross(w, Iw * w)) / Iw
    du = (f + s.tau[3:]) / 2 + R.T @ jnp.array([0.0, 0.0, -9.81]) - jnp.cross(w, u)
    assert_close(run.aba(robot, s.q, s.v, s.tau, s.f_ext), jnp.concatenate([dw, du]))
