"""Twists ``(ω, v)`` and wrenches ``(n, f)``: adjoint maps and the two cross products.

``T = (R, p)`` maps child to parent coordinates. Only the ``*_matrix`` functions form a 6×6 matrix,
for study and for tests.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import so3
from .se3 import Pose


def _split(x: Float[Array, "*b 6"]) -> tuple[Float[Array, "*b 3"], Float[Array, "*b 3"]]:
    return x[..., :3], x[..., 3:]


def _join(a: Float[Array, "*b 3"], b: Float[Array, "*b 3"]) -> Float[Array, "*b 6"]:
    return jnp.concatenate([a, b], axis=-1)


def to_parent(T: Pose, V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad_T V``: a twist from child to parent coordinates. Source: Kim (7)."""
    w, v = _split(V)
    Rw = so3.rotate(T[0], w)
    return _join(Rw, so3.rotate(T[0], v) + so3.cross(T[1], Rw))


def to_child(T: Pose, V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad_{T⁻¹} V``: a twist from parent to child coordinates. Source: Kim (36)."""
    w, v = _split(V)
    return _join(so3.rotate_inverse(T[0], w), so3.rotate_inverse(T[0], v - so3.cross(T[1], w)))


def wrench_to_parent(T: Pose, F: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad*_{T⁻¹} F``: a wrench from child to parent coordinates. Source: Kim (13), (41)."""
    n, f = _split(F)
    Rf = so3.rotate(T[0], f)
    return _join(so3.rotate(T[0], n) + so3.cross(T[1], Rf), Rf)


def wrench_to_child(T: Pose, F: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad*_T F``: a wrench from parent to child coordinates. Source: Kim (8), (13)."""
    n, f = _split(F)
    return _join(so3.rotate_inverse(T[0], n - so3.cross(T[1], f)), so3.rotate_inverse(T[0], f))


def turn(R: Float[Array, "*#b 3 3"], X: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad_R X``: both halves rotated. Source: Müller (96)."""
    return jnp.concatenate([so3.rotate(R, X[..., :3]), so3.rotate(R, X[..., 3:])], axis=-1)


def shift(d: Float[Array, "*#b 3"], V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``Ad_d V = (ω, v + d × ω)``: the twist measured at a point from which the old one lies at d.

    Source: Müller (96).
    """
    w = V[..., :3]
    v = V[..., 3:] + so3.cross(d, w)
    return jnp.concatenate([jnp.broadcast_to(w, v.shape), v], axis=-1)


def cross_twist(V: Float[Array, "*#b 6"], W: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``ad_V W = V × W``. Source: Kim (27)."""
    (w, v), (a, b) = _split(V), _split(W)
    return _join(so3.cross(w, a), so3.cross(w, b) + so3.cross(v, a))


def cross_wrench(V: Float[Array, "*#b 6"], F: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """``V ×* F = −ad_Vᵀ F``, the rate of a wrench carried along by ``V``. Source: Kim (28)–(29)."""
    (w, v), (n, f) = _split(V), _split(F)
    return _join(so3.cross(w, n) + so3.cross(v, f), so3.cross(w, f))


def Ad_matrix(T: Pose) -> Float[Array, "*b 6 6"]:
    """The 6×6 matrix of ``Ad_T``. Source: Kim (7)."""
    R, p = T
    top = jnp.concatenate([R, jnp.zeros_like(R)], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([so3.matmul(so3.hat(p), R), R], axis=-1)], axis=-2)


def ad_matrix(V: Float[Array, "*b 6"]) -> Float[Array, "*b 6 6"]:
    """The 6×6 matrix of ``ad_V``. Source: Kim (27)."""
    w, v = _split(V)
    W = so3.hat(w)
    top = jnp.concatenate([W, jnp.zeros_like(W)], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([so3.hat(v), W], axis=-1)], axis=-2)
