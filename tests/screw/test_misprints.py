"""Equations of the papers in printed and in corrected form, on chains of skew axes."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, random_state, within
from support.two_links import expanded, skew

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.spatial import inertia, motion, se3, so3

RNG = np.random.default_rng(8)
hat = lambda x: np.cross(x, np.eye(3)).T  # noqa: E731


def Ad(R, r=(0.0, 0.0, 0.0)) -> np.ndarray:
    return np.block([[R, np.zeros((3, 3))], [hat(r) @ R, R]])


def ad(X) -> np.ndarray:
    return np.block([[hat(X[:3]), np.zeros((3, 3))], [hat(X[3:]), hat(X[:3])]])


def ad_v(v) -> np.ndarray:
    """``ad`` of (0, v). Source: Müller (119)."""
    return ad(np.r_[np.zeros(3), v])


@pytest.fixture(scope="module")
def chain():
    """Four skew joints, their motion in hybrid twists and in body-fixed ones."""
    m = rbd.samples.random_tree(3, kinds=("revolute", "helical", "prismatic", "revolute"))
    s = random_state(m, 2)

    def run(m, s):
        R, r = rbd.forward_kinematics(m, s.q)
        V = {k: screw.twists(m, s.q, s.v, k) for k in ("hybrid", "body_fixed")}
        dV = {k: screw.accelerations(m, s.q, s.v, s.a, k) for k in ("hybrid", "body_fixed")}
        return R, r, V, dV, screw.hybrid.joint_screws(m, R), rbd.model.motion_subspace(m)

    return m, s, jax.tree.map(np.asarray, quick_jit(run)(m, s))


def test_hybrid_accelerations(chain):
    """Müller (72) and (74) hold. The term in V_{i−1} of (73) needs ṙ_{i−1}, not ṙ_{i,i−1}."""
    m, s, (_, r, V, dV, X, _) = chain
    gaps = {72: 0.0, "73": 0.0, "73 printed": 0.0, 74: 0.0}
    for i, p in enumerate(m.topology.parents):
        if p < 0:
            continue
        d, Vi, Vp, Xv = r[p] - r[i], V["hybrid"][i], V["hybrid"][p], X[i] * s.v[i]
        dr, dr_p, dr_i = Vp[3:] - Vi[3:], Vp[3:], Vi[3:]
        common = Ad(np.eye(3), d) @ dV["hybrid"][p] + X[i] * s.a[i]
        w = np.r_[Vi[:3], np.zeros(3)]
        tails = {
            72: ad_v(dr) @ Vp + ad(w) @ Xv,
            "73": ad_v(dr_p) @ Vp - ad_v(dr_i) @ Vi + ad(Vi) @ Xv,
            "73 printed": ad_v(dr) @ Vp - ad_v(dr_i) @ Vi + ad(Vi) @ Xv,
            74: ad_v(dr) @ Vi + (ad(Vi) - ad_v(dr_p)) @ Xv,
        }
        for k, tail in tails.items():
            gaps[k] = max(gaps[k], np.abs(common + tail - dV["hybrid"][i]).max())
    assert gaps.pop("73 printed") > 0.1
    assert max(gaps.values()) < within(1e-12, 1e-5)


def test_hybrid_accelerations_by_each_recursion():
    """(72), the corrected (73), and (74) agree on a tree with joints of many kinds."""
    m = rbd.samples.random_tree(1, kinds=("free", "revolute", "spherical", "helical", "prismatic"))
    s = random_state(m, 1)

    def run(m, s):
        forms = [screw.hybrid_accelerations(m, s.q, s.v, s.a, k) for k in (72, 73, 74)]
        twists = lambda q, v: screw.twists(m, q, v, "hybrid")  # noqa: E731
        rate = rbd.rate_from_velocity(m, s.q, s.v), s.a
        return forms, jax.jvp(twists, (s.q, s.v), rate)[1]

    forms, expected = quick_jit(run)(m, s)
    for form in forms:
        assert_close(form, expected, atol=1e-11)
    with pytest.raises(ValueError, match="equation must be 72, 73 or 74, got 75"):
        inspect.unwrap(screw.hybrid_accelerations)(m, s.q, s.v, s.a, 75)


def test_joint_acceleration_of_remark_3(chain):
    """The first term is V̇_i, which is printed without the dot."""
    m, s, (R, r, V, dV, _, X) = chain
    V, dV, wrong = V["body_fixed"], dV["body_fixed"], 0.0
    for i, p in enumerate(m.topology.parents):
        if p < 0:
            continue
        down = Ad(R[i].T @ R[p], R[i].T @ (r[p] - r[i]))
        rest = -down @ dV[p] + ad(V[i]) @ down @ V[p]
        norm = X[i] @ X[i]
        assert abs(X[i] @ (dV[i] + rest) / norm - s.a[i]) < within(1e-12, 1e-5)
        wrong = max(wrong, abs(X[i] @ (V[i] + rest) / norm - s.a[i]))
    assert wrong > 0.1


def _bodies():
    """A rotation, a position and an inertia in general position."""
    xi, A = RNG.normal(size=(2, 6)), RNG.normal(size=(4, 4))
    C = [np.array(se3.matrix(se3.exp(jnp.asarray(x)))) for x in xi]
    return C, np.array(inertia.from_pseudo(jnp.asarray(A @ A.T)))


def test_inertia_in_other_axes():
    """(64) needs R_{j,k}, from axes k to axes j. With R_{k,j}, as printed, the energy changes."""
    (Cj, Ck), I10 = _bodies()
    M = np.array(inertia.matrix(jnp.asarray(I10)))  # of frame j
    R_jk = Cj[:3, :3].T @ Ck[:3, :3]
    V_j = RNG.normal(size=6)
    V_k = Ad(R_jk.T) @ V_j
    energy = lambda R: V_k @ Ad(R).T @ M @ Ad(R) @ V_k  # noqa: E731
    assert abs(energy(R_jk) - V_j @ M @ V_j) < within(1e-12, 1e-3)
    assert abs(energy(R_jk.T) - V_j @ M @ V_j) > 0.1


def test_inertia_of_binet_in_another_frame():
    """The form before (87) is not symmetric. With Ad⁻¹ it is, but it is not Binet's inertia."""
    (C, _), I10 = _bodies()
    R, d = C[:3, :3], C[:3, 3]
    m = I10[0]
    Theta = np.array(inertia.inertia_com(jnp.asarray(I10)))
    binet = 0.5 * np.trace(Theta) * np.eye(3) - Theta
    at_com = np.block([[binet, np.zeros((3, 3))], [np.zeros((3, 3)), m * np.eye(3)]])
    S = Ad(R, d)
    printed = np.linalg.inv(S).T @ at_com @ S
    assert np.abs(printed - printed.T).max() > 0.1
    moved = np.linalg.inv(S).T @ at_com @ np.linalg.inv(S)
    assert_close(moved[:3, :3], R @ binet @ R.T - m * hat(d) @ hat(d))
    second = R @ binet @ R.T + m * np.outer(d, d)  # ½ tr(Θ) 1 − Θ about the other point
    about = R @ Theta @ R.T - m * hat(d) @ hat(d)
    assert_close(second, 0.5 * np.trace(about) * np.eye(3) - about)
    assert np.abs(moved[:3, :3] - second).max() > 0.1
    P = np.block([[binet, np.zeros((3, 1))], [np.zeros((1, 3)), m * np.eye(1)]])
    assert_close((C @ P @ C.T)[:3, :3], second)


def test_rates_of_hybrid_jacobians(chain):
    """(27) and (30) hold with Ad_{r_ij}; (27) is printed with Ad_{r_{i,j−1}}."""
    m, s, (R, r, V, _, X, _) = chain

    def rate(m, s):
        dq = rbd.rate_from_velocity(m, s.q, s.v)
        return jax.jvp(lambda q: screw.jacobians(m, q, "hybrid"), (s.q,), (dq,))[1]

    dJ, wrong = np.asarray(quick_jit(rate)(m, s)), 0.0
    for i in range(m.nb):
        for j in np.flatnonzero(m.topology.tree.ancestor_mask[i]):
            p = m.topology.parents[j]
            d, dd = r[j] - r[i], V["hybrid"][j, 3:] - V["hybrid"][i, 3:]
            turned = ad(np.r_[V["hybrid"][j, :3], np.zeros(3)]) @ X[j]
            assert_close(dJ[i, :, j], ad_v(dd) @ X[j] + Ad(np.eye(3), d) @ turned, atol=1e-12)
            if p >= 0:
                other = ad_v(dd) @ X[j] + Ad(np.eye(3), r[p] - r[i]) @ turned
                wrong = max(wrong, np.abs(dJ[i, :, j] - other).max())
    assert wrong > 0.1


def test_torque_of_the_second_link():
    """In the notes §10.3 two terms belong to other products of velocities, and one lacks × z₂."""
    _, M12, A1, A2, (_, G2) = skew()
    q = np.array([0.4, -0.9])
    T12 = M12 @ np.array(se3.matrix(se3.exp(jnp.asarray(A2 * q[1]))))
    R, p = T12[:3, :3].T, -T12[:3, :3].T @ T12[:3, 3]
    z1, b1, z2, b2, I2, m2 = A1[:3], A1[3:], A2[:3], A2[3:], G2[:3, :3], G2[5, 5]
    a, cross = R @ z1, np.cross
    force = cross(a, cross(p, a)) + R @ cross(z1, b1)
    # Coefficients of θ̇1², θ̇1 θ̇2, θ̇2². The force at θ̇1 θ̇2 is 2 m₂ R z1 × b2, normal to b2.
    right = [
        z2 @ cross(a, I2 @ a) + m2 * b2 @ force,
        z2 @ (cross(a, I2 @ z2) + cross(z2, I2 @ a) + I2 @ cross(a, z2)),
        0.0,
    ]
    printed = [
        z2 @ cross(a, I2 @ a) + m2 * b2 @ (cross(a, cross(p, a)) + cross(p, a)),
        z2 @ (cross(a, z2) + cross(z2, I2 @ a)) + m2 * b2 @ R @ cross(z1, b1),
        0.0,
    ]
    expected = expanded(q)[1]
    assert_close(np.array(right), expected, atol=1e-12)
    assert (np.abs(np.array(printed) - expected)[:2] > 1e-2).all()


def test_velocity_that_the_adjoint_comes_from():
    """In the notes §3.1, Ṫ T⁻¹ is the spatial twist. The body velocity is T⁻¹ Ṫ (appendix)."""
    xi, V = RNG.normal(size=(2, 6))
    T = np.array(se3.matrix(se3.exp(jnp.asarray(xi))))
    V_hat = np.block([[hat(V[:3]), V[3:, None]], [np.zeros((1, 4))]])
    dT = T @ V_hat  # with the body velocity V
    spatial = dT @ np.linalg.inv(T)
    moved = motion.to_parent((jnp.asarray(T[:3, :3]), jnp.asarray(T[:3, 3])), jnp.asarray(V))
    assert_close(np.r_[np.array(so3.vee(jnp.asarray(spatial[:3, :3]))), spatial[:3, 3]], moved)
    assert np.abs(np.asarray(moved) - V).max() > 0.1
