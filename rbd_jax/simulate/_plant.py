"""Plants: what rollouts, optimizers, learners and fits move.

A plant has a state, a number of controls, one step, and the map of the tangent space of its state.
This room has three: a robot with an integrator, a robot under constraints, and a scene with
contacts. A plant of your own is a subclass of :class:`Plant` with a ``step``.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..constraints import Constraints, constrained_dynamics
from ..contact import Scene, scene_step
from ..contact.forward import constants_now
from ..contact.step import knows_accelerations, scene_step_again
from ..model import Model, difference, integrate
from ..model.functions import as_module
from ..model.outcome import RESULTS
from ..spatial import linear
from ._actuated import ActuatedRobot
from ._guard import Guard
from ._integrators import resolve_integrator
from ._schedule import ConstraintSchedule


def _module(x: Any) -> Any:
    """A plain function as a module; everything else as it is."""
    return as_module(x) if callable(x) else x


class State(NamedTuple):
    """The state of a plant at one time."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    memory: PyTree = ()
    """What the plant has to know beside q and v, such as the speeds of rotors: a pytree of float
    arrays, empty for most plants."""


class NoTangent(eqx.Module):
    """A part of a memory that has no tangent coordinates, such as the warm start of a solver.

    A motion may begin anew in any state with this part as :meth:`Plant.start` makes it.
    """

    value: PyTree


def with_tangent(memory: PyTree) -> PyTree:
    """The memory without the parts that are :class:`NoTangent`."""
    hidden = lambda x: isinstance(x, NoTangent)  # noqa: E731
    return jax.tree.map(lambda x: None if hidden(x) else x, memory, is_leaf=hidden)


class Plant(eqx.Module):
    """What moves under controls. Its arrays are leaves, with derivatives in every rollout.

    A state has ``nx`` tangent coordinates ``(δq, δv, δm)``: δq is along ``integrate(model, q,
    δq)``, δv is added to v, and δm are the coordinates of the memory. By default the memory is a
    vector space with one coordinate for each of its numbers. A plant whose memory is another
    manifold, such as a rotation, replaces ``memory_size``, ``memory_integrate`` and
    ``memory_difference``.
    """

    model: eqx.AbstractVar[Model]
    """The robot that the configuration q and the velocity v belong to."""

    @property
    def nu(self) -> int:
        """The number of controls; those of a robot without actuation are its nv torques."""
        return self.model.nv

    def check(self, steps: int) -> None:
        """Raise ValueError if the plant cannot take so many steps."""

    def prepared(self) -> "Plant":
        """The plant for a loop over its steps, with what is the same in all of them computed."""
        return self

    def start(
        self, q: Array, v: Array, dt: Array, controls: Callable[[Array, Array, Array], Array]
    ) -> State:
        """The state in which a motion begins.

        Args:
            q: configuration. v: velocity.
            dt: length of a step (s).
            controls: the first controls as a function of ``(t, q, v)``, for plants whose memory
                depends on them.
        """
        return State(q, v)

    def events(self, t: Array, state: State, dt: Array) -> State:
        """The state after what happens at once at the beginning of a step, such as impacts.

        The controls and the cost of the step see this state.
        """
        return state

    def outputs(self, t: Array, state: State, u: Array, dt: Array) -> tuple[Array, ...]:
        """What the cost of a step is told beside t, q, v and u, such as contact forces.

        The arguments are those of :meth:`step`.
        """
        return ()

    def zero_outputs(self, q: Array, v: Array, dt: Array) -> tuple[Array, ...]:
        """Zeros of the shapes that :meth:`outputs` has.

        A plant whose outputs take long to trace, and that knows their shapes, says them here.
        """
        t, u = jnp.zeros((), q.dtype), jnp.zeros((self.nu,), q.dtype)

        def outputs(q, v):
            return self.outputs(t, fresh_state(self, q, v, dt), u, dt)

        return jax.tree.map(jnp.zeros_like, jax.eval_shape(outputs, q, v))

    def final_outputs(self, state: State) -> tuple[Array, ...]:
        """What the final cost is told beside q and v, such as the memory.

        Args:
            state: state at the end of the motion.
        """
        return ()

    @abc.abstractmethod
    def step(self, t: Array, state: State, u: Float[Array, " nu"], dt: Array) -> State:
        """The state after ``dt`` seconds in which the controls u are held.

        Args:
            t: time at the start of the step (s).
            state: state at the start of the step.
            u: controls.
            dt: length of the step (s).
        """

    def step_again(
        self, t: Array, state: State, u: Float[Array, " nu"], dt: Array, after: State
    ) -> State:
        """:meth:`step` where its result is known already, for derivatives of that step.

        A plant that finds its motion by iterations takes the solution from ``after``, so that the
        derivatives do not wait for the iterations again. By default it is :meth:`step`.

        Args:
            t: time at the start of the step (s).
            state: state at the start of the step.
            u: controls.
            dt: length of the step (s).
            after: what :meth:`step` gave for these arguments.
        """
        del after
        return self.step(t, state, u, dt)

    @property
    def memory_size(self) -> int:
        """The number of tangent coordinates of the memory."""
        return sum(x.size for x in jax.tree.leaves(with_tangent(fresh_memory(self))))

    @property
    def nx(self) -> int:
        """The number of tangent coordinates of a state: ``2 nv + memory_size``."""
        return 2 * self.model.nv + self.memory_size

    def memory_integrate(self, memory: PyTree, dm: Float[Array, " m"]) -> PyTree:
        """The memory at the tangent δm. Parts without tangent stay as they are."""
        leaves, tree = jax.tree.flatten(memory, is_leaf=lambda x: isinstance(x, NoTangent))
        moved, at = [], 0
        for x in leaves:
            if not isinstance(x, NoTangent):
                at, dx = at + x.size, dm[at : at + x.size]
                x = x + dx.reshape(x.shape)
            moved.append(x)
        return jax.tree.unflatten(tree, moved)

    def memory_difference(self, memory: PyTree, other: PyTree) -> Float[Array, " m"]:
        """The tangent δm that leads from a memory to another one."""
        pairs = zip(*(jax.tree.leaves(with_tangent(x)) for x in (memory, other)), strict=True)
        parts = [jnp.ravel(b - a) for a, b in pairs]
        return jnp.concatenate([jnp.zeros((0,), self.model.dtype), *parts])

    def integrate(self, state: State, dx: Float[Array, " nx"]) -> State:
        """The state at the tangent ``dx = (δq, δv, δm)``."""
        nv = self.model.nv
        return self.moved(state, dx[:nv], dx[nv : 2 * nv], dx[2 * nv :])

    def moved(self, state: State, dq: Array, dv: Array, dm: Array) -> State:
        """:meth:`integrate`, with the three parts of the tangent as arguments."""
        memory = self.memory_integrate(state.memory, dm) if dm.size else state.memory
        return State(integrate(self.model, state.q, dq), state.v + dv, memory)

    def difference(self, state: State, other: State) -> Float[Array, " nx"]:
        """The tangent dx that leads from a state to another one."""
        parts = [difference(self.model, state.q, other.q), other.v - state.v]
        if jax.tree.leaves(with_tangent(state.memory)):
            parts.append(self.memory_difference(state.memory, other.memory))
        return jnp.concatenate(parts)


def memory_vector(memory: PyTree) -> Float[Array, " m"]:
    """The numbers of a memory that have a tangent, as one vector."""
    leaves = [jnp.ravel(x) for x in jax.tree.leaves(with_tangent(memory))]
    return jnp.concatenate(leaves) if leaves else jnp.zeros((0,))


def memory_from(memory: PyTree, vector: Float[Array, " m"]) -> PyTree:
    """The memory with other numbers, as :func:`memory_vector` lists them."""
    hidden = lambda x: isinstance(x, NoTangent)  # noqa: E731
    leaves, tree = jax.tree.flatten(memory, is_leaf=hidden)
    filled, at = [], 0
    for x in leaves:
        if not hidden(x):
            at, new = at + x.size, vector[at : at + x.size]
            x = new.reshape(x.shape)
        filled.append(x)
    return jax.tree.unflatten(tree, filled)


class StatePolicy(eqx.Module):
    """A policy that is told the memory of the plant too: ``policy(t, q, v, memory) -> u``."""

    @abc.abstractmethod
    def __call__(self, t: Array, q: Array, v: Array, memory: PyTree) -> Array:
        """The controls at time t (s) in a state."""


def hold_controls(
    plant: Plant, t: Array, state: State, u: Float[Array, " nu"], dt: Array, substeps: int = 1
) -> State:
    """The state after ``dt`` seconds under held controls: the events, then ``substeps`` steps."""
    state, h = plant.events(t, state, dt), dt if substeps == 1 else dt / substeps

    def once(state, j):
        return plant.step(t + j * h, state, u, h), None

    if substeps == 1:
        return plant.step(t, state, u, h)
    return jax.lax.scan(once, state, jnp.arange(substeps).astype(h.dtype))[0]


class _NeedsControls(Exception):
    """The memory at the start depends on the controls."""


def fresh_state(plant: Plant, q: Array, v: Array, dt: Array) -> State:
    """The state in which a motion of unknown controls begins.

    Raises:
        ValueError: if the memory at the start depends on the first controls.
    """

    def unknown(*_):
        raise _NeedsControls

    try:
        return plant.start(q, v, dt, unknown)
    except _NeedsControls:
        raise ValueError(
            f"{type(plant).__name__}: its memory at the start depends on the first controls, so it "
            "moves in rollouts alone; an optimizer needs a memory that start makes from q and v"
        ) from None


def fresh_memory(plant: Plant) -> PyTree:
    """Shapes of the memory in which a motion begins."""
    m = plant.model
    q, v = (jax.ShapeDtypeStruct((n,), m.dtype) for n in (m.nq, m.nv))
    dt = jax.ShapeDtypeStruct((), m.dtype)
    return jax.eval_shape(lambda *x: fresh_state(plant, *x).memory, q, v, dt)


class Robot(Plant):
    """A robot that moves freely, with an integrator."""

    model: Model
    integrator: Any = eqx.field(converter=resolve_integrator, default="implicit_damping")
    """An :class:`Integrator`, its name or a step function, as in :func:`rbd_jax.rollout`."""
    f_ext: Float[Array, "nb 6"] | None = None
    """Constant external wrench (n, f) on each body, in its frame (N m, N)."""
    actuation: Any = eqx.field(converter=_module, default=None)
    """How the controls drive the joints: a matrix (nv, nu), or a function ``(model, t, q, v, u) ->
    tau``, or None if the controls are the torques."""
    inputs: int = eqx.field(static=True, default=0)
    """The number of controls, if ``actuation`` is a function."""

    def __check_init__(self):
        if callable(self.actuation):
            if self.inputs < 1:
                raise ValueError(
                    "Robot: actuation is a function, so pass the number of controls: inputs=…"
                )
        elif self.actuation is not None:
            shape = jnp.shape(self.actuation)
            if len(shape) != 2 or shape[0] != self.model.nv:
                raise ValueError(
                    f"Robot: actuation has shape {shape}, expected (nv, nu) with nv = "
                    f"{self.model.nv} for robot {self.model.topology.name!r}"
                )

    @property
    def nu(self) -> int:
        """The number of controls."""
        if self.actuation is None:
            return self.model.nv
        return self.inputs if callable(self.actuation) else self.actuation.shape[1]

    def torques(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " nv"]:
        """Joint torques (N m, N) that the controls u produce."""
        if self.actuation is None:
            return u
        if callable(self.actuation):
            tau = self.actuation(self.model, t, q, v, u)
            return jnp.asarray(tau, self.model.dtype)
        return linear.matmul(jnp.asarray(self.actuation, self.model.dtype), u)

    def accelerations(self, tau: Array) -> ActuatedRobot:
        """The accelerations under joint torques that are held."""
        return ActuatedRobot(self.model, tau, self.f_ext)

    def start(self, q: Array, v: Array, dt: Array, controls: Callable) -> State:
        """See :meth:`Plant.start`."""
        return State(q, v, self._memory(self.accelerations, q, v, dt, controls))

    def _memory(self, accelerations: Callable, q: Array, v: Array, dt: Array, controls: Callable):
        """The memory of the integrator at the start."""
        zero = jnp.zeros_like(dt)

        def first(t, at_q, at_v):  # under the torques of the first step
            tau = self.torques(zero, q, v, controls(zero, q, v))
            return accelerations(tau)(t, at_q, at_v)

        return self.integrator.init(self.model, first, zero, q, v, dt)

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        q, v, memory = state
        acceleration = self.accelerations(self.torques(t, q, v, u))
        (q, v), memory = self.integrator.step(self.model, acceleration, t, q, v, dt, memory)
        return State(q, v, memory)


class ConstrainedRobot(Robot):
    """A robot under bilateral constraints, which may begin and cease to hold."""

    constraints: Constraints = None  # pyright: ignore[reportAssignmentType]
    """The constraints that hold, see :mod:`rbd_jax.constraints`."""
    active: Bool[Array, "T c"] | Callable[..., Array] | Guard | None = eqx.field(
        converter=_module, default=None
    )
    """Which of the constraints hold in each step, one row for each step. Or a function ``active(t,
    q, v, before) -> bool (c,)`` that is called at the start of each step. A constraint that starts
    to hold causes an impact with its restitution. Or a :class:`Guard`, which resets the state
    itself, such as :class:`Touching` for feet. None if all hold that the set says hold."""
    project: bool = eqx.field(static=True, default=False)
    """Move the state back onto the constraints after each step
    (:func:`rbd_jax.constraints.project`). Otherwise their gains keep the drift bounded."""

    @property
    def _schedule(self) -> ConstraintSchedule:
        return ConstraintSchedule(self.model, self.constraints, self.active, self.project)

    def __check_init__(self):
        if self.constraints is None:
            raise ValueError("ConstrainedRobot: pass constraints=…; a Robot moves without them")
        self._schedule.check()

    def check(self, steps: int) -> None:
        """Raise ValueError for a schedule with another number of rows."""
        rows = self._schedule.rows
        if rows is not None and len(rows) != steps:
            raise ValueError(
                f"rollout: active has {len(rows)} rows, one for each step, but there are {steps} "
                "steps"
            )

    def start(self, q: Array, v: Array, dt: Array, controls: Callable) -> State:
        """See :meth:`Plant.start`."""
        held = self._schedule
        memory = self._memory(self._held(held.set(held.start)), q, v, dt, controls)
        return State(q, v, (memory, NoTangent(held.start)))

    def events(self, t: Array, state: State, dt: Array) -> State:
        """Impacts where a constraint starts to hold, and the resets of a guard."""
        memory, mask = state.memory
        (q, v), mask = self._schedule.begin(t, state.q, state.v, mask.value, dt)
        return State(q, v, (memory, NoTangent(mask)))

    def holding(self, t: Array, state: State, dt: Array) -> State:
        """The state with the constraints that a schedule lets hold at time t, without an impact."""
        if self._schedule.rows is None:
            return state
        memory, mask = state.memory
        now = self._schedule.scheduled(t, dt).astype(mask.value.dtype)
        return State(state.q, state.v, (memory, NoTangent(now)))

    def lands(self, t: Array, dt: Array) -> Bool[Array, ""]:
        """Whether a constraint starts to hold in the step of a schedule that begins at time t."""
        held = self._schedule
        return jnp.any(held.scheduled(t, dt) & ~held.before(t, dt))

    @property
    def switches(self) -> bool:
        """Whether the state decides which constraints hold, by a function or a guard."""
        return self._schedule.guard is not None

    def held(self, state: State) -> Constraints:
        """The constraints with those active that hold in a state."""
        return self._schedule.set(state.memory[1].value)

    def outputs(self, t: Array, state: State, u: Array, dt: Array) -> tuple[Array]:
        """Constraint forces (N m, N) in the step, one for each row, zero where none holds."""
        q, v, _ = state
        robot = self.integrator.euler_robot(self.model, dt) or self.model
        tau = self.torques(t, q, v, u)
        return (constrained_dynamics(robot, q, v, tau, self.held(state), self.f_ext).forces,)

    def zero_outputs(self, q: Array, v: Array, dt: Array) -> tuple[Array]:
        """See :meth:`Plant.zero_outputs`."""
        return (jnp.zeros((self.constraints.size,), q.dtype),)

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        q, v, (memory, mask) = state
        constraints = self.held(state)
        acceleration = self._held(constraints)(self.torques(t, q, v, u))
        (q, v), memory = self.integrator.step(self.model, acceleration, t, q, v, dt, memory)
        return State(*self._schedule.end(q, v, constraints), (memory, mask))

    def _held(self, constraints: Constraints) -> Callable[[Array], ActuatedRobot]:
        return lambda tau: ActuatedRobot(self.model, tau, self.f_ext, constraints)


class ScenePlant(Plant):
    """A scene of :func:`rbd_jax.load_mjcf`: its robot, actuators, contacts and integrator.

    The controls are those of its actuators. The memory is MuJoCo's warm start: the accelerations of
    the step before, which decide how long the solver searches, not what it finds. Where actuators
    have activations, it is the pair of warm start and activations.
    """

    scene: Scene
    fixed: Any = None
    """What :func:`rbd_jax.contact.constants` computes, in a loop over steps."""
    act: Float[Array, " na"] | None = None
    """The activations at the start; zeros if None."""

    @property
    def model(self) -> Model:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The robot of the scene."""
        return self.scene.model

    @property
    def nu(self) -> int:
        """The number of actuators."""
        return self.scene.nu

    def prepared(self) -> "ScenePlant":
        """See :meth:`Plant.prepared`."""
        if self.fixed is not None:
            return self
        return dataclasses.replace(self, fixed=constants_now(self.scene))

    def torques(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " nv"]:
        """Joint torques (N m, N) of the actuators at the beginning of a step.

        Raises:
            ValueError: the actuators have activations, on which their torques depend too.
        """
        if self.scene.na:
            raise ValueError(
                f"torques: the scene has {self.scene.na} activations, on which the torques of its "
                f"actuators depend; read them in a cost or use Scene.torque with act="
            )
        return self.scene.torque(q, v, u)

    def start(self, q: Array, v: Array, dt: Array, controls: Callable) -> State:
        """See :meth:`Plant.start`."""
        guess = NoTangent(jnp.zeros_like(v))
        if not self.scene.na:
            return State(q, v, guess)
        act = jnp.zeros((self.scene.na,), v.dtype) if self.act is None else self.act
        return State(q, v, (guess, act))

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        return self.advanced(dataclasses.replace(self.scene, dt=dt), state, u)

    def step_again(self, t: Array, state: State, u: Array, dt: Array, after: State) -> State:
        """See :meth:`Plant.step_again`. The accelerations are those of the memory after the step.

        A step with several stages, or with a noslip pass, needs accelerations that are not there.
        """
        own = type(self).step is ScenePlant.step and type(self).advanced is ScenePlant.advanced
        scene = dataclasses.replace(self.scene, dt=dt)
        if not own or not knows_accelerations(scene):
            return self.step(t, state, u, dt)
        act = state.memory[1] if scene.na else None
        guess = after.memory[0] if scene.na else after.memory
        end = scene_step_again(scene, state.q, state.v, u, guess.value, act, self.fixed)
        q = end.q
        if scene.contacts.may_be_crowded:
            q = jnp.where(jnp.isnan(after.q), jnp.nan, q)
        guess = NoTangent(end.a)
        return State(q, end.v, (guess, end.act) if scene.na else guess)

    def advanced(
        self, scene: Scene, state: State, u: Array, tau: Float[Array, " nv"] | None = None
    ) -> State:
        """The state after a step of a scene like this one, perhaps with generalized forces."""
        guess, act = state.memory if self.scene.na else (state.memory, None)
        end = scene_step(
            scene, state.q, state.v, u, tau, guess.value, act=act, constants=self.fixed
        )
        guess, q = NoTangent(end.a), end.q
        if scene.contacts.may_be_crowded:  # a motion that misses contacts must not pass for one
            q = jnp.where(end.result == RESULTS.crowded, jnp.nan, q)
        return State(q, end.v, (guess, end.act) if self.scene.na else guess)


def as_plant(
    moves: Plant | Model | Scene,
    integrator: str | Callable | None = None,
    f_ext: Float[Array, "nb 6"] | None = None,
    name: str = "rollout",
) -> Plant:
    """The plant of a robot or of a scene; a plant is returned as it is.

    Args:
        moves: a robot, a scene or a plant, or what has a method ``as_plant(integrator, f_ext)``,
            such as learned dynamics.
        integrator: of a robot, see :func:`rbd_jax.rollout`.
        f_ext: of a robot, see :func:`rbd_jax.rollout`.
        name: of the function that errors speak of.

    Raises:
        ValueError: for an integrator or a wrench beside a plant or a scene, which have their own.
        TypeError: for anything else.
    """
    if isinstance(moves, Model):
        return Robot(moves, "implicit_damping" if integrator is None else integrator, f_ext)
    own = getattr(moves, "as_plant", None)
    if own is not None:
        return own(integrator, f_ext)
    for option, value in {"integrator": integrator, "f_ext": f_ext}.items():
        if value is not None:
            kind = type(moves).__name__
            raise ValueError(
                f"{name}: {option} is an option of a robot, got it beside a {kind}, which has its "
                "own; leave it out"
            )
    if isinstance(moves, Scene):
        return ScenePlant(moves)  # pyright: ignore[reportCallIssue]
    if isinstance(moves, Plant):
        return moves
    raise TypeError(
        f"{name}: the first argument must be an rbd_jax.Model, an rbd_jax.contact.Scene or an "
        f"rbd_jax.simulate.Plant, got {type(moves).__name__}"
    )
