"""One integration step and its derivatives, as trajectory optimizers need them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.explicit.fdsva import acceleration_with_derivatives
from ..model import Model, integrate, rate_from_velocity, velocity_from_rate
from ..model.arguments import algorithm
from ._actuated import ActuatedRobot
from ._integrators import resolve_integrator
from ._stability import warns_if_unstable


@warns_if_unstable
@algorithm(driven_joints=True)
def step(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    *,
    integrator: str | Callable = "implicit_damping",
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state after one step of ``dt`` seconds in which the torques ``tau`` are held.

    The arguments are those of :func:`rbd_jax.rollout`. Derivatives are those of autodiff through
    the integrator, with the analytical rules of the dynamics.
    """
    t, dt = jnp.zeros((), q.dtype), jnp.asarray(dt, q.dtype)
    return resolve_integrator(integrator)(model, ActuatedRobot(model, tau, f_ext), t, q, v, dt)


@warns_if_unstable
@algorithm(driven_joints=True)
def step_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    *,
    integrator: str | Callable = "implicit_damping",
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, "2*nv 2*nv"], Float[Array, "2*nv nv"]]:
    """``(A, B)`` with ``δx⁺ = A δx + B δτ`` for one step of any integrator, in the tangent space.

    ``x = (q, v)``; δq is along ``integrate(q, δq)`` and δq⁺ along ``integrate(q⁺, δq⁺)``. The
    derivatives of the accelerations are analytical (Singh (5)), and forward mode applies the chain
    rule through the integrator. A tangent of q enters and leaves as a rate of the coordinates,
    because at a point the derivative of ``integrate`` and ``difference`` is just this conversion.

    The step is differentiated alone. ``"generalized_alpha"`` carries accelerations from step to
    step in a rollout, but here it starts from the accelerations under ``tau``. So products of its
    (A, B) are not the derivatives of a rollout.

    Returns:
        A in (2 nv, 2 nv) and B in (2 nv, nv).
    """
    t, dt = jnp.zeros((), q.dtype), jnp.asarray(dt, q.dtype)
    dq, dv, dtau = jnp.split(jnp.eye(3 * model.nv, dtype=q.dtype), 3, axis=1)
    method = resolve_integrator(integrator)
    euler = method.euler

    def actuated(q, v, drive):
        return method(model, ActuatedRobot(model, drive, f_ext), t, q, v, dt)

    def accelerated(q, v, drive):
        assert euler is not None
        v = euler.end(model, v + dt * drive, dt)
        return integrate(model, q, dt * v), v

    if euler is None:
        advance, drive, ddrive = actuated, tau, dtau
    else:  # tangents of accelerations are the columns of their Jacobian: no product with a basis
        robot = euler.robot(model, dt)
        drive, blocks = acceleration_with_derivatives(robot, q, v, tau, f_ext)
        advance, ddrive = accelerated, jnp.concatenate(blocks, axis=1).T

    def push(dq, dv, ddrive):
        rates = rate_from_velocity(model, q, dq), dv, ddrive
        (q1, _), (rate, dv1) = jax.jvp(advance, (q, v, drive), rates)
        return jnp.concatenate([velocity_from_rate(model, q1, rate), dv1])

    AB = jax.vmap(push, out_axes=1)(dq, dv, ddrive)
    return AB[:, : 2 * model.nv], AB[:, 2 * model.nv :]
