"""The loop that iLQR, DDP and multiple shooting share.

Each step proposes a new point, accepts it or raises the regularization, and decides whether to
stop. optax and optimistix have no loop that takes such a model of the problem, with its own line
search and regularization, so the loop is written here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...model.arguments import check_number
from ...model.outcome import RESULTS
from ._progress import Progress, report
from ._solution import History
from ._tolerances import tolerances

LENGTHS = 10
"""Number of step lengths that are tried at most: 1, ½, ¼ …"""
ENOUGH, ENOUGH_NEAR = 0.1, 0.5
"""The line search ends at a step with this part of the decrease that is predicted for it; that of
multiple shooting, near a minimum, with the second one. There, a step with less overshoots, because
curvature is missing in the model of Gauss and Newton: shorter steps converge sooner. Far away they
lead into narrow valleys."""
CLOSE = 1e-4
"""A minimum is near where the full step promises at most this decrease, relative to one plus the
merit."""
ARMIJO = 1e-4
"""Part of the expected decrease that a step has to reach."""
LESS, MORE = 0.1, 4.0
"""Factors by which the regularization μ falls after a good step and grows after a short one."""
LONG, SHORT, TINY = 0.9, 0.3, 0.2
"""Lengths: above LONG a step of an exact model is good, below SHORT it is too short. A step of the
model of Gauss and Newton is good above TINY."""
NEAR = 1e-2
"""The greatest regularization μ with which a step is near enough to that of the model itself."""
LEAST_SHARE = 0.05
"""The least share of the exact second derivatives that is tried, and the one to begin again with
after a model without them."""


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
    stationary: Bool[Array, ""]
    """Whether the conditions of first order hold at the old point."""
    infeasible: Bool[Array, ""] | bool = False
    """Whether to give up, because no point is found at which the constraints hold."""
    stays: bool = False
    """Whether the old point is the solution if the loop has converged."""


class Options(NamedTuple):
    """Options of the loop."""

    max_steps: int
    tol: float
    regularization: float
    progress: Progress | None
    iterates: bool = False
    """Whether the history keeps the trajectory before each step."""

    @property
    def plain(self) -> bool:
        """Whether nothing is wanted of the loop but its end."""
        return self.progress is None and not self.iterates


class LoopState(NamedTuple):
    """The state of the loop."""

    point: PyTree
    carried: PyTree
    mu: Float[Array, ""]
    share: Float[Array, ""]
    """The share of the exact second derivatives in the last model."""
    steps: Int[Array, ""]
    done: Bool[Array, ""]
    result: RESULTS
    history: History
    tested: tuple[PyTree, PyTree]
    """The point of the last step and what was carried then."""
    last: Bool[Array, ""]
    """Whether the loop has converged there, so that only the new point has to be tested."""
    small: Bool[Array, ""]
    """Whether the last step promised a negligible decrease."""


class _Try(NamedTuple):
    mu: Float[Array, ""]
    share: Float[Array, ""]
    accepted: Bool[Array, ""]
    small: Bool[Array, ""]
    """Whether the change that the model expects is negligible."""
    converged: Bool[Array, ""]
    proposal: Proposal
    carried: PyTree


def options(
    name: str,
    dtype,
    max_steps: Any,
    tol: Any,
    regularization: Any,
    progress,
    iterates: bool = False,
) -> Options:
    """The options of the solver ``name``, checked; the usual tolerance depends on the precision."""
    check_number(name, "max_steps", max_steps, least=1, whole=True)
    check_number(name, "regularization", regularization, least=0)
    if tol is not None:
        check_number(name, "tol", tol, least=0)
    else:
        tol = tolerances(dtype).decrease
    return Options(max_steps, tol, regularization, progress, iterates)


def sqp_loop(
    expand: Callable[[PyTree, PyTree], PyTree],
    attempt: Callable[[PyTree, PyTree, PyTree, Array, Array], tuple[Proposal, PyTree]],
    point: PyTree,
    carried: PyTree,
    merit: Float[Array, ""],
    o: Options,
    second_order: bool = False,
    after: LoopState | None = None,
) -> LoopState:
    """Improve a point step by step until the conditions of first order hold.

    A step expands the problem once, ``model = expand(point, carried)``, and then calls
    ``attempt(model, point, carried, mu, share)`` until a proposal is accepted. An attempt returns a
    proposal and the new value of ``carried``. After a rejected proposal the regularization μ grows
    tenfold (Levenberg–Marquardt); ``attempt`` scales μ itself. After a full step of an exact model
    it is divided by 10, and after a short one it grows, because the model is not to be trusted so
    far away. The model of Gauss and Newton makes short steps also near a minimum, where curvature
    is missing, and converges slowly with a large μ; there μ falls unless the step is very short.

    ``share`` is the share of the exact second derivatives in the model, and zero unless
    ``second_order``. The rest is the model of Gauss and Newton, which has no negative curvature.
    A step begins with four times the share of the last one, up to all of them. Where the model has
    no minimum, the share falls to a quarter.

    The loop has converged if the point is ``stationary`` and the model, with little
    regularization, expects a change of the merit that is negligible. The last step is taken all the
    same, because it is worth many digits, unless the proposal ``stays``. The point after it is the
    solution if it is stationary too, and otherwise the point before it, so that nothing is returned
    that was not tested. Where the step before already promised no more than that, it was the last
    one, and the point itself is the solution. A model that expects an increase is no sign of
    convergence: its step is rejected.

    Args:
        expand: makes the model of a point.
        attempt: makes a proposal from a model.
        point: where to begin, a tuple of states (q, y), controls, and more.
        carried: what ``attempt`` hands on beside the point.
        merit: of the first point.
        o: the options.
        second_order: whether models have exact second derivatives.
        after: a loop with the same options that has ended. Its steps count, and this loop writes
            its history behind them.
    """
    dtype = merit.dtype
    # μ is relative to the costs of the controls, which penalties exceed by many orders
    least_mu, greatest_mu = tolerances(dtype).least_damping, 1e20
    rounding = 10 * jnp.finfo(dtype).eps

    def body(s: LoopState) -> LoopState:
        model = expand(s.point, s.carried)

        def again(x: _Try) -> _Try:
            p, carried = attempt(model, s.point, s.carried, x.mu, x.share)
            noise = rounding * (1 + jnp.abs(p.merit))
            limit = p.merit - ARMIJO * p.length * p.expected + noise
            accepted = p.definite & (p.expected >= -noise) & (p.new_merit <= limit)
            curved = ~p.definite & (x.share > 0)
            less = jnp.where(x.share > LEAST_SHARE, 0.25 * x.share, 0)
            share = jnp.where(curved, less, x.share)
            negligible = jnp.abs(p.expected) <= o.tol * (1 + jnp.abs(p.merit))
            small = p.definite & negligible & (x.mu <= NEAR)
            converged = small & p.stationary
            done = accepted | converged
            mu = jnp.where(done | curved, x.mu, jnp.maximum(10 * x.mu, 1e-6))
            return _Try(mu, share, accepted, small, converged, p, carried)

        def rejected(x: _Try):
            return ~x.accepted & ~x.converged & (x.mu <= greatest_mu)

        no, zero = jnp.zeros((), bool), jnp.zeros((), dtype)
        nothing = Proposal(s.point, zero, zero, zero, zero, no, no, no)
        share = s.share
        if second_order:
            share = jnp.where(share > 0, jnp.minimum(1, 4 * share), LEAST_SHARE)
        first = _Try(s.mu, share, no, no, no, nothing, s.carried)
        x = jax.lax.while_loop(rejected, again, first)
        p, accepted, converged = x.proposal, x.accepted, x.converged
        infeasible = ~converged & p.infeasible
        worse = s.last & ~p.stationary
        tests = s.last | converged & s.small & ~p.stays  # a step in which only the point is tested
        ends = tests | converged & (p.stays | ~accepted | (s.steps + 1 >= o.max_steps))
        choose = lambda yes, a, b: jax.tree.map(lambda a, b: jnp.where(yes, a, b), a, b)  # noqa: E731
        here = choose(worse, s.tested, (s.point, x.carried))
        at, with_it = choose(accepted & ~ends, (p.point, x.carried), here)
        less = jnp.maximum(LESS * x.mu, least_mu)
        if second_order:
            more = jnp.where(p.length < SHORT, jnp.maximum(MORE * x.mu, 1e-6), x.mu)
            mu = jnp.where(p.length > LONG, less, more)
        else:
            mu = jnp.where(p.length < TINY, x.mu, less)
        mu = jnp.where(p.stationary, jnp.minimum(mu, NEAR), mu)
        stalled = ~converged & ~accepted
        length = jnp.where(accepted, p.length, 0)
        numbers = p.merit, p.expected, length, x.mu
        report(o.progress, s.steps + 1, *numbers)
        row = History(*numbers, *(s.point[:3] if o.iterates else ()))
        history = jax.tree.map(lambda h, x: h.at[s.steps].set(x), s.history, row)
        history = choose(tests, s.history, history)
        steps = jnp.where(tests, s.steps, s.steps + 1)
        last = s.steps + 1 >= o.max_steps
        result = RESULTS.where(stalled, RESULTS.stalled, RESULTS.max_steps_reached)
        # a model that expects no number at the smallest steps has none in its derivatives
        lost = stalled & ~jnp.isfinite(p.expected)
        result = RESULTS.where(lost, RESULTS.nonfinite, result)
        result = RESULTS.where(infeasible, RESULTS.infeasible, result)
        result = RESULTS.where(converged | s.last, RESULTS.successful, result)
        done = ends | ~converged & (stalled | infeasible | last)
        tested = s.point, x.carried
        last = converged & ~ends
        small = x.small & accepted
        return LoopState(
            at, with_it, mu, x.share, steps, done, result, history, tested, last, small
        )

    empty = jnp.full((o.max_steps,), jnp.nan, dtype)
    finite = jnp.isfinite(merit)
    first = RESULTS.where(finite, RESULTS.max_steps_reached, RESULTS.nonfinite)
    zero, share = jnp.zeros((), jnp.int32), jnp.full((), second_order, dtype)
    mu = jnp.asarray(o.regularization, dtype)
    no = jnp.zeros((), bool)
    kept = point[:3] if o.iterates else ()
    kept = (jnp.full((o.max_steps, *x.shape), jnp.nan, dtype) for x in kept)
    history, tested = History(*[empty] * 4, *kept), (point, carried)
    if after is not None:
        zero, history = after.steps, after.history
    done = ~finite | (zero >= o.max_steps)
    start = LoopState(point, carried, mu, share, zero, done, first, history, tested, no, no)
    return jax.lax.while_loop(lambda s: ~s.done, body, start)


def line_search(
    attempt: Callable[[Array], tuple[PyTree, Array]],
    merit: Float[Array, ""],
    predicted: Callable[[Array], Array],
    definite: Bool[Array, ""],
    near: float = ENOUGH,
) -> tuple[PyTree, Float[Array, ""], Float[Array, ""]]:
    """Try the step lengths 1, ½, ¼ … until one is good enough, and return the best of them.

    Good enough is a tenth of the decrease that is ``predicted`` for this length, as in Tassa, Erez,
    Todorov (2012), and near a minimum the part ``near``. If no length is, the best one is returned.
    The best of all lengths would take longer to find and lead to worse minima, because it follows
    each narrow valley. Without a ``definite`` model only the full step is tried, because the step
    is rejected anyway.

    Returns:
        The point, its merit and its length.
    """

    close = predicted(jnp.ones_like(merit)) <= CLOSE * (1 + jnp.abs(merit))
    part = jnp.where(close, near, ENOUGH)

    def unfinished(state):
        k, length, (_, value, _) = state
        # near a minimum the decrease is lost in rounding, and the full step is the best one
        noise = 10 * jnp.finfo(merit.dtype).eps * (1 + jnp.abs(merit))
        enough = merit - value >= part * predicted(length) - noise
        return (k == 0) | definite & (k < LENGTHS) & ~enough

    def shorten(state):  # the first length too: what an attempt is made of stands here once
        k, length, best = state
        length = jnp.where(k == 0, length, 0.5 * length)
        point, value = attempt(length)
        value = jnp.where(jnp.isfinite(value), value, jnp.inf)
        improved = (k == 0) | (value < best[1])
        new = point, value, length
        return k + 1, length, jax.tree.map(lambda a, b: jnp.where(improved, a, b), new, best)

    one = jnp.ones_like(merit)
    nowhere = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt, one)[0])
    start = jnp.zeros((), jnp.int32), one, (nowhere, jnp.full_like(merit, jnp.inf), one)
    return jax.lax.while_loop(unfinished, shorten, start)[2]
