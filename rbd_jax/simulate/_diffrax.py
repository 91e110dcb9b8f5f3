"""Adaptive integration by diffrax, with its events, dense saves and adjoints. Extra ``diffrax``.

diffrax integrates in a vector space. The state there is ``(q, v)`` in ambient coordinates; the
vector field is tangent to the manifold and pulls the length of every quaternion back to one, so
that no solver, however many steps it takes, drifts off it.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.rules import forward_dynamics
from ..model import Model, integrate, rate_from_velocity
from ..model.arguments import checked, of_dtype

State = tuple[Array, Array]
PULL = 1.0
"""Rate (1/s) at which the length of a quaternion returns to one; slow against any solver's step."""


def _diffrax() -> Any:
    try:
        return importlib.import_module("diffrax")
    except ImportError as error:
        raise ImportError(
            "adaptive integration needs diffrax: pip install 'rbd-jax[diffrax]'"
        ) from error


class VectorField(NamedTuple):
    """``field(t, (q, v), args) -> (q̇, v̇)``, as ``diffrax.ODETerm`` wants it.

    ``args`` is the :class:`Driven` robot, so that its parameters and those of its policy are
    differentiated by every adjoint of diffrax.
    """

    pull: float = PULL

    def __call__(self, t: Array, state: State, args: "Driven") -> State:
        """The rates of the coordinates q and of the velocity v."""
        model, policy, f_ext = args
        q, v = state
        on = integrate(
            model, q, jnp.zeros_like(v)
        )  # the same configuration, quaternions of length 1
        tau = jnp.zeros_like(v) if policy is None else policy(t, on, v)
        rate = rate_from_velocity(model, on, v) + self.pull * (on - q)
        return rate, forward_dynamics(model, on, v, tau, f_ext)


class Driven(NamedTuple):
    """A robot, the policy ``(t, q, v) -> tau`` that drives it, and wrenches on its bodies."""

    model: Model
    policy: Callable[[Array, Array, Array], Array] | None = None
    f_ext: Float[Array, "nb 6"] | None = None


class AdaptiveTrajectory(NamedTuple):
    """States at the times asked for; rows after an event that ended the motion are inf."""

    t: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    end: tuple[Array, Array, Array]
    """Time, q and v at the end: at the last time, or where an event ended the motion."""
    result: Any
    """``diffrax.RESULTS``."""
    stats: dict[str, Any]
    """Numbers of steps taken, accepted and rejected."""
    event_mask: Any
    """Whether the event came, or None without one."""


@checked
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

    Source: diffrax; the field is that of :class:`VectorField`.

    Args:
        model: the robot.
        q0: configuration at ``ts[0]``. v0: velocity there.
        policy: torques ``policy(t, q, v) -> tau`` (N m, N), smooth in time for full accuracy; None
            for none.
        ts: increasing times to report (s), the initial one first.
        f_ext: constant external wrench (n, f) on each body, in its frame.
        rtol: relative tolerance. atol: absolute tolerance.
        solver: a ``diffrax`` solver, ``Tsit5()`` if None; ``Kvaerno5()`` for stiff robots.
        stop: ``stop(t, q, v)`` ends the motion: when true, or when it crosses zero if a number.
        root_finder: for a ``stop`` that is a number, ``optimistix`` root finder that locates the
            end; without one it ends at the end of the step.
        adjoint: how to differentiate, ``diffrax.RecursiveCheckpointAdjoint()`` if None.
        max_steps: limit of steps.
        throw: raise if the integration fails; else say so in ``result``.

    Returns:
        States at ``ts``, their quaternions of length one.

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
        y0=(integrate(model, q0, jnp.zeros_like(v0)), v0),
        args=Driven(model, policy, f_ext),
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=ts), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        event=event,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        max_steps=max_steps,
        throw=throw,
    )
    (q, v), last = solution.ys
    ended = jnp.isinf(q)  # rows that were not reached stay inf, and are kept out of the gradient
    on = jnp.where(ended, q0[None], q)
    on, q1 = (jax.vmap(lambda q: integrate(model, q, jnp.zeros_like(v0)))(x) for x in (on, last[0]))
    end = solution.ts[1][0], q1[0], last[1][0]
    stats, came = solution.stats, solution.event_mask
    return AdaptiveTrajectory(ts, jnp.where(ended, q, on), v, end, solution.result, stats, came)
