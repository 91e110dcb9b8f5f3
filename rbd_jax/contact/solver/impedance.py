"""How stiff and how soft a constraint is: MuJoCo's ``solref`` and ``solimp``.

Source: MuJoCo's documentation, "Computation", constraint model, and "Modeling", solver parameters.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

LEAST, MOST = 1e-4, 0.9999
TINY = 1e-15


class Softness(NamedTuple):
    """``solref`` and ``solimp`` of n constraints."""

    solref: Float[Array, "n 2"]
    """Time constant (s) and damping ratio; or, both negative, −stiffness and −damping."""
    solimp: Float[Array, "n 5"]
    """Impedance at zero violation, at full violation, width (m, rad), midpoint, power."""


def impedance(solimp: Float[Array, "n 5"], violation: Float[Array, " n"]) -> Float[Array, " n"]:
    """``d(r)`` in (0, 1): how much of its reference acceleration a constraint gets.

    Source: "Modeling", solver parameters, impedance; a sigmoid of two powers from ``d0`` to ``dw``.
    """
    low, high = (jnp.clip(solimp[:, k], LEAST, MOST) for k in (0, 1))
    width, mid = solimp[:, 2], jnp.clip(solimp[:, 3], LEAST, MOST)
    power = jnp.maximum(solimp[:, 4], 1)
    flat = (low == high) | (width <= TINY)
    x = jnp.abs(violation) / jnp.where(flat, 1, width)
    inside = (x > 0) & (x < 1)
    x = jnp.where(inside, x, 0.5)  # a place where all derivatives are finite
    rising = x**power / mid ** (power - 1)
    falling = 1 - (1 - x) ** power / (1 - mid) ** (power - 1)
    y = jnp.where(power == 1, x, jnp.where(x <= mid, rising, falling))
    curved = low + y * (high - low)
    full = jnp.abs(violation) >= jnp.where(flat, 1, width)
    ends = jnp.where(full, high, low)
    return jnp.where(flat, 0.5 * (low + high), jnp.where(inside, curved, ends))


def stiffness_and_damping(
    softness: Softness, least_time: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """``(k, b)`` of the reference acceleration ``−b v − k d r``, before the impedance d.

    Source: "Modeling", solver parameters, reference. ``least_time`` is two time steps, below which
    no time constant falls (``refsafe``), or zero.
    """
    ref, width = softness.solref, jnp.clip(softness.solimp[:, 1], LEAST, MOST)
    standard = ref[:, 0] > 0
    time = jnp.where(standard, jnp.maximum(ref[:, 0], least_time), 1)
    ratio = jnp.where(standard, ref[:, 1], 1)
    k = 1 / jnp.maximum(TINY, (width * time * ratio) ** 2)
    b = 2 / jnp.maximum(TINY, width * time)
    direct_k, direct_b = -ref[:, 0] / jnp.maximum(TINY, width**2), -ref[:, 1] / width
    return jnp.where(standard, k, direct_k), jnp.where(standard, b, direct_b)


def regularization(d: Float[Array, "*#n"], weight: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """``R = (1 − d)/d · Â``, the softness in units of an inverse inertia. Source: "Computation"."""
    return jnp.maximum(TINY, (1 - d) / d * weight)
