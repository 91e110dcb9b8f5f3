"""Search by samples: path integrals and the cross-entropy method, without any derivative."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ...lanes import lanes
from ...model.arguments import check_number
from ...model.outcome import RESULTS
from ..problems._problem import Problem, with_explicit_closures
from ._implicit import States, reached, stationary, without_derivatives
from ._progress import Progress, report
from ._solution import checked_arguments, checked_bounds


class Sampled(NamedTuple):
    """The best trajectory that was found. Its derivatives are NaN, because it is no minimum."""

    t: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]
    cost: Float[Array, ""]
    mean: Float[Array, "T nu"]
    """Center of the last samples, the next guess of a receding horizon."""
    result: RESULTS
    """``max_steps_reached``, as a search by samples always takes all its steps; or ``nonfinite`` if
    no sample had a finite cost, or ``crossed`` if no controls lie between the bounds."""
    steps: Int[Array, ""]
    costs: Float[Array, " I"]
    """The lowest cost after each step."""
    memory: PyTree = ()
    """The memory of the plant at the states; () for most plants."""


Update = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Costs (N,), knots of the samples (N, k, nu), spread (k, nu) -> change of the center, spread."""


def mppi(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    key: Array,
    *,
    noise: float | Float[Array, " nu"],
    samples: int = 128,
    max_steps: int = 20,
    temperature: float = 0.1,
    knots: int | None = None,
    progress: Progress | None = None,
) -> Sampled:
    """Model predictive path integral control: the center moves to the weighted mean of samples.

    Source: Williams et al. (2017), Information theoretic MPC, Alg. 2. Departures: the noise is
    interpolated between knots; the temperature is relative to the standard deviation of the costs
    of the better half; the center itself is a sample.

    Args:
        problem: what to minimize.
        q0: initial configuration. v0: initial velocity.
        u: center of the first samples.
        key: random key.
        noise: standard deviation of the controls, one number or one each.
        samples: in each step, simulated as one batch.
        max_steps: number of steps. All of them are taken.
        temperature: λ; small values follow the best sample.
        knots: times at which the noise is drawn, spread evenly; between them it is linear. Few
            knots give smooth controls. None means every step.
        progress: as in :func:`ilqr`; the last three numbers are zeros.

    Returns:
        The best of all samples. Give its controls to :func:`ilqr` to make it a minimum.

    Raises:
        ValueError: for a wrong shape, or numbers below 1. TypeError: as :func:`ilqr`.

    Cost of a step: ``samples`` simulations, without derivatives.
    """
    check_number("mppi", "temperature", temperature, positive=True)

    def update(costs, eps, spread):
        finite = jnp.isfinite(costs)
        half = jnp.sort(costs)[: max(2, samples // 2)]
        known = jnp.isfinite(half)
        count = jnp.maximum(jnp.sum(known), 1).astype(costs.dtype)
        mean = jnp.sum(jnp.where(known, half, 0)) / count
        scale = jnp.sqrt(jnp.sum(jnp.where(known, half - mean, 0) ** 2) / count)
        scale = temperature * jnp.where(scale > 0, scale, 1)
        w = jnp.where(finite, jnp.exp(-(costs - jnp.min(costs)) / scale), 0)
        w = w / jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
        return jnp.sum(w[:, None, None] * eps, axis=0), spread

    o = samples, max_steps, knots, progress
    return _search("mppi", problem, q0, v0, u, key, noise, update, *o)


def cem(
    problem: Problem,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    u: Float[Array, "T nu"],
    key: Array,
    *,
    noise: float | Float[Array, " nu"],
    samples: int = 128,
    elites: int = 12,
    max_steps: int = 20,
    keep: float = 0.3,
    knots: int | None = None,
    progress: Progress | None = None,
) -> Sampled:
    """The cross-entropy method: a normal distribution is fitted to the best samples.

    Source: Rubinstein, Kroese (2004), Alg. 4.2.1, with a diagonal covariance and smoothing.
    Departure: the noise is interpolated between knots.

    Args:
        noise: standard deviation of the first samples. elites: number of best samples.
        keep: part of the old spread that is kept in each step.

    Other arguments, result, errors and cost: as :func:`mppi`.
    """
    check_elites("cem", elites, samples)
    check_number("cem", "keep", keep, least=0)

    def update(costs, eps, spread):
        best = eps[jnp.argsort(costs)[:elites]]
        good = jnp.sum(jnp.isfinite(costs)) >= elites
        center = jnp.mean(best, axis=0)
        new = keep * spread + (1 - keep) * jnp.std(best, axis=0)
        return jnp.where(good, center, 0), jnp.where(good, new, 0.5 * spread)

    o = samples, max_steps, knots, progress
    return _search("cem", problem, q0, v0, u, key, noise, update, *o)


def checked_noise(name: str, problem: Problem, noise: Any) -> Float[Array, " nu"]:
    """The standard deviation of each control; ValueError for a wrong shape."""
    noise, wanted = jnp.asarray(noise, problem.model.dtype), (problem.controls,)
    if noise.shape not in ((), wanted):
        raise ValueError(f"{name}: noise has shape {noise.shape}, expected {wanted} or ()")
    return jnp.broadcast_to(noise, wanted)


def check_elites(name: str, elites: int, samples: int) -> None:
    """ValueError for a number of elites that is not from 2 to that of the samples."""
    check_number(name, "elites", elites, whole=True)
    if not 2 <= elites <= samples:
        raise ValueError(f"{name}: elites must be from 2 to samples = {samples}, got {elites}")


def _search(
    name, problem: Problem, q0, v0, u, key, noise, update: Update, samples, max_steps, knots, show
) -> Sampled:
    q0, v0, u = checked_arguments(name, problem, q0, v0, u)
    knots = problem.steps if knots is None else knots
    for what, x in (("samples", samples), ("max_steps", max_steps), ("knots", knots)):
        check_number(name, what, x, least=1, whole=True)
    here = without_derivatives((with_explicit_closures(problem, q0, v0), q0, v0, u))
    p, at_q, at_v, center = here
    ready = p.prepared()
    spread = jnp.broadcast_to(checked_noise(name, problem, noise), (knots, u.shape[1]))
    place = jnp.linspace(0, knots - 1, problem.steps, dtype=u.dtype)
    low = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, max(knots - 2, 0))
    part = (place - low.astype(u.dtype))[:, None]
    after = jnp.minimum(low + 1, knots - 1)
    between = lambda x: (1 - part) * x[low] + part * x[after]  # noqa: E731

    def body(state, k):
        center, spread, best, lowest = state
        eps = jax.random.normal(jax.random.fold_in(key, k), (samples, *spread.shape), u.dtype)
        eps = (eps * spread[None]).at[0].set(0)
        tries = jax.vmap(lambda e: p.clip(center + between(e)))(eps)
        costs = jax.vmap(lambda u: _cost(ready, at_q, at_v, u))(tries)
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        i = jnp.argmin(costs)
        better = costs[i] < lowest
        best, lowest = jnp.where(better, tries[i], best), jnp.where(better, costs[i], lowest)
        change, spread = update(costs, eps, spread)
        zero = jnp.zeros_like(lowest)
        report(show, k + 1, lowest, zero, zero, zero)
        return (p.clip(center + between(change)), spread, best, lowest), lowest

    start = p.clip(center), spread, p.clip(center), jnp.full((), jnp.inf, u.dtype)
    (center, _, best, lowest), costs = jax.lax.scan(body, start, jnp.arange(max_steps))
    path = p.simulate(at_q, at_v, best)
    K = jnp.zeros((*best.shape, p.nx), best.dtype)
    q, v = p.stacked(path)
    states = without_derivatives(States(q, v, K))
    w = stationary(problem, q0, v0, best, jnp.zeros((), bool), states)
    q, v, best = reached(problem, q0, v0, w, states)
    lost = ~jnp.isfinite(lowest)
    result = RESULTS.where(lost, RESULTS.nonfinite, RESULTS.max_steps_reached)
    result = checked_bounds(result, problem)
    steps = jnp.asarray(max_steps, jnp.int32)
    cost = problem.cost(q, v, best)
    v, memory = problem.unpacked(v)
    return Sampled(path.t, q, v, best, cost, center, result, steps, costs, memory)


@lanes
def _cost(problem: Problem, q, v, u) -> Float[Array, ""]:
    """The cost of a simulation, whose states are not kept."""

    def step(state, row):
        (q, v, cost), (k, control) = state, row
        q, v, more = problem.advance(k, q, v, control)
        return (q, v, cost + more), None

    start = q, v, jnp.zeros((), q.dtype)
    q, v, cost = jax.lax.scan(step, start, (jnp.arange(problem.steps), u))[0]
    return cost + problem.final_cost(q, v)
