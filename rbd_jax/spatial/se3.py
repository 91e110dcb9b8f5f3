"""SE(3): rigid motions as pairs ``(R, p)``, exponential, logarithm and their Jacobians."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import so3
from ._series import cosc4, sinc3, sinc5

Pose = tuple[Float[Array, "*#b 3 3"], Float[Array, "*#b 3"]]


def identity(dtype=None) -> tuple[Float[Array, "3 3"], Float[Array, "3"]]:
    """The identity pose."""
    return jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype=dtype)


def compose(a: Pose, b: Pose) -> Pose:
    """``T_a T_b`` as ``(R_a R_b, p_a + R_a p_b)``."""
    return so3.matmul(a[0], b[0]), a[1] + so3.rotate(a[0], b[1])


def inverse(a: Pose) -> Pose:
    """``T⁻¹ = (Rᵀ, −Rᵀ p)``. Source: Kim (4)."""
    return so3.transpose(a[0]), -so3.rotate_inverse(*a)


def act(a: Pose, x: Float[Array, "*#b 3"]) -> Float[Array, "*b 3"]:
    """The point ``R x + p``."""
    return so3.rotate(a[0], x) + a[1]


def matrix(a: Pose) -> Float[Array, "*b 4 4"]:
    """Homogeneous matrix. Source: Kim (3)."""
    R, p = a
    top = jnp.concatenate([R, p[..., None]], axis=-1)
    bottom = jnp.broadcast_to(jnp.array([0, 0, 0, 1], R.dtype), (*R.shape[:-2], 1, 4))
    return jnp.concatenate([top, bottom], axis=-2)


def exp(xi: Float[Array, "*b 6"]) -> tuple[Float[Array, "*b 3 3"], Float[Array, "*b 3"]]:
    """Pose of the screw coordinates ``xi = (ω, v)``: ``R = exp [ω]``, ``p = J_l(ω) v``."""
    w, v = xi[..., :3], xi[..., 3:]
    return so3.exp(w), so3.rotate(so3.left_jacobian(w), v)


def log(a: Pose) -> Float[Array, "*b 6"]:
    """Screw coordinates ``(ω, v)`` with ``|ω| ≤ π`` and ``exp(log T) = T``."""
    w = so3.log(a[0])
    return jnp.concatenate([w, so3.rotate(so3.left_jacobian_inverse(w), a[1])], axis=-1)


def _coupling(w: Float[Array, "*b 3"], v: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """The lower-left block ``Q(ω, v)`` of the left Jacobian, smooth at ω = 0."""
    x = so3.dot(w, w)[..., None, None]
    W, V = so3.hat(w), so3.hat(v)
    WV, VW = so3.matmul(W, V), so3.matmul(V, W)
    WVW = so3.matmul(WV, W)
    c2 = cosc4(x)
    return (
        0.5 * V
        + sinc3(x) * (WV + VW + WVW)
        + c2 * (so3.matmul(W, WV) + so3.matmul(VW, W) - 3 * WVW)
        + 0.5 * (c2 - 3 * sinc5(x)) * (so3.matmul(WVW, W) + so3.matmul(W, WVW))
    )


def _lower(J: Float[Array, "*b 3 3"], Q: Float[Array, "*b 3 3"]) -> Float[Array, "*b 6 6"]:
    top = jnp.concatenate([J, jnp.zeros_like(J)], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([Q, J], axis=-1)], axis=-2)


def left_jacobian(xi: Float[Array, "*b 6"]) -> Float[Array, "*b 6 6"]:
    """``dexp``: ``exp(xi + δ) ≈ exp(J_l δ) exp(xi)``. Source: Müller §7."""
    w, v = xi[..., :3], xi[..., 3:]
    return _lower(so3.left_jacobian(w), _coupling(w, v))


def right_jacobian(xi: Float[Array, "*b 6"]) -> Float[Array, "*b 6 6"]:
    """``exp(xi + δ) ≈ exp(xi) exp(J_r δ)``; equals ``left_jacobian(−xi)``."""
    return left_jacobian(-xi)


def left_jacobian_inverse(xi: Float[Array, "*b 6"]) -> Float[Array, "*b 6 6"]:
    """Inverse of :func:`left_jacobian`, for ``|ω| < 2π``. Source: Müller §7 (dexp⁻¹)."""
    w, v = xi[..., :3], xi[..., 3:]
    J = so3.left_jacobian_inverse(w)
    return _lower(J, -so3.matmul(J, so3.matmul(_coupling(w, v), J)))


def right_jacobian_inverse(xi: Float[Array, "*b 6"]) -> Float[Array, "*b 6 6"]:
    """Inverse of :func:`right_jacobian`, for ``|ω| < 2π``."""
    return left_jacobian_inverse(-xi)
