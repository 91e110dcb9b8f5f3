"""The derivatives of one integration step, as trajectory optimisers need them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, difference, integrate
from ._actuated import Actuated
from ._integrators import resolve


@checked
def step(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    *,
    integrator: str | Callable = "semi_implicit_euler",
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """One step of ``dt`` seconds with the torques ``tau`` held. See :func:`rbd_jax.rollout`."""
    t = jnp.zeros((), q.dtype)
    dt = jnp.asarray(dt, q.dtype)
    return resolve(integrator)(model, Actuated(model, tau, f_ext), t, q, v, dt)


@checked
def step_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    *,
    integrator: str | Callable = "semi_implicit_euler",
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, "2*nv 2*nv"], Float[Array, "2*nv nv"]]:
    """``(A, B)`` with ``δx⁺ = A δx + B δτ`` for one step of any integrator, in the tangent space.

    ``x = (q, v)``; δq is along ``integrate(q, δq)`` and δq⁺ along ``integrate(q⁺, δq⁺)``. The
    accelerations inside contribute their explicit Jacobians (Singh (5)), assembled once for each
    evaluation; the chain rule through the integrator is forward mode.
    """
    q_next, _ = step(model, q, v, tau, dt, integrator=integrator, f_ext=f_ext)

    def chart(dq, v, tau):
        start = integrate(model, q, dq)
        q1, v1 = step(model, start, v, tau, dt, integrator=integrator, f_ext=f_ext)
        return jnp.concatenate([difference(model, q_next, q1), v1])

    Aq, Av, B = jax.jacfwd(chart, (0, 1, 2))(jnp.zeros_like(v), v, tau)
    return jnp.concatenate([Aq, Av], axis=1), B
