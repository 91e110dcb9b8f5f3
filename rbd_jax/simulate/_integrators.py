"""One step of time integration on the configuration manifold, and the integrators by name.

A state is ``(q, v)``. A step is ``step(model, acceleration, t, q, v, dt) -> (q, v)`` with
``acceleration(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint). A method with memory
is a step that also has ``start(model, acceleration, t, q, v, dt) -> memory`` and
``advance(model, acceleration, t, q, v, dt, memory) -> ((q, v), memory)``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
from jaxtyping import Array, Float

from ..model import Model, integrate
from ..model.arguments import checked
from ._actuated import Actuated
from ._generalized_alpha import GeneralizedAlpha
from ._momentum import momentum_munthe_kaas, variational
from ._munthe_kaas import TABLEAUS, Acceleration, munthe_kaas


@checked
def semi_implicit_euler(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """``v⁺ = v + a dt``, ``q⁺ = q ⊕ v⁺ dt``: order 1, one evaluation a step."""
    v = v + dt * acceleration(t, q, v)
    return integrate(model, q, dt * v), v


@checked
def implicit_damping(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Semi-implicit Euler with the joint damping D of the model taken at the end of the step.

    ``(M + dt D) a = τ − h − D v``, ``v⁺ = v + a dt``, ``q⁺ = q ⊕ v⁺ dt``: order 1, the cost of the
    explicit step, since ``dt D`` enters like an armature. Explicit steps explode where
    ``dt D M⁻¹ > 2``, as in the fingers of real robots; this one does not.

    Source: MuJoCo's documentation, "Numerical integration", whose Euler step it is.

    Raises:
        TypeError: unless the accelerations are those of a :func:`rbd_jax.rollout` or
            :func:`rbd_jax.step`, which know their damping.
    """
    if not isinstance(acceleration, Actuated):
        raise TypeError("implicit_damping: a step of rollout or step only, whose forces are known")
    heavier = _heavier(acceleration.model, dt)
    return semi_implicit_euler(model, replace(acceleration, model=heavier), t, q, v, dt)


def _heavier(model: Model, dt: Array) -> Model:
    return eqx.tree_at(lambda m: m.armature, model, model.armature + dt * model.damping)


INTEGRATORS: dict[str, Callable] = {
    "semi_implicit_euler": semi_implicit_euler,
    "implicit_damping": implicit_damping,
    **{name: partial(munthe_kaas, tableau=tableau) for name, tableau in TABLEAUS.items()},
    "momentum_rk4": momentum_munthe_kaas,
    "variational": variational,
    "generalized_alpha": GeneralizedAlpha(),
}


def accelerated_once(integrator: str | Callable, model: Model, dt: Array) -> Model | None:
    """The robot whose acceleration a step takes, if it is semi-implicit Euler with that robot's."""
    step = resolve(integrator)
    if step is implicit_damping:
        return _heavier(model, dt)
    return model if step is semi_implicit_euler else None


def resolve(integrator: str | Callable) -> Callable:
    """The step function of a name, or the function itself."""
    if callable(integrator):
        return integrator
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {sorted(INTEGRATORS)}, got {integrator!r}")
    return INTEGRATORS[integrator]


def with_memory(integrator: str | Callable) -> tuple[Callable, Callable]:
    """``(start, advance)`` of any integrator; the memory of a plain step is empty."""
    step = resolve(integrator)
    if hasattr(step, "advance"):
        return step.start, step.advance
    return lambda *_: (), lambda *state: (step(*state[:-1]), ())
