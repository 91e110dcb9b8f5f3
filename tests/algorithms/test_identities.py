"""Physical identities of energy and dynamics on random trees of every joint kind."""

from functools import partial

import jax
import numpy as np
import pytest
from support.helpers import jit
from support.physical_facts import BATCH, NAMES, SETS, close, facts, matvec, straight

import rbd_jax as rbd

FLOATING = (pytest.param("floating_random", marks=pytest.mark.slow), "quadruped")
inner = partial(np.einsum, "...i,...i->...")


# --- energy -----------------------------------------------------------------------------------


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_kinetic_energy_is_the_quadratic_form_of_the_mass_matrix(name):
    _, s, _, x = facts(name)
    close(x.T, 0.5 * inner(s.v, matvec(x.M, s.v)))


@pytest.mark.parametrize("name", NAMES)
def test_mass_matrix_is_symmetric_positive_definite(name):
    _, _, _, x = facts(name)
    close(x.M, np.swapaxes(x.M, -1, -2), 1e-15)
    assert np.linalg.eigvalsh(x.M).min() > 0


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_power_balance(name):
    """Energy changes by the power of torques, damping and external wrenches."""
    m, s, _, x = facts(name)
    power = inner(s.v, s.tau - np.asarray(m.damping) * s.v)
    power = power + np.einsum("nbi,nbi->n", x.V_bodies, s.f_ext)
    close(x.dT + x.dV, power, 1e-10)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_passivity(name):
    """``vᵀ(Ṁ − 2C)v = 0``, with ``C v`` = bias torque less gravity, damping and wrenches."""
    m, s, _, x = facts(name)
    wrenches = np.einsum("nbik,nbi->nk", x.J_bodies, s.f_ext)
    Cv = x.h + wrenches - x.g - np.asarray(m.damping) * s.v
    vanish = straight(m)
    close(inner(s.v, matvec(x.dM, s.v)), 2 * inner(s.v, Cv), vanish=vanish)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_gravity_torque_is_the_slope_of_the_potential(name):
    _, _, _, x = facts(name)
    close(x.g, x.V_slope)


@pytest.mark.parametrize("name", NAMES)
def test_potential_energy_is_that_of_the_center_of_mass(name):
    m, _, _, x = facts(name)
    weight = np.asarray(rbd.total_mass(m) * m.gravity)
    close(x.V, -x.com @ weight)


# --- dynamics ---------------------------------------------------------------------------------


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_inverse_dynamics_is_affine_in_the_acceleration(name):
    _, s, _, x = facts(name)
    close(x.tau_id, matvec(x.M, s.a) + x.h)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_forward_dynamics_inverts_inverse_dynamics(name):
    _, s, _, x = facts(name)
    close(x.a_back, s.a, 1e-10)
    close(x.tau_back, s.tau, 1e-10)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_hybrid_dynamics_is_the_closed_form(name):
    m, s, sets, x = facts(name)
    given = sets[..., m.topology.dof_bodies]
    for n in range(BATCH):
        for k in range(SETS):
            P, F = np.flatnonzero(given[n, k]), np.flatnonzero(~given[n, k])
            M, h, a, tau = x.M[n], x.h[n], s.a[n].copy(), s.tau[n].copy()
            a[F] = np.linalg.solve(M[np.ix_(F, F)], tau[F] - h[F] - M[np.ix_(F, P)] @ a[P])
            tau[P] = M[P] @ a + h[P]
            close(x.hybrid[0][n, k], a, 1e-10)
            close(x.hybrid[1][n, k], tau, 1e-10)


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_external_wrenches_act_through_the_jacobians(name):
    _, s, _, x = facts(name)
    close(x.tau_without - x.tau_id, np.einsum("nbik,nbi->nk", x.J_bodies, s.f_ext))


@pytest.mark.float64
@pytest.mark.parametrize("name", FLOATING)
def test_momentum_changes_by_gravity_and_external_wrenches(name):
    m, s, sets, x = facts(name)
    tau = s.tau.copy()
    tau[:, :6] = 0  # no torque from the world
    along = jax.vmap(_momentum_rate, in_axes=(None, 0, 0, 0, 0))
    rate = jit(along)(m, s.q, s.v, tau, s.f_ext)
    n, f = s.f_ext[..., :3], s.f_ext[..., 3:]
    f_world = np.einsum("nbij,nbj->nbi", x.R, f)
    arm = x.p - x.com[:, None]
    n_world = np.einsum("nbij,nbj->nbi", x.R, n) + np.cross(arm, f_world)
    total = np.concatenate([n_world.sum(1), f_world.sum(1)], axis=-1)
    total[:, 3:] += np.asarray(rbd.total_mass(m) * m.gravity)
    close(rate, total, 1e-10)


def _momentum_rate(m, q, v, tau, f_ext):
    a = rbd.aba(m, q, v, tau, f_ext)
    rates = rbd.rate_from_velocity(m, q, v), a
    return jax.jvp(partial(rbd.centroidal_momentum, m), (q, v), rates)[1]
