"""Second derivatives, Coriolis and Christoffel, and the derivatives of integration steps."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import helpers

import rbd_jax as rbd

KINDS = ("free", "helical", "spherical")


@pytest.fixture(scope="module")
def case():
    """A tree of every kind of joint, its state and a wrench on each body."""
    model = rbd.samples.random_tree(1, kinds=KINDS)
    keys = jax.random.split(jax.random.key(3), 5)
    q = helpers.jit(rbd.random_configuration)(model, keys[0])
    v, a, lam = (jax.random.normal(k, (model.nv,)) for k in keys[1:4])
    return model, q, v, a, lam, jax.random.normal(keys[4], (model.nb, 6))


def _close(x, y, tolerance=1e-11):
    scale = 1 + float(jnp.abs(y).max())
    assert x.shape == y.shape
    assert float(jnp.abs(x - y).max()) < tolerance * scale


@pytest.mark.slow
@pytest.mark.parametrize("which", ["inverse", pytest.param("forward", marks=pytest.mark.slow)])
def test_second_derivatives_equal_twice_differentiated_raw_algorithm(case, which):
    model, q, v, u, lam, f_ext = case
    raw = {"inverse": rbd.rnea, "forward": rbd.aba}[which]
    tensors = getattr(rbd.derivatives, f"{which}_dynamics_second_derivatives")
    contracted = getattr(rbd.derivatives, f"{which}_dynamics_hessian")

    @jax.jit
    def run(model, q, v, u):
        def chart(d, v, u):
            return raw(model, rbd.integrate(model, q, d), v, u, f_ext)

        order = (0, 1, 2)
        H = jax.jacfwd(jax.jacfwd(chart, order), order)(jnp.zeros_like(v), v, u)
        expected = H[0][0], H[0][1], H[1][1], H[2][0]
        weighted = tuple(jnp.einsum("i,ijk->jk", lam, x) for x in expected)
        rest = H[1][2], H[2][2]
        return (
            expected,
            tensors(model, q, v, u, f_ext),
            weighted,
            contracted(model, q, v, u, lam, f_ext),
            rest,
        )

    expected, found, weighted, hessian, rest = run(model, q, v, u)
    for name, x, y in zip(found._fields, found, expected, strict=True):
        assert float(jnp.abs(y).max()) > 1e-3, name
        _close(x, y)
    for x, y in zip(hessian, weighted, strict=True):
        _close(x, y)
    for x in rest:  # what SecondDerivatives says is zero
        assert float(jnp.abs(x).max()) < 1e-10


@pytest.mark.float64
def test_mass_matrix_derivative_equals_autodiff(case):
    model, q, v, *_ = case

    @jax.jit
    def run(model, q):
        def chart(d):
            return rbd.crba(model, rbd.integrate(model, q, d))

        return rbd.derivatives.mass_matrix_derivative(model, q), jax.jacfwd(chart)(
            jnp.zeros_like(v)
        )

    _close(*run(model, q))


@pytest.mark.float64
def test_coriolis_matrix_and_christoffel_symbols(case):
    model, q, v, *_ = case
    zero = jnp.zeros_like(v)

    @jax.jit
    def run(model, q, v):
        C, Gamma = rbd.coriolis_matrix(model, q, v), rbd.christoffel(model, q)
        rate = rbd.rate_from_velocity(model, q, v)
        dM = jax.jvp(lambda q: rbd.crba(model, q), (q,), (rate,))[1]
        torque = rbd.bias_torque(model, q, v) - rbd.bias_torque(model, q, zero) - model.damping * v
        return C, Gamma, dM, torque

    C, Gamma, dM, torque = run(model, q, v)
    _close(C @ v, torque)
    _close(Gamma @ v, C)
    N = dM - 2 * C
    _close(N, -N.T)
    assert float(jnp.abs(N).max()) > 1e-2


@pytest.mark.float64
def test_coriolis_matrix_agrees_with_pinocchio_on_single_dof_joints():
    pinocchio = pytest.importorskip("pinocchio")
    model = rbd.samples.arm()
    pin_model = pinocchio.Model()
    parent = 0
    for i in range(model.nb):
        placement = pinocchio.SE3(_numpy(model.placement_R[i]), _numpy(model.placement_p[i]))
        joint = pinocchio.JointModelRevoluteUnaligned(_numpy(model.axis[i]))
        parent = pin_model.addJoint(parent, joint, placement, f"j{i}")
        I = model.inertia[i]
        body = pinocchio.Inertia(
            float(I[0]),
            _numpy(rbd.spatial.inertia.com(I)),
            _numpy(rbd.spatial.inertia.inertia_com(I)),
        )
        pin_model.appendBodyToJoint(parent, body, pinocchio.SE3.Identity())
    q, v = (jax.random.normal(jax.random.key(k), (model.nv,)) for k in (0, 1))
    data = pin_model.createData()
    expected = pinocchio.computeCoriolisMatrix(pin_model, data, _numpy(q), _numpy(v))
    _close(jax.jit(rbd.coriolis_matrix)(model, q, v), jnp.asarray(expected))


def _numpy(x):
    return np.asarray(x, dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["dmm", "aza", "step"])
def test_explicit_derivatives_can_be_differentiated(case, which):
    """Their gradients are those of the Jacobians of the rules, for model leaves too."""
    model, q, v, tau, _, f_ext = case
    nv, dt = model.nv, 0.01

    def explicit(m, q, v, tau):
        if which == "step":
            blocks = rbd.simulate.step_derivatives(m, q, v, tau, dt, f_ext=f_ext)
        else:
            blocks = rbd.forward_dynamics_derivatives(m, q, v, tau, f_ext, method=which)
        return jnp.concatenate(blocks, axis=1)

    def by_rule(m, q, v, tau):
        def chart(d, v, tau):
            start = rbd.integrate(m, q, d)
            if which != "step":
                return rbd.forward_dynamics(m, start, v, tau, f_ext)
            q1, v1 = rbd.step(m, start, v, tau, dt, f_ext=f_ext)
            return jnp.concatenate([rbd.difference(m, end, q1), v1])

        end, _ = rbd.step(m, q, v, tau, dt, f_ext=f_ext)
        return jnp.concatenate(jax.jacfwd(chart, (0, 1, 2))(jnp.zeros_like(v), v, tau), axis=1)

    rows = 2 * nv if which == "step" else nv
    weights = jax.random.normal(jax.random.key(7), (rows, 3 * nv))

    @jax.jit
    def gradients(*x):
        of = lambda f: jax.grad(lambda *x: jnp.sum(weights * f(*x)), (0, 1, 2, 3))(*x)  # noqa: E731
        return of(explicit), of(by_rule)

    found, expected = gradients(model, q, v, tau)
    leaves = ("inertia", "placement_p", "gravity", "armature", "damping")
    pairs = [(getattr(found[0], n), getattr(expected[0], n)) for n in leaves]
    for x, y in [*pairs, *zip(found[1:], expected[1:], strict=True)]:
        assert float(jnp.abs(y).max()) > 1e-3
        _close(x, y, 1e-9)


@pytest.mark.slow
def test_float32_and_zero_dof_models():
    model = helpers.cast(rbd.samples.arm(), jnp.float32)
    q = jnp.linspace(0, 1, 7, dtype=jnp.float32)
    found = jax.jit(rbd.derivatives.inverse_dynamics_second_derivatives)(model, q, q, q)
    chex.assert_type(list(found), jnp.float32)
    chex.assert_tree_all_finite(found)
    base = rbd.LinkSpec("base", 1.0)
    empty = rbd.build_model(rbd.RobotSpec("rock", (base,), ()))
    none = jnp.zeros((0,))
    found = jax.jit(
        lambda m, x: (
            rbd.derivatives.mass_matrix_derivative(m, x),
            rbd.coriolis_matrix(m, x, x),
            rbd.forward_dynamics_derivatives(m, x, x, x)[2],
        )
    )(empty, none)
    assert [x.shape for x in found] == [(0, 0, 0), (0, 0), (0, 0)]
