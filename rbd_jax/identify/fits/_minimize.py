"""Fits in rounds: solve a weighted least-squares problem, update weights and noise, and repeat."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model import Model
from ...model.outcome import throw_unless_successful
from .._progress import Progress
from ..linear._convex import (
    convex_fit,
    is_convex,
    learned_values,
    linear_residuals,
    resolution,
)
from ..parameters._parameters import Parameters, prior_residuals, prior_weight
from ._losses import check_loss, loss_efficiency, loss_root, loss_weight
from ._solve import Fit, covariance_of, levenberg_marquardt, result_of, stationary, tolerance

_SQUARES_ROUNDS = 2  # rounds that estimate the noise before the last one
_ROBUST_ROUNDS = 10, 60  # rounds that estimate the noise, and rounds in all


def rms(x: Array) -> Float[Array, " nv"]:
    """Root mean square over all but the last axis."""
    return jnp.sqrt(jnp.mean(x.reshape(-1, x.shape[-1]) ** 2, axis=0))


class Options(NamedTuple):
    """Options of a fit, see :func:`rbd_jax.identify.fit_torques`."""

    prior: float
    loss: str
    max_steps: int
    tol: float | None
    solver: Any
    throw: bool
    progress: Progress | None


def minimize(
    parameters: Parameters,
    errors: Callable[[Model], Array],
    measured: Array,
    sigma: Array | None,
    start: Array | None,
    options: Options,
    equations: Callable[[Array], Array] | None = None,
) -> Fit:
    """Fit in rounds. Each round solves a weighted least-squares problem from the last solution.

    With the loss ``"squares"`` rounds only serve to estimate an unknown noise. With a robust loss
    each round also computes new weights from the errors of the last one, until the fit no longer
    changes: iteratively reweighted least squares. Where the problem is linear in what is learned,
    each round is a convex program, so that a round takes a few milliseconds and none can stall.

    Args:
        parameters: what to fit.
        errors: the errors of a robot, (N, nv).
        measured: what the predictions are compared with, (N, nv).
        sigma: standard deviations of the noise; estimated if None.
        start: first guess of z; the nominal robot's if None.
        options: see :func:`fit_torques`.
        equations: given the factors (N, nv) by which errors are to be multiplied, the errors as few
            equations that are linear in what is learned, see :func:`convex_fit`.
    """
    check_loss(options.loss)
    z0 = parameters.start if start is None else start
    loss, dtype, max_steps = options.loss, z0.dtype, options.max_steps
    weight, tol = prior_weight(options.prior, dtype), tolerance(options.tol, dtype)
    convex = equations is not None and is_convex(parameters) and options.solver is None
    # A smaller noise would make the fit follow the rounding errors of the predictions.
    least = jnp.finfo(dtype).eps ** 0.5 * rms(measured)
    least = jnp.maximum(least, jnp.finfo(dtype).tiny ** 0.5)
    noise_rounds, rounds = (_SQUARES_ROUNDS,) * 2 if loss == "squares" else _ROBUST_ROUNDS
    if sigma is not None:
        noise_rounds, rounds = 0, 0 if loss == "squares" else rounds

    def noise(left: Array) -> Array:
        if loss == "squares":
            spread = rms(left)
        else:
            spread = 1.4826 * jnp.median(jnp.abs(left.reshape(-1, left.shape[-1])), axis=0)
        return jnp.maximum(spread * (left.size / max(left.size - z0.size, 1)) ** 0.5, least)

    def factors(left: Array, s: Array) -> Array:
        return jnp.sqrt(loss_weight(loss, left / s[None])) / s[None]

    def problem(factor: Array) -> Array:
        return factor if equations is None else equations(factor)

    def residuals(z: Array, weighted: Array) -> Array:
        model = parameters.model(z)
        if equations is None:
            r = (errors(model) * weighted).reshape(-1)
        else:
            r = linear_residuals(parameters, weighted, learned_values(parameters, model))
        return jnp.concatenate([r, prior_residuals(parameters, z, model, weight)])

    def again(state):
        z, left, s, distance, steps, k, _ = state
        factor = factors(left, s)
        weighted, progress = problem(factor), options.progress
        if convex:
            z, more = convex_fit(
                parameters,
                z,
                weighted,
                0.5 * weight,
                max_steps - steps,
                tol,
                0.1 * distance**2,
                progress,
            )
        else:
            solver = options.solver
            z, more = levenberg_marquardt(residuals, z, weighted, max_steps, tol, solver, progress)
        new = errors(parameters.model(z))
        distance = jnp.sqrt(jnp.sum((factor * (new - left)) ** 2))
        s = jnp.where(k < noise_rounds, noise(new), s)
        settled = (distance < 30 * tol) if loss != "squares" else jnp.zeros((), bool)
        done = (k >= rounds) | ((k > noise_rounds) & settled) | (steps + more >= max_steps)
        return z, new, s, distance, steps + more, k + 1, done

    left = errors(parameters.model(z0))
    s = jnp.maximum(rms(left) if sigma is None else sigma, least)
    zero, far = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype)
    state = z0, left, s, far, zero, zero, jnp.zeros((), bool)
    z, left, s, _, steps, _, _ = jax.lax.while_loop(lambda state: ~state[-1], again, state)
    weighted = problem(factors(left, s))
    r, J = residuals(z, weighted), jax.jacfwd(residuals)(z, weighted)
    model = parameters.model(z)
    lost = resolution(parameters, weighted, learned_values(parameters, model)) if convex else 0.0
    roots = loss_root(loss, left / s[None]), prior_residuals(parameters, z, model, weight)
    cost = 0.5 * jnp.sum(jnp.concatenate([x.reshape(-1) for x in roots]) ** 2)
    result = result_of(stationary(J, r, lost), cost, steps, max_steps)
    if loss != "squares":  # The weights of single errors do not measure their information.
        freedom = max(left.size - z0.size, 1) / left.size
        efficiency = freedom * loss_efficiency(loss, left.reshape(-1, s.size) / s[None])
        weighted = problem(jnp.broadcast_to(jnp.sqrt(efficiency) / s, left.shape))
        J = jax.jacfwd(residuals)(z, weighted)
    fit = Fit(model, z, covariance_of(J), s, cost, result, steps)
    return throw_unless_successful(fit, result) if options.throw else fit
