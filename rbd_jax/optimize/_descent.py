"""The loop that iLQR, DDP and multiple shooting share: propose, accept or regularise, stop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._progress import Progress, report
from ._solution import RESULTS, History

LENGTHS = 10
"""Step lengths tried at once: 1, ½, ¼ …"""
ARMIJO = 1e-4
"""Part of the promised decrease that a step has to bring."""


class Proposal(NamedTuple):
    """What one expansion about a point leads to."""

    point: PyTree
    merit: Float[Array, ""]
    """Of the old point …"""
    new_merit: Float[Array, ""]
    """… and of the new one."""
    expected: Float[Array, ""]
    """Decrease promised for the full step …"""
    length: Float[Array, ""]
    """… of which so much is taken."""
    definite: Bool[Array, ""]
    """Whether the quadratic model has a minimum."""
    feasible: Bool[Array, ""] | bool = True
    """Whether the constraints hold, without which nothing has converged."""
    infeasible: Bool[Array, ""] | bool = False
    """Whether to give up, because no point is found at which they hold."""


class Options(NamedTuple):
    """Of the loop."""

    max_iterations: int
    tol: float
    regularisation: float
    progress: Progress | None


class _State(NamedTuple):
    point: PyTree
    extra: PyTree
    mu: Float[Array, ""]
    newton: Bool[Array, ""]
    """Whether the next model takes the exact second derivatives."""
    iteration: Int[Array, ""]
    done: Bool[Array, ""]
    result: RESULTS
    history: History


def options(dtype, max_iterations: int, tol: float | None, regularisation: float, progress):
    """Options with the tolerance that a dtype affords."""
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    if tol is None:
        tol = 1e-9 if dtype == jnp.float64 else 1e-5
    return Options(max_iterations, tol, regularisation, progress)


def descend(
    propose: Callable[[PyTree, PyTree, Array, Array], tuple[Proposal, PyTree]],
    point: PyTree,
    extra: PyTree,
    merit: Float[Array, ""],
    o: Options,
) -> _State:
    """Iterate ``propose(point, extra, mu, newton)`` until no step promises anything.

    The regularisation μ, relative to the scale that ``propose`` gives it, is divided by 10 after a
    long step and multiplied by 10 after none (Levenberg–Marquardt). Exact second
    derivatives (``newton``) are asked for after a full step, and not after one that failed: far
    from a minimum they make the model indefinite, and Gauss–Newton is the better guide.
    """
    dtype = merit.dtype
    least, most = 1e-14 if dtype == jnp.float64 else 1e-9, 1e10
    noise = 10 * jnp.finfo(dtype).eps

    def body(s: _State) -> _State:
        p, extra = propose(s.point, s.extra, s.mu, s.newton)
        limit = p.merit - ARMIJO * p.length * p.expected + noise * (1 + jnp.abs(p.merit))
        accepted = p.definite & (p.new_merit <= limit)
        little = p.expected <= o.tol * (1 + jnp.abs(p.merit))
        converged = p.definite & little & (s.mu <= 1e-4) & p.feasible
        infeasible = ~converged & p.infeasible
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), p.point, s.point)
        less = jnp.where(p.length < 0.2, s.mu, jnp.maximum(0.1 * s.mu, least))
        more = jnp.where(s.newton, s.mu, jnp.maximum(10 * s.mu, 1e-6))
        mu = jnp.where(accepted, less, more)
        stalled = ~converged & (mu > most)
        length = jnp.where(accepted, p.length, 0)
        row = History(p.merit, p.expected, length, s.mu)
        report(o.progress, s.iteration + 1, *row)
        history = jax.tree.map(lambda h, x: h.at[s.iteration].set(x), s.history, row)
        last = s.iteration + 1 >= o.max_iterations
        result = RESULTS.where(stalled, RESULTS.stalled, RESULTS.max_iterations_reached)
        result = RESULTS.where(infeasible, RESULTS.infeasible, result)
        result = RESULTS.where(converged, RESULTS.successful, result)
        done = converged | stalled | infeasible | last
        newton = accepted & (p.length > 0.9)
        return _State(new, extra, mu, newton, s.iteration + 1, done, result, history)

    empty = jnp.full((o.max_iterations,), jnp.nan, dtype)
    fine = jnp.isfinite(merit)
    first = RESULTS.where(fine, RESULTS.max_iterations_reached, RESULTS.nonfinite)
    zero = jnp.zeros((), jnp.int32)
    mu = jnp.asarray(o.regularisation, dtype)
    start = _State(point, extra, mu, jnp.zeros((), bool), zero, ~fine, first, History(*[empty] * 4))
    return jax.lax.while_loop(lambda s: ~s.done, body, start)


def lengths(dtype) -> Float[Array, " L"]:
    """The step lengths of a line search."""
    return 0.5 ** jnp.arange(LENGTHS).astype(dtype)


def best(merits: Float[Array, " L"], tries: Any) -> tuple[Array, Any]:
    """Index of the lowest merit, NaN being the highest, and the try that has it."""
    i = jnp.argmin(jnp.where(jnp.isfinite(merits), merits, jnp.inf))
    return i, jax.tree.map(lambda x: x[i], tries)
