"""Constraint forces from constraint accelerations: the derivative of MuJoCo's cost ``s``.

Each law gets the residual ``z = J a − a_ref`` and gives the force ``−∂s/∂z``. The forces are
monotone and continuous; their derivatives jump where a constraint switches. Source: MuJoCo's
documentation, "Computation", constraint model: the dual cost is convex and quadratic by pieces,
but for the middle zone of the elliptic cone.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def two_sided(z: Float[Array, "*n"], D: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """An equality: ``−D z``."""
    return -D * z


def one_sided(z: Float[Array, " n"], D: Float[Array, " n"]) -> Float[Array, " n"]:
    """A limit: ``−D z`` where z < 0, else nothing. D is zero where the limit is far."""
    return jnp.where(z < 0, -D * z, 0)


def dry(z: Float[Array, " n"], D: Float[Array, " n"], loss: Float[Array, " n"]) -> Array:
    """JointFriction friction: ``−D z``, at most ``loss`` in either direction."""
    return jnp.clip(-D * z, -loss, loss)


class Cone(NamedTuple):
    """What a group of n contacts of one dimension needs: D, friction, and which are switched on.

    ``D``: of the normal direction of an elliptic cone, of every edge of a pyramidal one. ``mu`` is
    the slope of the regularized elliptic cone; D of its tangents is ``D f²/mu²``.
    """

    D: Float[Array, " n"]
    mu: Float[Array, " n"]
    friction: Float[Array, "n k"]
    on: Bool[Array, " n"]


def contact(z: Float[Array, "n d"], cone: Cone, elliptic: bool) -> Float[Array, "n d"]:
    """The force of each contact in its frame: normal, tangents, spin, rolls (N, N m)."""
    if z.shape[1] == 1:
        force = one_sided(z[:, 0], cone.D)[:, None]
    else:
        force = _elliptic(z, cone) if elliptic else _pyramidal(z, cone)
    return jnp.where(cone.on[:, None], force, 0)


def _pyramidal(z: Float[Array, "n d"], cone: Cone) -> Float[Array, "n d"]:
    """Each pair of opposite edges ``z_n ± f z_t`` pushes back where it is negative."""
    slip = cone.friction * z[:, 1:]
    D = cone.D[:, None]
    plus = jnp.maximum(-D * (z[:, :1] + slip), 0)
    minus = jnp.maximum(-D * (z[:, :1] - slip), 0)
    normal = jnp.sum(plus + minus, axis=-1, keepdims=True)
    return jnp.concatenate([normal, cone.friction * (plus - minus)], axis=-1)


def _elliptic(z: Float[Array, "n d"], cone: Cone) -> Float[Array, "n d"]:
    """Three zones: free, inside the cone (quadratic), on its surface (sliding).

    With ``N = mu z_n``, ``U = f z_t`` and ``T = |U|``: free where ``N ≥ mu T``, inside where
    ``mu N + T ≤ 0``, else the force is ``D_m (mu T − N)`` along the gradient of the distance.
    """
    mu, D, f = cone.mu[:, None], cone.D[:, None], cone.friction
    N, U = mu * z[:, :1], f * z[:, 1:]
    T2 = jnp.sum(U * U, axis=-1, keepdims=True)
    some = T2 > 0
    T = jnp.where(some, jnp.sqrt(jnp.where(some, T2, 1)), 0)
    free = N >= mu * T
    inside = mu * N + T <= 0
    stick = jnp.concatenate([-D * z[:, :1], -D * f * U / (mu * mu)], axis=-1)
    gap = D / (mu * mu * (1 + mu * mu)) * (mu * T - N)
    slide = jnp.concatenate([gap * mu, -gap * mu * f * U / jnp.where(some, T, 1)], axis=-1)
    return jnp.where(free, 0, jnp.where(inside, stick, slide))
