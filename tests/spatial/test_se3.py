"""SE(3): group axioms, oracles, singular points."""

import jax
import jax.numpy as jnp
import pytest
import scipy.linalg
from support.helpers import assert_close
from support.lie_groups import (
    ANGLES,
    MODES,
    jacobian,
    motion,
    normal,
    poses,
    rotation_vectors,
    screw_matrix,
    screws,
    se3,
    so3,
)


def test_se3_exp_is_the_matrix_exponential():
    xi = screws()
    expected = scipy.linalg.expm(screw_matrix(xi))
    assert_close(se3.matrix(se3.exp(xi)), expected, atol=2e-14)


def test_se3_log_inverts_exp_below_pi():
    xi = screws(ANGLES[:-1])
    assert_close(se3.log(se3.exp(xi)), xi, atol=1e-14)


def test_se3_exp_inverts_log():
    T = so3.exp(rotation_vectors()), 3.0 * normal(len(rotation_vectors()), 3)
    assert_close(se3.exp(se3.log(T)), T, atol=3e-14)


def test_se3_group_axioms():
    A, B, C = (poses(30, seed) for seed in range(3))
    eye = se3.identity()
    ones = jnp.broadcast_to(eye[0], (30, 3, 3)), jnp.broadcast_to(eye[1], (30, 3))
    compose, inverse = se3.compose, se3.inverse
    assert_close(compose(compose(A, B), C), compose(A, compose(B, C)), atol=1e-14)
    assert_close(compose(A, inverse(A)), ones, atol=1e-14)
    assert_close(compose(inverse(A), A), ones, atol=1e-14)
    assert_close(compose(A, ones), A, atol=0)
    assert_close(se3.matrix(compose(A, B)), se3.matrix(A) @ se3.matrix(B), atol=1e-14)
    x = normal(30, 3)
    assert_close(se3.act(compose(A, B), x), se3.act(A, se3.act(B, x)), atol=1e-14)


def _left_screws(T, dT):
    """The screws ``(dT T⁻¹)^∨`` of the derivatives on the last axis, as columns."""

    def one(dR, dp):
        W = dR @ T[0].T
        return jnp.concatenate([so3.vee(W), dp - W @ T[1]])

    return jax.vmap(one, in_axes=-1, out_axes=-1)(*dT)


@MODES
def test_se3_left_jacobian_is_the_derivative_of_exp(mode):
    xi = screws((*ANGLES, 4.0, 6.0))
    columns = jax.vmap(_left_screws)(se3.exp(xi), jacobian(se3.exp, mode)(xi))
    assert_close(se3.left_jacobian(xi), columns, atol=1e-9 if mode == "difference" else 2e-14)


def test_se3_right_jacobian_is_the_left_one_seen_from_the_other_side():
    xi = screws()
    expected = jnp.linalg.solve(motion.Ad_matrix(se3.exp(xi)), se3.left_jacobian(xi))
    assert_close(se3.right_jacobian(xi), expected, atol=2e-14)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_derivative_of_se3_log_up_to_and_at_pi(mode):
    T = se3.exp(screws())
    f = {"forward": jax.jacfwd, "reverse": jax.jacrev}[mode](
        lambda e, T: se3.log(se3.compose(se3.exp(e), T))
    )
    J = jax.jit(jax.vmap(f, in_axes=(None, 0)))(jnp.zeros(6), T)
    assert_close(J, se3.left_jacobian_inverse(se3.log(T)), atol=1e-12)
