"""Explicit Runge–Kutta methods on the configuration manifold. Source: Müller §7."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model, chart_rate, integrate
from ..model.arguments import checked, takes_coordinates

Acceleration = Callable[[Array, Array, Array], Array]


class Tableau(NamedTuple):
    """An explicit Runge–Kutta method: weights a of the stages (a row each), weights b, and order.

    The nodes c are the sums of the rows of a.
    """

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    order: int


EULER = Tableau(((),), (1.0,), 1)
MIDPOINT = Tableau(((), (1 / 2,)), (0.0, 1.0), 2)
HEUN = Tableau(((), (1.0,)), (1 / 2, 1 / 2), 2)
KUTTA3 = Tableau(((), (1 / 2,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6), 3)
RK4 = Tableau(((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), 4)

TABLEAUS = {"euler": EULER, "midpoint": MIDPOINT, "heun": HEUN, "kutta3": KUTTA3, "rk4": RK4}


def increment(tableau: Tableau, rate: Callable[[Array, Any], Any], like: Any, dt: Array) -> Any:
    """``h Σ b_i k_i`` with ``k_i = rate(c_i h, h Σ_j a_ij k_j)``: one step from zero.

    The stages are a loop, so a large ``rate`` is compiled only once.

    Args:
        tableau: the method.
        rate: ``(time since the start of the step, increment so far) -> rate``, a pytree.
        like: a pytree with the structure and the shapes of the increment.
        dt: length of the step h.
    """
    stages = len(tableau.b)
    if len(tableau.a) != stages or any(len(row) > i for i, row in enumerate(tableau.a)):
        raise ValueError(
            "the tableau is not explicit: row i = 0, 1, … of a may have at most i weights, and "
            f"there must be a row for each of the {stages} weights in b; got a = {tableau.a}. "
            "Implicit integrators are 'variational' and GeneralizedAlpha"
        )
    table = np.array([[*row, *[0.0] * (stages - len(row))] for row in tableau.a])
    a, b = (jnp.asarray(x, dt.dtype) for x in (table, np.array(tableau.b)))
    nodes = jnp.asarray(table.sum(axis=1), dt.dtype)

    def combine(weights, k):
        return jax.tree.map(lambda x: dt * jnp.tensordot(weights, x, 1, precision="highest"), k)

    def stage(k, i_row_c):
        i, row, c = i_row_c
        new = rate(c * dt, combine(row, k))
        return jax.tree.map(lambda x, y: x.at[i].set(y), k, new), None

    start = jax.tree.map(lambda x: jnp.zeros((stages, *x.shape), x.dtype), like)
    k, _ = jax.lax.scan(stage, start, (jnp.arange(stages), a, nodes))
    return combine(b, k)


@checked
@takes_coordinates
def munthe_kaas(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
    tableau: Tableau = RK4,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """One step of an explicit Runge–Kutta method in the chart ``u ↦ q ⊕ u``.

    The chart coordinates u start at zero in every step and obey ``u̇ = dexp⁻¹_{−u} v``, which is
    exact for SO(3) and SE(3). So the tableau keeps its order on the manifold for every kind of
    joint, and quaternions keep their length. Derivatives are those of autodiff through the step;
    accelerations of the library bring their analytical rules.

    Source: Müller §7, (89) (Munthe-Kaas).

    Args:
        model: the robot.
        acceleration: ``(t, q, v) -> a`` (rad/s², m/s²).
        t: time at the start of the step (s).
        q: configuration. v: velocity.
        dt: length of the step (s).
        tableau: the method.

    Returns:
        Configuration and velocity after the step.

    Raises:
        ValueError: if the tableau is not explicit.
    """

    def rate(c, x):
        u, dv = x
        w = v + dv
        return chart_rate(model, u, w), acceleration(t + c, integrate(model, q, u), w)

    u, dv = increment(tableau, rate, (v, v), dt)
    return integrate(model, q, u), v + dv


@checked
@takes_coordinates
def rk4(
    model: Model,
    acceleration: Acceleration,
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The classical Runge–Kutta scheme on the manifold: order 4, four evaluations.

    It is :func:`rbd_jax.simulate.munthe_kaas` with the tableau ``RK4``, and has the same
    derivatives.

    Source: Müller §7.
    """
    return munthe_kaas(model, acceleration, t, q, v, dt, RK4)
