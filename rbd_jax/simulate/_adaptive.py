"""Adaptive integration by diffrax, with its events, dense output and adjoints (extra ``diffrax``).

diffrax integrates in a vector space. Here the state is ``(q, v)`` in ambient coordinates, that is,
with four coordinates for a quaternion. The vector field is tangent to the manifold and also pulls
the length of every quaternion back to one. So no solver drifts off the manifold, however many
steps it takes.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..derivatives.custom_jvp.forward_dynamics import forward_dynamics
from ..model import Model, integrate, rate_from_velocity
from ..model.arguments import checked, of_dtype, takes_coordinates
from ..model.outcome import RESULTS

State = tuple[Array, Array]
PULL = 1.0
"""Rate (1/s) at which the length of a quaternion returns to one.

It is slow compared with the steps of any solver.
"""


def _diffrax() -> Any:
    try:
        return importlib.import_module("diffrax")
    except ImportError as error:
        raise ImportError(
            "adaptive integration needs diffrax: pip install 'rbd-jax[diffrax]'"
        ) from error


class VectorField(NamedTuple):
    """``field(t, (q, v), args) -> (q̇, v̇)``, the form that ``diffrax.ODETerm`` asks for.

    ``args`` is a :class:`ControlledRobot`. Every adjoint of diffrax differentiates with respect to
    ``args``, so the parameters of the robot and of its policy get derivatives.
    """

    pull: float = PULL

    def __call__(self, t: Array, state: State, args: "ControlledRobot") -> State:
        """The rates of the coordinates q and of the velocity v."""
        model, policy, f_ext = args
        q, v = state
        unit = _with_unit_quaternions(model, q)
        tau = jnp.zeros_like(v) if policy is None else policy(t, unit, v)
        rate = rate_from_velocity(model, unit, v) + self.pull * (unit - q)
        return rate, forward_dynamics(model, unit, v, tau, f_ext)


class ControlledRobot(NamedTuple):
    """A robot, the policy ``(t, q, v) -> tau`` that controls it, and wrenches on its bodies."""

    model: Model
    policy: Callable[[Array, Array, Array], Array] | None = None
    f_ext: Float[Array, "nb 6"] | None = None


class AdaptiveTrajectory(NamedTuple):
    """States at the requested times; rows after an event that ended the motion are infinite."""

    t: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    end: tuple[Array, Array, Array]
    """Time, q and v at the end: at the last time, or where an event ended the motion."""
    result: RESULTS
    """``successful`` at the last time or at an event, ``max_steps_reached``, or ``stalled``: the
    solver found no step within the tolerances."""
    steps: Int[Array, ""]
    """Number of steps, the rejected ones included."""
    stats: dict[str, Any]
    """The statistics of diffrax: numbers of steps taken, accepted and rejected."""
    event_mask: Any
    """Whether the event occurred, or None without an event."""


@checked
@takes_coordinates
def adaptive_rollout(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    policy: Callable[[Array, Array, Array], Array] | None,
    ts: Float[Array, " N"],
    *,
    f_ext: Float[Array, "nb 6"] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    solver: Any = None,
    stop: Callable[[Array, Array, Array], Array] | None = None,
    root_finder: Any = None,
    adjoint: Any = None,
    max_steps: int = 4096,
    throw: bool = True,
) -> AdaptiveTrajectory:
    """Simulate with a step size that keeps the error within tolerances.

    The accelerations have the derivatives of the analytical rules. ``adjoint`` decides how diffrax
    differentiates the integration.

    Source: diffrax, with the field :class:`VectorField`.

    Args:
        model: the robot.
        q0: configuration at ``ts[0]``. v0: velocity at ``ts[0]``.
        policy: torques ``policy(t, q, v) -> tau`` (N m, N), or None for no torques. The accuracy is
            reached only if the policy is smooth in time.
        ts: increasing times at which states are returned (s), the initial time first.
        f_ext: constant external wrench (n, f) on each body, in its frame.
        rtol: relative tolerance. atol: absolute tolerance.
        solver: a ``diffrax`` solver, ``Tsit5()`` if None; ``Kvaerno5()`` suits stiff robots.
        stop: ``stop(t, q, v)`` ends the motion when it becomes true. If it returns a float, it
            ends the motion when it crosses zero.
        root_finder: an ``optimistix`` root finder that locates the end, for a ``stop`` that returns
            a float. Without one the motion ends at the end of the step.
        adjoint: how to differentiate, ``diffrax.RecursiveCheckpointAdjoint()`` if None.
        max_steps: limit of steps.
        throw: raise an error if the integration fails; otherwise ``result`` says how it ended.

    Returns:
        States at ``ts``. Their quaternions have length one.

    Raises:
        ImportError: without diffrax. ValueError: for a wrong shape.
    """
    diffrax = _diffrax()
    ts = of_dtype(model, jnp.asarray(ts))
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise ValueError(f"adaptive_rollout: ts has shape {ts.shape}, expected (N,) with N >= 2")
    event = None
    if stop is not None:
        condition = lambda t, y, args, **_: stop(t, *y)  # noqa: E731
        event = diffrax.Event(condition, root_finder)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(VectorField()),
        diffrax.Tsit5() if solver is None else solver,
        t0=ts[0],
        t1=ts[-1],
        dt0=None,
        y0=(_with_unit_quaternions(model, q0), v0),
        args=ControlledRobot(model, policy, f_ext),
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=ts), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        event=event,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        max_steps=max_steps,
        throw=throw,
    )
    (q, v), last = solution.ys
    # rows after the end stay infinite; `where` on both sides keeps them out of the gradient
    ended = jnp.isinf(q)
    unit = jax.vmap(lambda q: _with_unit_quaternions(model, q))
    end = solution.ts[1][0], unit(last[0])[0], last[1][0]
    q = jnp.where(ended, q, unit(jnp.where(ended, q0[None], q)))
    too_many = solution.result == diffrax.RESULTS.max_steps_reached
    result = RESULTS.where(too_many, RESULTS.max_steps_reached, RESULTS.stalled)
    result = RESULTS.where(diffrax.is_okay(solution.result), RESULTS.successful, result)
    steps = jnp.asarray(solution.stats["num_steps"], jnp.int32)
    return AdaptiveTrajectory(ts, q, v, end, result, steps, solution.stats, solution.event_mask)


def _with_unit_quaternions(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """The same configuration with quaternions of length one."""
    return integrate(model, q, jnp.zeros((model.nv,), q.dtype))
