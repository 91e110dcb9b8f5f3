"""One step of time integration on the configuration manifold, and the integrators by name.

A state is ``(q, v)``. A step is a function ``step(model, acceleration, t, q, v, dt) -> (q, v)``
with ``acceleration(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint). A method with
memory is such a function that also has the methods
``start(model, acceleration, t, q, v, dt) -> memory`` and
``advance(model, acceleration, t, q, v, dt, memory) -> ((q, v), memory)``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from jaxtyping import Array, Float

from ..model import Model, integrate
from ..model.arguments import checked, takes_coordinates
from ._actuated import ActuatedRobot, implicitly_damped
from ._generalized_alpha import GeneralizedAlpha
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
    return semi_implicit_euler(model, damped, t, q, v, dt)


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
    implicit, see :mod:`rbd_jax.derivatives.implicit_step`.

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


INTEGRATORS: dict[str, Callable] = {
    "semi_implicit_euler": semi_implicit_euler,
    "implicit_damping": implicit_damping,
    "implicit_coriolis": implicit_coriolis,
    **{name: partial(munthe_kaas, tableau=tableau) for name, tableau in TABLEAUS.items()},
    "momentum_rk4": momentum_munthe_kaas,
    "variational": variational,
    "generalized_alpha": GeneralizedAlpha(),
}


def explicit_tableau(integrator: str | Callable) -> Tableau | None:
    """The tableau by which an explicit integrator follows ``v̇ = −λ v``; None for all others."""
    step = resolve_integrator(integrator)
    if isinstance(step, partial) and step.func in (munthe_kaas, momentum_munthe_kaas):
        return step.keywords.get("tableau", RK4)
    if hasattr(step, "method"):  # another integrator with accelerations of its own
        return explicit_tableau(cast(Any, step).method)
    known = (semi_implicit_euler, EULER), (rk4, RK4), (munthe_kaas, RK4)
    known += ((momentum_munthe_kaas, RK4),)
    return next((tableau for f, tableau in known if step is f), None)


def euler_robot(integrator: str | Callable, model: Model, dt: Array) -> Model | None:
    """The robot whose accelerations make the integrator a step of semi-implicit Euler.

    None if the integrator is not a step of semi-implicit Euler.
    """
    step = resolve_integrator(integrator)
    if step is implicit_damping:
        return implicitly_damped(model, dt)
    return model if step is semi_implicit_euler else None


def resolve_integrator(integrator: str | Callable) -> Callable:
    """The step function with this name; a function is returned as it is.

    Raises:
        ValueError: for an unknown name.
    """
    if callable(integrator):
        return integrator
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {sorted(INTEGRATORS)}, got {integrator!r}")
    return INTEGRATORS[integrator]


def with_memory(integrator: str | Callable) -> tuple[Callable, Callable]:
    """The functions ``(start, advance)`` of any integrator.

    An integrator without memory gets an empty memory.
    """
    step = resolve_integrator(integrator)
    if hasattr(step, "advance"):
        return step.start, step.advance
    return lambda *_: (), lambda *state: (step(*state[:-1]), ())
