"""Factorizations without LAPACK, and that mapped functions need no others."""

import os
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.lapack import independent_calls

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.contact.forward import ControlledScene
from rbd_jax.contact.step import implicit
from rbd_jax.identify import select
from rbd_jax.identify.fits._chain import Chain, compressed, damped, solve_chain
from rbd_jax.optimize.linear_quadratic._associative import parallel_backward
from rbd_jax.optimize.linear_quadratic._euler_sweep import Value, _minimized
from rbd_jax.optimize.problems._local_models import Dynamics, Quadratic
from rbd_jax.spatial.linear import qr_factor, solve_upper


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (8, 8), (13, 7), (60, 20), (30, 17), (3, 0)])
def test_triangular_factor_of_dependent_columns(shape, dtype):
    """``RᵀR = AᵀA`` to rounding, column by column, over nine orders of magnitude of columns."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=shape) * np.logspace(4, -5, shape[1])
    if shape[1] > 3:
        A[:, 3], A[:, 1] = A[:, 0] + A[:, 2], 0
    A = jnp.asarray(A.astype(dtype))
    R = np.asarray(quick_jit(qr_factor)(A), np.float64)
    assert R.shape == (min(shape), shape[1])
    eps, A = jnp.finfo(A.dtype).eps, np.asarray(A, np.float64)
    np.testing.assert_array_equal(R, np.triu(R))
    length = np.linalg.norm(A, axis=0)
    error = (R.T @ R - A.T @ A) / np.where(length > 0, length, 1)[:, None]
    error = error / np.where(length > 0, length, 1)
    assert np.abs(error).max(initial=0) < 10 * eps


def test_triangular_factor_is_that_of_lapack_up_to_signs():
    rng = np.random.default_rng(1)
    A = jnp.asarray(rng.normal(size=(3, 40, 20)))
    R, expected = quick_jit(jax.vmap(qr_factor))(A), np.linalg.qr(np.asarray(A), mode="r")
    signs = np.sign(np.diagonal(R, axis1=1, axis2=2) * np.diagonal(expected, axis1=1, axis2=2))
    np.testing.assert_allclose(R * signs[:, :, None], expected, atol=300 * jnp.finfo(A.dtype).eps)
    B = jnp.asarray(rng.normal(size=(3, 20, 2)))
    np.testing.assert_allclose(
        jnp.matmul(R, quick_jit(solve_upper)(R, B)), B, atol=1e4 * jnp.finfo(A.dtype).eps
    )


def test_derivatives_of_the_triangular_factor():
    """``δ(RᵀR) = δAᵀ A + Aᵀ δA``; a column of zeros does not make them NaN."""
    A, dA = jnp.asarray(np.random.default_rng(2).normal(size=(2, 11, 9)))

    @quick_jit
    def both(A):
        R, dR = jax.jvp(qr_factor, (A,), (dA,))
        return R.T @ dR + dR.T @ R, jax.grad(lambda A: jnp.sum(jnp.cos(qr_factor(A))))(A)

    np.testing.assert_allclose(both(A)[0], A.T @ dA + dA.T @ A, atol=1e3 * jnp.finfo(A.dtype).eps)
    assert bool(jnp.isfinite(both(A.at[:, 2].set(0))[1]).all())


def _problem(samples=20):
    m = rbd.samples.double_pendulum()
    m = eqx.tree_at(lambda m: m.damping, m, jnp.full(2, 0.5))
    q, v, a = jax.random.normal(jax.random.key(0), (3, samples, 2))
    t = jnp.arange(samples, dtype=q.dtype)
    return identify.Parameters(m, select(m, "damping")), identify.Dataset(t, q, v, a, v)


def _torques(tau, loss):
    learn, data = _problem()
    there = eqx.tree_at(lambda d: d.tau, data, tau)
    fit = identify.fit_torques(learn, there, loss=loss, throw=False)
    return fit.z, fit.covariance


def _columns(tau):
    Y = jnp.stack([jnp.sin(tau), jnp.cos(tau)], axis=-1)
    base = identify.BaseParameters(("a", "b"), np.arange(2), np.eye(2), np.zeros((2, 0)))
    return identify.least_squares(base, Y, tau)


def _chain(tau):
    rows = (5, 4), (2, 6)  # two numbers a state, one for all, and the right-hand side
    parts = [jnp.ones((3, *shape), tau.dtype) * tau[0, 0] for shape in rows]
    chain = Chain(*parts, jnp.ones((1, 2), tau.dtype))
    return solve_chain(compressed(damped(chain, tau[0, 1])))


def _in_ellipsoid(tau):
    ball = identify.Ellipsoid(tau[0, 0] * jnp.ones(3, tau.dtype), jnp.eye(3, dtype=tau.dtype))
    return ball.contains(jnp.ones(10, tau.dtype))


MAPPED = {
    "squares": lambda tau: _torques(tau, "squares"),
    "huber": lambda tau: _torques(tau, "huber"),
    "least_squares": _columns,
    "trajectories": _chain,
    "ellipsoid": _in_ellipsoid,
}


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_fits_do_not_call_lapack(name):
    """Two batched calls of LAPACK can wait for each other forever in jaxlib 0.10.0 to 0.11.0."""
    tau = jnp.zeros((1000, 20, 2))
    text = jax.jit(jax.vmap(MAPPED[name])).lower(tau).as_text()
    assert "stablehlo" in text and "lapack_" not in text and "blas_" not in text


FALLING = """<mujoco><option integrator="implicitfast"/><worldbody>
<body><freejoint/><geom size=".1 .2 .3" type="box"/></body>
<body pos="1 0 0"><freejoint/><geom size=".1 .2 .3" type="box"/></body></worldbody></mujoco>"""


def _implicit(x):
    scene = rbd.load_mjcf(FALLING)
    q, v = rbd.neutral(scene.model), jnp.broadcast_to(x[0, 0], 12)
    return implicit(ControlledScene(scene, jnp.zeros(0), None, None), q, v, v)


def _controls(x):
    Q = Value(x[0, :2], x[1, :2], *(jnp.eye(2) * x[0, 0] for _ in range(3)))
    return _minimized(Q, x[0, :3], x[:3, :4], x[:3, :3] @ x[:3, :3].T + jnp.eye(3), None)


def _associative(x):
    A, B, m = x[:5, None, :4] + jnp.eye(4)[None], x[:5, :4, None], jnp.ones((5, 1))
    l = Quadratic(x[:5, :4], m, A, jnp.zeros((5, 1, 4)), m[..., None])
    end = Quadratic(x[0, :4], m[0], A[0], jnp.zeros((1, 4)), m[0, :, None])
    return parallel_backward(Dynamics(A, B, x[:5, :4]), l, end)


@pytest.mark.parametrize("f", [_implicit, _controls, _associative])
def test_calls_of_lapack_wait_for_each_other(f):
    """Without lanes, mapped functions call LAPACK for one thing at a time."""
    x = jnp.asarray(np.random.default_rng(3).normal(size=(100, 6, 6)))
    assert not independent_calls(jax.vmap(f), x)


def test_calls_that_do_not_wait_are_found():
    both = lambda x: (jnp.linalg.cholesky(x), jnp.linalg.qr(x, mode="r"))  # noqa: E731
    assert len(independent_calls(jax.vmap(both), jnp.ones((9, 3, 3)))) == 1


WAITING = """
    import faulthandler
    faulthandler.dump_traceback_later(100, exit=True)
    import jax, jax.numpy as jnp, numpy as np
    from rbd_jax import identify


    r = 7
    base = identify.BaseParameters(tuple("abcdefg"), np.arange(r), np.eye(r), np.zeros((r, 0)))
    Y = jax.random.normal(jax.random.key(0), (400, 20, 3, r))
    tau, sigmas = jnp.ones((20, 3)), (jnp.ones(3), jnp.arange(1.0, 4.0))

    @jax.jit
    def estimates(Y):
        def again(x, _):
            y = jnp.tanh(Y + x)  # in parallel, so that the threads of the pool go on from here
            one = lambda y, s: identify.least_squares(base, y, tau, s).value
            both = [jax.vmap(one, (0, None))(y, s) for s in sigmas]
            return 1e-9 * sum(jnp.sum(z) for z in both), None

        return jax.lax.scan(again, 0.0, length=20)[0]

    print("finished", jax.block_until_ready(estimates(Y)))
"""


def test_two_mapped_estimates_in_one_program_end():
    """In JAX's default mode, on two threads or more; once it hung in the first of 20 rounds."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "RBD_JAX_"))}
    command = [sys.executable, "-c", textwrap.dedent(WAITING)]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "finished" in done.stdout, done.stderr
