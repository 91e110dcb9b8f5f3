"""Accelerations under constraints, with exact derivatives."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..derivatives.minimizer import Stationary, minimizer
from .linear import solve
from .newton import minimize
from .problem import Problem
from .residual import residual
from .rows import Theta


class Solution(NamedTuple):
    """The accelerations of one moment, and how the solver fared."""

    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` in our axes: the classical acceleration for the origin of a free joint."""
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]


def _find(theta: Theta, guess: Array):
    found = minimize(Problem(theta), guess)
    return found.a, found.factor, (found.iterations, found.converged)


_PROBLEM = Stationary(_find, residual, solve)


def accelerations(theta: Theta, guess: Array | None = None) -> Solution:
    """The minimizer of MuJoCo's convex problem, with its implicit derivative in every leaf.

    Source: MuJoCo's documentation, "Computation": ``H δa = δτ − δ(ID − Jᵀ λ)`` at the solution.
    """
    start = jnp.zeros_like(theta.v) if guess is None else jax.lax.stop_gradient(guess)
    a, _, (iterations, converged) = minimizer(_PROBLEM, theta, start)
    return Solution(a, iterations, converged)
