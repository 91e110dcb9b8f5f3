"""Fits in rounds: minimise, estimate the noise from what is left, and again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model
from ._convex import convex_fit, is_convex, learnt, linear_residuals
from ._parameters import Parameters
from ._solve import (
    Fit,
    covariance_of,
    levenberg_marquardt,
    prior_residuals,
    prior_weight,
    robust,
    stationary,
    tolerance,
)

_ROUNDS = {"squares": 2, "huber": 4, "cauchy": 4}  # of estimating the noise; outliers fade slowly


def rms(x: Array) -> Float[Array, " nv"]:
    """Root mean square over all but the last axis."""
    return jnp.sqrt(jnp.mean(x.reshape(-1, x.shape[-1]) ** 2, axis=0))


class Options(NamedTuple):
    """Of a fit, see :func:`rbd_jax.identify.fit_torques`."""

    prior: float
    loss: str
    max_steps: int
    tol: float | None
    solver: Any


def minimise(
    learn: Parameters,
    errors: Callable[[Model], Array],
    measured: Array,
    sigma: Array | None,
    start: Array | None,
    options: Options,
    equations: Callable[[Array], Array] | None = None,
) -> Fit:
    """Minimise; if the noise is not known, with that of first fits.

    Args:
        learn: what to learn.
        errors: of a robot, (N, nv). measured: what its predictions are compared with.
        sigma: of the noise. start: first guess.
        options: see :func:`fit_torques`.
        equations: the errors, divided by a sigma, as few equations that are linear in what is
            learnt: see :func:`convex_fit`.
    """
    z0 = learn.start if start is None else start
    loss, dtype = options.loss, z0.dtype
    robust(loss, z0)  # refuses an unknown loss
    weight = prior_weight(options.prior, dtype)
    convex = is_convex(learn) and options.solver is None

    def problem(s: Array):
        """The residuals as a function of z, and the equations if there are any."""
        R = None if equations is None else equations(s)

        def residuals(z: Array, _=None) -> Array:
            model = learn.model(z)
            if R is None:
                r = robust(loss, (errors(model) / s[None]).reshape(-1))
            else:
                r = linear_residuals(learn, R, learnt(learn, model))
            return jnp.concatenate([r, prior_residuals(learn, z, model, weight)])

        return residuals, R

    def again(k, state):
        z, s, steps = state
        residuals, R = problem(s)
        if convex and R is not None:
            tol = tolerance(options.tol, dtype)
            z, more = convex_fit(learn, z, R, 0.5 * weight, options.max_steps, tol)
        else:
            limits = options.max_steps, options.tol, options.solver
            z, more = levenberg_marquardt(residuals, z, None, *limits)
        left = errors(learn.model(z))
        if loss == "squares":
            spread = rms(left) * (left.size / max(left.size - z.size, 1)) ** 0.5
        else:
            spread = 1.4826 * jnp.median(jnp.abs(left), axis=0)
        return z, jnp.where(k < rounds, jnp.maximum(spread, least), s), steps + more

    rounds = _ROUNDS[loss] if sigma is None else 0
    first = rms(errors(learn.model(z0))) if sigma is None else sigma
    # less noise would make of the predictions' rounding errors something to be fitted
    least = jnp.finfo(dtype).eps ** 0.5 * rms(measured)
    least = jnp.maximum(least, jnp.finfo(dtype).tiny ** 0.5)
    first = jnp.maximum(first, least)
    state = z0, first, jnp.zeros((), jnp.int32)
    z, s, steps = jax.lax.fori_loop(0, rounds + 1, again, state)
    residuals, _ = problem(s)
    r, J = residuals(z), jax.jacfwd(residuals)(z)
    cost, good = 0.5 * jnp.sum(r * r), stationary(J, r)
    return Fit(learn.model(z), z, covariance_of(J), s, cost, good, steps)
