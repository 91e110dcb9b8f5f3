"""Screws from lines and pitches, and their reciprocal product. Source: Müller App. B.2.

A screw is ``(ξ, η)``: the angular part of a twist stands first, and the force of a wrench, so that
both are ``magnitude (e, p × e + h e)``. The library's wrenches are (moment, force); exchange the
halves of one to take it for a screw.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..spatial import so3


class Line(NamedTuple):
    """The axis of a screw, its pitch and magnitude."""

    e: Float[Array, "*b 3"]
    """Unit vector along the axis."""
    p: Float[Array, "*b 3"]
    """The point of the axis next to the origin (m)."""
    h: Float[Array, "*b"]
    """Pitch (m/rad); infinite for a translation."""
    magnitude: Float[Array, "*b"]
    """Length of ξ, or of η for a translation."""


def screw_of_line(
    e: Float[Array, "*b 3"], p: Float[Array, "*b 3"], h: float | Float[Array, "*b"] = 0.0
) -> Float[Array, "*b 6"]:
    """The screw ``(e, p × e + h e)`` of unit magnitude; ``(0, e)`` for an infinite pitch.

    Source: Müller App. B.2. Derivatives are right for finite pitches, and by e for infinite ones.

    Args:
        e: direction of the axis, of any length but zero.
        p: a point of the axis (m).
        h: pitch (m/rad), one for all lines or one a line; infinite for a translation along e.
    """
    e = e / jnp.sqrt(so3.dot(e, e))[..., None]
    h = jnp.broadcast_to(jnp.asarray(h, e.dtype), e.shape[:-1])[..., None]
    sliding = jnp.isinf(h)
    turning = so3.cross(p, e) + jnp.where(sliding, 0, h) * e
    xi, eta = jnp.where(sliding, 0, e), jnp.where(sliding, e, turning)
    return jnp.concatenate([xi, eta], axis=-1)


def line_of_screw(X: Float[Array, "*b 6"]) -> Line:
    """The axis, pitch and magnitude of a screw: ``h = ξ·η / ξ²``, ``p = ξ × η / ξ²``.

    Source: Müller App. B.2. A translation has an infinite pitch, and its axis the point 0.

    Args:
        X: screws other than zero (rad, m).
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

    Source: Müller App. B.2. For a twist and a wrench whose force stands first it is the power. Of
    two lines (pitch zero) it vanishes where they meet or are parallel.
    """
    return so3.dot(X[..., :3], Y[..., 3:]) + so3.dot(X[..., 3:], Y[..., :3])
