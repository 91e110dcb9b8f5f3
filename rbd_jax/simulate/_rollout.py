"""Rollouts: the trajectory of the state under given torques or a policy."""

from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..constraints import Constraints
from ..contact import Scene
from ..model import Model
from ..model.arguments import algorithm, of_dtype
from ._actuated import ActuatedRobot
from ._guard import Guard
from ._held import Switching
from ._integrators import with_memory
from ._scene import in_scene
from ._stability import warns_if_unstable
from ._time_scan import MODES, block_lengths, time_scan


class Trajectory(NamedTuple):
    """States after 0, 1, …, T steps, and the torques of each step.

    With a stride s, only every s-th state is kept, together with the torques of the step that
    begins there.
    """

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    tau: Float[Array, "T n"]
    """The torques, or the controls of the scene's actuators."""
    observations: PyTree = None
    """The values of ``observe`` at the kept states, or None."""


class Episode(NamedTuple):
    """A trajectory that may end early. After its end the state is constant and torques are zero."""

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    tau: Float[Array, "T n"]
    alive: Bool[Array, " T+1"]
    """False from the first state at which ``stop`` holds."""
    observations: PyTree = None


@warns_if_unstable
@algorithm(driven_joints=True)
def rollout(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    controls: Float[Array, "T n"] | Callable[..., Array],
    dt: float | Float[Array, ""],
    *,
    steps: int | None = None,
    integrator: str | Callable = "implicit_damping",
    f_ext: Float[Array, "nb 6"] | None = None,
    constraints: Constraints | None = None,
    active: Bool[Array, "T c"] | Callable[..., Array] | Guard | None = None,
    project: bool = False,
    substeps: int = 1,
    stride: int = 1,
    stop: Callable[[Array, Array, Array], Array] | None = None,
    observe: Callable[[Array, Array, Array], PyTree] | None = None,
    key: Array | None = None,
    gradient: Literal["full", "checkpoint", "adjoint"] = "full",
    checkpoint_every: int | None = None,
    checkpoint_levels: int = 2,
    scene: Scene | None = None,
) -> Trajectory | Episode:
    """Simulate from (q0, v0) with a fixed time step.

    Derivatives are those of autodiff through the steps, with the analytical rules of the dynamics.

    Args:
        model: the robot.
        q0: initial configuration.
        v0: initial velocity.
        controls: torques (N m, N), one row for each step, held during the step. Or a policy
            ``controls(t, q, v) -> tau``, evaluated at the start of each step. A policy is any
            function, or an equinox module; the parameters of a module are differentiable.
        dt: time step (s).
        steps: number of steps. It is required with a policy; otherwise it is the number of rows of
            ``controls``.
        integrator: ``"implicit_damping"`` (order 1, stable for any joint damping);
            ``"semi_implicit_euler"`` (the same with explicit damping); ``"implicit_coriolis"``
            (the same with implicit Coriolis torques, for limbs that whirl); ``"euler"``,
            ``"midpoint"``, ``"heun"``, ``"kutta3"`` or ``"rk4"`` (Munthe-Kaas, orders 1 to 4);
            ``"momentum_rk4"`` or ``"variational"`` (exact in the momentum of a free robot, orders 4
            and 2); ``"generalized_alpha"`` (for stiff robots, order 2); or a step function
            ``(model, acceleration, t, q, v, dt) -> (q, v)``. A warning says if the steps of an
            explicit integrator are too long for the joint damping, where the robot is not traced
            (:func:`rbd_jax.simulate.stable_step`).
        f_ext: constant external wrench (n, f) on each body, in its frame.
        constraints: bilateral constraints that hold, see :mod:`rbd_jax.constraints`.
        active: which of the constraints hold in each step, one row for each step; or a guard
            ``active(t, q, v, before) -> bool (c,)`` that is called at the start of each step. A
            constraint that starts to hold causes an impact with its restitution. Or a
            :class:`Guard`, which resets the state itself, such as :class:`Touching` for feet.
        project: move the state back onto the constraints after each step
            (:func:`rbd_jax.constraints.project`). Otherwise their gains keep the drift bounded.
        substeps: number of integration steps of length ``dt / substeps`` in each step. The torques
            stay the same during a step.
        stride: with a stride s, every s-th state is kept. It must divide the number of steps.
        stop: ``stop(t, q, v) -> bool`` ends the trajectory at the first state where it holds. The
            result is then an :class:`Episode`. In a batch, a sample that has ended stays at its
            last state.
        observe: ``observe(t, q, v) -> pytree of arrays``, evaluated at the kept states. The values
            are stacked in ``observations`` of the result.
        key: a random key. With a key, the policy is called as ``controls(t, q, v, key)``, and gets
            a different key in each step.
        gradient: what reverse mode stores. ``"full"`` stores everything. ``"checkpoint"`` stores
            some states and computes the steps between them again. ``"adjoint"`` stores the states
            alone and applies the transpose of each step on the way back; it has no forward mode.
            All three give the same gradients with respect to all inputs. One sample alone on a
            CPU may take up to some 64 MiB in each mode, where that makes it faster.
        checkpoint_every: for ``"checkpoint"``: the number of steps between two stored states. With
            a stride it is rounded down to a multiple of the stride, but not below one stride.
        checkpoint_levels: for ``"checkpoint"`` without ``checkpoint_every``: the number of nested
            levels. Memory grows as T^(1/levels), and each level costs one more forward evaluation.
        scene: a scene of :func:`rbd_jax.load_mjcf` whose robot is ``model``. ``controls`` are then
            those of its actuators, one number an actuator, and each step is the scene's, with its
            integrator, contacts, limits and equalities; ``integrator`` is not used.

    Returns:
        The trajectory, with the initial state as its first state.

    Raises:
        ValueError: for a wrong shape, an unknown integrator or gradient mode, a missing or negative
            ``steps``, a stride that does not divide ``steps``, a policy that does not return nv
            torques (with a scene nu controls), external wrenches or constraints beside a scene, or
            a ``stop`` that does not return one boolean.
    """
    width = model.nv if scene is None else scene.nu
    steps, rows = _controls(model, controls, steps, width)
    for name, value in {"f_ext": f_ext, "constraints": constraints, "active": active}.items():
        if scene is not None and value is not None:
            raise ValueError(f"rollout: a scene takes no {name}; leave one of them out")
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
    begin, method = with_memory(integrator) if scene is None else in_scene(scene, model)

    def actuated(tau, constraints):
        return tau if scene is not None else ActuatedRobot(model, tau, f_ext, constraints)

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
        if jnp.shape(tau) != (width,):
            size, what = ("nv", "torques") if scene is None else ("nu", "controls")
            raise ValueError(
                f"rollout: the policy returned {what} of shape {jnp.shape(tau)}, expected ({size},)"
                f" = ({width},)"
            )
        return of_dtype(model, tau)

    def advance(state, x):
        k, row, scheduled = x
        now = state[:3]
        if stop is not None:  # an ended sample computes at its start, where numbers are finite
            now = jax.tree.map(lambda x, x0: jnp.where(state[3] > 0, x, x0), now, start[:3])
            row = None if row is None else jnp.where(state[3] > 0, row, 0)
        (q, v), mask = held.begin(time(k), now[0], now[1], now[2][1], scheduled, dt)
        now, tau, c = (q, v, now[2][0]), torques(k, row, q, v), held.set(mask)

        def substep(now, j):
            q, v, memory = now
            t = time(k) + j.astype(q0.dtype) * h
            qv, memory = method(model, actuated(tau, c), t, q, v, h, memory)
            return (*held.end(qv[0], qv[1], c), memory), None

        if substeps == 1:
            new = substep(now, jnp.zeros((), k.dtype))[0]
        else:
            new = last(time_scan(substep, now, jnp.arange(substeps), within)[0])
        new = (*new[:2], (new[2], mask))
        if stop is None:
            return new, tau
        alive = state[3]
        new = jax.tree.map(lambda x, x0: jnp.where(alive > 0, x, x0), new, state[:3])
        ended = jnp.where(stop(time(k + 1), *new[:2]), 0, alive)
        return (*new, ended.astype(q0.dtype)), jnp.where(alive > 0, tau, 0)

    def advance_to_kept(state, xs):  # from one kept state to the next
        states, tau = time_scan(advance, state, xs, within)
        return last(states), tau[0]

    def initial_acceleration(t, q, v):  # under the torques of the first step
        row = None if rows is None else rows[0] if steps else jnp.zeros_like(v0)
        tau = torques(jnp.zeros((), k.dtype), row, q0, v0)
        return ActuatedRobot(model, tau, f_ext, held.set(held.start))(t, q, v)

    k = jnp.arange(steps)
    memory = begin(model, initial_acceleration, jnp.zeros_like(dt), q0, v0, h)
    start = (q0, v0, (memory, held.start))
    if stop is not None:
        start += (jnp.where(stop(jnp.zeros_like(dt), q0, v0), 0.0, 1.0).astype(q0.dtype),)
    saved, xs = steps // stride, (k, rows, held.rows)
    if stride > 1:
        xs = jax.tree.map(lambda x: x.reshape(saved, stride, *x.shape[1:]), xs)
    every = None if checkpoint_every is None else max(1, checkpoint_every // stride)
    sizes = block_lengths(saved, every, checkpoint_levels)
    states, tau = time_scan(advance if stride == 1 else advance_to_kept, start, xs, gradient, sizes)
    q, v, _, *alive = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x]), start, states)
    t = stride * jnp.arange(saved + 1).astype(q0.dtype) * dt
    observations = None
    if observe is not None and gradient == "full":
        observations = jax.vmap(observe)(t, q, v)
    elif observe is not None:  # one state at a time, and reverse mode stores no residuals
        recomputed = jax.checkpoint(observe, prevent_cse=False)
        observations = jax.lax.map(lambda x: recomputed(*x), (t, q, v))
    if alive:
        return Episode(t, q, v, tau, alive[0] > 0, observations)
    return Trajectory(t, q, v, tau, observations)


def last(tree: PyTree) -> PyTree:
    """The last row of every array."""
    return jax.tree.map(lambda x: x[-1], tree)


def _check_stop(stop: Callable, t: Array, q: Array, v: Array) -> None:
    """Raise ValueError if ``stop`` does not return one boolean.

    Otherwise a float would be cast to a boolean in silence, and an array would end nothing.
    """
    returned = jax.eval_shape(stop, t, q, v)
    if getattr(returned, "shape", None) != () or returned.dtype != jnp.bool_:
        raise ValueError(
            f"rollout: stop has to return one boolean, as in q[0] > 1; it returned {returned}"
        )


def _controls(model: Model, controls, steps: int | None, width: int):
    """The number of steps, and the rows of torques, or None for a policy."""
    if steps is not None and steps < 0:
        raise ValueError(f"rollout: steps must be at least 0, got {steps}")
    if callable(controls):
        if steps is None:
            raise ValueError("rollout: a policy needs the number of steps; pass steps=…")
        return steps, None
    rows = jnp.asarray(controls)
    if rows.ndim != 2 or rows.shape[1] != width:
        size = "nv" if width == model.nv else "nu"
        raise ValueError(
            f"rollout: controls has shape {rows.shape}, expected (T, {size}) = (T, {width})"
        )
    if steps is not None and steps != rows.shape[0]:
        raise ValueError(f"rollout: steps={steps} but controls has {rows.shape[0]} rows")
    return rows.shape[0], of_dtype(model, rows)
