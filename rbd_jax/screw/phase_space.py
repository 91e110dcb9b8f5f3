"""The equations of motion as a system in (q, Π). Source: Müller (79).

Π are the momenta of all bodies about the world's origin, so that a state is a point of 𝕍ⁿ ×
se*(3)ⁿ. The two lines of (79) determine the motion of such a state. The second line gives q̇, the
first one gives the accelerations, and the time derivative of the second one is Π̇.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve
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
    """The rates of a state (q, Π): the joint velocity, and the rates of the spatial momenta."""

    v: Float[Array, " nv"]
    """Joint velocity (rad/s, m/s); the rate of q is ``rate_from_velocity(model, q, v)``."""
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

    In a free robot the sum of the Π̇ is the external wrench on the robot, whatever the joint
    torques are. Derivatives are those of autodiff. Cost: O(n³).

    Source: Müller (79): ``M_i J_i q̇ = Π_i`` gives q̇, and ``(Jˢ)ᵀ (Π̇ − W) = τ`` gives the
    accelerations in ``Π̇ = M J q̈ + Π̇(q̈ = 0)``.

    Args:
        model: the robot. Its rotor inertia and damping act at the joints.
        q: configuration.
        Pi: spatial momenta of the bodies (N m s, N s), as from :func:`spatial_momenta`. If no
            motion of the joints has these momenta, the velocity is a least-squares fit.
        tau: joint torques (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    v = velocity_of_momenta(model, q, Pi)
    zero = jnp.zeros_like(v)
    bias = torque_of_momentum_rates(model, q, spatial_momentum_rates(model, q, v, zero), f_ext)
    right = tau - model.damping * v - bias
    a = solve(lagrange_mass_matrix(model, q), right, assume_a="pos")
    return PhaseRates(v, spatial_momentum_rates(model, q, v, a))
