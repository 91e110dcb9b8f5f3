"""The chain rule from the joints of a robot to its independent coordinates, for matrices.

With ``τ_y = Φᵀ τ(φ(y), Φ ẏ, Φ ÿ + Φ̇ ẏ)``, at fixed ẏ and ÿ:

    ∂τ_y/∂y = Φᵀ (∂τ/∂q Φ + ∂τ/∂v ∂v/∂y + M ∂a/∂y) + ∂(Φᵀ τ)/∂y,
    ∂τ_y/∂ẏ = Φᵀ (∂τ/∂v Φ + M ∂a/∂ẏ),        C_y = Φᵀ (C Φ + M Φ̇).

Of these, everything but ``Φᵀ ∂τ Φ`` is zero for linear laws, and a few numbers for others.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float

from ...model import Law
from ...model.coordinates import CoordinateMap
from ...spatial import linear


def torque_blocks(
    x: CoordinateMap,
    v: Float[Array, " nv_y"],
    a: Float[Array, " nv_y"],
    torque: Callable[[], Float[Array, " nv"]],
    dtau_dq: Float[Array, "nv nv"],
    dtau_dv: Float[Array, "nv nv"],
    M: Float[Array, "nv nv"],
) -> tuple[Float[Array, "nv_y nv_y"], Float[Array, "nv_y nv_y"], Float[Array, "nv_y nv_y"]]:
    """``(∂τ_y/∂y, ∂τ_y/∂ẏ, M_y)`` from the blocks of all joints.

    Args:
        x: the robot at y.
        v: ẏ. a: ÿ.
        torque: gives τ of all joints; it is called if a law is not linear.
        dtau_dq: with dtau_dv and M, the derivatives of τ.
    """
    by_q, by_v, mass = map(x.project, row_blocks(x, v, a, dtau_dq, dtau_dv, M))
    for law, at, u in x.laws:
        if not law.linear:
            block = _turning(law, u, v[at.by_v], torque()[at.v])
            by_q = by_q.at[at.by_v[:, None], at.by_v[None, :]].add(block)
    return by_q, by_v, mass


def row_blocks(
    x: CoordinateMap,
    v: Float[Array, " nv_y"],
    a: Float[Array, " nv_y"],
    by_q: Float[Array, "m nv"],
    by_v: Float[Array, "m nv"],
    by_a: Float[Array, "m nv"],
) -> tuple[Float[Array, "m nv_y"], Float[Array, "m nv_y"], Float[Array, "m nv_y"]]:
    """Derivatives along y, ẏ and ÿ of rows, from those along q, v and a of all joints."""
    y_q, y_v, y_a = (x.project_axes(A, (1,)) for A in (by_q, by_v, by_a))
    for law, at, u in x.laws:
        if law.linear:
            continue
        dv_du, da_du, da_ddu = _slopes(law, u, v[at.by_v], a[at.by_v])
        y_q = y_q.at[:, at.by_v].add(linear.matmul(by_v[:, at.v], dv_du))
        y_q = y_q.at[:, at.by_v].add(linear.matmul(by_a[:, at.v], da_du))
        y_v = y_v.at[:, at.by_v].add(linear.matmul(by_a[:, at.v], da_ddu))
    return y_q, y_v, y_a


def _slopes(law: Law, u: Array, du: Array, ddu: Array):
    """``∂v/∂u``, ``∂a/∂u`` and ``∂a/∂u̇`` of the joints that a law drives."""

    def acceleration(u, du):
        return law.velocity(u, ddu) + law.bias(u, du)

    return jax.jacfwd(law.velocity)(u, du), *jax.jacfwd(acceleration, (0, 1))(u, du)


def _turning(law: Law, u: Array, du: Array, tau: Array):
    """``∂(Φᵀ τ)/∂u`` at fixed τ."""

    def transposed(u):
        return jax.vjp(lambda du: law.velocity(u, du), du)[1](tau)[0]

    return jax.jacfwd(transposed)(u)


def coriolis_block(
    x: CoordinateMap,
    v: Float[Array, " nv_y"],
    C: Float[Array, "nv nv"],
    M: Float[Array, "nv nv"],
) -> Float[Array, "nv_y nv_y"]:
    """``Φᵀ (C Φ + M Φ̇)``."""
    C = x.project_axes(C, (1,))
    for law, at, u in x.laws:
        if not law.linear:
            rates = jax.jvp(law.entries, (u,), (v[at.by_v],))[1]
            rows, columns = map(np.array, law.pattern)
            C = C.at[:, at.by_v[columns]].add(M[:, at.v[rows]] * rates[None])
    return x.project(C)
