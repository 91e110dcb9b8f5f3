"""Base parameters from structure, against Pinocchio's regressors, and from noisy torques."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_states, within
from support.recorded import MuJoCo, dataset, noisy, pinocchio_torques

import rbd_jax as rbd
from rbd_jax import identify, samples

pytestmark = pytest.mark.filterwarnings("ignore::rbd_jax.RobotDescriptionWarning")
REGRESS = quick_jit(identify.regression, static_argnames=("terms", "width"))


def _robot(name: str) -> rbd.Model:
    if name not in rbd.example_robots():
        pytest.skip("no example robots")
    floating = name.startswith("hyq")  # MuJoCo refuses the inertia of its root link
    m = rbd.load_urdf(rbd.example_robot(name), floating_base=floating, mimic="independent")
    driven = jnp.asarray(np.array(m.topology.kinds)[m.topology.dof_bodies] != "free")
    where = lambda m: [m.inertia, m.armature, m.damping]  # noqa: E731
    some = 0.1 + 0.05 * jnp.cos(jnp.arange(float(m.nv)))
    rest = [jnp.where(driven, x * some, 0) for x in (1.0, 2.0)]
    return eqx.tree_at(where, m, [1.05 * m.inertia, *rest])


@cache
def _recorded(name: str):
    """States that excite all parameters, and their regressors Y."""
    m = _robot(name)
    s = random_states(m, 400, 5)
    data = dataset(s.q, s.v, s.a, jnp.zeros_like(s.tau))
    terms = ("inertia", "armature", "damping")
    Y, _ = REGRESS(m, data, terms=terms)
    return m, s, Y, identify.base_parameters(m, terms)


def _pinocchio_regressor(name: str):
    pin = pytest.importorskip("pinocchio")
    path, m = rbd.example_robot(name), _robot(name)
    floating = m.joint_names[0] == "root_joint"
    theirs = pin.buildModelFromUrdf(str(path), *((pin.JointModelFreeFlyer(),) if floating else ()))
    data, rng, rows = theirs.createData(), np.random.default_rng(0), []
    for _ in range(60):
        q = pin.integrate(theirs, pin.neutral(theirs), rng.uniform(-3, 3, theirs.nv))
        v, a = rng.normal(size=(2, theirs.nv))
        rows.append(pin.computeJointTorqueRegressor(theirs, data, q, v, a).copy())
    bodies = [m.joint_names.index(n) if n in m.joint_names else 0 for n in list(theirs.names)[1:]]
    columns = np.concatenate([10 * i + np.arange(10) for i in bodies])
    Y = np.zeros((60, theirs.nv, 10 * m.nb))
    Y[..., columns] = rows
    return m, Y


@pytest.mark.parametrize(
    "name", ["panda", "ur5_robot", pytest.param("hyq_no_sensors", marks=pytest.mark.slow)]
)
def test_structure_tells_what_singular_values_of_pinocchio_do(name):
    m, Y = _pinocchio_regressor(name)
    base = identify.base_parameters(m, ("inertia",))
    other = identify.numerical_base_parameters(Y, base.names)
    assert base.count == other.count < 10 * m.nb
    print(name, "bodies", m.nb, "base parameters", base.count)
    rows = Y.reshape(-1, 10 * m.nb)
    scale = np.abs(rows).max()
    assert np.abs(rows @ base.nullspace).max() < within(1e-10, 1e-4) * scale
    assert np.linalg.svd(base.nullspace.T @ other.nullspace)[1].min() > 1 - within(1e-10, 1e-5)
    for b in (base, other):
        again = Y[..., b.independent].reshape(-1, b.count) @ b.B
        np.testing.assert_allclose(again, rows, rtol=0, atol=within(1e-9, 1e-4) * scale)


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_structure_of_every_joint_kind_with_rotors(seed):
    """The oracle is the singular values of our regressor, which is tested against Pinocchio's."""
    m = samples.random_tree(seed)
    s = random_states(m, 40, 1)
    base = identify.base_parameters(m)
    Y, _ = REGRESS(m, dataset(s.q, s.v, s.a, s.tau), terms=identify.TERMS)
    other = identify.numerical_base_parameters(np.asarray(Y), base.names)
    assert base.count == other.count
    rounded = np.asarray(Y, np.float32)
    assert identify.numerical_base_parameters(rounded, base.names).count == base.count
    assert np.abs(Y @ base.nullspace).max() < within(1e-10, 1e-5) * np.abs(Y).max()


def test_verdicts_of_a_pendulum():
    """As in textbooks, a hinge shows the moment of inertia, and m c across the axis."""
    m = samples.pendulum()
    base = identify.base_parameters(m, ("inertia", "armature"))
    seen = dict(zip(base.names, base.verdicts(), strict=True))
    shown = {k for k, v in seen.items() if v == "identifiable"}
    assert shown == {"mcx:bob", "mcz:bob"}
    assert {k for k, v in seen.items() if v == "in combination"} == {"Iyy:bob", "armature:hinge"}
    assert set(base.combinations()) in (
        {"mcx:bob", "mcz:bob", "Iyy:bob + armature:hinge"},
        {"mcx:bob", "mcz:bob", "armature:hinge + Iyy:bob"},
    )
    weightless = eqx.tree_at(lambda m: m.gravity, m, jnp.zeros(3))
    assert identify.base_parameters(weightless, ("inertia",)).count == 1


def test_regressor_times_parameters_is_inverse_dynamics():
    m = samples.random_tree(1)
    m = eqx.tree_at(lambda m: m.friction, m, 0.1 + 0.01 * jnp.arange(float(m.nv)))
    s = random_states(m, 5)
    data = identify.Dataset(None, s.q, s.v, s.a, s.tau, s.f_ext)
    names = identify.parameter_names(m)
    theta = identify.linear_parameters(m)
    assert len(names) == len(set(names)) == theta.size
    Y, tau = REGRESS(m, data, terms=identify.TERMS)
    predicted = quick_jit(identify.predicted_torques)(m, data)
    product = Y @ theta + s.tau - tau
    np.testing.assert_allclose(
        product, predicted, rtol=0, atol=within(1e-12, 1e-5) * float(abs(product).max())
    )
    some, rest = REGRESS(m, data, terms=("damping", "inertia"))
    part = identify.linear_parameters(m, ("damping", "inertia"))
    np.testing.assert_allclose(
        some @ part - rest, Y @ theta - tau, rtol=0, atol=within(1e-10, 1e-2)
    )
    back = identify.with_linear_parameters(m, theta)
    assert eqx.tree_equal(back, m)


def _chi_square_bounds(r: int) -> tuple[float, float]:
    stats = pytest.importorskip("scipy.stats")
    return stats.chi2.ppf(1e-3, r), stats.chi2.ppf(1 - 1e-3, r)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("panda", "pinocchio"),
        pytest.param("hyq_no_sensors", "mujoco", marks=pytest.mark.slow),
        pytest.param("panda", "mujoco", marks=pytest.mark.slow),
        pytest.param("hyq_no_sensors", "pinocchio", marks=pytest.mark.slow),
    ],
)
def test_base_parameters_are_within_their_confidence_intervals(name, maker):
    """For an arm of seven joints with a gripper, and for a quadruped, with rotors and damping."""
    m, s, Y, base = _recorded(name)
    source = rbd.export_urdf(m, rbd.example_robot(name))
    if maker == "pinocchio":
        clean = pinocchio_torques(m, source, s.q, s.v, s.a)
    else:
        clean = MuJoCo(m, source).torques(s.q, s.v, s.a)
    sigma = 0.05 * np.std(clean, axis=0)
    tau = noisy(clean, sigma, seed=3)
    found = jax.jit(lambda Y, tau: identify.least_squares(base, Y, tau))(Y, tau)
    truth = base.B @ np.asarray(identify.linear_parameters(m, ("inertia", "armature", "damping")))
    error = np.asarray(found.value) - truth
    inside = np.abs(error) < 1.96 * np.asarray(found.deviation)
    distance = error @ np.linalg.solve(np.asarray(found.covariance), error)
    low, high = _chi_square_bounds(base.count)
    print(name, maker, base.count, "base parameters,", inside.mean(), "in 95 %, χ²", distance)
    assert low < distance < high
    assert inside.mean() > 0.8 and (np.abs(error) < 5 * np.asarray(found.deviation)).all()
    np.testing.assert_allclose(found.sigma, sigma, rtol=0.2)
    exact = identify.least_squares(base, Y, jnp.asarray(clean))
    np.testing.assert_allclose(exact.value, truth, rtol=0, atol=1e-7 * np.abs(truth).max())


def test_too_little_data_is_refused():
    m, _, Y, base = _recorded("panda")
    with pytest.raises(ValueError, match="base parameters"):
        identify.least_squares(base, Y[:3], jnp.zeros(Y[:3].shape[:2]))
