"""Fits by torque as convex programs: the best physical robot, from any start, of any data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.recorded import THREE, dataset, noisy, pinocchio_torques
from test_identify_fit import SIGMA, all_linear, recorded, robot, states

from rbd_jax import identify
from rbd_jax.identify import choose
from rbd_jax.spatial import inertia


def test_thousands_of_fits_at_once_from_bad_starts():
    """2000 recordings with noise of their own, each with a wrong robot of its own to start from.

    All are physical, and the 95 % intervals of damping and friction hold the truth in 95 % of them.
    """
    clean, data = recorded(40)
    m, count = robot(), 2000
    rng = np.random.default_rng(1)
    tau = jnp.asarray(clean + SIGMA * rng.normal(size=(count, *clean.shape)))

    def unknown(m):
        parts = choose(m, "inertia", "three"), choose(m, "damping"), choose(m, "friction")
        return identify.Parameters(m, *parts)

    true = unknown(m)
    shifts = 0.5 * jax.random.normal(jax.random.key(2), (count, true.start.size))

    @jax.jit
    @jax.vmap
    def fit(tau, shift):
        there = eqx.tree_at(lambda d: d.tau, data, tau)
        learn = unknown(true.model(true.start + shift))
        out = identify.fit_torques(learn, there, jnp.asarray(SIGMA), prior=1e-3)
        score = (out.z - learn.coordinates(m)) / jnp.sqrt(jnp.diagonal(out.covariance))
        return score[-6:], out.converged, identify.consistent(out.model).all(), out.steps

    score, converged, physical, steps = fit(tau, shifts)
    print("steps", np.quantile(steps, [0, 0.5, 0.9, 1]), "converged", float(converged.mean()))
    assert bool(physical.all()) and bool(converged.all())
    inside = (jnp.abs(score) < 1.96).mean(axis=0)
    assert bool((jnp.abs(inside - 0.95) < 0.02).all()), inside


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, 4])
def test_few_and_noisy_data(count):
    """Fewer equations than unknowns, much noise, no prior: one best robot, at the border.

    That it is the best of all is seen from the slope towards other robots, which is nowhere
    negative: in the parameters themselves the problem is convex. The unconstrained estimate would
    be beyond the border in most of these.
    """
    m, s, sigma = robot(), states(count, 7), 20 * SIGMA
    clean = pinocchio_torques(m, THREE, s.q, s.v, s.a)
    tau = noisy(np.broadcast_to(clean, (20, *clean.shape)), sigma, 5)
    learn = all_linear(m)
    assert clean.size < learn.start.size
    Y, left = quick_jit(identify.regression)(m, dataset(s.q, s.v, s.a, jnp.asarray(clean)))

    @quick_jit
    @jax.vmap
    def fit(tau, far):
        data = dataset(s.q, s.v, s.a, tau)
        out = identify.fit_torques(learn, data, jnp.asarray(sigma), start=learn.start + far)
        others = jax.vmap(learn.model)(0.5 * jax.random.normal(jax.random.key(3), (30, far.size)))
        theta = identify.linear_parameters(out.model)
        wrong = jnp.einsum("nvp,p->nv", Y, theta) - (left + tau - clean)
        slope = jnp.einsum("nvp,nv->p", Y, wrong / jnp.asarray(sigma**2)[None])
        towards = (jax.vmap(identify.linear_parameters)(others) - theta[None]) @ slope
        return out, identify.consistent(out.model).all(), towards.min()

    far = jax.random.normal(jax.random.key(0), (20, learn.start.size))
    out, physical, towards = fit(tau, far)
    again, _, _ = fit(tau, far[::-1])
    print("steps", int(out.steps.max()), "slope", float(towards.min()))
    assert bool(out.converged.all()) and bool(physical.all())
    np.testing.assert_allclose(again.cost, out.cost, rtol=1e-6)
    np.testing.assert_allclose(again.z, out.z, atol=1e-2)
    assert float(towards.min()) > -1e-3
    P = inertia.pseudo(out.model.inertia)
    d = jax.lax.rsqrt(jnp.diagonal(P, axis1=-2, axis2=-1))
    least = jnp.linalg.eigvalsh(P * d[..., :, None] * d[..., None, :])[..., 0].min(axis=1)
    assert float((least < 1e-4).mean()) > 0.5 or count == 4
