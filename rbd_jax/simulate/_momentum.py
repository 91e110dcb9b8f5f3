"""Steps in momentum form: explicit Runge–Kutta and a variational midpoint rule.

A configuration moves as ``q ⊕ u``. Letters: w is a velocity and p = ∂T/∂v a momentum.
G = ∂T/∂q + F, where F are the applied forces: gravity, torques and every other force that the
accelerations result from. ``J_r(u)`` is the map of :func:`chart_velocity`, ``J_l(u) = J_r(−u)``,
and ``J_l J_r⁻¹`` is Ad of the joint's motion.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.momentum import kinetic_gradients, rotor_coadjoint
from ..algorithms.passive import at_rest
from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_solve
from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model import Model, chart_rate, chart_velocity, integrate
from ..model.arguments import checked, takes_coordinates
from ._munthe_kaas import RK4, Acceleration, Tableau, increment
from ._newton import newton


def _transposed(function, model: Model, u: Array, p: Array) -> Float[Array, " nv"]:
    """The transpose of ``chart_rate(u)`` or ``chart_velocity(u)`` applied to a momentum."""
    if not p.size:
        return p
    return jax.linear_transpose(lambda x: function(model, u, x), p)(p)[0]


def _transported(model: Model, u: Array, p: Array) -> Float[Array, " nv"]:
    """``Ad*_u p = (J_l J_r⁻¹)ᵀ p``.

    A momentum before the motion u, expressed in the axes after the motion.
    """
    return _transposed(chart_rate, model, u, _transposed(chart_velocity, model, -u, p))


def _momentum_and_drive(
    model: Model, acceleration: Acceleration, t: Array, q: Array, v: Array
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """``(p, G)`` at a state: the momentum obeys ``ṗ = ad*_v p + G``.

    The forces ``F = M a + C v`` follow from the accelerations. An acceleration function with a
    method ``force``, such as the one of a rollout, returns them directly. The rotor inertia
    (armature) of this library is constant along each degree of freedom, also in joints with several
    degrees of freedom. Its part of ``ad*_v p`` does not occur in the equations of motion and is
    subtracted.
    """
    if hasattr(acceleration, "force"):
        force = acceleration.force(t, q, v)
    else:
        force = inverse_dynamics(at_rest(model), q, v, acceleration(t, q, v))
    p, slope = kinetic_gradients(model, q, v)
    return p, slope + force - rotor_coadjoint(model, q, v)


@checked
@takes_coordinates
def momentum_munthe_kaas(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
    tableau: Tableau = RK4,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """One explicit Runge–Kutta step of the momenta, exact in the momentum of a free robot.

    Momenta μ that are spatial in each joint obey ``μ̇ = Ad*(∂T/∂q + F)``. At a free root the right
    side is the external wrench alone. So the momentum of a free robot is a linear invariant, and
    every Runge–Kutta method keeps linear invariants. Without gravity and external wrenches the
    momentum :func:`rbd_jax.algorithms.spatial_momentum` changes by rounding only, for any step
    length. Under gravity the linear momentum is exact. Energy is kept to the order of the tableau.
    Derivatives are those of autodiff through the step, with the analytical rules of the dynamics.

    Source: Müller (36), (79) and §7.

    Args:
        model: the robot.
        acceleration: ``(t, q, v) -> a`` (rad/s², m/s²).
        t: time at the start of the step (s).
        q: configuration. v: velocity.
        dt: length of the step (s).
        tableau: the method.
    """
    p0, _ = kinetic_gradients(model, q, v)

    def state(u, dmu):
        at = integrate(model, q, u)
        return at, mass_matrix_solve(model, at, _transported(model, u, p0 + dmu))

    def rate(c, x):
        at, w = state(*x)
        _, G = _momentum_and_drive(model, acceleration, t + c, at, w)
        return chart_rate(model, x[0], w), _transported(model, -x[0], G)

    return state(*increment(tableau, rate, (v, v), dt))


@checked
@takes_coordinates
def variational(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """One step of the variational midpoint rule: order 2, symmetric, symplectic, implicit.

    Source: Müller §7 (momentum-preserving schemes); the discrete Euler–Lagrange equations
    (Marsden, West, Discrete mechanics and variational integrators, 2001) of the discrete
    Lagrangian ``h T(q ⊕ u/2, u/h)`` with forces at the midpoint, on the group by dexp:

        p  = J_l(u)⁻ᵀ (M u/h − ½ h J_l(u/2)ᵀ G)        which is solved for u,
        p⁺ = J_r(u)⁻ᵀ (M u/h + ½ h J_r(u/2)ᵀ G),       M and G at q ⊕ u/2.

    Noether's theorem holds for the discrete motion. The momentum of a free robot is kept up to
    rounding (under gravity: its horizontal linear and its vertical angular part), and the energy of
    a conservative robot does not drift. This holds for every step length for which Newton's method
    converges; otherwise the state becomes NaN. Derivatives follow from the implicit function
    theorem, with the analytical rules of the dynamics.

    The arguments are those of :func:`rbd_jax.simulate.munthe_kaas`. The accelerations are evaluated
    at ``t + dt/2``.
    """
    p0, _ = kinetic_gradients(model, q, v)

    def midpoint(w):
        half = 0.5 * dt * w
        at = integrate(model, q, half)
        p, G = _momentum_and_drive(model, acceleration, t + 0.5 * dt, at, w)
        return half, p, 0.5 * dt * G

    def residual(w):
        half, p, G = midpoint(w)
        back = jax.vmap(partial(_transposed, chart_velocity, model))
        return p - jnp.sum(back(jnp.stack([-half, -2 * half]), jnp.stack([G, p0])), axis=0)

    w = newton(residual, v)
    half, p, G = midpoint(w)
    p = _transposed(chart_rate, model, 2 * half, p + _transposed(chart_velocity, model, half, G))
    end = integrate(model, q, 2 * half)
    return end, mass_matrix_solve(model, end, p)
