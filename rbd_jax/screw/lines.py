"""Screws from lines and pitches, and their reciprocal product. Source: Müller App. B.2.

A screw is ``(ξ, η) = magnitude (e, p × e + h e)``. A twist is a screw with its angular part first.
A wrench is a screw with its force first, but the library's wrenches are (moment, force). Exchange
the halves of a wrench to use it as a screw. Derivatives are those of autodiff.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import so3


class Line(NamedTuple):
    """The axis, pitch and magnitude of a screw."""

    e: Float[Array, "*b 3"]
    """Unit vector along the axis."""
    p: Float[Array, "*b 3"]
    """The point of the axis that is closest to the origin (m)."""
    h: Float[Array, "*b"]
    """Pitch (m/rad); infinite for a translation."""
    magnitude: Float[Array, "*b"]
    """Length of ξ, or of η for a translation."""


def screw_of_line(
    e: Float[Array, "*b 3"], p: Float[Array, "*b 3"], h: float | Float[Array, "*b"] = 0.0
) -> Float[Array, "*b 6"]:
    """The screw ``(e, p × e + h e)`` of unit magnitude; ``(0, e)`` for an infinite pitch.

    Derivatives are right for finite pitches. For infinite ones only those by e are.

    Source: Müller App. B.2.

    Args:
        e: direction of the axis, of any length except zero.
        p: a point of the axis (m).
        h: pitch (m/rad), one for all lines or one for each line; infinite for a translation along
            e.
    """
    e = e / jnp.sqrt(so3.dot(e, e))[..., None]
    h = jnp.broadcast_to(jnp.asarray(h, e.dtype), e.shape[:-1])[..., None]
    sliding = jnp.isinf(h)
    turning = so3.cross(p, e) + jnp.where(sliding, 0, h) * e
    xi, eta = jnp.where(sliding, 0, e), jnp.where(sliding, e, turning)
    return jnp.concatenate([xi, eta], axis=-1)


def line_of_screw(X: Float[Array, "*b 6"]) -> Line:
    """The axis, pitch and magnitude of a screw: ``h = ξ·η / ξ²``, ``p = ξ × η / ξ²``.

    A translation has an infinite pitch, and its axis passes through the origin.

    Source: Müller App. B.2.

    Args:
        X: screws (rad, m), none of them zero.
    """
    xi, eta = X[..., :3], X[..., 3:]
    square = so3.dot(xi, xi)
    sliding = square == 0
    safe = jnp.where(sliding, 1, square)
    along = jnp.where(sliding[..., None], eta, xi)
    magnitude = jnp.sqrt(so3.dot(along, along))
    h = jnp.where(sliding, jnp.inf, so3.dot(xi, eta) / safe)
    return Line(along / magnitude[..., None], so3.cross(xi, eta) / safe[..., None], h, magnitude)


def reciprocal_product(X: Float[Array, "*#b 6"], Y: Float[Array, "*#b 6"]) -> Float[Array, "*b"]:
    """``X ⊙ Y = ξ₁·η₂ + η₁·ξ₂``, the same in every frame; zero for reciprocal screws.

    For a twist and a wrench whose force is first it is the power. For two lines, which are screws
    of pitch zero, it vanishes if they meet or are parallel.

    Source: Müller App. B.2.
    """
    return so3.dot(X[..., :3], Y[..., 3:]) + so3.dot(X[..., 3:], Y[..., :3])
