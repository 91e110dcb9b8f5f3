"""The equations of motion as first-order systems in twists and momenta, in O(n). Source: Müller.

Four sets of variables besides (q, q̇):

- (q, Vᵇ), the body-fixed twists of all bodies: :func:`body_twist_rates`; §5.1.
- (q, Π), the momenta of all bodies about the world's origin, a point of 𝕍ⁿ × se*(3)ⁿ:
  :func:`phase_rates`; (79). The second line of (79) gives q̇, the first one the accelerations, and
  the time derivative of the second one Π̇.
- (q, p), the canonical momenta ``p = ∂T/∂q̇``: :func:`canonical_rates`; §4.2, §8 and [66].

The Jacobians are block triangular, so that all these systems are solved by articulated bodies
(:mod:`rbd_jax.screw.articulated`), in spatial twists. Derivatives are those of autodiff.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import minus_springs
from ..algorithms.tree import ancestor_sum, per_dof, subtree_sum, sum_dofs
from ..model import Model
from ..model.arguments import checked, projected
from ..spatial import inertia, so3
from ..spatial.motion import cross_twist, wrench_to_parent
from . import body_fixed, spatial
from .articulated import CARRIERS, bodies_of, factorize, forward_dynamics, solve
from .closed_form import gravity_wrench, spatial_momenta, spatial_momentum_rates
from .system import joint_velocities


class TwistRates(NamedTuple):
    """The rates of a state (q, Vᵇ): the joint velocity, and the rates of the body-fixed twists."""

    v: Float[Array, " nv"]
    """Joint velocity (rad/s, m/s); the rate of q is ``rate_from_velocity(model, q, v)``."""
    dV: Float[Array, "nb 6"]
    """Rates of the components of the twists (rad/s², m/s²)."""


class PhaseRates(NamedTuple):
    """The rates of a state (q, Π): the joint velocity, and the rates of the spatial momenta."""

    v: Float[Array, " nv"]
    """Joint velocity (rad/s, m/s); the rate of q is ``rate_from_velocity(model, q, v)``."""
    dPi: Float[Array, "nb 6"]
    """Wrench on each body about the world's origin, in world axes (N m, N)."""


class CanonicalRates(NamedTuple):
    """The rates of a state (q, p): the joint velocity, and the rates of the canonical momenta."""

    v: Float[Array, " nv"]
    """Joint velocity (rad/s, m/s); the rate of q is ``rate_from_velocity(model, q, v)``."""
    dp: Float[Array, " nv"]
    """Rates of the momenta (N m, N)."""


@checked
def body_twist_rates(
    model: Model,
    q: Float[Array, " nq"],
    V: Float[Array, "nb 6"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> TwistRates:
    """The vector field of the equations of motion in configuration and body-fixed twists.

    Cost: O(n).

    Source: Müller §5.1: (78) with (111), n + 6n equations of first order. (111) gives q̇, (78) the
    accelerations q̈ by its block-triangular structure, and (10), here (66c), V̇.

    Args:
        model: the robot.
        q: configuration.
        V: body-fixed twists of the bodies (rad/s, m/s), as from :func:`twists`. If no motion of
            the joints has these twists, the velocity is a least-squares fit.
        tau: joint torques (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    v = joint_velocities(model, q, V)
    a = forward_dynamics(model, q, v, tau, f_ext)
    return TwistRates(v, body_fixed.motion(model, q, (v, a))[1])


@checked
def velocity_of_momenta(
    model: Model, q: Float[Array, " nq"], Pi: Float[Array, "nb 6"]
) -> Float[Array, " nv"]:
    """The joint velocity at which the bodies have the spatial momenta Π (rad/s, m/s).

    Cost: O(n).

    Source: Müller (79), second line, projected: ``(Σ Jᵀ M J) q̇ = Σ (J_iˢ)ᵀ Π_i``, solved by its
    block-triangular structure. This form needs no inverse of inertias, so that bodies may be
    massless.

    Args:
        model: the robot.
        q: configuration.
        Pi: spatial momenta of the bodies (N m s, N s).
    """
    carrier, none = CARRIERS["spatial"], jnp.zeros((model.nv,), model.dtype)
    factor = factorize(model, carrier, bodies_of(model, q, "spatial"), none)
    return solve(model, carrier, factor, none, -Pi)


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
    torques are. Cost: O(n).

    Source: Müller (79): ``M_i J_i q̇ = Π_i`` gives q̇, and ``(Jˢ)ᵀ (Π̇ − W) = τ`` gives the
    accelerations in ``Π̇ = M J q̈ + Π̇(q̈ = 0)``, both by the block-triangular structure of Jˢ.

    Args:
        model: the robot. Its rotor inertia, damping and springs act at the joints.
        q: configuration.
        Pi: spatial momenta of the bodies (N m s, N s), as from :func:`spatial_momenta`. If no
            motion of the joints has these momenta, the velocity is a least-squares fit.
        tau: joint torques (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    v = velocity_of_momenta(model, q, Pi)
    a = forward_dynamics(model, q, v, tau, f_ext, "spatial")
    return PhaseRates(v, spatial_momentum_rates(model, q, v, a))


# --- canonical momenta -------------------------------------------------------------------------


@checked
@projected(0)
def canonical_momenta(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``p = ∂T/∂q̇ = M q̇`` (N m s, N s), with the rotor inertia. Cost: O(n).

    Source: Müller §5.2, the text after (81), as ``p_j = J_jᵀ Σ Π`` with the momenta (35) of the
    bodies behind joint j.
    """
    below = subtree_sum(model.topology.tree, spatial_momenta(model, q, v))
    J = spatial.joint_screws(model, forward_kinematics(model, q))
    return jnp.sum(J * per_dof(model.topology, below), axis=-1) + model.armature * v


@checked
def canonical_rates(
    model: Model,
    q: Float[Array, " nq"],
    p: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> CanonicalRates:
    """The vector field of Hamilton's equations in configuration and canonical momenta.

    No acceleration and no bias wrench is computed: the articulated inertias give q̇, and three sums
    along the tree give ṗ. Cost: O(n).

    Source: Müller §4.2 and §8, the method of Naudet et al. [66] in the spatial representation that
    §8 proposes, where [66] has the hybrid one. With ``P_j`` the momentum of the bodies behind joint
    j, ``p_j = J_jᵀ P_j + b q̇_j``. By (16) ``J̇_j = ad_{V_j} J_j``, and by (36) ``J_jᵀ Ṗ_j`` is the
    torque of the joint and the applied wrenches W behind it:
    ``ṗ_j = τ_j + J_jᵀ Σ W + (ad_{V_j} J_j)ᵀ P_j``.

    Args:
        model: the robot. Its damping and springs act at the joints.
        q: configuration.
        p: canonical momenta (N m s, N s), as from :func:`canonical_momenta`.
        tau: joint torques (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    topology, carrier = model.topology, CARRIERS["spatial"]
    factor = factorize(model, carrier, bodies_of(model, q, "spatial"), model.armature)
    v = solve(model, carrier, factor, p, jnp.zeros((model.nb, 6), model.dtype))
    C = forward_kinematics(model, q)
    J = spatial.joint_screws(model, C)
    V = ancestor_sum(topology.tree, sum_dofs(topology, J * v[:, None]))
    W = gravity_wrench(model, C[0])
    W = wrench_to_parent(C, W if f_ext is None else W + f_ext)
    Pi = inertia.apply(inertia.to_parent(C, model.inertia), V)
    below = per_dof(topology, subtree_sum(topology.tree, jnp.concatenate([W, Pi], axis=-1)))
    dJ = cross_twist(per_dof(topology, V), J)
    dp = so3.dot(J, below[:, :6]) + so3.dot(dJ, below[:, 6:])
    return CanonicalRates(v, minus_springs(model, q, tau - model.damping * v) + dp)
