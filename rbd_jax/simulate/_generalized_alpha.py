"""The generalized-α method on the Lie group. Source: Müller §7; Brüls, Cardona, Arnold, 2012."""

from typing import Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, integrate, rate_from_velocity
from ._actuated import ActuatedRobot
from ._integrator import QV, Integrator
from ._munthe_kaas import Acceleration
from ._newton import newton


def _constraints(acceleration: Acceleration):
    return acceleration.constraints if isinstance(acceleration, ActuatedRobot) else None


class GeneralizedAlpha(Integrator):
    """Implicit steps of order 2 for stiff robots, with a chosen damping of fast oscillations.

    Source: Müller §7 [18]; Brüls, Cardona, Arnold, "Lie group generalized-α time integration of
    constrained flexible multibody systems", 2012; α_m, α_f, β, γ of Chung and Hulbert. With
    algorithmic accelerations â:

        (1 − α_m) â⁺ + α_m â = (1 − α_f) v̇⁺ + α_f v̇,      v̇ = acceleration(t, q, v),
        v⁺ = v + h ((1 − γ) â + γ â⁺),   q⁺ = q ⊕ h (v + h ((½ − β) â + β â⁺)).

    The method has a memory: the difference ``â − v̇``, here called the lead, is carried from step to
    step. Because â itself is not carried, torques may jump between steps. Pass the method as
    ``integrator=`` to :func:`rbd_jax.rollout`. Called as a function, it takes one step from a
    consistent start. Newton's method uses the analytical derivatives of the dynamics, and the
    derivatives of a step follow from the implicit function theorem.

    Constraints hold in one of two ways. With ``level="acceleration"`` they are part of the function
    ``acceleration`` as in all other integrators, and Baumgarte's gains or ``project=True`` keep the
    drift away. With ``level="position"``, the way of the source, the forces at the end of each step
    are those for which the position errors ``c(q⁺)`` are zero, so that nothing drifts; the start
    has to satisfy the constraints. Rounding in positions then moves the accelerations within a step
    by its size over h², which in float32 asks for steps of some milliseconds or more.
    """

    spectral_radius: float = eqx.field(static=True, default=0.8)
    """Factor by which one step scales an infinitely fast oscillation.

    1 keeps the oscillation, and 0 removes it in one step.
    """
    level: Literal["acceleration", "position"] = eqx.field(static=True, default="acceleration")
    """What the constraints of a rollout hold at the end of a step."""

    def __check_init__(self):
        if self.level not in ("acceleration", "position"):
            raise ValueError(
                f"GeneralizedAlpha: level must be 'acceleration' or 'position', got {self.level!r}"
            )
        if not 0.0 <= self.spectral_radius <= 1.0:
            raise ValueError(
                f"GeneralizedAlpha: spectral_radius is {self.spectral_radius}, expected a number "
                "from 0 to 1"
            )

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """``(α_m, α_f, β, γ)``. Source: Chung and Hulbert, 1993."""
        r = self.spectral_radius
        alpha_m, alpha_f = (2 * r - 1) / (r + 1), r / (r + 1)
        lag = alpha_f - alpha_m
        return alpha_m, alpha_f, 0.25 * (1 + lag) ** 2, 0.5 + lag

    def init(
        self, model: Model, acceleration: Acceleration, t: Array, q: Array, v: Array, dt: Array
    ) -> Float[Array, " nv"]:
        """The lead ``â − v̇ = (α_m − α_f) h v̈`` at the start of a motion."""
        alpha_m, alpha_f, _, _ = self.parameters
        a = acceleration(t, q, v)
        rates = jnp.ones_like(t), rate_from_velocity(model, q, v), a
        jerk = jax.jvp(acceleration, (t, q, v), rates)[1]
        return (alpha_m - alpha_f) * dt * jerk

    @property
    def has_memory(self) -> bool:
        """See :attr:`Integrator.has_memory`."""
        return True

    def step(
        self,
        model: Model,
        acceleration: Acceleration,
        t: Array,
        q: Array,
        v: Array,
        dt: Array,
        memory: Float[Array, " nv"],
    ) -> tuple[QV, Float[Array, " nv"]]:
        """One step from (q, v) and the lead; returns the new state and the new lead."""
        alpha_m, alpha_f, beta, gamma = self.parameters
        a = acceleration(t, q, v)
        lead = a + memory

        def move(x):
            """The state at the end of the step and â⁺, if v̇⁺ = x."""
            new = ((1 - alpha_f) * x + alpha_f * a - alpha_m * lead) / (1 - alpha_m)
            mean = v + dt * ((0.5 - beta) * lead + beta * new)
            q1 = integrate(model, q, dt * mean)
            return q1, v + dt * ((1 - gamma) * lead + gamma * new), new

        held = self.level == "position" and _constraints(acceleration) is not None
        scale = dt**2 if held else jnp.ones_like(dt)  # positions, not accelerations, are found
        gain = (1 - alpha_m) / ((1 - alpha_f) * beta * dt**2)

        def residual(y):
            x = y / scale
            q1, v1, _ = move(x)
            if held:
                return y - scale * cast(ActuatedRobot, acceleration).closing(q1, v1, x, gain)
            return y - acceleration(t + dt, q1, v1)

        x = newton(residual, scale * a) / scale
        q1, v1, new = move(x)
        return (q1, v1), new - x
