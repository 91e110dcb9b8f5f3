"""The two-link robot of the notes §8–§10, expanded by hand, and the planar one of textbooks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, within
from support.two_links import expanded, link_inertia, skew

from rbd_jax import screw
from rbd_jax.spatial import inertia, motion, se3, so3

cross = np.cross
STATE = [np.array(x) for x in ((0.4, -0.9), (0.7, 1.3), (-0.5, 0.8))]


@pytest.fixture(scope="module")
def planar():
    """Links of 0.5 m and 0.4 m in the x-y plane, gravity along −y, frames at centers of mass."""
    lengths, centers, masses, about = (0.5, 0.4), (0.2, 0.15), (2.0, 1.5), (0.03, 0.02)
    home = [np.eye(4) for _ in range(2)]
    home[0][0, 3], home[1][0, 3] = centers[0], lengths[0] - centers[0] + centers[1]
    S = np.array([[0, 0, 1, 0, 0, 0], [0, 0, 1, 0, -lengths[0], 0]], dtype=float).T
    G = [link_inertia(np.diag([0.1, 0.1, I]), m) for I, m in zip(about, masses, strict=True)]
    m = screw.from_modern_robotics(home, G, S, gravity=(0.0, -9.81, 0.0))
    return m, (lengths, centers, masses, about)


def test_planar_robot_is_that_of_the_textbooks(planar):
    """§8, §11: M, C by Christoffel symbols, and g of the planar two-link robot."""
    m, ((l1, _), (c1, c2), (m1, m2), (I1, I2)) = planar
    q, v, a = STATE
    h = m2 * l1 * c2
    coupling = I2 + m2 * c2**2 + h * np.cos(q[1])
    M = np.array([[I1 + I2 + m1 * c1**2 + m2 * (l1**2 + c2**2) + 2 * h * np.cos(q[1]), coupling],
                  [coupling, I2 + m2 * c2**2]])  # fmt: skip
    s = h * np.sin(q[1])
    C = np.array([[-s * v[1], -s * (v[0] + v[1])], [s * v[0], 0]])
    g2 = 9.81 * m2 * c2 * np.cos(q[0] + q[1])
    g = np.array([9.81 * (m1 * c1 + m2 * l1) * np.cos(q[0]) + g2, g2])

    def run(m, q, v, a):
        return (
            [screw.inverse_dynamics(m, q, v, a, None, k) for k in screw.REPRESENTATIONS],
            screw.component_inverse_dynamics(m, q, v, a),
            screw.lagrange_mass_matrix(m, q),
            screw.vlasblom.coriolis_matrix(m, q, v),
            screw.vlasblom.gravity_wrench(m, q),
        )

    taus, tau, got_M, got_C, G = quick_jit(run)(m, *(jnp.asarray(x) for x in STATE))
    for t in (*taus, tau):
        assert_close(t, M @ a + C @ v + g)
    assert_close(got_M, M)
    assert_close(got_C, C)
    assert_close(G, -g)


def test_velocity_terms_of_the_expansion():
    """§9, §10: the torques for θ̈ = 0 are quadratic with the Christoffel symbols."""
    m, (q, v, _) = skew()[0], STATE
    terms = expanded(q)

    def run(m, q, v):
        zero = jnp.zeros_like(v)
        return screw.component_inverse_dynamics(m, q, v, zero), screw.christoffel_by_brackets(m, q)

    tau, Gamma = quick_jit(run)(m, jnp.asarray(q), jnp.asarray(v))
    assert_close(tau, terms @ np.array([v[0] ** 2, v[0] * v[1], v[1] ** 2]), atol=1e-11)
    symbols = np.stack([Gamma[:, 0, 0], Gamma[:, 0, 1] + Gamma[:, 1, 0], Gamma[:, 1, 1]], axis=1)
    assert_close(symbols, terms, atol=1e-11)
    # M does not depend on θ1, and M22 not on θ2. So four terms are zero, and two are equal.
    zero = [terms[0, 0], *terms[1, 1:], terms[0, 1] + 2 * terms[1, 0]]
    np.testing.assert_allclose(zero, 0, atol=within(1e-11, 1e-5))
    assert np.abs([*terms[0, 1:], terms[1, 0]]).min() > 1e-3


def test_vanishing_terms():
    """§8.3, §10.5: a link that turns alone needs ``(ω1 × I1 ω1, m1 ω1 × v1)``, but no torque.

    Both parts are zero: z1 · (ω1 × I1 ω1) = 0 and b1 · (ω1 × v1) = 0.
    """
    _, _, A1, _, G = skew()
    one = screw.from_body_screws([A1], [np.eye(4)], G[:1], gravity=(0.0, 0.0, 0.0))
    w, v = 1.7 * A1[:3], 1.7 * A1[3:]

    def run(m, V):
        still, turning = jnp.zeros(1), jnp.array([1.7])
        kinds = screw.REPRESENTATIONS
        torques = [screw.inverse_dynamics(m, still, turning, still, None, k) for k in kinds]
        torques.append(screw.component_inverse_dynamics(m, still, turning, still))
        I10 = inertia.from_com(m.inertia[0, 0], jnp.zeros(3), jnp.asarray(G[0][:3, :3]))
        return screw.body_fixed_wrench(I10, V, jnp.zeros(6)), torques

    wrench, torques = quick_jit(run)(one, jnp.asarray(np.r_[w, v]))
    halves = cross(w, G[0][:3, :3] @ w), G[0][5, 5] * cross(w, v)
    assert_close(wrench, np.r_[halves])
    assert min(np.abs(x).max() for x in halves) > 1e-2
    for x in (A1[:3] @ wrench[:3], A1[3:] @ wrench[3:], *torques):
        assert np.abs(x).max() < within(1e-12, 1e-5)


def test_appendix_identities():
    """[a][b] = b aᵀ − aᵀb 1, [Ra] = R[a]Rᵀ, Ad of products, d/dt Ad_T = Ad_T ad_V (App., §3)."""
    a, b, c, w, x = jax.random.normal(jax.random.key(0), (5, 3))
    R = so3.exp(w)
    assert_close(so3.hat(a) @ so3.hat(b), jnp.outer(b, a) - (a @ b) * jnp.eye(3))
    assert_close(so3.hat(R @ a), R @ so3.hat(a) @ R.T)
    assert_close(a @ so3.hat(b) @ c, c @ so3.hat(a) @ b)
    T, U = (R, a), (so3.exp(x), b)
    assert_close(motion.Ad_matrix(se3.compose(T, U)), motion.Ad_matrix(T) @ motion.Ad_matrix(U))
    assert_close(jnp.linalg.inv(motion.Ad_matrix(T)), motion.Ad_matrix(se3.inverse(T)))
    V = jnp.concatenate([b, c])
    step = lambda t: motion.Ad_matrix(se3.compose(T, se3.exp(t * V)))  # noqa: E731
    rate = jax.jvp(step, (jnp.zeros(()),), (jnp.ones(()),))[1]
    assert_close(rate, motion.Ad_matrix(T) @ motion.ad_matrix(V))
