"""Rollouts: the trajectory of a plant under given controls or a policy."""

import functools
import os
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..contact import Scene
from ..lanes import lanes
from ..model import Model
from ..model.arguments import check_number, checked, of_dtype, takes_coordinates
from ..model.functions import check_arity
from ._plant import Plant, StatePolicy, as_plant, with_tangent
from ._plot import plot_motion
from ._stability import warns_about_rollout
from ._time_scan import Checkpoint, time_loop, time_scan


class Trajectory(NamedTuple):
    """States after 0, 1, …, T steps, and the controls of each step.

    With a stride s, only every s-th state is kept, together with the controls of the step that
    begins there.
    """

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    controls: Float[Array, "T nu"]
    """The torques of a robot, or the controls of its actuators."""
    observations: PyTree = None
    """The values of ``observe`` at the kept states, or None."""
    memory: PyTree = ()
    """The memory of the plant at the kept states, without the parts that have no tangent; () for
    most plants."""
    carry: PyTree = None
    """What a policy with a memory of its own remembers at the end, or None."""

    def plot(self, model: Model | None = None, path: str | os.PathLike | None = None):
        """Plot positions, velocities and controls over time. Needs matplotlib.

        Args:
            model: the robot, for the names of its joints in the legend.
            path: where to save the picture too; None for nowhere.

        Returns:
            The figure of matplotlib; in a notebook it shows itself.

        Raises:
            ValueError: for a batch of motions, or the motion of another robot.
        """
        return plot_motion(self, model, path)


class Episode(NamedTuple):
    """A trajectory that may end early. Then the state is constant and controls are zero."""

    t: Float[Array, " T+1"]
    q: Float[Array, "T+1 nq"]
    v: Float[Array, "T+1 nv"]
    controls: Float[Array, "T nu"]
    alive: Bool[Array, " T+1"]
    """False from the first state at which ``stop`` holds."""
    observations: PyTree = None
    memory: PyTree = ()
    carry: PyTree = None

    plot = Trajectory.plot


def _prepares(function: Callable) -> Callable:
    """Run a function of a plant in lanes, after the plant has computed what all steps share.

    A program of lanes computes again what its derivatives need. What stands before it is computed
    once, for the values and for the derivatives.
    """
    in_lanes = lanes(function)

    @functools.wraps(function)
    def wrapper(plant, *args, integrator=None, f_ext=None, **kwargs):
        if not isinstance(plant, Model):
            plant, integrator, f_ext = as_plant(plant, integrator, f_ext).prepared(), None, None
        return in_lanes(plant, *args, integrator=integrator, f_ext=f_ext, **kwargs)

    return checked(takes_coordinates(wrapper))


@warns_about_rollout
@_prepares
def rollout(
    plant: Model | Scene | Plant,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    controls: Float[Array, "T n"] | Callable[..., Array],
    dt: float | Float[Array, ""],
    *,
    steps: int | None = None,
    integrator: str | Callable | None = None,
    f_ext: Float[Array, "nb 6"] | None = None,
    substeps: int = 1,
    stride: int = 1,
    stop: Callable[[Array, Array, Array], Array] | None = None,
    observe: Callable[[Array, Array, Array], PyTree] | None = None,
    key: Array | None = None,
    carry: PyTree = None,
    gradient: Literal["full", "checkpoint", "adjoint"] | Checkpoint = "full",
    throw: bool = False,
) -> Trajectory | Episode:
    """Simulate from (q0, v0) with a fixed time step.

    Derivatives are those of autodiff through the steps, with the analytical rules of the dynamics.

    Args:
        plant: what moves. A robot (:class:`rbd_jax.Model`), a scene of :func:`rbd_jax.load_mjcf`
            with its actuators, contacts and integrator, or any :class:`rbd_jax.simulate.Plant`,
            such as a robot with constraints, :class:`rbd_jax.simulate.ConstrainedRobot`.
        q0: initial configuration.
        v0: initial velocity.
        controls: the controls, one row for each step, held during the step: torques (N m, N) of a
            robot, numbers of the actuators of a scene. Or a policy ``controls(t, q, v) -> u``,
            evaluated at the start of each step. A policy is any function, or an equinox module; the
            parameters of a module are differentiable. A :class:`rbd_jax.simulate.StatePolicy` is
            called with the memory of the plant too. A policy that remembers something needs
            ``carry``.
        dt: time step (s).
        steps: number of steps. It is required with a policy; otherwise it is the number of rows of
            ``controls``.
        integrator: for a robot. ``"implicit_damping"``, the default (order 1, stable for any joint
            damping); ``"semi_implicit_euler"`` (the same with explicit damping);
            ``"implicit_coriolis"`` (the same with implicit Coriolis torques, for limbs that whirl);
            ``"euler"``, ``"midpoint"``, ``"heun"``, ``"kutta3"`` or ``"rk4"`` (Munthe-Kaas, orders
            1 to 4); ``"momentum_rk4"`` or ``"variational"`` (exact in the momentum of a free robot,
            orders 4 and 2); ``"generalized_alpha"`` (for stiff robots, order 2); a step function
            ``(model, acceleration, t, q, v, dt) -> (q, v)``; or an
            :class:`rbd_jax.simulate.Integrator`. A warning says if the steps of an explicit
            integrator are too long for the joint damping, where the robot is not traced
            (:func:`rbd_jax.simulate.stable_step`).
        f_ext: for a robot: constant external wrench (n, f) on each body, in its frame.
        substeps: number of integration steps of length ``dt / substeps`` in each step. The controls
            stay the same during a step.
        stride: with a stride s, every s-th state is kept. It must divide the number of steps.
        stop: ``stop(t, q, v) -> bool`` ends the trajectory at the first state where it holds. The
            result is then an :class:`Episode`. In a batch, a sample that has ended stays at its
            last state.
        observe: ``observe(t, q, v) -> pytree of arrays``, evaluated at the kept states. The values
            are stacked in ``observations`` of the result.
        key: a random key. With a key, the policy is called as ``controls(t, q, v, key)``, and gets
            a different key in each step.
        carry: what a policy with a memory of its own remembers at the start, a pytree of arrays:
            the state of a recurrent network, an integral, a filter, a queue of delays. The policy
            is then called as ``controls(carry, observation) -> (carry, u)``, with the key as a
            third argument if there is one. The observation is the value of ``observe`` at the start
            of the step, or the tuple ``(t, q, v)`` without ``observe``. Derivatives pass through
            the carry. The result has its last value, so that another rollout can go on from there.
        gradient: what reverse mode stores. ``"full"`` stores everything. ``"checkpoint"``, or
            :class:`rbd_jax.simulate.Checkpoint` with its options, stores some states and computes
            the steps between them again. ``"adjoint"`` stores the states alone and applies the
            transpose of each step on the way back; it has no forward mode. All three give the same
            gradients with respect to all inputs. One sample alone on a CPU may take up to some
            64 MiB in each mode, where that makes it faster.
        throw: raise an error if the motion is not finite at its end, or if at a kept state a limb
            turns by more than a quarter of a revolution in a step, which
            :func:`rbd_jax.simulate.implicit_damping` slows down. This also works under ``jit`` and
            ``vmap``, where one such sample raises it. Otherwise a warning says so where the rollout
            is not traced.

    Returns:
        The trajectory, with the initial state as its first state.

    Raises:
        ValueError: for a wrong shape, an unknown integrator or gradient mode, a missing or negative
            ``steps``, a stride that does not divide ``steps``, a policy that does not return one
            number a control, a carry that changes its structure, shapes or dtypes, an integrator or
            wrenches beside a scene or a plant, or a ``stop`` that does not return one boolean.
        TypeError: for a policy that does not take the arguments with which it is called, or that
            does not return a pair although there is a carry.
        RuntimeError: with ``throw``, if the motion is not finite at its end, or too fast for its
            steps.
    """
    del throw  # the decorator raises the error
    moves = as_plant(plant, integrator, f_ext)
    steps, rows = _controls(moves, controls, steps)
    moves.check(steps)
    for name, value in {"substeps": substeps, "stride": stride}.items():
        check_number("rollout", name, value, least=1, whole=True)
    if steps % stride:
        raise ValueError(f"rollout: stride={stride} does not divide the {steps} steps")
    storing = Checkpoint.of(gradient)
    moves = moves.prepared()
    dt = jnp.asarray(dt, q0.dtype)
    if stop is not None:
        _check_stop(stop, dt, q0, v0)
    h = dt / substeps

    def time(k):
        return k.astype(q0.dtype) * dt

    remembers = carry is not None
    if remembers and not callable(controls):
        raise ValueError("rollout: carry belongs to a policy, but controls are rows of numbers")
    carry = jax.tree.map(jnp.asarray, carry) if remembers else ()
    if remembers:
        if storing.mode == "adjoint" and not all(
            jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(carry)
        ):
            raise ValueError(
                "rollout: gradient='adjoint' needs a carry of floats; make its integers floats, or "
                "take 'checkpoint'"
            )
    if rows is None:
        _check_policy(cast(Callable, controls), remembers, key is not None)

    def control(k, row, q, v, memory, carry):
        """The controls of step k and the new carry."""
        if row is not None:
            return row, carry
        extra = () if key is None else (jax.random.fold_in(key, k),)
        if remembers:
            seen = (time(k), q, v) if observe is None else observe(time(k), q, v)
            carry, u = _remembering(cast(Callable, controls), carry, seen, extra)
        else:
            told = (memory,) if isinstance(controls, StatePolicy) else ()
            u = cast(Callable, controls)(time(k), q, v, *told, *extra)
        if jnp.shape(u) != (moves.nu,):
            what = "torques" if moves.nu == moves.model.nv else "controls"
            size = "nv" if what == "torques" else "nu"
            raise ValueError(
                f"rollout: the policy returned {what} of shape {jnp.shape(u)}, expected ({size},)"
                f" = ({moves.nu},)"
            )
        return of_dtype(moves.model, u), carry

    def first(t, q, v):  # the controls at the start
        row = None if rows is None else rows[0] if steps else jnp.zeros((moves.nu,), q0.dtype)
        if isinstance(controls, StatePolicy):
            raise ValueError(
                "rollout: the memory of the plant at the start depends on the first controls, and "
                "the policy depends on the memory"
            )
        return control(jnp.zeros((), k.dtype), row, q, v, (), carry)[0]

    def advance(state, x):
        (now, alive, carry), (k, row) = state, x
        if stop is not None:  # an ended sample computes at its start, where numbers are finite
            now = jax.tree.map(lambda x, x0: jnp.where(alive > 0, x, x0), now, start)
            row = None if row is None else jnp.where(alive > 0, row, 0)
        new = moves.events(time(k), now, dt)
        u, carry = control(k, row, *new, carry)

        def substep(now, j):
            return moves.step(time(k) + j.astype(q0.dtype) * h, now, u, h), None

        if substeps == 1:
            new = substep(new, jnp.zeros((), k.dtype))[0]
        else:
            new = time_loop(substep, new, jnp.arange(substeps), storing.within)[0]
        if stop is None:
            return (new, alive, carry), u
        new, carry = jax.tree.map(
            lambda x, x0: jnp.where(alive > 0, x, x0), (new, carry), (state[0], state[2])
        )
        ended = jnp.where(stop(time(k + 1), new.q, new.v), 0, alive)
        return (new, ended.astype(q0.dtype), carry), jnp.where(alive > 0, u, 0)

    def again(state, x, after):  # ``advance`` where its result is known
        if stop is not None or substeps > 1:
            return advance(state, x)
        (now, alive, carry), (k, row) = state, x
        new = moves.events(time(k), now, dt)
        u, carry = control(k, row, *new, carry)
        return (moves.step_again(time(k), new, u, h, after[0]), alive, carry), u

    def advance_to_kept(state, xs):  # from one kept state to the next
        state, u = time_loop(advance, state, xs, storing.within)
        return state, u[0]

    k = jnp.arange(steps)
    start = moves.start(q0, v0, h, first)
    alive = ()
    if stop is not None:
        alive = jnp.where(stop(jnp.zeros_like(dt), q0, v0), 0.0, 1.0).astype(q0.dtype)
    saved, xs = steps // stride, (k, rows)
    if stride > 1:
        xs = jax.tree.map(lambda x: x.reshape(saved, stride, *x.shape[1:]), xs)
    first_state = start, alive, carry
    one = advance if stride == 1 else advance_to_kept
    lengths, known = storing.lengths(saved, stride), again if stride == 1 else None
    states, u = time_scan(one, first_state, xs, storing.mode, lengths, known)
    # the states at the start too
    known = lambda state: state._replace(memory=with_tangent(state.memory))  # noqa: E731
    kept = (known(start), alive), (known(states[0]), states[1])
    (q, v, memory), alive = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x]), *kept)
    memory = memory if jax.tree.leaves(memory) else ()
    t = stride * jnp.arange(saved + 1).astype(q0.dtype) * dt
    observations = None
    if observe is not None and storing.mode == "full":
        observations = jax.vmap(observe)(t, q, v)
    elif observe is not None:  # one state at a time, and reverse mode stores no residuals
        recomputed = jax.checkpoint(observe, prevent_cse=False)
        observations = jax.lax.map(lambda x: recomputed(*x), (t, q, v))
    end = None
    if remembers:
        end = jax.tree.map(lambda x0, x: x[-1] if saved else x0, carry, states[2])
    if stop is not None:
        return Episode(t, q, v, u, alive > 0, observations, memory, end)
    return Trajectory(t, q, v, u, observations, memory, end)


def _check_policy(policy: Callable, remembers: bool, noisy: bool) -> None:
    """Raise TypeError if a policy does not take the arguments with which it is called."""
    told = ", memory" if isinstance(policy, StatePolicy) else ""
    arguments = ("carry, observation" if remembers else f"t, q, v{told}") + ", key" * noisy
    hint = "" if remembers else "; a policy (carry, observation) -> (carry, u) needs carry=…"
    hint += "" if noisy else "; a policy with a last argument key needs key=…"
    check_arity("rollout: the policy", policy, arguments, hint)


def _remembering(policy: Callable, carry: PyTree, seen: PyTree, extra: tuple):
    """The new carry, which has to be like the old one, and the controls."""
    returned = policy(carry, seen, *extra)
    if not isinstance(returned, tuple) or len(returned) != 2:
        what = type(returned).__name__
        raise TypeError(f"rollout: with carry the policy has to return (carry, u), got a {what}")
    new, u = returned
    new = jax.tree.map(jnp.asarray, new)
    kinds = [jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", x) for x in (carry, new)]
    same = jax.tree.structure(carry) == jax.tree.structure(new)
    if not same or jax.tree.leaves(kinds[0]) != jax.tree.leaves(kinds[1]):
        raise ValueError(
            "rollout: the policy changes the kind of its carry, which has to keep its structure, "
            f"shapes and dtypes: it got {kinds[0]} and returned {kinds[1]}"
        )
    return new, u


def _check_stop(stop: Callable, t: Array, q: Array, v: Array) -> None:
    """Raise ValueError if ``stop`` does not return one boolean.

    Otherwise a float would be cast to a boolean in silence, and an array would end nothing.
    """
    returned = jax.eval_shape(stop, t, q, v)
    if getattr(returned, "shape", None) != () or returned.dtype != jnp.bool_:
        raise ValueError(
            f"rollout: stop has to return one boolean, as in q[0] > 1; it returned {returned}"
        )


def _controls(plant: Plant, controls, steps: int | None):
    """The number of steps, and the rows of controls, or None for a policy."""
    if steps is not None:
        check_number("rollout", "steps", steps, least=0, whole=True)
    if callable(controls):
        if steps is None:
            raise ValueError("rollout: a policy needs the number of steps; pass steps=…")
        return steps, None
    rows, model = jnp.asarray(controls), plant.model
    if rows.ndim != 2 or rows.shape[1] != plant.nu:
        size = "nv" if plant.nu == model.nv else "nu"
        raise ValueError(
            f"rollout: controls has shape {rows.shape}, expected (T, {size}) = (T, {plant.nu})"
        )
    if steps is not None and steps != rows.shape[0]:
        raise ValueError(f"rollout: steps={steps} but controls has {rows.shape[0]} rows")
    return rows.shape[0], of_dtype(model, rows)
