"""Derivatives of forward dynamics of long chains, against complex steps in extended precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.spatial import inertia

WIDE, STEP = np.clongdouble, 1e-30


def _cross(a, b):
    return np.stack(
        [
            a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
            a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
            a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0],
        ],
        axis=-1,
    )


def _rotation(axis, angle):
    x = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]], WIDE)
    return np.eye(3, dtype=WIDE) + np.sin(angle) * x + (1 - np.cos(angle)) * (x @ x)


def _torques(model, q, v, accelerations):
    """Newton and Euler along a chain of hinges, for many accelerations at once. Kim, Table 2."""
    n, k = model.nv, len(accelerations)
    axis, p, R0 = (np.asarray(x, WIDE) for x in (model.axis, model.placement_p, model.placement_R))
    m, mc = np.asarray(model.inertia[:, 0], WIDE), np.asarray(model.inertia[:, 1:4], WIDE)
    J = np.asarray(inertia.rotational(model.inertia), WIDE)
    w = u = dw = np.zeros((k, 3), WIDE)
    du = np.broadcast_to(-np.asarray(model.gravity, WIDE), (k, 3))
    R, wrenches = [], []
    for i in range(n):
        R.append(R0[i] @ _rotation(axis[i], q[i]))
        turn = axis[i] * v[i]
        w, u = w @ R[i] + turn, (u + _cross(w, p[i])) @ R[i]
        dw, du = dw @ R[i], (du + _cross(dw, p[i])) @ R[i]
        dw = dw + axis[i] * accelerations[:, i, None] + _cross(w, turn)
        du = du + _cross(u, turn)
        h, l = w @ J[i] + _cross(mc[i], u), m[i] * u - _cross(mc[i], w)
        moment = dw @ J[i] + _cross(mc[i], du) + _cross(w, h) + _cross(u, l)
        wrenches.append((moment, m[i] * du - _cross(mc[i], dw) + _cross(w, l)))
    tau = np.zeros((k, n), WIDE)
    moment = force = np.zeros((k, 3), WIDE)
    for i in reversed(range(n)):
        moment, force = moment + wrenches[i][0], force + wrenches[i][1]
        tau[:, i] = moment @ axis[i]
        force = force @ R[i].T
        moment = moment @ R[i].T + _cross(p[i], force)
    return tau + np.asarray(model.armature) * accelerations + np.asarray(model.damping) * v


def _solve(A, b):
    """Gaussian elimination, from the last row up, as leaves come before their parents."""
    A, b = A.copy(), b.copy()
    for k in reversed(range(len(A))):
        factor = A[:k, k] / A[k, k]
        A[:k] -= factor[:, None] * A[k]
        b[:k] -= factor * b[k]
    for k in range(len(A)):
        b[k] = (b[k] - A[k, :k] @ b[:k]) / A[k, k]
    return b


def _by_complex_steps(model, q, v, tau):
    """``∂a/∂q``, one column a step."""
    n, columns = model.nv, []
    for k in range(n):
        at = np.asarray(q, WIDE)
        at[k] += 1j * STEP
        rows = np.concatenate([np.zeros((1, n), WIDE), np.eye(n, dtype=WIDE)])
        bias, *units = _torques(model, at, np.asarray(v, WIDE), rows)
        M = np.stack(units, axis=1) - bias[:, None]
        columns.append(_solve(M, np.asarray(tau, WIDE) - bias).imag / STEP)
    return np.stack(columns, axis=1)


@pytest.mark.float64
@pytest.mark.parametrize(
    "n, limit", [(20, 1e-10), pytest.param(50, 2e-10, marks=pytest.mark.slow),
                 pytest.param(100, 1e-9, marks=pytest.mark.slow)]
)  # fmt: skip
def test_derivatives_of_long_chains(n, limit):
    """The largest error over the largest entry; a product with an explicit M⁻¹ misses this."""
    m = rbd.samples.chain(n)
    q, v, tau = jax.random.uniform(jax.random.key(n), (3, n), minval=-1.0, maxval=1.0)
    exact = _by_complex_steps(m, *(np.asarray(x) for x in (q, v, tau)))
    found, _, Minv = jax.jit(rbd.forward_dynamics_derivatives)(m, q, v, tau)
    assert np.abs(np.asarray(found) - exact).max() <= limit * np.abs(exact).max()
    alone = jax.jit(rbd.mass_matrix_inverse)(m, q)
    assert jnp.abs(Minv - alone).max() <= 1e-12 * jnp.abs(alone).max()


@pytest.mark.float64
@pytest.mark.parametrize(
    "n, limit", [(20, 1e-13), pytest.param(50, 5e-13, marks=pytest.mark.slow),
                 pytest.param(100, 1e-11, marks=pytest.mark.slow)]
)  # fmt: skip
def test_linearized_articulated_bodies_lose_no_digits(n, limit):
    """The same by the method "aba", which makes no derivatives of torques.

    The reference eliminates in a mass matrix, which costs it digits too, 2e-12 for 100 links.
    """
    m = rbd.samples.chain(n)
    q, v, tau = jax.random.uniform(jax.random.key(n), (3, n), minval=-1.0, maxval=1.0)
    exact = _by_complex_steps(m, *(np.asarray(x) for x in (q, v, tau)))
    run = jax.jit(partial(rbd.forward_dynamics_derivatives, method="aba"))
    found = np.asarray(run(m, q, v, tau)[0])
    assert np.abs(found - exact).max() <= limit * np.abs(exact).max()
