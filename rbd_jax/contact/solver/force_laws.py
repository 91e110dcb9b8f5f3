"""Soft constraints: their parameters, reference accelerations, regularization and force laws.

A constraint has the residual ``z = J a − a_ref`` and the regularization R. Its force law gives the
force ``−∂s/∂z``, the derivative of MuJoCo's cost s. The forces are monotone and continuous. Their
derivatives jump where a constraint switches. Source: MuJoCo's documentation, "Computation",
constraint model, and "Modeling", solver parameters. The cost is convex and quadratic by pieces,
except in the middle zone of the elliptic cone.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...spatial.clamp import clamp

LEAST, MOST = 1e-4, 0.9999
"""Bounds of the impedance."""
TINY = 1e-15


class SolverParams(eqx.Module):
    """MuJoCo's solver parameters of n constraints: how stiff and how soft each of them is."""

    solref: Float[Array, "n 2"]
    """Time constant (s) and damping ratio; or, both negative, −stiffness and −damping."""
    solimp: Float[Array, "n 5"]
    """Impedance at zero violation, at full violation, width (m, rad), midpoint, power."""

    def regularized(
        self,
        violation: Float[Array, " n"],
        velocity: Float[Array, " n"],
        weight: Float[Array, " n"],
        least_time: Float[Array, ""],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """``(R, a_ref)`` of constraints of one row each.

        Args:
            violation: how far the constraint is violated, negative for limits (m, rad).
            velocity: the rate of the violation.
            weight: MuJoCo's ``invweight0`` of the row (1/kg, 1/(kg m²)).
            least_time: the least time constant (s).
        """
        d = impedance(self.solimp, violation)
        k, b = stiffness_and_damping(self, least_time)
        return regularization(d, weight), -b * velocity - k * d * violation


def impedance(solimp: Float[Array, "n 5"], violation: Float[Array, " n"]) -> Float[Array, " n"]:
    """The impedance ``d(r)`` in (0, 1): the share of its reference acceleration that a row gets.

    Source: "Modeling", solver parameters, impedance. It is a sigmoid of two powers from ``d0`` to
    ``dw``.
    """
    low, high = (jnp.clip(solimp[:, k], LEAST, MOST) for k in (0, 1))
    width, mid = solimp[:, 2], jnp.clip(solimp[:, 3], LEAST, MOST)
    power = jnp.maximum(solimp[:, 4], 1)
    flat = (low == high) | (width <= TINY)
    x = jnp.abs(violation) / jnp.where(flat, 1, width)
    inside = (x > 0) & (x < 1)
    x = jnp.where(inside, x, 0.5)  # all derivatives are finite here
    rising = x**power / mid ** (power - 1)
    falling = 1 - (1 - x) ** power / (1 - mid) ** (power - 1)
    y = jnp.where(power == 1, x, jnp.where(x <= mid, rising, falling))
    curved = low + y * (high - low)
    full = jnp.abs(violation) >= jnp.where(flat, 1, width)
    ends = jnp.where(full, high, low)
    return jnp.where(flat, 0.5 * (low + high), jnp.where(inside, curved, ends))


def stiffness_and_damping(
    params: SolverParams, least_time: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """``(k, b)`` of the reference acceleration ``−b v − k d r``, before the impedance d.

    Source: "Modeling", solver parameters, reference. No time constant falls below ``least_time``,
    which is two time steps (MuJoCo's flag ``refsafe``) or zero (s).
    """
    ref, width = params.solref, jnp.clip(params.solimp[:, 1], LEAST, MOST)
    standard = ref[:, 0] > 0
    time = jnp.where(standard, jnp.maximum(ref[:, 0], least_time), 1)
    ratio = jnp.where(standard, ref[:, 1], 1)
    k = 1 / jnp.maximum(TINY, (width * time * ratio) ** 2)
    b = 2 / jnp.maximum(TINY, width * time)
    direct_k, direct_b = -ref[:, 0] / jnp.maximum(TINY, width**2), -ref[:, 1] / width
    return jnp.where(standard, k, direct_k), jnp.where(standard, b, direct_b)


def regularization(d: Float[Array, "*#n"], weight: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """``R = (1 − d)/d · Â``, in units of the inverse inertia Â. Source: "Computation"."""
    return jnp.maximum(TINY, (1 - d) / d * weight)


def equality(z: Float[Array, "*n"], D: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The force of an equality, ``−D z``."""
    return -D * z


def inequality(z: Float[Array, " n"], D: Float[Array, " n"]) -> Float[Array, " n"]:
    """The force of a limit: ``−D z`` where z < 0, else zero. D is zero where the limit is far."""
    return jnp.where(z < 0, -D * z, 0)


def friction_loss(z: Float[Array, " n"], D: Float[Array, " n"], loss: Float[Array, " n"]) -> Array:
    """The force of dry friction: ``−D z``, at most ``loss`` in either direction."""
    return clamp(-D * z, -loss, loss)


class Cone(NamedTuple):
    """The friction cones of n contacts of one dimension."""

    D: Float[Array, " n"]
    """The inverse regularization of the normal row of an elliptic cone, or of every edge of a
    pyramidal cone. The tangents of an elliptic cone have ``D f²/mu²``."""
    mu: Float[Array, " n"]
    """The slope of the regularized elliptic cone."""
    friction: Float[Array, "n k"]
    """The friction coefficient f of each direction."""
    active: Bool[Array, " n"]
    """Whether the distance of the contact is below its margin."""
    softness: Float[Array, ""] | None = None
    """Of contacts that act at a distance: how softly they begin to push (m/s²), see :func:`push`.
    Their cones are pyramidal."""
    used: Bool[Array, "n k"] | None = None
    """Which directions have edges of a pyramidal cone; None if all have. A contact without friction
    has the two edges of one direction, with the coefficient zero."""


def push(z: Float[Array, "*n"], softness: Float[Array, ""] | None) -> Float[Array, "*n"]:
    """How far z is below zero: ``max(−z, 0)``, or with a softness s ``s log(1 + exp(−z/s))``.

    The second form is smooth, more than zero everywhere, and differs by at most ``s log 2``.
    """
    if softness is None:
        return jnp.maximum(-z, 0)
    x = -z / softness
    return softness * (jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x))))


def contact(z: Float[Array, "n d"], cone: Cone, elliptic: bool) -> Float[Array, "n d"]:
    """The force of each contact in its frame: normal, tangents, spin, rolls (N, N m)."""
    if z.shape[1] == 1:
        force = (cone.D * push(z[:, 0], cone.softness))[:, None]
    else:
        force = _elliptic(z, cone) if elliptic else _pyramidal(z, cone)
    return jnp.where(cone.active[:, None], force, 0)


def _pyramidal(z: Float[Array, "n d"], cone: Cone) -> Float[Array, "n d"]:
    """The pyramidal cone: each of the edges ``z_n ± f z_t`` pushes back where it is negative."""
    plus, minus = edges(z, cone)
    normal = jnp.sum(plus + minus, axis=-1, keepdims=True)
    return jnp.concatenate([normal, cone.friction * (plus - minus)], axis=-1)


def edges(z: Float[Array, "n d"], cone: Cone) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """The forces of both edges of a pyramidal cone in each direction, zero where it is far (N)."""
    slip, D = cone.friction * z[:, 1:], jnp.where(cone.active, cone.D, 0)[:, None]
    D = D if cone.used is None else jnp.where(cone.used, D, 0)
    plus, minus = (push(z[:, :1] + sign * slip, cone.softness) for sign in (1, -1))
    return D * plus, D * minus


def _elliptic(z: Float[Array, "n d"], cone: Cone) -> Float[Array, "n d"]:
    """The elliptic cone has three zones: free, inside the cone (sticks), on its surface (slides).

    With ``N = mu z_n``, ``U = f z_t`` and ``T = |U|``, a contact is free where ``N ≥ mu T`` and
    sticks where ``mu N + T ≤ 0``. Elsewhere it slides: the force is ``D_m (mu T − N)`` along the
    gradient of the distance to the cone.
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
