"""Closed forms of the equations of motion, Christoffel symbols, system matrices, Vlasblom."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, model, random_state

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.screw import vlasblom

KINDS = ("revolute", "spherical", "helical", "free", "prismatic", "revolute")
REPRESENTATIONS = screw.REPRESENTATIONS


def _values(m, s):
    """All functions under test and their oracles at one state."""
    q, v, a = s.q, s.v, s.a
    rate = rbd.rate_from_velocity(m, q, v)
    zero = jnp.zeros_like(v)
    along = lambda f: jax.jvp(f, (q,), (rate,))  # noqa: E731
    x = {}
    x["rnea"] = rbd.rnea(m, q, v, a, s.f_ext)
    x["projection"] = screw.euler_jourdain_torque(m, q, v, a, s.f_ext)
    x["components"] = screw.component_inverse_dynamics(m, q, v, a, s.f_ext)
    x["g"] = rbd.gravity_torque(m, q)
    x["h"] = rbd.bias_torque(m, q, v) - m.damping * v - x["g"]
    x["M"], x["dM"] = along(lambda q: rbd.crba(m, q))
    x["C"], x["Gamma"] = rbd.coriolis_matrix(m, q, v), rbd.christoffel(m, q)
    x["M_lagrange"] = screw.lagrange_mass_matrix(m, q)
    x["C_lagrange"] = screw.lagrange_coriolis_matrix(m, q, v)
    x["by_brackets"] = screw.christoffel_by_brackets(m, q)
    x["by_binet"] = screw.christoffel_by_binet(m, q)
    # momentum form
    moving = lambda q, v: screw.spatial_momenta(m, q, v)  # noqa: E731
    x["Pi"], x["dPi"] = jax.jvp(moving, (q, v), (rate, a))
    x["Pi_rate"] = screw.spatial_momentum_rates(m, q, v, a)
    x["momentum_torque"] = screw.torque_of_momentum_rates(m, q, x["dPi"], s.f_ext)
    x["v_back"] = screw.velocity_of_momenta(m, q, x["Pi"])
    # system matrices
    x["J"] = {k: screw.system_jacobian(m, q, k) for k in REPRESENTATIONS}
    x["AX"] = {k: screw.system_factors(m, q, k) for k in REPRESENTATIONS}
    x["dJ"] = along(lambda q: screw.system_jacobian(m, q))[1]
    x["dJ_closed"] = screw.system_jacobian_rate(m, q, v)
    V, dV = screw.twists(m, q, v), screw.accelerations(m, q, v, a)
    x["a_back"] = screw.joint_accelerations(m, q, V, dV)
    x["a_matrix"] = screw.system.joint_twist_operators(m, v)
    x["b_matrix"] = screw.system.twist_operators(m, q, v, "spatial")
    x["columns"] = screw.spatial.joint_screws(m, rbd.forward_kinematics(m, q))
    x["acceleration body_fixed"] = dV
    x["acceleration spatial"] = screw.accelerations(m, q, v, a, "spatial")
    # Vlasblom
    x["vlasblom"] = dict(
        J=vlasblom.body_jacobians(m, q),
        dJ=vlasblom.body_jacobian_partials(m, q),
        M=vlasblom.mass_matrix(m, q),
        dM=vlasblom.mass_matrix_partials(m, q),
        Gamma=vlasblom.christoffel(m, q),
        C=vlasblom.coriolis_matrix(m, q, v),
        G=vlasblom.gravity_wrench(m, q),
        Ja=vlasblom.analytic_jacobians(m, q),
        Jg=vlasblom.com_jacobians(m, q),
    )
    x["hybrid"] = screw.jacobians(m, q, "hybrid")
    x["dM_dq"] = rbd.derivatives.mass_matrix_derivative(m, q)
    chart = lambda d: screw.jacobians(m, rbd.integrate(m, q, d))  # noqa: E731
    x["dJ_dq"] = jax.jacfwd(chart)(zero)

    def centers(d):
        R, p = rbd.forward_kinematics(m, rbd.integrate(m, q, d))
        c = rbd.spatial.inertia.com(m.inertia)
        return rbd.spatial.so3.rotate(R, c) + p

    x["dc_dq"] = jax.jacfwd(centers)(zero)
    return x


@pytest.fixture(scope="module")
def case():
    """A tree with joints of many kinds, its state, and all values under test."""
    m = rbd.samples.random_tree(1, kinds=KINDS)
    m = eqx.tree_at(lambda m: m.gravity, m, jnp.array([1.3, -3.1, -8.7]))
    s = random_state(m, 3)
    return m, *jax.tree.map(np.asarray, (s, quick_jit(_values)(m, s)))


def close(x, y, rtol=1e-11):
    """Equal relative to the greatest entry."""
    assert_close(x, y, atol=rtol * (1 + float(np.abs(y).max())))


@pytest.mark.slow
def test_projection_and_component_equations_are_rnea(case):
    """(78), and the notes §7."""
    _, _, x = case
    close(x["projection"], x["rnea"])
    close(x["components"], x["rnea"])


@pytest.mark.slow
def test_lagrange_equations(case):
    """(81), (84). By the notes §11, Ṁ − 2C of (84) is passive but not antisymmetric."""
    m, s, x = case
    close(x["M_lagrange"], x["M"])
    close(x["C_lagrange"] @ s.v, x["h"])
    N = x["dM"] - 2 * x["C_lagrange"]
    assert abs(float(s.v @ N @ s.v)) < 1e-10
    assert float(np.abs(N + N.T).max()) > 1e-2


@pytest.mark.slow
def test_passivity_properties(case):
    """The notes §11, for the C of the Christoffel symbols."""
    m, s, x = case
    close(x["M"], x["M"].T)
    assert np.linalg.eigvalsh(x["M"]).min() > 0
    close(x["dM"], x["C"] + x["C"].T)
    N = x["dM"] - 2 * x["vlasblom"]["C"]
    close(N, -N.T)
    close(x["vlasblom"]["C"] @ s.v, x["h"])


@pytest.mark.slow
@pytest.mark.parametrize("which", ["by_brackets", "by_binet"])
def test_christoffel_symbols_in_closed_form(case, which):
    """(86), (87), with (85)."""
    m, s, x = case
    close(x[which], x["Gamma"])
    close(np.einsum("ijk,j,k->i", x[which], s.v, s.v), x["h"])


@pytest.mark.slow
def test_momentum_form(case):
    """(35), (36), (79)."""
    m, s, x = case
    close(x["Pi_rate"], x["dPi"])
    without = x["rnea"] - m.armature * s.a - m.damping * s.v
    close(x["momentum_torque"], without)
    close(x["v_back"], s.v, 1e-9)


@pytest.mark.slow
def test_system_jacobian_and_its_factors(case):
    """(111), (112), (8), (10), (11)."""
    m, s, x = case
    for kind in REPRESENTATIONS:
        A, X = x["AX"][kind]
        assert A.shape == (6 * m.nb, 6 * m.nb) and X.shape == (6 * m.nb, m.nv)
        close(A @ X, x["J"][kind])
    close(x["dJ_closed"], x["dJ"])
    dV = x["J"]["body_fixed"] @ s.a + x["dJ_closed"] @ s.v
    close(dV.reshape(-1, 6), x["acceleration body_fixed"])
    close(x["a_back"], s.a)


@pytest.mark.slow
def test_system_jacobian_rate_from_the_diagonal_matrices(case):
    """(8), (9) and (18), (19), with the matrices written out."""
    m, s, x = case
    A, _ = x["AX"]["body_fixed"]
    a = x["a_matrix"]
    one = np.array([m.topology.v_slice(n) for n in m.joint_names])
    one = [v.start for v in one if v.stop - v.start == 1]  # (8) as printed: one degree of freedom
    close((-A @ a @ x["J"]["body_fixed"])[:, np.array(one)], x["dJ"][:, np.array(one)])
    dV = x["J"]["body_fixed"] @ s.a - A @ a @ x["J"]["body_fixed"] @ s.v
    close(dV.reshape(-1, 6), x["acceleration body_fixed"])
    L = np.kron(m.topology.tree.ancestor_mask, np.eye(6))
    columns = x["columns"]
    own = np.kron(m.topology.dof_bodies[None] == np.arange(m.nb)[:, None], np.ones((6, 1)))
    apart = own * np.tile(np.asarray(columns).T, (m.nb, 1))
    b = x["b_matrix"]
    dV = x["J"]["spatial"] @ s.a + L @ b @ apart @ s.v
    close(dV.reshape(-1, 6), x["acceleration spatial"])


@pytest.mark.slow
def test_vlasblom(case):
    """(1.11)–(1.17), (2.8)–(2.24), with (1.15) for joints of several degrees of freedom."""
    m, s, x = case
    w = x["vlasblom"]
    close(w["J"].reshape(-1, m.nv), x["J"]["body_fixed"])
    close(w["dJ"], x["dJ_dq"])
    close(w["M"], x["M"])
    close(w["dM"], x["dM_dq"])
    close(w["Gamma"], x["Gamma"])
    close(w["C"], x["C"])
    close(w["G"], -x["g"])
    close(w["Ja"], x["dc_dq"])
    # (2.9), (2.13): the angular rows are in world axes and do not depend on the point.
    close(w["Jg"], np.concatenate([x["hybrid"][:, :3], x["dc_dq"]], axis=1))


def test_pinocchio_has_the_same_quantities():
    """Coriolis matrix and time derivatives of Jacobians of a serial robot."""
    pinocchio = pytest.importorskip("pinocchio")
    m = model("arm")
    s = random_state(m)
    pin, parent = pinocchio.Model(), 0
    for i in range(m.nb):
        place = pinocchio.SE3(np.array(m.placement_R[i]), np.array(m.placement_p[i]))
        joint = pinocchio.JointModelRevoluteUnaligned(np.array(m.axis[i]))
        parent = pin.addJoint(parent, joint, place, f"j{i}")
        c, I = (f(m.inertia[i]) for f in (rbd.spatial.inertia.com, rbd.spatial.inertia.inertia_com))
        body = pinocchio.Inertia(float(m.inertia[i, 0]), np.array(c), np.array(I))
        pin.appendBodyToJoint(parent, body, pinocchio.SE3.Identity())
    data, q, v = pin.createData(), np.array(s.q), np.array(s.v)
    C = pinocchio.computeCoriolisMatrix(pin, data, q, v)
    ours = quick_jit(
        lambda m, q, v: (vlasblom.coriolis_matrix(m, q, v), screw.system_jacobian_rate(m, q, v))
    )(m, s.q, s.v)
    close(ours[0], C)
    pinocchio.computeJointJacobiansTimeVariation(pin, data, q, v)
    swap = [3, 4, 5, 0, 1, 2]
    for i in range(m.nb):
        frame = pinocchio.ReferenceFrame.LOCAL
        dJ = pinocchio.getJointJacobianTimeVariation(pin, data, i + 1, frame)
        close(ours[1][6 * i : 6 * i + 6], dJ[swap])


def test_a_robot_that_cannot_move_and_single_precision():
    """Shapes and dtypes, by tracing only."""
    rock = rbd.build_model(rbd.RobotSpec("rock", (rbd.LinkSpec("base", 1.0),), ()))
    for m in (rock, rbd.samples.random_tree(5, kinds=("free", "helical"))):
        m = jax.tree.map(lambda x: x.astype(jnp.float32), m)
        zeros = lambda *n: jax.ShapeDtypeStruct(n, jnp.float32)  # noqa: E731
        q, v, f = zeros(m.nq), zeros(m.nv), zeros(m.nb, 6)
        shapes = {
            screw.euler_jourdain_torque: ((q, v, v, f), (m.nv,)),
            screw.component_inverse_dynamics: ((q, v, v, f), (m.nv,)),
            screw.lagrange_mass_matrix: ((q,), (m.nv, m.nv)),
            screw.lagrange_coriolis_matrix: ((q, v), (m.nv, m.nv)),
            screw.christoffel_by_brackets: ((q,), (m.nv,) * 3),
            screw.christoffel_by_binet: ((q,), (m.nv,) * 3),
            screw.spatial_momenta: ((q, v), (m.nb, 6)),
            screw.spatial_momentum_rates: ((q, v, v), (m.nb, 6)),
            screw.torque_of_momentum_rates: ((q, f, f), (m.nv,)),
            screw.velocity_of_momenta: ((q, f), (m.nv,)),
            screw.system_jacobian_rate: ((q, v), (6 * m.nb, m.nv)),
            screw.joint_accelerations: ((q, f, f), (m.nv,)),
            screw.acceleration_sums: ((q, v, v), (m.nb, 6)),
            screw.jerk_sums: ((q, v, v, v), (m.nb, 6)),
            screw.poses_by_spatial_screws: ((q,), ((m.nb, 3, 3), (m.nb, 3))),
            vlasblom.christoffel: ((q,), (m.nv,) * 3),
            vlasblom.gravity_wrench: ((q,), (m.nv,)),
        }
        for f_, (arguments, shape) in shapes.items():
            out = jax.eval_shape(f_, m, *arguments)
            got = jax.tree.map(lambda x: x.shape, out)
            assert got == shape, f_.__name__
            assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(out)), f_.__name__
