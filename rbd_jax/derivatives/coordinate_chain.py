"""The chain rule from the joints of a robot to its independent coordinates, for matrices.

With ``τ_y = Φᵀ τ(φ(y), Φ ẏ, Φ ÿ + Φ̇ ẏ)``, at fixed ẏ and ÿ:

    ∂τ_y/∂y = Φᵀ (∂τ/∂q Φ + ∂τ/∂v ∂v/∂y + M ∂a/∂y) + ∂(Φᵀ τ)/∂y,
    ∂τ_y/∂ẏ = Φᵀ (∂τ/∂v Φ + M ∂a/∂ẏ),        C_y = Φᵀ (C Φ + M Φ̇).

Of these, everything but ``Φᵀ ∂τ Φ`` is zero for linear laws, and a few numbers for others.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Law
from ..model.expansion import Expansion


def torque_blocks(
    x: Expansion,
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
    by_q, by_v, mass = (x.project_axes(A, (1,)) for A in (dtau_dq, dtau_dv, M))
    own = []
    for law, at, u in x.laws:
        if law.linear:
            continue

        state = u, v[at.by_v], a[at.by_v]
        dv_du, da_du, da_ddu, block = _slopes(law, *state, torque()[at.v])
        by_q = by_q.at[:, at.by_v].add(_product(dtau_dv[:, at.v], dv_du))
        by_q = by_q.at[:, at.by_v].add(_product(M[:, at.v], da_du))
        by_v = by_v.at[:, at.by_v].add(_product(M[:, at.v], da_ddu))
        own.append((at.by_v, block))
    by_q, by_v, mass = map(x.project, (by_q, by_v, mass))
    for places, block in own:
        by_q = by_q.at[places[:, None], places[None, :]].add(block)
    return by_q, by_v, mass


def _slopes(law: Law, u: Array, du: Array, ddu: Array, tau: Array):
    """``∂v/∂u``, ``∂a/∂u``, ``∂a/∂u̇`` and ``∂(Φᵀ τ)/∂u`` of the joints that a law drives."""

    def acceleration(u, du):
        return law.velocity(u, ddu) + law.bias(u, du)

    def transposed(u):
        return jax.vjp(lambda du: law.velocity(u, du), du)[1](tau)[0]

    by_both = jax.jacfwd(acceleration, (0, 1))(u, du)
    return jax.jacfwd(law.velocity)(u, du), *by_both, jax.jacfwd(transposed)(u)


def coriolis_block(
    x: Expansion,
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


def _product(A: Array, B: Array) -> Array:
    return jnp.matmul(A, B, precision="highest")
