"""The loop that iLQR, DDP and multiple shooting share.

Each step proposes a new point, accepts it or raises the regularization, and decides whether to
stop. optax and optimistix have no loop that takes such a model of the problem, with its own line
search and regularization, so the loop is written here.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..model.outcome import RESULTS
from ._progress import Progress, report
from ._solution import History
from ._tolerances import tolerances

LENGTHS = 10
"""Number of step lengths that are tried at most: 1, ½, ¼ …"""
ENOUGH = 0.1
"""The line search ends at a step with this part of the decrease that is predicted for it."""
ARMIJO = 1e-4
"""Part of the expected decrease that a step has to reach."""


class Proposal(NamedTuple):
    """A new point, from an expansion about the old one."""

    point: PyTree
    """The new point."""
    merit: Float[Array, ""]
    """Merit of the old point."""
    new_merit: Float[Array, ""]
    """Merit of the new point."""
    expected: Float[Array, ""]
    """Decrease of the merit that the quadratic model predicts for the full step."""
    length: Float[Array, ""]
    """Fraction of the full step that leads to the new point."""
    definite: Bool[Array, ""]
    """Whether the quadratic model has a minimum."""
    feasible: Bool[Array, ""] | bool = True
    """Whether the constraints hold, without which nothing has converged."""
    infeasible: Bool[Array, ""] | bool = False
    """Whether to give up, because no point is found at which they hold."""


class Options(NamedTuple):
    """Options of the loop."""

    max_steps: int
    tol: float
    regularization: float
    progress: Progress | None


class _State(NamedTuple):
    point: PyTree
    carried: PyTree
    mu: Float[Array, ""]
    exact: Bool[Array, ""]
    """Whether the next model takes the exact second derivatives."""
    steps: Int[Array, ""]
    done: Bool[Array, ""]
    result: RESULTS
    history: History


def options(dtype, max_steps: int, tol: float | None, regularization: float, progress) -> Options:
    """Checked options; the default tolerance depends on the precision."""
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if tol is None:
        tol = tolerances(dtype).decrease
    return Options(max_steps, tol, regularization, progress)


def descend(
    propose: Callable[[PyTree, PyTree, Array, Array], tuple[Proposal, PyTree]],
    point: PyTree,
    carried: PyTree,
    merit: Float[Array, ""],
    o: Options,
) -> _State:
    """Repeat ``propose(point, carried, mu, exact)`` until the expected decrease is negligible.

    ``propose`` returns a proposal and the new value of ``carried``. The regularization μ is divided
    by 10 after an accepted step that is not short, and multiplied by 10 after a rejected one
    (Levenberg–Marquardt). ``propose`` scales μ itself. ``exact`` asks for exact second derivatives.
    It is true after a full step and false after a rejected one, because far from a minimum the
    exact derivatives make the model indefinite, and the Gauss–Newton model is the better one there.
    """
    dtype = merit.dtype
    least_mu, greatest_mu = tolerances(dtype).least_damping, 1e10
    rounding = 10 * jnp.finfo(dtype).eps

    def body(s: _State) -> _State:
        p, carried = propose(s.point, s.carried, s.mu, s.exact)
        limit = p.merit - ARMIJO * p.length * p.expected + rounding * (1 + jnp.abs(p.merit))
        accepted = p.definite & (p.new_merit <= limit)
        negligible = p.expected <= o.tol * (1 + jnp.abs(p.merit))
        converged = p.definite & negligible & (s.mu <= 1e-4) & p.feasible
        infeasible = ~converged & p.infeasible
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), p.point, s.point)
        lowered = jnp.where(p.length < 0.2, s.mu, jnp.maximum(0.1 * s.mu, least_mu))
        raised = jnp.where(s.exact, s.mu, jnp.maximum(10 * s.mu, 1e-6))
        mu = jnp.where(accepted, lowered, raised)
        stalled = ~converged & (mu > greatest_mu)
        length = jnp.where(accepted, p.length, 0)
        row = History(p.merit, p.expected, length, s.mu)
        report(o.progress, s.steps + 1, *row)
        history = jax.tree.map(lambda h, x: h.at[s.steps].set(x), s.history, row)
        last = s.steps + 1 >= o.max_steps
        result = RESULTS.where(stalled, RESULTS.stalled, RESULTS.max_steps_reached)
        result = RESULTS.where(infeasible, RESULTS.infeasible, result)
        result = RESULTS.where(converged, RESULTS.successful, result)
        done = converged | stalled | infeasible | last
        exact = accepted & (p.length > 0.9)
        return _State(new, carried, mu, exact, s.steps + 1, done, result, history)

    empty = jnp.full((o.max_steps,), jnp.nan, dtype)
    finite = jnp.isfinite(merit)
    first = RESULTS.where(finite, RESULTS.max_steps_reached, RESULTS.nonfinite)
    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    mu = jnp.asarray(o.regularization, dtype)
    start = _State(point, carried, mu, no, zero, ~finite, first, History(*[empty] * 4))
    return jax.lax.while_loop(lambda s: ~s.done, body, start)


def line_search(
    attempt: Callable[[Array], tuple[PyTree, Array]],
    merit: Float[Array, ""],
    predicted: Callable[[Array], Array],
    definite: Bool[Array, ""],
) -> tuple[PyTree, Float[Array, ""], Float[Array, ""]]:
    """Try the step lengths 1, ½, ¼ … until one is good enough, and return the best of them.

    Good enough is a tenth of the decrease that is ``predicted`` for this length, as in Tassa, Erez,
    Todorov (2012). If no length is, the best one is returned. The best of all lengths would take
    longer to find and lead to worse minima, because it follows each narrow valley. Without a
    ``definite`` model only the full step is tried, because the step is rejected anyway.

    Returns:
        The point, its merit and its length.
    """

    def evaluate(length):
        point, value = attempt(length)
        return point, jnp.where(jnp.isfinite(value), value, jnp.inf), length

    def unfinished(state):
        k, length, (_, value, _) = state
        return definite & (k < LENGTHS) & (merit - value < ENOUGH * predicted(length))

    def shorten(state):
        k, length, best = state
        new = evaluate(0.5 * length)
        improved = new[1] < best[1]
        best = jax.tree.map(lambda a, b: jnp.where(improved, a, b), new, best)
        return k + 1, 0.5 * length, best

    one = jnp.ones_like(merit)
    start = jnp.ones((), jnp.int32), one, evaluate(one)
    return jax.lax.while_loop(unfinished, shorten, start)[2]
