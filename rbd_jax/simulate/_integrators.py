"""One step of time integration on the configuration manifold, and the integrators by name.

A state is ``(q, v)``. A step is a function ``step(model, acceleration, t, q, v, dt) -> (q, v)``
with ``acceleration(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint). A method with
memory is an :class:`Integrator`.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from jaxtyping import Array, Float

from ..model import Model, integrate
from ..model.arguments import checked, takes_coordinates
from ._actuated import ActuatedRobot, implicitly_damped
from ._generalized_alpha import GeneralizedAlpha
from ._half_turn import below_half_a_turn
from ._integrator import Euler, Integrator, SingleStep
from ._momentum import momentum_munthe_kaas, variational
from ._munthe_kaas import EULER, RK4, TABLEAUS, Acceleration, Tableau, munthe_kaas, rk4


@checked
@takes_coordinates
def semi_implicit_euler(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """``v⁺ = v + a dt``, ``q⁺ = q ⊕ v⁺ dt``: order 1, one evaluation of the accelerations.

    Derivatives are those of autodiff through the step; accelerations of the library bring their
    analytical rules.
    """
    v = v + dt * acceleration(t, q, v)
    return integrate(model, q, dt * v), v


@checked
@takes_coordinates
def implicit_damping(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Semi-implicit Euler with the joint damping D of the model taken at the end of the step.

    ``(M + dt D) a = τ − h − D v``, ``v⁺ = v + a dt``, ``q⁺ = q ⊕ v⁺ dt``. The method has order 1
    and costs as much as the explicit step, because ``dt D`` is added like an armature. Explicit
    steps are unstable where ``dt D M⁻¹ > 2``, as in the fingers of real robots; this step is
    stable there. Derivatives are those of autodiff through the step, with the analytical rules of
    the accelerations.

    Source: the Euler step of MuJoCo (MuJoCo's documentation, "Numerical integration").

    Raises:
        TypeError: if the accelerations have no method ``implicitly_damped(dt)``. Those of
            :func:`rbd_jax.rollout`, of :func:`rbd_jax.step` and of the module ``identify`` have it.
    """
    if not hasattr(acceleration, "implicitly_damped"):
        raise TypeError(
            "implicit_damping needs accelerations that know their damping, as those of rollout and "
            f"step do by their method implicitly_damped; got a {type(acceleration).__name__}"
        )
    damped = cast(ActuatedRobot, acceleration).implicitly_damped(dt)
    v = v + dt * damped(t, q, v)
    if getattr(acceleration, "constraints", None) is None:
        v = below_half_a_turn(model, v, dt)
    return integrate(model, q, dt * v), v


@checked
@takes_coordinates
def implicit_coriolis(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Semi-implicit Euler with joint damping and Coriolis torques taken at the end of the step.

    ``M(q) a + (D + C(q, v)) v⁺ = τ − g(q)`` with ``v⁺ = v + a dt``, ``q⁺ = q ⊕ v⁺ dt``: linear
    equations for a. Limbs that turn by a large part of a radian in a step gain energy from
    explicit Coriolis torques, until they are NaN. Here ``Ṁ − 2C`` is antisymmetric, so ``v⁺ᵀ C v⁺``
    is just the power that changes the mass matrix, and the step gains no energy from it but by the
    change of C itself within the step. The method has order 1, and takes a little energy out of
    fast motion. Cost: O(n d²), with d the depth of the tree. Derivatives of the accelerations are
    implicit, see :mod:`rbd_jax.derivatives.custom_jvp.implicit_step`.

    Source: the implicit step of MuJoCo (MuJoCo's documentation, "Numerical integration").
    Departure: MuJoCo takes the derivative of the Coriolis torques with respect to v, which is not
    C, and with which the light limbs of some robots still gain energy.

    Raises:
        TypeError: if the accelerations are not those of :func:`rbd_jax.rollout` or
            :func:`rbd_jax.step`.
        ValueError: if the robot has constraints.
    """
    if not isinstance(acceleration, ActuatedRobot):
        raise TypeError(
            "implicit_coriolis needs the accelerations of rollout or step, which know the mass "
            f"matrix; got a {type(acceleration).__name__}"
        )
    v = v + dt * acceleration.with_implicit_coriolis(q, v, dt)
    return integrate(model, q, dt * v), v


INTEGRATORS: dict[str, Integrator] = {
    "semi_implicit_euler": SingleStep(
        semi_implicit_euler, EULER, Euler(lambda model, dt: model, lambda model, v, dt: v)
    ),
    "implicit_damping": SingleStep(
        implicit_damping, parts=Euler(implicitly_damped, below_half_a_turn)
    ),
    "implicit_coriolis": SingleStep(implicit_coriolis),
    **{name: SingleStep(partial(munthe_kaas, tableau=x), x) for name, x in TABLEAUS.items()},
    "momentum_rk4": SingleStep(momentum_munthe_kaas, RK4),
    "variational": SingleStep(variational),
    "generalized_alpha": GeneralizedAlpha(),
}


def resolve_integrator(integrator: str | Callable | Integrator) -> Integrator:
    """The integrator with this name. A step function becomes an integrator without memory.

    Raises:
        ValueError: for an unknown name.
        TypeError: for what is neither a name nor a function.
    """
    if isinstance(integrator, Integrator):
        return integrator
    if not isinstance(integrator, str):
        if not callable(integrator):
            kind = type(integrator).__name__
            raise TypeError(f"integrator must be a name, a function or an Integrator, got a {kind}")
        known = (x for function, x in _KNOWN if function is integrator)  # it need not be hashable
        return next(known, None) or SingleStep(integrator, _tableau(integrator))
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {sorted(INTEGRATORS)}, got {integrator!r}")
    return INTEGRATORS[integrator]


def _tableau(function: Callable) -> Tableau | None:
    """The tableau of a Runge-Kutta method of this room with a tableau of the user's choice."""
    if isinstance(function, partial) and function.func in (munthe_kaas, momentum_munthe_kaas):
        return function.keywords.get("tableau", RK4)
    return None


_KNOWN: tuple[tuple[Callable, Integrator], ...] = (
    (semi_implicit_euler, INTEGRATORS["semi_implicit_euler"]),
    (implicit_damping, INTEGRATORS["implicit_damping"]),
    (implicit_coriolis, INTEGRATORS["implicit_coriolis"]),
    (munthe_kaas, INTEGRATORS["rk4"]),
    (rk4, INTEGRATORS["rk4"]),
    (momentum_munthe_kaas, INTEGRATORS["momentum_rk4"]),
    (variational, INTEGRATORS["variational"]),
)
"""Step functions that are integrators of the table."""
