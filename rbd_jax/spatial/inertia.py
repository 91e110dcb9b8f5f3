"""The inertia of a rigid body as ten numbers that the equations of motion are linear in.

``I10 = [m, m c_x, m c_y, m c_z, I_xx, I_xy, I_yy, I_xz, I_yz, I_zz]``, with the first moment
``m c`` (kg m) and the rotational inertia (kg m²) taken about the origin of the frame the body
is expressed in, not about the center of mass. The order is Pinocchio's.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import so3
from .se3 import Pose

_ROWS = ((4, 5, 7), (5, 6, 8), (7, 8, 9))
_SIX = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


def rotational(I10: Float[Array, "*b 10"]) -> Float[Array, "*b 3 3"]:
    """The 3×3 rotational inertia about the frame's origin (kg m²)."""
    rows = [jnp.stack([I10[..., k] for k in row], axis=-1) for row in _ROWS]
    return jnp.stack(rows, axis=-2)


def _pack(
    m: Float[Array, "*b"], mc: Float[Array, "*b 3"], J: Float[Array, "*b 3 3"]
) -> Float[Array, "*b 10"]:
    six = [J[..., i, j] for i, j in _SIX]
    return jnp.concatenate([m[..., None], mc, jnp.stack(six, axis=-1)], axis=-1)


def _point(m: Float[Array, "*b"], c: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """``m [c]ᵀ[c]``, the rotational inertia of a point mass."""
    cc = c[..., :, None] * c[..., None, :]
    return m[..., None, None] * (so3.dot(c, c)[..., None, None] * so3.identity(c) - cc)


def from_com(
    mass: Float[Array, "*b"], com: Float[Array, "*b 3"], inertia_com: Float[Array, "*b 3 3"]
) -> Float[Array, "*b 10"]:
    """Ten parameters from the mass (kg), the center of mass (m) and the inertia about it (kg m²).

    Source: Kim (22) with R = 1; ``inertia_com`` has the orientation of the body frame.
    """
    return _pack(mass, mass[..., None] * com, inertia_com + _point(mass, com))


def mass(I10: Float[Array, "*b 10"]) -> Float[Array, "*b"]:
    """The mass (kg)."""
    return I10[..., 0]


def com(I10: Float[Array, "*b 10"]) -> Float[Array, "*b 3"]:
    """The center of mass (m); the origin for a body without mass."""
    m = I10[..., 0:1]
    mc, weightless = I10[..., 1:4], m == 0
    return jnp.where(
        weightless, jnp.zeros_like(mc), mc / jnp.where(weightless, jnp.ones_like(m), m)
    )


def inertia_com(I10: Float[Array, "*b 10"]) -> Float[Array, "*b 3 3"]:
    """The rotational inertia about the center of mass (kg m²)."""
    return rotational(I10) - _point(mass(I10), com(I10))


def apply(I10: Float[Array, "*#b 10"], V: Float[Array, "*#b 6"]) -> Float[Array, "*b 6"]:
    """Momentum ``I V`` (angular about the frame's origin, linear). Source: Kim (20), (23)."""
    w, v = V[..., :3], V[..., 3:]
    mc = I10[..., 1:4]
    n = so3.rotate(rotational(I10), w) + so3.cross(mc, v)
    return jnp.concatenate([n, I10[..., 0:1] * v - so3.cross(mc, w)], axis=-1)


def regressor(V: Float[Array, "*b 6"]) -> Float[Array, "*b 6 10"]:
    """The matrix K(V) with ``I V = K(V) I10``: momentum is linear in the ten parameters.

    Source: Müller §6, linearity in the dynamic parameters; Kim (20), (23).
    """
    w, v = V[..., :3], V[..., 3:]
    x, y, z = (w[..., k] for k in range(3))
    o = jnp.zeros_like(x)
    rows = ((x, y, o, z, o, o), (o, x, y, o, z, o), (o, o, o, x, y, z))
    Jw = jnp.stack([jnp.stack(r, axis=-1) for r in rows], axis=-2)
    top = jnp.concatenate([jnp.zeros_like(w)[..., None], -so3.hat(v), Jw], axis=-1)
    bottom = jnp.concatenate([v[..., None], so3.hat(w), jnp.zeros_like(Jw)], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


def to_parent(T: Pose, I10: Float[Array, "*#b 10"]) -> Float[Array, "*b 10"]:
    """The same body seen from the parent frame. Source: Kim (21)–(22)."""
    return translate(T[1], rotate(T[0], I10))


def _inner(a: list[Array], b: list[Array]) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def rotate(R: Float[Array, "*#b 3 3"], I10: Float[Array, "*#b 10"]) -> Float[Array, "*b 10"]:
    """The same body about the same origin, in the axes of the frame that ``R`` maps to.

    Source: Kim (22), the rotation. It is written out number by number: as products of 3×3 matrices
    XLA would compute parts of it over and over, which takes five times as long.
    """
    r = [[R[..., i, j] for j in range(3)] for i in range(3)]
    own = [I10[..., k] for k in range(1, 4)]
    J = [[I10[..., k] for k in row] for row in _ROWS]
    h = [_inner(row, own) for row in r]
    RJ = [[_inner(row, J[j]) for j in range(3)] for row in r]
    six = [_inner(RJ[i], r[j]) for i, j in _SIX]
    return jnp.stack([jnp.broadcast_to(I10[..., 0], h[0].shape), *h, *six], axis=-1)


def translate(p: Float[Array, "*#b 3"], I10: Float[Array, "*#b 10"]) -> Float[Array, "*b 10"]:
    """The same body about another origin, from which the old one lies at ``p`` (m), in equal axes.

    Source: Kim (22), the translation: Steiner's theorem.
    """
    c = [p[..., k] for k in range(3)]
    m, h = I10[..., 0], [I10[..., k] for k in range(1, 4)]
    mc = [x + m * y for x, y in zip(h, c, strict=True)]
    both = [x + y for x, y in zip(h, mc, strict=True)]
    trace = _inner(c, both)  # [p]ᵀ[h] + [h]ᵀ[p] + m [p]ᵀ[p] = pᵀ(2h + mp) − (p (2h + mp)ᵀ)_sym

    def entry(i, j):
        shift = -0.5 * (c[i] * both[j] + c[j] * both[i])
        return I10[..., _ROWS[i][j]] + (trace + shift if i == j else shift)

    six = [entry(i, j) for i, j in _SIX]
    return jnp.stack([jnp.broadcast_to(m, mc[0].shape), *mc, *six], axis=-1)


def matrix(I10: Float[Array, "*b 10"]) -> Float[Array, "*b 6 6"]:
    """The 6×6 generalized inertia. Source: Kim (20)."""
    C = so3.hat(I10[..., 1:4])
    M = I10[..., 0, None, None] * so3.identity(I10[..., 1:4])
    top = jnp.concatenate([rotational(I10), C], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([so3.transpose(C), M], axis=-1)], axis=-2)


def from_matrix(I66: Float[Array, "*b 6 6"]) -> Float[Array, "*b 10"]:
    """Inverse of :func:`matrix`."""
    return _pack(I66[..., 5, 5], so3.vee(I66[..., :3, 3:]), I66[..., :3, :3])


def pseudo(I10: Float[Array, "*b 10"]) -> Float[Array, "*b 4 4"]:
    """The pseudo-inertia ``∫ (x, 1)(x, 1)ᵀ dm``; positive definite iff physically consistent.

    Source: Wensing, Kim, Slotine, "Linear matrix inequalities for physically consistent inertial
    parameter identification", 2018.
    """
    J = rotational(I10)
    half_trace = 0.5 * (J[..., 0, 0] + J[..., 1, 1] + J[..., 2, 2])
    Sigma = half_trace[..., None, None] * so3.identity(I10[..., 1:4]) - J
    mc = I10[..., 1:4]
    top = jnp.concatenate([Sigma, mc[..., :, None]], axis=-1)
    bottom = jnp.concatenate([mc, I10[..., 0:1]], axis=-1)[..., None, :]
    return jnp.concatenate([top, bottom], axis=-2)


def from_pseudo(P: Float[Array, "*b 4 4"]) -> Float[Array, "*b 10"]:
    """Inverse of :func:`pseudo`."""
    Sigma = P[..., :3, :3]
    trace = Sigma[..., 0, 0] + Sigma[..., 1, 1] + Sigma[..., 2, 2]
    J = trace[..., None, None] * so3.identity(P[..., :3, 3]) - Sigma
    return _pack(P[..., 3, 3], P[..., :3, 3], J)
