"""SO(3): rotation matrices, rotation vectors and ``wxyz`` quaternions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._series import cos_theta, cosc, cotc, sinc, sinc3, two_atanc


def dot(a: Float[Array, "*#b n"], b: Float[Array, "*#b n"]) -> Float[Array, "*b"]:
    """Inner product over the last axis, elementwise: it fuses, and is never computed in TF32."""
    return jnp.sum(a * b, axis=-1)


def cross(a: Float[Array, "*#b 3"], b: Float[Array, "*#b 3"]) -> Float[Array, "*b 3"]:
    """Vector product ``a × b``."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def hat(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """The matrix ``[w]`` with ``[w] x = w × x``. Source: Kim (5)."""
    x, y, z = w[..., 0], w[..., 1], w[..., 2]
    o = jnp.zeros_like(x)
    rows = [jnp.stack(r, axis=-1) for r in ((o, -z, y), (z, o, -x), (-y, x, o))]
    return jnp.stack(rows, axis=-2)


def vee(W: Float[Array, "*b 3 3"]) -> Float[Array, "*b 3"]:
    """Inverse of :func:`hat`; takes the antisymmetric part of its argument."""
    pairs = ((2, 1), (0, 2), (1, 0))
    return 0.5 * jnp.stack([W[..., i, j] - W[..., j, i] for i, j in pairs], axis=-1)


def rotate(R: Float[Array, "*#b 3 3"], x: Float[Array, "*#b 3"]) -> Float[Array, "*b 3"]:
    """``R x``."""
    return R[..., 0] * x[..., 0:1] + R[..., 1] * x[..., 1:2] + R[..., 2] * x[..., 2:3]


def rotate_inverse(R: Float[Array, "*#b 3 3"], x: Float[Array, "*#b 3"]) -> Float[Array, "*b 3"]:
    """``Rᵀ x``."""
    return R[..., 0, :] * x[..., 0:1] + R[..., 1, :] * x[..., 1:2] + R[..., 2, :] * x[..., 2:3]


def matmul(A: Float[Array, "*#b 3 3"], B: Float[Array, "*#b 3 3"]) -> Float[Array, "*b 3 3"]:
    """``A B`` for 3×3 matrices, elementwise: it fuses, and is never computed in TF32."""
    return sum(A[..., :, k, None] * B[..., None, k, :] for k in range(3))  # pyright: ignore


def transpose(A: Float[Array, "*b m n"]) -> Float[Array, "*b n m"]:
    """Swap the last two axes."""
    return jnp.swapaxes(A, -1, -2)


def unit(a: Float[Array, "*b 3"]) -> Float[Array, "*b 3"]:
    """``a / |a|``. A zero vector has no direction and gives NaN.

    The square is written out and is no sum over the axis, because XLA on a GPU would take that for
    a softmax and compile for half a minute.
    """
    return a / jnp.sqrt(a[..., 0:1] ** 2 + a[..., 1:2] ** 2 + a[..., 2:3] ** 2)


def identity(like: Float[Array, "*b 3"]) -> Float[Array, "*c 3 3"]:
    """The identity in the dtype of a vector, with an axis of length 1 for each of its batch axes.

    With it nothing relies on rank promotion, which users may forbid (``jax_numpy_rank_promotion``).
    """
    return jnp.eye(3, dtype=like.dtype).reshape((1,) * (like.ndim - 1) + (3, 3))


def orthonormalize(R: Float[Array, "*b 3 3"]) -> Float[Array, "*b 3 3"]:
    """One Newton step ``R (3 − Rᵀ R) / 2`` toward the nearest rotation matrix.

    Rotation matrices are its fixed points. Its derivative there drops every change that is not a
    rotation, so that a function of ``orthonormalize(R)`` has gradients tangent to SO(3).
    """
    return matmul(R, 1.5 * identity(R[..., 0]) - 0.5 * matmul(transpose(R), R))


def about(axis: Float[Array, "*#b 3"], angle: Float[Array, "*#b"]) -> Float[Array, "*b 3 3"]:
    """Rotation by ``angle`` (rad) about the unit vector ``axis`` (Rodrigues)."""
    s, c = jnp.sin(angle)[..., None, None], jnp.cos(angle)[..., None, None]
    aa = axis[..., :, None] * axis[..., None, :]
    return c * identity(axis) + s * hat(axis) + (1 - c) * aa


def exp(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """Rotation matrix of the rotation vector ``w`` (rad). Source: Müller (92), closed form."""
    x = dot(w, w)[..., None, None]
    ww = w[..., :, None] * w[..., None, :]
    return cos_theta(x) * identity(w) + sinc(x) * hat(w) + cosc(x) * ww


def log(R: Float[Array, "*b 3 3"]) -> Float[Array, "*b 3"]:
    """Rotation vector of ``R``, of length at most π; differentiable up to and at the angle π."""
    return quat_log(quat_from_matrix(R))


def _quadratic(
    c1: Float[Array, "*b"], c2: Float[Array, "*b"], w: Float[Array, "*b 3"]
) -> Float[Array, "*b 3 3"]:
    """``1 + c1 [w] + c2 [w]²``."""
    x = dot(w, w)
    ww = w[..., :, None] * w[..., None, :]
    c1, c2 = c1[..., None, None], c2[..., None, None]
    return identity(w) * (1 - c2 * x[..., None, None]) + c1 * hat(w) + c2 * ww


def left_jacobian(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """``dexp``: ``exp(w + δ) ≈ exp(J_l δ) exp(w)``. Source: Müller §7."""
    x = dot(w, w)
    return _quadratic(cosc(x), sinc3(x), w)


def right_jacobian(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """``exp(w + δ) ≈ exp(w) exp(J_r δ)``; equals ``left_jacobian(−w)``."""
    return left_jacobian(-w)


def left_jacobian_inverse(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """Inverse of :func:`left_jacobian`, for ``|w| < 2π``. Source: Müller §7 (dexp⁻¹)."""
    x = dot(w, w)
    return _quadratic(jnp.full_like(x, -0.5), cotc(x), w)


def right_jacobian_inverse(w: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """Inverse of :func:`right_jacobian`, for ``|w| < 2π``."""
    return left_jacobian_inverse(-w)


# --- quaternions, wxyz -----------------------------------------------------------------------


def quat_normalize(q: Float[Array, "*b 4"]) -> Float[Array, "*b 4"]:
    """``q / |q|``. A zero quaternion has no direction and gives NaN."""
    return q / jnp.sqrt(dot(q, q))[..., None]


def quat_multiply(a: Float[Array, "*#b 4"], b: Float[Array, "*#b 4"]) -> Float[Array, "*b 4"]:
    """Hamilton product ``a ⊗ b``."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - jnp.sum(av * bv, axis=-1, keepdims=True)
    return jnp.concatenate([w, aw * bv + bw * av + cross(av, bv)], axis=-1)


def quat_conjugate(q: Float[Array, "*b 4"]) -> Float[Array, "*b 4"]:
    """Conjugate; the inverse of a unit quaternion."""
    return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def quat_exp(w: Float[Array, "*b 3"]) -> Float[Array, "*b 4"]:
    """Unit quaternion of the rotation vector ``w`` (rad)."""
    x = 0.25 * dot(w, w)
    return jnp.concatenate([cos_theta(x)[..., None], 0.5 * sinc(x)[..., None] * w], axis=-1)


def quat_log(q: Float[Array, "*b 4"]) -> Float[Array, "*b 3"]:
    """Rotation vector (rad, length ≤ π) of the unit quaternion ``q``; ``q`` and ``−q`` agree."""
    q = jnp.where(q[..., :1] < 0, -q, q)
    v = q[..., 1:]
    return two_atanc(q[..., 0], dot(v, v))[..., None] * v


def quat_to_matrix(q: Float[Array, "*b 4"]) -> Float[Array, "*b 3 3"]:
    """Rotation matrix of the unit quaternion ``q``."""
    w, x, y, z = (q[..., k] for k in range(4))
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(r, axis=-1) for r in rows], axis=-2)


def quat_from_matrix(R: Float[Array, "*b 3 3"]) -> Float[Array, "*b 4"]:
    """Unit quaternion of a rotation matrix, differentiable at every rotation (Shepperd's method).

    There are four expressions for the same quaternion, each safe where its own component is the
    largest. The one with the largest divisor is taken.
    """
    d = [R[..., k, k] for k in range(3)]
    # four times the squares of the components w, x, y, z
    squares = jnp.stack(
        [1 + d[0] + d[1] + d[2], 1 + d[0] - d[1] - d[2], 1 - d[0] + d[1] - d[2],
         1 - d[0] - d[1] + d[2]], axis=-1,
    )  # fmt: skip
    a = 2 * vee(R)  # = 4 w (x, y, z)
    s = lambda i, j: R[..., i, j] + R[..., j, i]  # noqa: E731  = 4 × product of two components
    rows = [
        (squares[..., 0], a[..., 0], a[..., 1], a[..., 2]),
        (a[..., 0], squares[..., 1], s(0, 1), s(0, 2)),
        (a[..., 1], s(0, 1), squares[..., 2], s(1, 2)),
        (a[..., 2], s(0, 2), s(1, 2), squares[..., 3]),
    ]
    outer = jnp.stack([jnp.stack(r, axis=-1) for r in rows], axis=-2)  # 4 q qᵀ
    best = jnp.argmax(squares, axis=-1)[..., None, None]
    row = jnp.take_along_axis(outer, best, axis=-2)[..., 0, :]
    return quat_normalize(row)
