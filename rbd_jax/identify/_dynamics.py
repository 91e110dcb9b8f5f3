"""Dynamics by a formula of one's own, wherever the library takes accelerations or policies."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..algorithms.aba import aba
from ..algorithms.rnea import rnea
from ..derivatives.rules import inverse_dynamics
from ..model import Model
from ..model.arguments import array_arguments, check_array
from ..simulate import resolve, rollout

_ARGUMENTS = array_arguments(rnea) | array_arguments(aba)


class Dynamics(eqx.Module):
    """Accelerations of a robot by a formula of one's own, wherever those of the library may be.

    A subclass gives the accelerations. Pass the module to a function under ``jax.jit``, or put its
    methods under ``eqx.filter_jit``: plain ``jax.jit`` would hash what they are bound to.
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

    def driven(self, tau: Float[Array, " nv"], f_ext: Float[Array, "nb 6"] | None = None):
        """``acceleration(t, q, v)`` under constant torques and wrenches, as integrators want it."""
        return Driven(self, tau, f_ext)

    def integrator(self, method: str | Callable = "semi_implicit_euler") -> "Stepper":
        """A step function for ``integrator=`` of :func:`rbd_jax.rollout`, :func:`rbd_jax.step` …"""
        return Stepper(self, method)

    def rollout(
        self, q0, v0, controls, dt, *, integrator: str | Callable = "semi_implicit_euler", **options
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

        For ``actuation=`` of :class:`rbd_jax.optimize.Problem`, and for policies.
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
                f"{type(self).__name__}: f_ext acts on rigid bodies, and there are none here; "
                "add their torques Jᵀf to tau"
            )


class Driven(eqx.Module):
    """Dynamics under constant torques and wrenches."""

    dynamics: Dynamics
    tau: Float[Array, " nv"]
    f_ext: Float[Array, "nb 6"] | None = None

    def __call__(self, t: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        """``a(t, q, v)``."""
        return self.dynamics(q, v, self.tau, self.f_ext)


class Stepper(eqx.Module):
    """A step of an integrator with accelerations of ``dynamics`` under the rollout's torques.

    ``"generalized_alpha"`` starts afresh in every step; steps in momentum form are consistent, but
    the invariants that they keep are those of the rigid bodies.
    """

    dynamics: Dynamics
    method: str | Callable = eqx.field(static=True)

    def __check_init__(self):
        resolve(self.method)

    def __call__(self, model: Model, acceleration: Any, t: Array, q: Array, v: Array, dt: Array):
        """``(q, v)`` after the step."""
        if not hasattr(acceleration, "tau"):
            raise TypeError(
                "Stepper: needs the torques of a rollout or of rbd_jax.step, got a function of "
                "(t, q, v); give the integrator itself dynamics.driven(tau)"
            )
        driven = self.dynamics.driven(acceleration.tau, acceleration.f_ext)
        return resolve(self.method)(model, driven, t, q, v, dt)
