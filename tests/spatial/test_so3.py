"""SO(3) and quaternions: group axioms, oracles, singular points."""

from math import pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.helpers import assert_close, central_difference
from support.lie_groups import (
    ANGLES,
    AXES,
    EPS,
    GROUPS,
    MODES,
    jacobian,
    normal,
    rotation_vectors,
    screws,
    se3,
    so3,
)

SECOND = pytest.mark.parametrize(
    "second",
    [
        lambda f: jax.jacfwd(jax.jacfwd(f)),
        lambda f: jax.jacfwd(jax.jacrev(f)),
        lambda f: jax.jacrev(jax.jacfwd(f)),
        lambda f: jax.jacrev(jax.jacrev(f)),
    ],
    ids=["fwd-fwd", "fwd-rev", "rev-fwd", "rev-rev"],
)


# --- SO(3) ---------------------------------------------------------------------------------------


def test_exp_is_the_rotation_of_the_vector():
    w = rotation_vectors()
    assert_close(so3.exp(w), Rotation.from_rotvec(np.array(w)).as_matrix(), atol=4 * EPS)


def test_about_is_exp_along_the_axis():
    angle = jnp.linspace(-7.0, 7.0, len(AXES))
    axes = jnp.asarray(AXES)
    assert_close(so3.about(axes, angle), so3.exp(angle[:, None] * axes), atol=8 * EPS)


def test_so3_group_axioms():
    A, B, C = (so3.exp(jnp.roll(rotation_vectors(), k, axis=0)) for k in (0, 5, 31))
    eye = jnp.broadcast_to(jnp.eye(3), A.shape)
    assert_close(so3.matmul(so3.matmul(A, B), C), so3.matmul(A, so3.matmul(B, C)), atol=1e-15)
    assert_close(so3.matmul(A, so3.transpose(A)), eye, atol=8 * EPS)
    assert_close(jnp.linalg.det(A), jnp.ones(len(A)), atol=8 * EPS)
    assert_close(so3.matmul(A, B), jnp.einsum("bij,bjk->bik", A, B), atol=4 * EPS)


@pytest.mark.float64
def test_log_inverts_exp_to_full_relative_accuracy_below_pi():
    w = rotation_vectors(ANGLES[:-1])
    error = jnp.linalg.norm(so3.log(so3.exp(w)) - w, axis=-1)
    assert jnp.all(error <= 16 * EPS * jnp.linalg.norm(w, axis=-1))


def test_log_at_pi_is_one_of_the_two_vectors():
    w = rotation_vectors((pi,))
    back = so3.log(so3.exp(w))
    sign = jnp.sign(so3.dot(back, w))[:, None]
    assert_close(sign * back, w, atol=1e-15)


def test_exp_inverts_log():
    R = jnp.asarray(Rotation.random(200, random_state=0).as_matrix())
    assert_close(so3.exp(so3.log(R)), R, atol=16 * EPS)
    assert jnp.all(jnp.linalg.norm(so3.log(R), axis=-1) <= pi)


def test_hat_vee_cross():
    a, b = normal(20, 3), normal(20, 3, seed=1)
    assert_close(so3.cross(a, b), jnp.cross(a, b), atol=4 * EPS)
    assert_close(so3.rotate(so3.hat(a), b), jnp.cross(a, b), atol=4 * EPS)
    assert_close(so3.vee(so3.hat(a)), a, atol=0)
    R = so3.exp(a)
    assert_close(so3.rotate(R, b), jnp.einsum("bij,bj->bi", R, b), atol=8 * EPS)
    assert_close(so3.rotate_inverse(R, b), jnp.einsum("bji,bj->bi", R, b), atol=8 * EPS)


def _left_columns(R, dR):
    """The vectors ``(dR Rᵀ)^∨`` of the derivatives on the last axis, as columns."""
    return jax.vmap(lambda D: so3.vee(D @ R.T), in_axes=-1, out_axes=-1)(dR)


@MODES
def test_left_jacobian_is_the_derivative_of_exp(mode):
    w = rotation_vectors((*ANGLES, 4.0, 6.0))
    columns = jax.vmap(_left_columns)(so3.exp(w), jacobian(so3.exp, mode)(w))
    assert_close(so3.left_jacobian(w), columns, atol=1e-10 if mode == "difference" else 1e-14)


@GROUPS
def test_jacobian_inverses(group, points):
    x = points((*ANGLES, 4.0, 6.0))
    eye = jnp.broadcast_to(jnp.eye(x.shape[1]), (len(x), x.shape[1], x.shape[1]))
    for side in ("left", "right"):
        J = getattr(group, f"{side}_jacobian")(x)
        inverse = getattr(group, f"{side}_jacobian_inverse")(x)
        scale = jnp.linalg.norm(inverse, axis=(1, 2), keepdims=True)
        assert_close((J @ inverse) / scale, eye / scale, atol=1e-14)


def test_right_jacobian_is_the_left_one_seen_from_the_other_side():
    w = rotation_vectors()
    expected = so3.matmul(so3.transpose(so3.exp(w)), so3.left_jacobian(w))
    assert_close(so3.right_jacobian(w), expected, atol=1e-15)


def _unwrap(w, near):
    """Of the two rotation vectors of one rotation, the one closer to ``near``."""
    length = jnp.linalg.norm(w)
    other = w * (1 - 2 * pi / jnp.where(length > 0, length, 1.0))
    return jnp.where(jnp.linalg.norm(w - near) < 1.0, w, other)


@MODES
def test_derivative_of_log_up_to_and_at_pi(mode):
    R = so3.exp(rotation_vectors())

    def moved(e, R):
        w = so3.log(so3.exp(e) @ R)
        return _unwrap(w, so3.log(R)) if mode == "difference" else w

    f = {"forward": jax.jacfwd, "reverse": jax.jacrev}.get(
        mode, lambda f: lambda e, R: central_difference(lambda d: f(d, R), e)
    )(moved)
    J = jax.jit(jax.vmap(f, in_axes=(None, 0)))(jnp.zeros(3), R)
    expected = so3.left_jacobian_inverse(so3.log(R))
    assert_close(J, expected, atol=1e-10 if mode == "difference" else 1e-13)


@SECOND
def test_second_derivative_of_exp_at_zero(second):
    E = np.asarray(so3.hat(jnp.eye(3)))
    expected = np.einsum("iab,jbc->acij", E, E)
    expected = 0.5 * (expected + np.swapaxes(expected, 2, 3))
    assert_close(jax.jit(second(so3.exp))(jnp.zeros(3)), expected, atol=1e-15)


CHARTS = {
    "matrix": (lambda w: so3.log(so3.exp(w)), rotation_vectors),
    "quaternion": (lambda w: so3.quat_log(so3.quat_exp(w)), rotation_vectors),
    "pose": (lambda xi: se3.log(se3.exp(xi)), screws),
}


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("chart", CHARTS)
def test_derivative_of_log_of_exp_is_one(chart, mode):
    f, points = CHARTS[chart]
    x = points(ANGLES[:-1])
    J = jacobian(f, mode)(x)
    assert_close(J, jnp.broadcast_to(jnp.eye(x.shape[1]), J.shape), atol=2e-14)


@SECOND
@pytest.mark.parametrize(
    "chart", ["quaternion", *(pytest.param(n, marks=pytest.mark.slow) for n in ("matrix", "pose"))]
)
def test_second_derivative_of_log_of_exp_is_zero(chart, second):
    f, points = CHARTS[chart]
    x = points(ANGLES[:-1])
    H = jax.jit(jax.vmap(second(f)))(x)
    assert_close(H, jnp.zeros_like(H), atol=1e-12)


# --- quaternions ---------------------------------------------------------------------------------


def test_quaternions_agree_with_matrices():
    w = rotation_vectors()
    q, p = so3.quat_exp(w), so3.quat_exp(jnp.roll(w, 17, axis=0))
    R, P = so3.exp(w), so3.exp(jnp.roll(w, 17, axis=0))
    assert_close(so3.quat_to_matrix(q), R, atol=8 * EPS)
    assert_close(so3.quat_to_matrix(so3.quat_multiply(q, p)), so3.matmul(R, P), atol=16 * EPS)
    assert_close(so3.quat_to_matrix(so3.quat_conjugate(q)), so3.transpose(R), atol=8 * EPS)
    assert_close(so3.dot(q, q), jnp.ones(len(q)), atol=4 * EPS)
    expected = Rotation.from_rotvec(np.array(w)).as_quat(scalar_first=True)
    sign = jnp.sign(so3.dot(q, jnp.asarray(expected)))[:, None]
    assert_close(sign * q, expected, atol=4 * EPS)


def test_quat_from_matrix_at_every_rotation():
    q = so3.quat_exp(rotation_vectors())
    back = so3.quat_from_matrix(so3.quat_to_matrix(q))
    sign = jnp.sign(so3.dot(q, back))[:, None]
    assert_close(sign * back, q, atol=8 * EPS)


def test_quat_log_takes_the_short_way():
    q = so3.quat_exp(rotation_vectors(ANGLES[:-1]))
    assert_close(so3.quat_log(-q), so3.quat_log(q), atol=0)
    assert_close(so3.quat_log(so3.quat_exp(rotation_vectors((4.0,)))),
                 rotation_vectors((4.0 - 2 * pi,)), atol=1e-14)  # fmt: skip


@MODES
def test_derivative_of_quat_from_matrix_at_every_rotation(mode):
    """``q̇ = ½ q ⊗ (0, e)`` along ``R exp(e)``, also where two components are equally large."""
    R = so3.exp(rotation_vectors())

    def moved(e, R, q):
        p = so3.quat_from_matrix(R @ so3.exp(e))
        return p * jnp.sign(so3.dot(p, q)) if mode == "difference" else p

    f = {"forward": jax.jacfwd, "reverse": jax.jacrev}.get(
        mode, lambda f: lambda e, R, q: central_difference(lambda d: f(d, R, q), e)
    )(moved)
    q = so3.quat_from_matrix(R)
    J = jax.jit(jax.vmap(f, in_axes=(None, 0, 0)))(jnp.zeros(3), R, q)
    basis = jnp.concatenate([jnp.zeros((3, 1)), jnp.eye(3)], axis=1)
    expected = 0.5 * so3.quat_multiply(q[:, None, :], basis[None])
    tolerance = 1e-11 if mode == "difference" else 16 * EPS
    assert_close(J, so3.transpose(expected), atol=tolerance)


def test_quat_normalize_has_no_derivative_along_the_quaternion():
    q = 3.0 * normal(20, 4)
    J = jax.vmap(jax.jacrev(so3.quat_normalize))(q)
    assert_close(jnp.einsum("bij,bj->bi", J, q), jnp.zeros((20, 4)), atol=8 * EPS)
