"""Plants: what a rollout moves.

A plant has a state, a number of controls and a step. This room has three: a robot with an
integrator, a robot under constraints, and a scene with contacts. A plant of your own is a subclass
of :class:`Plant` with a ``step``.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..constraints import Constraints
from ..contact import Scene, constants, scene_step
from ..model import Model
from ..model.functions import as_module
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


class Plant(eqx.Module):
    """What moves under controls. Its arrays are leaves, with derivatives in every rollout."""

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

        The controls of the step see this state.
        """
        return state

    @abc.abstractmethod
    def step(self, t: Array, state: State, u: Float[Array, " nu"], dt: Array) -> State:
        """The state after ``dt`` seconds in which the controls u are held.

        Args:
            t: time at the start of the step (s).
            state: state at the start of the step.
            u: controls.
            dt: length of the step (s).
        """


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
        matrix = jnp.asarray(self.actuation, self.model.dtype)
        return jnp.matmul(matrix, u, precision="highest")

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
        return State(q, v, (memory, held.start))

    def events(self, t: Array, state: State, dt: Array) -> State:
        """Impacts where a constraint starts to hold, and the resets of a guard."""
        memory, mask = state.memory
        (q, v), mask = self._schedule.begin(t, state.q, state.v, mask, dt)
        return State(q, v, (memory, mask))

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        q, v, (memory, mask) = state
        held = self._schedule
        constraints = held.set(mask)
        acceleration = self._held(constraints)(self.torques(t, q, v, u))
        (q, v), memory = self.integrator.step(self.model, acceleration, t, q, v, dt, memory)
        return State(*held.end(q, v, constraints), (memory, mask))

    def _held(self, constraints: Constraints) -> Callable[[Array], ActuatedRobot]:
        return lambda tau: ActuatedRobot(self.model, tau, self.f_ext, constraints)


class ScenePlant(Plant):
    """A scene of :func:`rbd_jax.load_mjcf`: its robot, actuators, contacts and integrator.

    The controls are those of its actuators. The memory is MuJoCo's warm start: the accelerations of
    the step before, which decide how long the solver searches, not what it finds.
    """

    scene: Scene
    fixed: Any = None
    """What :func:`rbd_jax.contact.constants` computes, in a loop over steps."""

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
        return dataclasses.replace(self, fixed=constants(self.scene))

    def start(self, q: Array, v: Array, dt: Array, controls: Callable) -> State:
        """See :meth:`Plant.start`."""
        return State(q, v, jnp.zeros_like(v))

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        scene = dataclasses.replace(self.scene, dt=dt)
        end = scene_step(scene, state.q, state.v, u, warmstart=state.memory, constants=self.fixed)
        return State(end.q, end.v, end.a)


def as_plant(
    moves: Plant | Model | Scene,
    integrator: str | Callable | None = None,
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Plant:
    """The plant of a robot or of a scene; a plant is returned as it is.

    Raises:
        ValueError: for an integrator or a wrench beside a plant or a scene, which have their own.
        TypeError: for anything else.
    """
    if isinstance(moves, Model):
        return Robot(moves, "implicit_damping" if integrator is None else integrator, f_ext)
    for name, value in {"integrator": integrator, "f_ext": f_ext}.items():
        if value is not None:
            kind = type(moves).__name__
            raise ValueError(
                f"rollout: {name} is an option of a robot, got it beside a {kind}, which has its "
                "own; leave it out"
            )
    if isinstance(moves, Scene):
        return ScenePlant(moves)  # pyright: ignore[reportCallIssue]
    if isinstance(moves, Plant):
        return moves
    raise TypeError(
        f"rollout: the first argument must be an rbd_jax.Model, an rbd_jax.contact.Scene or an "
        f"rbd_jax.simulate.Plant, got {type(moves).__name__}"
    )
