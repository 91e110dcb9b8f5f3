"""The equations of motion as a system in (q, Π). Source: Müller (79).

Π are the momenta of all bodies about the world's origin, so that a state is a point of
𝕍ⁿ × se*(3)ⁿ. Together the two lines of (79) say how such a state moves: the second gives q̇, the
first the accelerations, and the rate of the second is Π̇.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import checked
from .closed_form import (
    lagrange_mass_matrix,
    spatial_momentum_rates,
    torque_of_momentum_rates,
    velocity_of_momenta,
)


class PhaseRates(NamedTuple):
    """How a state (q, Π) moves: the joint velocity, and the rates of the spatial momenta."""

    v: Float[Array, " nv"]
    """Joint velocity (rad/s, m/s); q moves as ``rate_from_velocity(model, q, v)``."""
    dPi: Float[Array, "nb 6"]
    """Wrench on each body about the world's origin, in world axes (N m, N)."""


@checked
def phase_rates(
    model: Model,
    q: Float[Array, " nq"],
    Pi: Float[Array, "nb 6"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> PhaseRates:
    """The vector field of the momentum form in phase space.

    Source: Müller (79): ``M_i J_i q̇ = Π_i`` for q̇, and ``(Jˢ)ᵀ (Π̇ − W) = τ`` for the accelerations
    in ``Π̇ = M J q̈ + Π̇(q̈ = 0)``. In a free robot the sum of the Π̇ is the wrench on the whole robot,
    whatever the torques between its bodies. Cost: O(n³).

    Args:
        model: the robot; its rotor inertia and damping act at the joints.
        q: configuration.
        Pi: spatial momenta of the bodies (N m s, N s), such as :func:`spatial_momenta` gives. Of
            momenta that no motion of the joints has, the velocity is a least-squares fit.
        tau: joint torques (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    v = velocity_of_momenta(model, q, Pi)
    zero = jnp.zeros_like(v)
    bias = torque_of_momentum_rates(model, q, spatial_momentum_rates(model, q, v, zero), f_ext)
    a = jnp.linalg.solve(lagrange_mass_matrix(model, q), tau - model.damping * v - bias)
    return PhaseRates(v, spatial_momentum_rates(model, q, v, a))
