"""SO(3), SE(3), twists, wrenches and inertias: group axioms, Jacobians, singular points."""

from fractions import Fraction
from math import factorial, pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.spatial.transform import Rotation
from support.helpers import Compiled, assert_close, cast, central_difference, jit

from rbd_jax import spatial
from rbd_jax.spatial import _series as scalar_series

so3, se3, motion, inertia = map(
    Compiled, (spatial.so3, spatial.se3, spatial.motion, spatial.inertia)
)

EPS = np.finfo(float).eps
SMALL = (0.0, 1e-12, 1e-9, 1e-8, 1e-6, 1e-4, 1e-3)
# 0.4027 and 1 are where the functions of _series switch; π/2 and 2π/3 are ties in quat_from_matrix
MIDDLE = (0.1, 0.4027, 0.403, 1 - 1e-9, 1.0, 1 + 1e-9, pi / 2, 2.0, 2 * pi / 3, 3.0)
NEAR_PI = (pi - 1e-3, pi - 1e-6, pi - 1e-9)
ANGLES = (*SMALL, *MIDDLE, *NEAR_PI, pi)
_axes = np.array(
    [[1, 0, 0], [0, -1, 0], [0, 0, 1], [1, 1, 0], [1, -1, 1], [-1, 2, 0.5], [3, 1, -2]]
)
AXES = _axes / np.linalg.norm(_axes, axis=1, keepdims=True)


def rotation_vectors(angles=ANGLES) -> jnp.ndarray:
    """Every angle about every axis, (n, 3)."""
    return jnp.asarray((np.array(angles)[:, None, None] * AXES).reshape(-1, 3))


def screws(angles=ANGLES) -> jnp.ndarray:
    """Every angle about every axis with a random translation, (n, 6)."""
    w = rotation_vectors(angles)
    return jnp.concatenate([w, normal(len(w), 3, seed=5)], axis=1)


def normal(*shape: int, seed: int = 0) -> jnp.ndarray:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def poses(n: int, seed: int = 0) -> se3.Pose:
    xi = normal(n, 6, seed=seed)
    return so3.exp(xi[:, :3]), xi[:, 3:]


def inertias(n: int, seed: int = 0) -> jnp.ndarray:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, 4, 4))
    return inertia.from_pseudo(jnp.asarray(A @ np.swapaxes(A, 1, 2)))


def jacobian(f, mode):
    """The Jacobian of ``f`` in one way of three, mapped over the leading axis, compiled."""
    modes = {
        "forward": jax.jacfwd,
        "reverse": jax.jacrev,
        "difference": lambda f: lambda x: central_difference(f, x),
    }
    return jax.jit(jax.vmap(modes[mode](f)))


GROUPS = pytest.mark.parametrize(
    "group, points", [(so3, rotation_vectors), (se3, screws)], ids=["so3", "se3"]
)
MODES = pytest.mark.parametrize("mode", ["forward", "reverse", "difference"])
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


# --- the scalar functions of θ² ------------------------------------------------------------------


def _series(offset: int):
    return [Fraction((-1) ** k, factorial(2 * k + offset)) for k in range(40)]


def _derivative(c):
    return [k * c[k] for k in range(1, len(c))]


def _at(c, x: Fraction) -> Fraction:
    y = Fraction(0)
    for a in reversed(c):
        y = y * x + a
    return y


def _exact(c, x: float) -> list[float]:
    """Value and two derivatives of a power series, in exact arithmetic."""
    d = _derivative(c)
    return [float(_at(s, Fraction(x))) for s in (c, d, _derivative(d))]


def _exact_cotc(x: float) -> list[float]:
    """The same for cotc, the quotient of ``(sin h / h − cos h) / h²`` and ``4 sin h / h``."""
    h2 = Fraction(x) / 4
    n = [b - a for a, b in zip(_series(0)[1:], _series(1)[1:], strict=True)]
    n0, n1, n2 = (_at(s, h2) for s in (n, _derivative(n), _derivative(_derivative(n))))
    d = _series(1)
    d0, d1, d2 = (_at(s, h2) for s in (d, _derivative(d), _derivative(_derivative(d))))
    f0 = n0 / d0
    f1 = (n1 - f0 * d1) / d0
    f2 = (n2 - 2 * f1 * d1 - f0 * d2) / d0
    return [float(f0 / 4), float(f1 / 16), float(f2 / 64)]


SMALL_FUNCTIONS = {
    "cos_theta": lambda x: _exact(_series(0), x),
    "sinc": lambda x: _exact(_series(1), x),
    "cosc": lambda x: _exact(_series(2), x),
    "sinc3": lambda x: _exact(_series(3), x),
    "cosc4": lambda x: _exact(_series(4), x),
    "sinc5": lambda x: _exact(_series(5), x),
    "cotc": _exact_cotc,
}


@pytest.mark.parametrize("name", SMALL_FUNCTIONS)
def test_small_functions_and_two_derivatives_are_exact(name):
    f = getattr(scalar_series, name)
    xs = np.array([t * t for t in ANGLES])
    expected = np.array([SMALL_FUNCTIONS[name](x) for x in xs]).T
    forms = [f, jax.grad(f), jax.grad(jax.grad(f))], [f, jax.jacfwd(f), jax.jacfwd(jax.jacfwd(f))]
    for ladder in forms:
        actual = jnp.stack([jax.jit(jax.vmap(g))(jnp.asarray(xs)) for g in ladder])
        assert_close(actual, expected, atol=20 * EPS)


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
    "chart", ["matrix", "quaternion", pytest.param("pose", marks=pytest.mark.slow)]
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


# --- SE(3) ---------------------------------------------------------------------------------------


def _screw_matrix(xi) -> np.ndarray:
    xi = np.asarray(xi)
    M = np.zeros((*xi.shape[:-1], 4, 4))
    M[..., :3, :3], M[..., :3, 3] = so3.hat(jnp.asarray(xi[..., :3])), xi[..., 3:]
    return M


def test_se3_exp_is_the_matrix_exponential():
    xi = screws()
    expected = scipy.linalg.expm(_screw_matrix(xi))
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
    expected = M @ _screw_matrix(V) @ np.linalg.inv(M)
    assert_close(_screw_matrix(motion.to_parent(T, V)), expected, atol=3e-14)


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
    commutator = _screw_matrix(V) @ _screw_matrix(W) - _screw_matrix(W) @ _screw_matrix(V)
    assert_close(_screw_matrix(motion.cross_twist(V, W)), commutator, atol=1e-14)


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
    assert jnp.all(jnp.isfinite(jax.grad(f)(jnp.zeros(10))))


# --- shapes and dtypes ---------------------------------------------------------------------------

ON_BATCHES = {
    "so3.exp": (so3.exp, [(3,)]),
    "so3.about": (so3.about, [(3,), ()]),
    "so3.log": (so3.log, [(3, 3)]),
    "so3.left_jacobian": (so3.left_jacobian, [(3,)]),
    "so3.left_jacobian_inverse": (so3.left_jacobian_inverse, [(3,)]),
    "so3.quat_from_matrix": (so3.quat_from_matrix, [(3, 3)]),
    "so3.quat_log": (so3.quat_log, [(4,)]),
    "so3.quat_multiply": (so3.quat_multiply, [(4,), (4,)]),
    "se3.exp": (se3.exp, [(6,)]),
    "se3.log": (lambda R, p: se3.log((R, p)), [(3, 3), (3,)]),
    "se3.matrix": (lambda R, p: se3.matrix((R, p)), [(3, 3), (3,)]),
    "se3.left_jacobian": (se3.left_jacobian, [(6,)]),
    "se3.left_jacobian_inverse": (se3.left_jacobian_inverse, [(6,)]),
    "motion.to_parent": (lambda R, p, V: motion.to_parent((R, p), V), [(3, 3), (3,), (6,)]),
    "motion.Ad_matrix": (lambda R, p: motion.Ad_matrix((R, p)), [(3, 3), (3,)]),
    "motion.ad_matrix": (motion.ad_matrix, [(6,)]),
    "motion.cross_wrench": (motion.cross_wrench, [(6,), (6,)]),
    "inertia.from_com": (inertia.from_com, [(), (3,), (3, 3)]),
    "inertia.com": (inertia.com, [(10,)]),
    "inertia.inertia_com": (inertia.inertia_com, [(10,)]),
    "inertia.apply": (inertia.apply, [(10,), (6,)]),
    "inertia.to_parent": (lambda R, p, x: inertia.to_parent((R, p), x), [(3, 3), (3,), (10,)]),
    "inertia.matrix": (inertia.matrix, [(10,)]),
    "inertia.pseudo": (inertia.pseudo, [(10,)]),
    "inertia.from_pseudo": (inertia.from_pseudo, [(4, 4)]),
}


def _inputs(shapes, batch):
    """Random arrays, (3, 3) ones rotations and (4,) ones unit quaternions."""
    make = {
        (3, 3): lambda k: so3.exp(normal(*batch, 3, seed=k)),
        (4,): lambda k: so3.quat_normalize(normal(*batch, 4, seed=k)),
    }
    return [make.get(s, lambda k, s=s: normal(*batch, *s, seed=k))(i) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("name", ON_BATCHES)
def test_leading_axes_are_a_vmap(name):
    f, shapes = ON_BATCHES[name]
    args = _inputs(shapes, (2, 3))
    assert_close(jit(f)(*args), jax.jit(jax.vmap(jax.vmap(f)))(*args), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ON_BATCHES)
def test_empty_batches(name):
    f, shapes = ON_BATCHES[name]
    full, empty = (jax.eval_shape(f, *_inputs(shapes, (n,))) for n in (2, 0))
    for a, b in zip(jax.tree.leaves(full), jax.tree.leaves(empty), strict=True):
        assert b.shape == (0, *a.shape[1:])


@pytest.mark.parametrize("name", ON_BATCHES)
def test_float32_stays_float32_and_accurate(name):
    f, shapes = ON_BATCHES[name]
    args = _inputs(shapes, (50,))
    single, double = jit(f)(*cast(args, jnp.float32)), jit(f)(*args)
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        assert a.dtype == jnp.float32
        scale = float(jnp.max(jnp.abs(b)))
        assert_close(a / scale, b / scale, atol=3e-6)


@GROUPS
def test_float32_at_singular_points(group, points):
    """Values to a few units in the last place, derivatives too, in both modes."""
    x = cast(points((*SMALL, *MIDDLE)), jnp.float32)
    chart = lambda x: group.log(group.exp(x))  # noqa: E731
    assert_close(jax.jit(jax.vmap(chart))(x), x, atol=2e-6)
    for mode in ("forward", "reverse"):
        J = jacobian(chart, mode)(x)
        assert_close(J, jnp.broadcast_to(jnp.eye(x.shape[1]), J.shape), atol=2e-5)
