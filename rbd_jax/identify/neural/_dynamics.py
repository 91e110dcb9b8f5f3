"""The base class of user-defined dynamics, which rollouts, integrators and policies accept."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ...algorithms.aba import aba
from ...algorithms.rnea import rnea
from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...model import Model
from ...model.arguments import array_arguments, check_array
from ...simulate import (
    Integrator,
    Robot,
    Tableau,
    implicitly_damped,
    resolve_integrator,
    rollout,
)

_ARGUMENTS = array_arguments(rnea) | array_arguments(aba)


class Dynamics(eqx.Module):
    """User-defined dynamics of a robot, which can replace the library's own.

    A subclass implements the accelerations. Pass the module as an argument to a function under
    ``jax.jit``, or put its methods under ``eqx.filter_jit``. Plain ``jax.jit`` of a bound method
    would try to hash the module.
    """

    model: eqx.AbstractVar[Model]

    @abc.abstractmethod
    def __call__(
        self,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        tau: Float[Array, " nv"],
        f_ext: Float[Array, "nb 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Accelerations, arguments as :func:`rbd_jax.forward_dynamics`."""

    def implicitly_damped(self, dt: Float[Array, ""]) -> "Dynamics":
        """The dynamics that a step of ``dt`` seconds with implicit joint damping takes.

        Joint damping of the model is implicit. Damping of learned terms stays explicit.
        """
        return eqx.tree_at(lambda d: d.model, self, implicitly_damped(self.model, dt))

    def driven(self, tau: Float[Array, " nv"], f_ext: Float[Array, "nb 6"] | None = None):
        """``acceleration(t, q, v)`` under constant torques and wrenches, for integrators."""
        return DrivenDynamics(self, tau, f_ext)

    def integrator(self, method: str | Callable = "implicit_damping") -> "Stepper":
        """A step function for the argument ``integrator`` of :func:`rbd_jax.rollout` and others."""
        return Stepper(self, method)

    def as_plant(
        self,
        integrator: str | Callable | None = None,
        f_ext: Float[Array, "nb 6"] | None = None,
    ) -> Robot:
        """The robot that moves by these dynamics, for rollouts, problems and environments.

        Rollouts and problems call it by themselves: ``rbd_jax.rollout(dynamics, …)``. It is the
        plant of an environment.
        """
        method = "implicit_damping" if integrator is None else integrator
        return Robot(self.model, self.integrator(method), f_ext)

    def rollout(
        self, q0, v0, controls, dt, *, integrator: str | Callable = "implicit_damping", **options
    ):
        """:func:`rbd_jax.rollout` of these dynamics, with its options."""
        step = self.integrator(integrator)
        return rollout(self.model, q0, v0, controls, dt, integrator=step, **options)

    def actuation(
        self,
        model: Model,
        t: Float[Array, ""],
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        u: Float[Array, " nv"],
    ) -> Float[Array, " nv"]:
        """The torques under which ``model`` accelerates as these dynamics do under u.

        It serves as ``actuation`` of :class:`rbd_jax.optimize.Problem`, and in policies.
        """
        return inverse_dynamics(model, q, v, self(q, v, u))

    @property
    def _bodies(self) -> bool:
        return True

    def _checked(self, **arguments) -> None:
        for name, value in arguments.items():
            if value is not None:
                check_array(type(self).__name__, self.model, name, value, _ARGUMENTS[name])
        if arguments.get("f_ext") is not None and not self._bodies:
            raise ValueError(
                f"{type(self).__name__}: f_ext acts on rigid bodies, but these dynamics have none; "
                "add its joint torques Jᵀ f to tau"
            )


class DrivenDynamics(eqx.Module):
    """Dynamics under constant torques and wrenches."""

    dynamics: Dynamics
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None = None

    def implicitly_damped(self, dt: Float[Array, ""]) -> "DrivenDynamics":
        """The accelerations that a step of ``dt`` seconds with implicit joint damping takes."""
        return replace(self, dynamics=self.dynamics.implicitly_damped(dt))

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """``a(t, q, v)``."""
        return self.dynamics(q, v, self.tau, self.f_ext)


class Stepper(Integrator):
    """A step of an integrator that uses the accelerations of ``dynamics``.

    ``"generalized_alpha"`` restarts in every step. Steps in momentum form are consistent, but they
    preserve the invariants of the rigid bodies.
    """

    dynamics: Dynamics
    method: Any = eqx.field(converter=resolve_integrator)

    @property
    def tableau(self) -> Tableau | None:
        """The tableau of an explicit method; None for all others."""
        return self.method.tableau

    def step(self, model, acceleration, t, q, v, dt, memory):
        """One step of the method, as in :meth:`rbd_jax.simulate.Integrator.step`."""
        if not hasattr(acceleration, "tau"):
            raise TypeError(
                "Stepper: needs the torques of rbd_jax.rollout or rbd_jax.step, but got a function "
                "of (t, q, v); pass dynamics.driven(tau) to the integrator itself instead"
            )
        driven = self.dynamics.driven(acceleration.tau, acceleration.f_ext)
        return self.method(model, driven, t, q, v, dt), memory
