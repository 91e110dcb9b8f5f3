"""Newton's method with exact line search for the convex constraint problem.

Source: MuJoCo's documentation, "Computation", solvers, Newton. Except for sliding elliptic
contacts the gradient of the cost is linear by pieces, so that a few iterations give the exact
minimum. The number of iterations differs between samples of a batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ...model.outcome import RESULTS
from .problem import Factor, Problem

SEARCH = 30
"""The most evaluations in one line search."""
FALL = 0.1
"""The part of its derivative at which a line search ends."""
FLAT = 32
"""The gradient that counts as zero, in units of the machine precision."""


class Solution(NamedTuple):
    """The constrained accelerations of one state, and how the solver ended."""

    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` in our axes: the classical acceleration for the origin of a free joint."""
    result: RESULTS
    steps: Int[Array, ""]
    """Newton steps of the solver."""
    minimum: Float[Array, " nv"]
    """The accelerations that minimize the cost: ``a`` before the noslip pass, if there is one."""


class Found(NamedTuple):
    """A :class:`Solution` with what is kept of the search for its derivatives."""

    a: Float[Array, " nv"]
    result: RESULTS
    steps: Int[Array, ""]
    minimum: Float[Array, " nv"]
    factor: Factor | None = None
    """The Hessian at the minimum, factorized."""


def dot(x: Array, y: Array) -> Float[Array, ""]:
    """``xᵀ y``."""
    return jnp.sum(x * y)


def _total_dot(x: list[PyTree], y: list[PyTree], zero: Array) -> Float[Array, ""]:
    """``xᵀ y`` over all rows."""
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return sum((dot(a, b) for a, b in pairs), start=zero)


def line_search(
    problem: Problem,
    z: list[PyTree],
    dz: list[PyTree],
    start: Array,
    slope: Array,
    curvature: Array,
    done: Array,
) -> Array:
    """The step t at which the derivative of the cost along the line vanishes.

    This derivative, ``φ'(t) = slope + t curvature − dz · f(z + t dz)``, never falls. Newton's
    method finds its root, kept between a step that is too short and a step that is too long.
    ``start`` is ``φ'(0)``. The search ends where the derivative is small, or not larger than its
    own rounding. It also ends at once if the sample is ``done`` and only waits for others.
    """

    def derivatives(t):
        at = jax.tree.map(lambda x, d: x + t * d, z, dz)
        f, df = jax.jvp(problem.forces, (at,), (dz,))
        first = slope + t * curvature - _total_dot(dz, f, zero)
        return first, curvature - _total_dot(dz, df, zero)

    zero, one = jnp.zeros_like(slope), jnp.ones_like(slope)
    noise = FLAT * jnp.finfo(slope.dtype).eps * (jnp.abs(slope) + curvature)
    goal = jnp.where(done, jnp.inf, jnp.maximum(FALL * jnp.abs(start), noise))

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

    state = (one, *derivatives(one), zero, zero + jnp.inf, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, state)[0]


def minimize(problem: Problem, warmstart: Float[Array, " nv"], max_steps: int, keep: bool) -> Found:
    """The accelerations that minimize the cost, to rounding, and those after the noslip pass.

    The iteration ends when the gradient g vanishes up to rounding, which happens after a step in
    which no constraint switches. It also ends one step after the decrement ``gᵀ H⁻¹ g`` has fallen
    below the machine precision, because then no constraint switches any more. Both are relative to
    the size of the problem, and g is measured by the diagonal of the mass matrix.

    Args:
        problem: the constraint problem.
        warmstart: the accelerations at which the iteration starts.
        max_steps: the most iterations.
        keep: whether the result has the factor of the Hessian. It is computed once more, because
            constraints may have switched in the last step.
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
        a, Ma, z, g, done, n = state
        da = -problem.factor(z).solve(g)
        decrement = -dot(g, da)
        Mda, dz = times(da), problem.map(da)
        slope, curvature = dot(da, Ma - b), dot(da, Mda)
        t = line_search(problem, z, dz, -decrement, slope, curvature, done)
        size = scale + dot(a, Ma)
        a, Ma, z = jax.tree.map(lambda x, dx: x + t * dx, (a, Ma, z), (da, Mda, dz))
        g = gradient(Ma - b, z)
        small = dot(g, g * lightness) <= (FLAT * eps) ** 2 * size
        done = small | ~(decrement > eps * size)  # also if it is NaN
        return a, Ma, z, g, done, n + 1

    Ma, z = times(warmstart), problem.residuals(warmstart)
    start = warmstart, Ma, z, gradient(Ma - b, z), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    a, _, z, _, done, n = jax.lax.while_loop(unfinished, iterate, start)
    result = RESULTS.where(done, RESULTS.successful, RESULTS.max_steps_reached)
    result = RESULTS.where(problem.crowded, RESULTS.crowded, result)
    result = RESULTS.where(jnp.isfinite(a).all(), result, RESULTS.nonfinite)
    factor = problem.factor(z) if keep else None
    return Found(problem.without_slip(a)[0], result, n, a, factor)
