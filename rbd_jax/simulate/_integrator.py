"""What an integrator is: one step of time, perhaps with a memory."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ..model import Model
from ..model.functions import as_module
from ._munthe_kaas import Acceleration, Tableau

QV = tuple[Float[Array, " nq"], Float[Array, " nv"]]


class Euler(NamedTuple):
    """A step of semi-implicit Euler, ``v⁺ = end(v + dt a), q⁺ = q ⊕ dt v⁺``, in its two parts."""

    robot: Callable[[Model, Array], Model]
    """``(model, dt)``: the robot whose accelerations a the step takes."""
    end: Callable[[Model, Array, Array], Array]
    """``(model, v, dt)``: the velocity at the end, if the robot has no constraints."""


class Integrator(eqx.Module):
    """A step of time integration on the configuration manifold.

    Called as a function, ``integrator(model, acceleration, t, q, v, dt) -> (q, v)``, it takes one
    step from a start without a past.
    """

    def init(
        self, model: Model, acceleration: Acceleration, t: Array, q: Array, v: Array, dt: Array
    ) -> PyTree:
        """The memory at the start of a motion; none by default. Arguments as :meth:`step`."""
        return ()

    @abc.abstractmethod
    def step(
        self,
        model: Model,
        acceleration: Acceleration,
        t: Float[Array, ""],
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        dt: Float[Array, ""],
        memory: PyTree,
    ) -> tuple[QV, PyTree]:
        """The state after a step, and the memory for the next step.

        Args:
            model: the robot.
            acceleration: ``(t, q, v) -> a`` (rad/s², m/s²; body-fixed for a free joint).
            t: time at the start of the step (s).
            q: configuration. v: velocity.
            dt: length of the step (s).
            memory: of the step before, or of :meth:`init`.
        """

    @property
    def has_memory(self) -> bool:
        """Whether a step depends on more than the state."""
        return False

    @property
    def tableau(self) -> Tableau | None:
        """The tableau by which an explicit integrator follows ``v̇ = −λ v``; None for all others."""
        return None

    @property
    def euler(self) -> Euler | None:
        """The parts of the step if it is one of semi-implicit Euler, or None."""
        return None

    def euler_robot(self, model: Model, dt: Array) -> Model | None:
        """The robot whose accelerations make this a step of semi-implicit Euler, or None."""
        return None if self.euler is None else self.euler.robot(model, dt)

    def __call__(
        self, model: Model, acceleration: Acceleration, t: Array, q: Array, v: Array, dt: Array
    ) -> QV:
        """One step from a start without a past."""
        state = model, acceleration, t, q, v, dt
        return self.step(*state, self.init(*state))[0]


class SingleStep(Integrator):
    """An integrator without memory: a function ``(model, acceleration, t, q, v, dt) -> (q, v)``."""

    function: Any = eqx.field(converter=as_module)
    explicit: Tableau | None = eqx.field(static=True, default=None)
    parts: Euler | None = eqx.field(static=True, default=None)

    @property
    def tableau(self) -> Tableau | None:
        """See :attr:`Integrator.tableau`."""
        return self.explicit

    @property
    def euler(self) -> Euler | None:
        """See :attr:`Integrator.euler`."""
        return self.parts

    def step(self, model, acceleration, t, q, v, dt, memory):
        """See :meth:`Integrator.step`."""
        return self.function(model, acceleration, t, q, v, dt), memory
