"""Articulated-body inertias ``[[A, B], [Bᵀ, C]]`` as three 3×3 blocks ``(A, B, C)``.

Unlike the mass of a rigid body, ``C`` is not a multiple of the identity: a hinged body resists a
push in one direction more than in another. Source: Kim (42).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import inertia, so3
from .se3 import Pose

Articulated = tuple[Float[Array, "3 3"], Float[Array, "3 3"], Float[Array, "3 3"]]


def from_inertia(I10: Float[Array, "10"]) -> Articulated:
    """The blocks of a rigid body's inertia."""
    return inertia.rotational(I10), so3.hat(I10[1:4]), I10[0] * jnp.eye(3, dtype=I10.dtype)


def apply(Ia: Articulated, V: Float[Array, "6"]) -> Float[Array, "6"]:
    """``Î V``."""
    A, B, C = Ia
    w, v = V[:3], V[3:]
    return jnp.concatenate(
        [so3.rotate(A, w) + so3.rotate(B, v), so3.rotate_inverse(B, w) + so3.rotate(C, v)]
    )


def subtract(Ia: Articulated, psi: Float[Array, ""], U: Float[Array, "6"]) -> Articulated:
    """``Î − U Ψ Uᵀ``. Source: Kim, Table 3, the line of Π."""
    A, B, C = Ia
    n, f = U[:3], U[3:]
    return (
        A - psi * n[:, None] * n[None, :],
        B - psi * n[:, None] * f[None, :],
        C - psi * f[:, None] * f[None, :],
    )


def eliminate(
    Ia: Articulated, S: Float[Array, "6"], armature: Float[Array, ""], prescribed: Array
) -> tuple[Float[Array, "6"], Float[Array, ""], Articulated]:
    """``(U, Ψ, Π)``: what a hinge with the screw S leaves of the inertia Î behind it.

    ``U = Î S``, ``Ψ = 1 / (Sᵀ U + armature)`` and ``Π = Î − U Ψ Uᵀ``. Where the acceleration of
    the hinge is prescribed (positive), it is stiff: Ψ = 0 and Π = Î. Source: Kim, Tables 3 and 4.
    """
    U = apply(Ia, S)
    D = jnp.sum(S * U) + armature
    psi = jnp.where(prescribed > 0, 0, 1 / jnp.where(prescribed > 0, 1, D))
    return U, psi, subtract(Ia, psi, U)


def to_parent(T: Pose, Ia: Articulated) -> Articulated:
    """``Ad*_{T⁻¹} Π Ad_{T⁻¹}``. Source: Kim (48)."""
    R, p = T
    A, B, C = so3.matmul(so3.matmul(R[None], jnp.stack(Ia)), so3.transpose(R)[None])
    P = so3.hat(p)
    BP, PC = so3.matmul(B, P), so3.matmul(P, C)
    return A - BP - so3.transpose(BP) - so3.matmul(PC, P), B + PC, C
