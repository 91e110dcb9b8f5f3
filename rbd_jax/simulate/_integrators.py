"""One step of time integration on the configuration manifold, and the integrators by name.

A state is ``(q, v)``. A step is ``step(model, acceleration, t, q, v, dt) -> (q, v)`` with
``acceleration(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint). A method with memory
is a step that also has ``start(model, acceleration, t, q, v, dt) -> memory`` and
``advance(model, acceleration, t, q, v, dt, memory) -> ((q, v), memory)``.
"""

from collections.abc import Callable
from functools import partial

from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, integrate
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


INTEGRATORS: dict[str, Callable] = {
    "semi_implicit_euler": semi_implicit_euler,
    **{name: partial(munthe_kaas, tableau=tableau) for name, tableau in TABLEAUS.items()},
    "momentum_rk4": momentum_munthe_kaas,
    "variational": variational,
    "generalized_alpha": GeneralizedAlpha(),
}


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
