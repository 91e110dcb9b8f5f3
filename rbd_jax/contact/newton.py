"""Newton's method with exact line search for the convex constraint problem.

Source: MuJoCo's documentation, "Computation", solvers, Newton. The gradient of the cost is linear
by pieces, but for sliding elliptic contacts, so that few iterations are exact; how many a sample
needs differs, and a ``while_loop`` of one sample runs in lanes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..model.outcome import RESULTS
from .linear import cholesky, solve
from .problem import Problem
from .rows import Values

SEARCH = 30
"""Evaluations in one line search at most."""


class Minimum(NamedTuple):
    """The minimizer and the factor of the Hessian there."""

    a: Float[Array, " nv"]
    factor: Float[Array, "nv nv"]
    result: RESULTS
    steps: Int[Array, ""]


def dot(x: Array, y: Array) -> Float[Array, ""]:
    """``xᵀ y``."""
    return jnp.sum(x * y)


def _values_dot(x: Values, y: Values) -> Float[Array, ""]:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return sum((dot(a, b) for a, b in pairs), start=jnp.zeros((), x.dry.dtype))


def line_search(problem: Problem, z: Values, dz: Values, slope: Array, curvature: Array) -> Array:
    """The step t at which the derivative of the cost along the line vanishes.

    ``φ'(t) = slope + t curvature − dz · f(z + t dz)`` never falls; Newton's method on it, kept
    between a step that is too short and one that is too long.
    """

    def derivatives(t):
        at = jax.tree.map(lambda x, d: x + t * d, z, dz)
        f, df = jax.jvp(problem.forces, (at,), (dz,))
        return slope + t * curvature - _values_dot(dz, f), curvature - _values_dot(dz, df)

    one = jnp.ones_like(slope)
    start = derivatives(0 * one)[0]
    goal = 1e-3 * jnp.abs(start)

    def unfinished(state):
        t, first, _, low, high, n = state
        return (jnp.abs(first) > goal) & (n < SEARCH) & (low < high)

    def step(state):
        t, first, second, low, high, n = state
        low, high = jnp.where(first < 0, t, low), jnp.where(first < 0, high, t)
        new = t - first / second
        half = jnp.where(jnp.isinf(high), 2 * t, 0.5 * (low + high))
        new = jnp.where((new > low) & (new < high), new, half)
        return (new, *derivatives(new), low, high, n + 1)

    zero = jnp.zeros_like(one)
    state = (one, *derivatives(one), zero, zero + jnp.inf, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, state)[0]


def minimize(problem: Problem, guess: Float[Array, " nv"], max_steps: int) -> Minimum:
    """The accelerations that minimize the cost, from a guess, to rounding.

    It ends one Newton step after the decrement ``gᵀ H⁻¹ g`` has fallen below the square root of
    the machine precision, squared, of the size of the problem: that last step is exact up to
    rounding, because no constraint switches any more.
    """
    M, b = problem.M, problem.b
    tolerance = jnp.finfo(b.dtype).eps ** 0.5

    def times(a):
        return jnp.matmul(M, a, precision="highest")

    scale = dot(b, b / jnp.diagonal(M))

    def unfinished(state):
        return ~state[2] & (state[3] < max_steps)

    def iterate(state):
        a, z, _, n = state
        smooth = times(a) - b
        gradient = smooth - problem.pull(problem.forces(z))
        L = cholesky(problem.hessian(z))
        da = -solve(L, gradient)
        decrement = -dot(gradient, da)
        dz = problem.map(da)
        t = line_search(problem, z, dz, dot(da, smooth), dot(da, times(da)))
        size = scale + dot(a, times(a))
        a = a + t * da
        done = ~(decrement > tolerance**2 * size)  # also if it is NaN
        return a, problem.values(a), done, n + 1

    start = guess, problem.values(guess), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    a, z, done, n = jax.lax.while_loop(unfinished, iterate, start)
    result = RESULTS.where(done, RESULTS.successful, RESULTS.max_steps_reached)
    result = RESULTS.where(jnp.isfinite(a).all(), result, RESULTS.nonfinite)
    return Minimum(a, cholesky(problem.hessian(z)), result, n)
