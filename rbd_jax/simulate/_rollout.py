"""Rollouts: the state trajectory under controls or a policy, one ``lax.scan`` over time."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model
from ._driven import Driven
from ._integrators import with_memory


class Trajectory(NamedTuple):
    """States after 0, 1, …, T steps and the torques applied in each step."""

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    tau: Float[Array, "T nv"]


@checked
def rollout(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    controls: Float[Array, "T nv"] | Callable[[Array, Array, Array], Array],
    dt: float | Float[Array, ""],
    *,
    steps: int | None = None,
    integrator: str | Callable = "semi_implicit_euler",
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Trajectory:
    """Simulate from (q0, v0) with a fixed time step.

    Args:
        model: the robot.
        q0: initial configuration.
        v0: initial velocity.
        controls: torques held over each step, one row a step (N m, N); or a policy
            ``controls(t, q, v) -> tau``, evaluated at the start of each step.
        dt: time step (s).
        steps: number of steps; needed with a policy, else the number of rows of ``controls``.
        integrator: ``"semi_implicit_euler"`` (order 1); ``"euler"``, ``"midpoint"``, ``"heun"``,
            ``"kutta3"`` or ``"rk4"`` (Munthe-Kaas, orders 1 to 4); ``"momentum_rk4"`` or
            ``"variational"`` (exact in the momentum of a free robot, orders 4 and 2);
            ``"generalized_alpha"`` (stiff robots, order 2); or a step function
            ``(model, acceleration, t, q, v, dt) -> (q, v)``.
        f_ext: constant external wrench (n, f) on each body, in its frame.

    Returns:
        The trajectory, the initial state included.

    Raises:
        ValueError: for a wrong shape, an unknown integrator or a missing ``steps``.
    """
    start, step = with_memory(integrator)
    policy = controls if callable(controls) else None
    if policy is None:
        rows = jnp.asarray(controls)
        if rows.ndim != 2 or rows.shape[1] != model.nv:
            raise ValueError(
                f"rollout: controls has shape {rows.shape}, expected (T, nv) = (T, {model.nv})"
            )
        if steps is not None and steps != rows.shape[0]:
            raise ValueError(f"rollout: steps={steps} but controls has {rows.shape[0]} rows")
        steps = rows.shape[0]
    elif steps is None:
        raise ValueError("rollout: with a policy, say how many steps to take: steps=…")
    else:
        rows = None
    dt = jnp.asarray(dt, q0.dtype)

    def begin(k, row, q, v):
        """The torques of a step, and what an integrator takes."""
        t = k.astype(q.dtype) * dt
        tau = row if policy is None else policy(t, q, v)
        return tau, (model, Driven(model, tau, f_ext), t, q, v, dt)

    def advance(state, k_row):
        ((q, v), memory), (k, row) = state, k_row
        tau, arguments = begin(k, row, q, v)
        new, memory = step(*arguments, memory)
        return (new, memory), (*new, tau)

    index = jnp.arange(steps)
    first = None if rows is None else (rows[0] if steps else jnp.zeros_like(v0))
    memory = start(*begin(jnp.zeros((), index.dtype), first, q0, v0)[1])
    _, (q, v, tau) = jax.lax.scan(advance, ((q0, v0), memory), (index, rows))
    q = jnp.concatenate([q0[None], q])
    v = jnp.concatenate([v0[None], v])
    return Trajectory(jnp.arange(steps + 1).astype(q.dtype) * dt, q, v, tau)
