"""Local models of a problem about a trajectory: linear dynamics, quadratic costs, reset maps.

A problem returns them, and the linear-quadratic sweeps use them.
"""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int

from ...spatial.linear import matmul


class Dynamics(NamedTuple):
    """``x⁺ = A x + B u + d``, stacked over the steps."""

    A: Float[Array, "T n n"]
    B: Float[Array, "T n m"]
    d: Float[Array, "T n"]


class Quadratic(NamedTuple):
    """``lx·x + lu·u + ½ (x, u)ᵀ L (x, u)``. The final cost has no u."""

    x: Float[Array, "*T n"]
    u: Float[Array, "*T m"]
    xx: Float[Array, "*T n n"]
    ux: Float[Array, "*T m n"]
    uu: Float[Array, "*T m m"]


class ResetMaps(NamedTuple):
    """Jumps ``δv := J (δq, δv)`` of the velocity at the beginning of some steps, by landings."""

    lands: Bool[Array, " T"]
    which: Int[Array, " T"]
    """Which row of J belongs to each step."""
    J: Float[Array, "l v n"]


def times(*factors: Array) -> Array:
    """The product of matrices, and of a vector in the last place, in full precision."""
    out = factors[-1]
    for f in reversed(factors[:-1]):
        out = matmul(f, out)
    return out
