"""Twists, wrenches and inertias: adjoint maps, brackets, changes of frame."""

from math import pi

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from support.helpers import assert_close
from support.lie_groups import EPS, inertia, motion, normal, poses, screw_matrix, screws, se3, so3


def inertias(n: int, seed: int = 0) -> jnp.ndarray:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, 4, 4))
    return inertia.from_pseudo(jnp.asarray(A @ np.swapaxes(A, 1, 2)))


# --- twists and wrenches -------------------------------------------------------------------------


def _mul(M, x):
    return jnp.einsum("bij,bj->bi", M, x)


def test_adjoint_maps_against_their_matrices():
    T, V = poses(30), normal(30, 6, seed=3)
    Ad = motion.Ad_matrix(T)
    inverse = jnp.linalg.inv(Ad)
    assert_close(motion.to_parent(T, V), _mul(Ad, V), atol=1e-14)
    assert_close(motion.to_child(T, V), _mul(inverse, V), atol=3e-14)
    assert_close(motion.wrench_to_parent(T, V), _mul(so3.transpose(inverse), V), atol=3e-14)
    assert_close(motion.wrench_to_child(T, V), _mul(so3.transpose(Ad), V), atol=1e-14)


def test_adjoint_is_a_homomorphism():
    A, B = poses(30), poses(30, seed=1)
    expected = motion.Ad_matrix(A) @ motion.Ad_matrix(B)
    assert_close(motion.Ad_matrix(se3.compose(A, B)), expected, atol=1e-14)


def test_adjoint_moves_a_screw_matrix():
    """``[Ad_T V] = T [V] T⁻¹``, the definition (Kim (6))."""
    T, V = poses(30), normal(30, 6)
    M = np.asarray(se3.matrix(T))
    expected = M @ screw_matrix(V) @ np.linalg.inv(M)
    assert_close(screw_matrix(motion.to_parent(T, V)), expected, atol=3e-14)


def test_power_does_not_depend_on_the_frame():
    T, V, F = poses(30), normal(30, 6), normal(30, 6, seed=1)
    power = so3.dot(V, F)
    assert_close(so3.dot(motion.to_parent(T, V), motion.wrench_to_parent(T, F)), power, atol=3e-14)
    assert_close(so3.dot(motion.to_child(T, V), motion.wrench_to_child(T, F)), power, atol=3e-14)


def test_cross_products_against_their_matrices():
    V, W = normal(30, 6), normal(30, 6, seed=1)
    ad = motion.ad_matrix(V)
    assert_close(motion.cross_twist(V, W), _mul(ad, W), atol=1e-14)
    assert_close(motion.cross_wrench(V, W), -_mul(so3.transpose(ad), W), atol=1e-14)
    commutator = screw_matrix(V) @ screw_matrix(W) - screw_matrix(W) @ screw_matrix(V)
    assert_close(screw_matrix(motion.cross_twist(V, W)), commutator, atol=1e-14)


def test_lie_bracket_identities():
    x = motion.cross_twist
    U, V, W, T = (*normal(3, 30, 6), poses(30))
    assert_close(x(V, W), -x(W, V), atol=0)
    jacobi = x(U, x(V, W)) + x(V, x(W, U)) + x(W, x(U, V))
    assert_close(jacobi, jnp.zeros_like(U), atol=3e-14)
    moved = x(motion.to_parent(T, V), motion.to_parent(T, W))
    assert_close(motion.to_parent(T, x(V, W)), moved, atol=3e-14)


def test_adjoint_of_exp_is_the_exponential_of_ad():
    xi = screws((0.0, 1e-8, 1.0, pi))
    expected = scipy.linalg.expm(np.asarray(motion.ad_matrix(xi)))
    assert_close(motion.Ad_matrix(se3.exp(xi)), expected, atol=3e-14)


# --- inertias ------------------------------------------------------------------------------------


def test_inertia_conversions_invert_each_other():
    I10 = inertias(30)
    parts = inertia.mass(I10), inertia.com(I10), inertia.inertia_com(I10)
    scale = float(jnp.max(jnp.abs(I10)))
    assert_close(inertia.from_com(*parts), I10, atol=8 * EPS * scale)
    assert_close(inertia.from_matrix(inertia.matrix(I10)), I10, atol=0)
    assert_close(inertia.from_pseudo(inertia.pseudo(I10)), I10, atol=8 * EPS * scale)


def test_inertia_of_point_masses():
    """All forms against sums over the points that a body is made of."""
    x, m = normal(8, 3), jnp.abs(normal(8, seed=1)) + 0.1
    X = so3.hat(x)
    J = jnp.einsum("b,bki,bkj->ij", m, X, X)
    c = m @ x / m.sum()
    I10 = inertia.from_com(m.sum(), c, J - m.sum() * so3.hat(c).T @ so3.hat(c))
    x1 = jnp.concatenate([x, jnp.ones((8, 1))], axis=1)
    assert_close(inertia.rotational(I10), J, atol=1e-14)
    assert_close(inertia.com(I10), c, atol=1e-15)
    assert_close(inertia.pseudo(I10), jnp.einsum("b,bi,bj->ij", m, x1, x1), atol=1e-14)
    V = normal(6)
    speeds = V[None, 3:] + so3.cross(V[None, :3], x)
    assert_close(V @ inertia.apply(I10, V), m @ so3.dot(speeds, speeds), atol=2e-14)
    momentum = jnp.concatenate([m @ so3.cross(x, speeds), m @ speeds])
    assert_close(inertia.apply(I10, V), momentum, atol=2e-14)


def test_apply_is_the_matrix():
    I10, V = inertias(30), normal(30, 6)
    assert_close(inertia.apply(I10, V), _mul(inertia.matrix(I10), V), rtol=1e-14, atol=1e-13)


def test_inertia_in_another_frame_kim_21():
    """``I' = Ad*_{T⁻¹} I Ad_{T⁻¹}``, and the kinetic energy stays."""
    T, I10, V = poses(30), inertias(30), normal(30, 6)
    moved = inertia.to_parent(T, I10)
    inverse = jnp.linalg.inv(motion.Ad_matrix(T))
    expected = so3.transpose(inverse) @ inertia.matrix(I10) @ inverse
    scale = float(jnp.max(jnp.abs(expected)))
    assert_close(inertia.matrix(moved) / scale, expected / scale, atol=1e-14)
    V_parent = motion.to_parent(T, V)
    energy = so3.dot(V_parent, inertia.apply(moved, V_parent))
    assert_close(energy, so3.dot(V, inertia.apply(I10, V)), rtol=1e-12)


def test_pseudo_inertia_moves_like_points():
    T, I10 = poses(30), inertias(30)
    M = se3.matrix(T)
    expected = M @ inertia.pseudo(I10) @ so3.transpose(M)
    assert_close(inertia.pseudo(inertia.to_parent(T, I10)), expected, rtol=1e-13, atol=1e-13)


def test_body_without_mass_has_its_com_at_the_origin():
    f = lambda I10: jnp.sum(inertia.com(I10))  # noqa: E731
    assert_close(inertia.com(jnp.zeros(10)), jnp.zeros(3), atol=0)
    chex.assert_tree_all_finite(jax.grad(f)(jnp.zeros(10)))
