"""Accelerations under constraints, with exact derivatives."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..derivatives.minimizer import Stationary, minimizer
from ..model.outcome import RESULTS
from .actuators import Actuators
from .fluid import drag
from .gravcomp import compensation
from .scene import Scene
from .solver.newton import minimize
from .solver.problem import Problem
from .solver.residual import residual
from .solver.rows import Constants, SolverInputs


class Solution(NamedTuple):
    """The accelerations of one moment, and how the solver ended."""

    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` in our axes: the classical acceleration for the origin of a free joint."""
    result: RESULTS
    steps: Int[Array, ""]
    """Newton steps of the solver."""


class ControlledScene(NamedTuple):
    """A scene at work: what its accelerations depend on beside the state."""

    scene: Scene
    controls: Float[Array, " nu"]
    tau: Float[Array, " nv"] | None
    """More generalized forces."""
    constants: Constants

    @property
    def actuators(self) -> Actuators:
        """Those of the scene, with all of their damping."""
        return self.scene.actuators.damped(self.constants.damping)

    def at(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> SolverInputs:
        """The constraint problem of a state."""
        scene, model = self.scene, self.scene.model
        drive = self.actuators.torque(model, q, v, self.controls)
        drive = drive if self.tau is None else drive + self.tau
        if scene.gravcomp is not None:
            drive = drive + compensation(model, scene.gravcomp, q)
        if scene.fluid is not None:
            drive = drive + drag(model, scene.fluid, q, v)
        return SolverInputs(model, scene.constraints, self.constants, q, v, drive, scene.dt)


def _solver(theta: SolverInputs, a: Float[Array, " nv"]) -> Callable[[Array], Array]:
    """``H⁻¹ r`` with the Hessian at the accelerations a."""
    problem = Problem(theta)
    return problem.factor(problem.values(a)).solve


_CONVEX = Stationary(residual, _solver)


class Search:
    """Finds accelerations, one moment after the other."""

    def __init__(
        self, drive: ControlledScene, warmstart: Float[Array, " nv"] | None, max_steps: int
    ):
        self.drive, self.warmstart, self.max_steps = drive, warmstart, max_steps
        self.found: list[Solution] = []

    def __call__(self, q: Array, v: Array) -> Float[Array, " nv"]:
        """The accelerations of a state; the search begins where the last one ended."""
        start = jnp.zeros_like(v) if self.warmstart is None else self.warmstart
        a, result, steps = minimize(Problem(self.drive.at(q, v)), start, self.max_steps)
        self.found.append(Solution(a, result, steps))
        self.warmstart = a
        return a

    @property
    def ended(self) -> tuple[RESULTS, Int[Array, ""]]:
        """The first result that is no success, and the steps of all searches."""
        _, result, steps = self.found[0]
        for x in self.found[1:]:
            result = RESULTS.where(result == RESULTS.successful, x.result, result)
            steps = steps + x.steps
        return result, steps


class Known:
    """Gives out accelerations that were found, with their implicit derivatives.

    Source: MuJoCo's documentation, "Computation": ``H δa = δτ − δ(ID − Jᵀ λ)`` at the solution.
    """

    def __init__(self, drive: ControlledScene, found: list[Float[Array, " nv"]]):
        self.drive, self.found = drive, found
        self.given: list[Array] = []

    def __call__(self, q: Array, v: Array) -> Float[Array, " nv"]:
        """The accelerations of a state."""
        a = self.found[len(self.given)]
        self.given.append(minimizer(_CONVEX, self.drive.at(q, v), a))
        return self.given[-1]
