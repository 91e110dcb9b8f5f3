"""What an integrator is: one step of time, perhaps with a memory."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ..model import Model
from ..model.functions import as_module
from ._munthe_kaas import Acceleration, Tableau

QV = tuple[Float[Array, " nq"], Float[Array, " nv"]]


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

    def euler_robot(self, model: Model, dt: Array) -> Model | None:
        """The robot whose accelerations make this a step of semi-implicit Euler, or None."""
        return None

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
    euler: Callable[[Model, Array], Model] | None = eqx.field(static=True, default=None)
    """For a step of semi-implicit Euler: the robot whose accelerations it takes."""

    @property
    def tableau(self) -> Tableau | None:
        """See :attr:`Integrator.tableau`."""
        return self.explicit

    def euler_robot(self, model: Model, dt: Array) -> Model | None:
        """See :meth:`Integrator.euler_robot`."""
        return None if self.euler is None else self.euler(model, dt)

    def step(self, model, acceleration, t, q, v, dt, memory):
        """See :meth:`Integrator.step`."""
        return self.function(model, acceleration, t, q, v, dt), memory
