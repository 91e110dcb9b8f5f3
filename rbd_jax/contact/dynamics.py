"""Accelerations under constraints, with exact derivatives."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..derivatives.minimizer import Stationary, minimizer
from ..model.outcome import RESULTS
from .linear import solve
from .newton import minimize
from .problem import Problem
from .residual import residual
from .rows import Theta


class Solution(NamedTuple):
    """The accelerations of one moment, and how the solver ended."""

    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` in our axes: the classical acceleration for the origin of a free joint."""
    result: RESULTS
    steps: Int[Array, ""]
    """Newton steps of the solver."""


@functools.lru_cache
def _problem(max_steps: int) -> Stationary:
    """The problem as static functions: the same object for the same limit."""

    def find(theta: Theta, guess: Array):
        found = minimize(Problem(theta), guess, max_steps)
        return found.a, found.factor, (found.result, found.steps)

    return Stationary(find, residual, solve)


def accelerations(theta: Theta, guess: Array | None = None, max_steps: int = 60) -> Solution:
    """The minimizer of MuJoCo's convex problem, with its implicit derivative in every leaf.

    Source: MuJoCo's documentation, "Computation": ``H δa = δτ − δ(ID − Jᵀ λ)`` at the solution.
    """
    start = jnp.zeros_like(theta.v) if guess is None else jax.lax.stop_gradient(guess)
    a, _, (result, steps) = minimizer(_problem(max_steps), theta, start)
    return Solution(a, result, steps)
