"""Rollouts: the state trajectory under controls or a policy, one scan over time."""

from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._check import checked, of_dtype
from ..constraints import Constraints
from ..lanes import lanes
from ..model import Model
from ._actuated import Actuated
from ._held import Switching
from ._integrators import with_memory
from ._march import MODES, march, sizes_of


class Trajectory(NamedTuple):
    """States after 0, 1, …, T steps and the torques applied in each step.

    With a stride s only every s-th state is kept, with the torques of the step that begins there.
    """

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    tau: Float[Array, "T nv"]
    observations: PyTree = None
    """What ``observe`` returns at the states that are kept."""


class Episode(NamedTuple):
    """A trajectory that may end early: from its end on the state stands still, torques are zero."""

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    tau: Float[Array, "T nv"]
    alive: Bool[Array, " T+1"]
    """False from the first state on at which ``stop`` holds."""
    observations: PyTree = None


@checked
@lanes
def rollout(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    controls: Float[Array, "T nv"] | Callable[..., Array],
    dt: float | Float[Array, ""],
    *,
    steps: int | None = None,
    integrator: str | Callable = "semi_implicit_euler",
    f_ext: Float[Array, "nb 6"] | None = None,
    constraints: Constraints | None = None,
    active: Bool[Array, "T c"] | Callable[..., Array] | None = None,
    project: bool = False,
    substeps: int = 1,
    stride: int = 1,
    stop: Callable[[Array, Array, Array], Array] | None = None,
    observe: Callable[[Array, Array, Array], PyTree] | None = None,
    key: Array | None = None,
    gradient: Literal["full", "checkpoint", "adjoint"] = "full",
    checkpoint_every: int | None = None,
    checkpoint_levels: int = 2,
) -> Trajectory | Episode:
    """Simulate from (q0, v0) with a fixed time step.

    Args:
        model: the robot.
        q0: initial configuration.
        v0: initial velocity.
        controls: torques held over each step, one row a step (N m, N); or a policy
            ``controls(t, q, v) -> tau``, evaluated at the start of each step: any function, or an
            equinox module whose parameters are then differentiable.
        dt: time step (s).
        steps: number of steps; needed with a policy, else the number of rows of ``controls``.
        integrator: ``"semi_implicit_euler"`` (order 1); ``"implicit_damping"`` (the same for
            any joint damping, however strong); ``"euler"``, ``"midpoint"``, ``"heun"``,
            ``"kutta3"`` or ``"rk4"`` (Munthe-Kaas, orders 1 to 4); ``"momentum_rk4"`` or
            ``"variational"`` (exact in the momentum of a free robot, orders 4 and 2);
            ``"generalized_alpha"`` (stiff robots, order 2); or a step function
            ``(model, acceleration, t, q, v, dt) -> (q, v)``.
        f_ext: constant external wrench (n, f) on each body, in its frame.
        constraints: bilateral constraints that hold, see :mod:`rbd_jax.constraints`.
        active: which of them hold in each step, one row a step; or a guard
            ``active(t, q, v, before) -> bool (c,)`` that is asked at the start of each step.
            Constraints that come to hold do so with an impact, which takes their restitution.
        project: move the state back onto the constraints after each step
            (:func:`rbd_jax.constraints.project`); otherwise their gains keep the drift bounded.
        substeps: integration steps of ``dt / substeps`` in each step, under the same torques.
        stride: keep every so many states; has to divide the number of steps.
        stop: ``stop(t, q, v) -> bool`` ends the trajectory at the first state where it holds. The
            result is then an :class:`Episode`. In a batch, samples that have ended idle.
        observe: ``observe(t, q, v) -> pytree of arrays``, evaluated at the states that are kept
            and stacked in the result's ``observations``.
        key: a random key; the policy is then called as ``controls(t, q, v, key)``, with a key of
            its own at each step.
        gradient: what reverse mode stores. ``"full"``: everything. ``"checkpoint"``: some states,
            between which it computes again. ``"adjoint"``: the states alone, sweeping back with the
            transpose of each step; no forward mode. All three give the same gradients, with
            respect to everything.
        checkpoint_every: for ``"checkpoint"``: store a state every so many steps, in one level;
            with a stride, rounded down to a multiple of it (at least one stride).
        checkpoint_levels: else nest so many levels: memory grows as T^(1/levels), and each level
            costs one more forward evaluation.

    Returns:
        The trajectory, the initial state included.

    Raises:
        ValueError: for a wrong shape, an unknown integrator or gradient mode, a missing or negative
            ``steps``, a stride that does not divide them, or a policy or ``stop`` that returns
            anything but nv torques or one boolean.
    """
    steps, rows = _controls(model, controls, steps)
    options = {"substeps": substeps, "stride": stride, "checkpoint_levels": checkpoint_levels}
    for name, value in (options | {"checkpoint_every": checkpoint_every or 1}).items():
        if value < 1:
            raise ValueError(f"rollout: {name} must be at least 1, got {value}")
    if steps % stride:
        raise ValueError(f"rollout: stride={stride} does not divide the {steps} steps")
    if gradient not in MODES:
        raise ValueError(f"rollout: gradient must be one of {MODES}, got {gradient!r}")
    if checkpoint_every is not None and gradient != "checkpoint":
        raise ValueError(
            f'rollout: checkpoint_every={checkpoint_every} needs gradient="checkpoint", got '
            f"{gradient!r}"
        )
    begin, method = with_memory(integrator)
    held = Switching(model, constraints, active, project, steps)
    dt = jnp.asarray(dt, q0.dtype)
    if stop is not None:
        _check_stop(stop, dt, q0, v0)
    h = dt / substeps
    within = "full" if gradient == "full" else "checkpoint"

    def time(k):
        return k.astype(q0.dtype) * dt

    def torques(k, row, q, v):
        if row is not None:
            return row
        extra = () if key is None else (jax.random.fold_in(key, k),)
        tau = cast(Callable, controls)(time(k), q, v, *extra)
        if jnp.shape(tau) != (model.nv,):
            raise ValueError(
                f"rollout: the policy returned torques of shape {jnp.shape(tau)}, expected (nv,) = "
                f"({model.nv},)"
            )
        return of_dtype(model, tau)

    def advance(state, x):
        k, row, scheduled = x
        now = state[:3]
        if stop is not None:  # a sample that has ended computes on its start, where all is well
            now = jax.tree.map(lambda x, x0: jnp.where(state[3] > 0, x, x0), now, start[:3])
            row = None if row is None else jnp.where(state[3] > 0, row, 0)
        (q, v), mask = held.begin(time(k), *now[:2], now[2][1], scheduled)
        now, tau, c = (q, v, now[2][0]), torques(k, row, q, v), held.set(mask)

        def substep(now, j):
            q, v, memory = now
            t = time(k) + j.astype(q0.dtype) * h
            qv, memory = method(model, Actuated(model, tau, f_ext, c), t, q, v, h, memory)
            return (*held.end(*qv, c), memory), None

        if substeps == 1:
            new = substep(now, jnp.zeros((), k.dtype))[0]
        else:
            new = last(march(substep, now, jnp.arange(substeps), within)[0])
        new = (*new[:2], (new[2], mask))
        if stop is None:
            return new, tau
        alive = state[3]
        new = jax.tree.map(lambda x, x0: jnp.where(alive > 0, x, x0), new, state[:3])
        ended = jnp.where(stop(time(k + 1), *new[:2]), 0, alive)
        return (*new, ended.astype(q0.dtype)), jnp.where(alive > 0, tau, 0)

    def stretch(state, xs):  # from one state that is kept to the next
        states, tau = march(advance, state, xs, within)
        return last(states), tau[0]

    def first(t, q, v):  # accelerations under the torques at the start
        row = None if rows is None else rows[0] if steps else jnp.zeros_like(v0)
        tau = torques(jnp.zeros((), k.dtype), row, q0, v0)
        return Actuated(model, tau, f_ext, held.set(held.start))(t, q, v)

    k = jnp.arange(steps)
    start = (q0, v0, (begin(model, first, jnp.zeros_like(dt), q0, v0, h), held.start))
    if stop is not None:
        start += (jnp.where(stop(jnp.zeros_like(dt), q0, v0), 0.0, 1.0).astype(q0.dtype),)
    saved, xs = steps // stride, (k, rows, held.rows)
    if stride > 1:
        xs = jax.tree.map(lambda x: x.reshape(saved, stride, *x.shape[1:]), xs)
    every = None if checkpoint_every is None else max(1, checkpoint_every // stride)
    sizes = sizes_of(saved, every, checkpoint_levels)
    states, tau = march(advance if stride == 1 else stretch, start, xs, gradient, sizes)
    q, v, _, *alive = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x]), start, states)
    t = stride * jnp.arange(saved + 1).astype(q0.dtype) * dt
    seen = None
    if observe is not None and gradient == "full":
        seen = jax.vmap(observe)(t, q, v)
    elif observe is not None:  # one state at a time, nothing of its inside stored
        again = jax.checkpoint(observe, prevent_cse=False)
        seen = jax.lax.map(lambda x: again(*x), (t, q, v))
    if alive:
        return Episode(t, q, v, tau, alive[0] > 0, seen)
    return Trajectory(t, q, v, tau, seen)


def last(tree: PyTree) -> PyTree:
    """The last row of every array."""
    return jax.tree.map(lambda x: x[-1], tree)


def _check_stop(stop: Callable, t: Array, q: Array, v: Array) -> None:
    """A number would be cast to a boolean, rows would end the samples of nobody: neither passes."""
    found = jax.eval_shape(stop, t, q, v)
    if getattr(found, "shape", None) != () or found.dtype != jnp.bool_:
        raise ValueError(f"rollout: stop has to return one boolean, as in q[0] > 1; got {found}")


def _controls(model: Model, controls, steps: int | None):
    """The number of steps, and the rows of torques unless a policy gives them."""
    if steps is not None and steps < 0:
        raise ValueError(f"rollout: steps must be at least 0, got {steps}")
    if callable(controls):
        if steps is None:
            raise ValueError("rollout: with a policy, say how many steps to take: steps=…")
        return steps, None
    rows = jnp.asarray(controls)
    if rows.ndim != 2 or rows.shape[1] != model.nv:
        raise ValueError(
            f"rollout: controls has shape {rows.shape}, expected (T, nv) = (T, {model.nv})"
        )
    if steps is not None and steps != rows.shape[0]:
        raise ValueError(f"rollout: steps={steps} but controls has {rows.shape[0]} rows")
    return rows.shape[0], of_dtype(model, rows)
