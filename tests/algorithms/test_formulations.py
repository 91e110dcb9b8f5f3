"""The formulations for CPUs and for accelerators compute the same, and keep their digits."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import cast, computed_as, random_state
from support.physical_facts import close, robot, run

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.algorithms.formulations import FORMULATIONS

# --- dynamics ---------------------------------------------------------------------------------


@pytest.mark.float64
def test_the_inverse_mass_matrix_of_a_long_chain_keeps_its_digits():
    """Condition numbers up to 6e5: from the root on, elimination was wrong by 3e-9."""
    m = samples.chain(35)
    q = jax.vmap(partial(rbd.random_configuration, m))(jax.random.split(jax.random.key(0), 32))

    @quick_jit
    def both(q):
        zero = jnp.zeros(m.nv)
        return rbd.crba(m, q), rbd.forward_dynamics_derivatives(m, q, zero, zero)[2]

    M, found = jax.vmap(both)(q)
    exact = np.linalg.inv(np.asarray(M))
    assert np.linalg.cond(M).max() > 1e5
    assert np.abs(found - exact).max() < 2e-10 * np.abs(exact).max()


# --- passes over the tree, in every formulation -----------------------------------------------


@pytest.mark.slow
def test_formulations_agree_in_every_algorithm():
    m = robot("random_tree1")
    s = random_state(m)

    def all_of_it(m, s):
        p = jnp.arange(m.nb) % 3 == 0
        return (
            rbd.rnea(m, s.q, s.v, s.a, s.f_ext),
            rbd.hybrid_dynamics(m, s.q, s.v, s.a, s.tau, p, s.f_ext),
            rbd.algorithms.body_accelerations(m, s.q, s.v, s.a),
            rbd.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext),
            rbd.crba(m, s.q),
            rbd.forward_dynamics_derivatives(m, s.q, s.v, s.tau, s.f_ext),
        )

    results = []
    for name in FORMULATIONS:
        with computed_as(name):
            results.append(jax.jit(lambda m, s: all_of_it(m, s))(m, s))
    for other in results[1:]:
        for a, b in zip(*map(jax.tree.leaves, (other, results[0])), strict=True):
            close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mask", [128, pytest.param(0, marks=pytest.mark.slow)]
)  # 0: as with very many bodies
def test_dynamics_where_loops_are_slow(mask):
    """What accelerators run is RNEA and ABA too, with one loop only, over blocks of M."""
    m = robot("random_tree1")
    s = random_state(m)

    def both(m, s):
        tau = rbd.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext)
        forward = partial(rbd.forward_dynamics, m, f_ext=s.f_ext)
        return tau, *jax.jvp(forward, (s.q, s.v, s.tau), (s.q, s.a, s.v))

    *_, exact = jax.jit(both)(m, s)  # as on a CPU
    loops = run.rnea(m, s.q, s.v, s.a, s.f_ext), run.aba(m, s.q, s.v, s.tau, s.f_ext)
    with computed_as("accelerator", mask=mask):
        lowered = jax.jit(lambda m, s: both(m, s)).lower(m, s)
    assert lowered.as_text().count("stablehlo.while") == 1
    tau, acceleration, rate = lowered.compile()(m, s)
    close(tau, loops[0])
    close(acceleration, loops[1])
    close(rate, exact)


@pytest.mark.float64
def test_a_long_chain_keeps_its_digits_where_loops_are_slow():
    """In single precision the inverse of M would be wrong by half for some of these states."""
    m = samples.chain(32, dtype="float64")
    m32 = cast(m, jnp.float32)
    q, v, tau = jax.random.normal(jax.random.key(0), (3, 256, 32)).astype(jnp.float32)
    exact = quick_jit(jax.vmap(rbd.aba, (None, 0, 0, 0)))(m, *cast((q, v, tau), jnp.float64))
    with computed_as("accelerator"):
        found = quick_jit(jax.vmap(lambda *x: rbd.forward_dynamics(m32, *x)))(q, v, tau)
    found = found.astype(jnp.float64)
    error = jnp.linalg.norm(found - exact, axis=1) / jnp.linalg.norm(exact, axis=1)
    assert error.max() < 1e-4


@pytest.mark.slow
@pytest.mark.float64
def test_hybrid_dynamics_by_entries_has_all_derivatives():
    """By every leaf of the model and by the external wrenches, with prescribed joints."""
    m = rbd.samples.chain(4, floating_base=True)
    rng = np.random.default_rng(0)
    v, a, tau = (jnp.array(rng.normal(size=m.nv)) for _ in range(3))
    prescribed = jnp.array(np.arange(m.nb) % 2 == 1)

    def total(x):
        return sum(jnp.sum(jnp.sin(y)) for y in rbd.hybrid_dynamics(*x[:-1], prescribed, x[-1]))

    given = m, rbd.neutral(m), v, a, tau, jnp.array(rng.normal(size=(m.nb, 6)))
    found = []
    for name in ("lanes", "teams"):
        with computed_as(name):
            found.append(jax.jit(lambda *x: eqx.filter_value_and_grad(total)(x))(*given))
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
