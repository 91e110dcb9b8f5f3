"""Newton's method with exact line search for the convex constraint problem.

Source: MuJoCo's documentation, "Computation", solvers, Newton. The gradient of the cost is linear
by pieces, but for sliding elliptic contacts, so that few iterations are exact; how many a sample
needs differs, and a ``while_loop`` of one sample runs in lanes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...model.outcome import RESULTS
from .problem import Problem
from .rows import Values

SEARCH = 30
"""Evaluations in one line search at most."""
FLAT = 32
"""A gradient that vanishes up to rounding, in units of the machine precision."""


class Minimum(NamedTuple):
    """The minimizer, and how the search ended."""

    a: Float[Array, " nv"]
    result: RESULTS
    steps: Int[Array, ""]


def dot(x: Array, y: Array) -> Float[Array, ""]:
    """``xᵀ y``."""
    return jnp.sum(x * y)


def _values_dot(x: Values, y: Values) -> Float[Array, ""]:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return sum((dot(a, b) for a, b in pairs), start=jnp.zeros((), x.dry.dtype))


def line_search(
    problem: Problem, z: Values, dz: Values, start: Array, slope: Array, curvature: Array
) -> Array:
    """The step t at which the derivative of the cost along the line vanishes.

    ``φ'(t) = slope + t curvature − dz · f(z + t dz)`` never falls; Newton's method on it, kept
    between a step that is too short and one that is too long. ``start`` is ``φ'(0)``.
    """

    def derivatives(t):
        at = jax.tree.map(lambda x, d: x + t * d, z, dz)
        f, df = jax.jvp(problem.forces, (at,), (dz,))
        return slope + t * curvature - _values_dot(dz, f), curvature - _values_dot(dz, df)

    one = jnp.ones_like(slope)
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


def minimize(problem: Problem, warmstart: Float[Array, " nv"], max_steps: int) -> Minimum:
    """The accelerations that minimize the cost, from a warmstart, to rounding.

    It ends where the gradient g vanishes up to rounding, which a step without a switch of a
    constraint brings about, or one step after the decrement ``gᵀ H⁻¹ g`` has fallen below the
    machine precision: then no constraint switches any more. Both are relative to the size of the
    problem, and g is measured by the diagonal of the mass matrix.
    """
    M, b = problem.M, problem.b
    eps = jnp.finfo(b.dtype).eps

    def times(a):
        return jnp.matmul(M, a, precision="highest")

    lightness = 1 / jnp.diagonal(M)
    scale = dot(b, b * lightness)

    def gradient(smooth, z):
        return smooth - problem.pull(problem.forces(z))

    def unfinished(state):
        *_, done, n = state
        return ~done & (n < max_steps)

    def iterate(state):
        a, Ma, z, g, _, n = state
        da = -problem.factor(z).solve(g)
        decrement = -dot(g, da)
        Mda, dz = times(da), problem.map(da)
        slope, curvature = dot(da, Ma - b), dot(da, Mda)
        t = line_search(problem, z, dz, -decrement, slope, curvature)
        size = scale + dot(a, Ma)
        a, Ma, z = jax.tree.map(lambda x, dx: x + t * dx, (a, Ma, z), (da, Mda, dz))
        g = gradient(Ma - b, z)
        small = dot(g, g * lightness) <= (FLAT * eps) ** 2 * size
        done = small | ~(decrement > eps * size)  # also if it is NaN
        return a, Ma, z, g, done, n + 1

    Ma, z = times(warmstart), problem.values(warmstart)
    start = warmstart, Ma, z, gradient(Ma - b, z), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    a, *_, done, n = jax.lax.while_loop(unfinished, iterate, start)
    result = RESULTS.where(done, RESULTS.successful, RESULTS.max_steps_reached)
    result = RESULTS.where(jnp.isfinite(a).all(), result, RESULTS.nonfinite)
    return Minimum(a, result, n)
