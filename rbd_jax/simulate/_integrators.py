"""One step of time integration on the configuration manifold.

A state is ``(q, v)``. A step is ``step(model, acceleration, t, q, v, dt) -> (q, v)`` with
``acceleration(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint).
"""

from collections.abc import Callable

from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, chart_rate, integrate

Acceleration = Callable[[Array, Array, Array], Array]


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
def rk4(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The classical Runge–Kutta scheme in the chart ``u ↦ q ⊕ u``: order 4, four evaluations.

    Source: Müller §7 (Munthe-Kaas): the chart coordinates u obey u̇ = dexp⁻¹(u) v, so that the
    order is kept on the manifold for every joint kind.
    """

    def rate(c, u, w):
        at = integrate(model, q, u)
        return chart_rate(model, u, w), acceleration(t + c * dt, at, w)

    k1 = v, acceleration(t, q, v)
    k2 = rate(0.5, 0.5 * dt * k1[0], v + 0.5 * dt * k1[1])
    k3 = rate(0.5, 0.5 * dt * k2[0], v + 0.5 * dt * k2[1])
    k4 = rate(1.0, dt * k3[0], v + dt * k3[1])
    u, dv = (dt / 6 * (a + 2 * b + 2 * c + d) for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return integrate(model, q, u), v + dv


INTEGRATORS: dict[str, Callable] = {"semi_implicit_euler": semi_implicit_euler, "rk4": rk4}


def resolve(integrator: str | Callable) -> Callable:
    """The step function of a name, or the function itself."""
    if callable(integrator):
        return integrator
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator must be one of {sorted(INTEGRATORS)}, got {integrator!r}")
    return INTEGRATORS[integrator]
