"""Fits of a robot's parameters to torques or to accelerations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives._rules import forward_dynamics, inverse_dynamics
from ..model import Model
from ._convex import convex_start, is_convex
from ._linear import TERMS, WIDTH, friction_torque, linear_parameters, regression
from ._parameters import Parameters
from ._solve import Fit, covariance_of, levenberg_marquardt, prior_residuals, robust, stationary
from .data import Dataset

_ROUNDS = {"squares": 2, "huber": 4, "cauchy": 4}  # of estimating the noise; outliers fade slowly


def predicted_torques(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, "*b nv"]:
    """Torques of inverse dynamics with dry friction, at every sample (N m, N)."""
    _needs("predicted_torques", data, "v", "a")

    def one(s: Dataset):
        tau = inverse_dynamics(model, s.q, s.v, s.a, s.f_ext)
        return tau + friction_torque(model, s.v, width)

    return _each(one, data)


def predicted_accelerations(
    model: Model, data: Dataset, width: float = WIDTH
) -> Float[Array, "*b nv"]:
    """Accelerations of forward dynamics with dry friction, at every sample (rad/s², m/s²)."""
    _needs("predicted_accelerations", data, "v", "tau")

    def one(s: Dataset):
        tau = s.tau - friction_torque(model, s.v, width)
        return forward_dynamics(model, s.q, s.v, tau, s.f_ext)

    return _each(one, data)


def _each(function: Callable, data: Dataset) -> Array:
    for _ in data.shape:
        function = jax.vmap(function)
    return function(data)


def _needs(name: str, data: Dataset, *what: str) -> None:
    missing = [w for w in what if getattr(data, w) is None]
    if missing:
        raise ValueError(
            f"{name}: the data have no {missing}; see rbd_jax.identify.filter_and_differentiate"
        )


def torque_error(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, " nv"]:
    """Root mean square of the torques' error, a joint: on data held out, what a fit is worth."""
    _needs("torque_error", data, "tau")
    return _rms(predicted_torques(model, data, width) - data.tau)


def acceleration_error(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, " nv"]:
    """Root mean square of the accelerations' error, a joint."""
    _needs("acceleration_error", data, "a")
    return _rms(predicted_accelerations(model, data, width) - data.a)


def _rms(x: Array) -> Float[Array, " nv"]:
    return jnp.sqrt(jnp.mean(x.reshape(-1, x.shape[-1]) ** 2, axis=0))


def fit_torques(
    learn: Parameters,
    data: Dataset,
    sigma: Float[Array, " nv"] | None = None,
    *,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 100,
    tol: float | None = None,
    solver: Any = None,
) -> Fit:
    """Fit by inverse dynamics: ``minimise Σ loss((τ(z) − τ) / σ) + prior · Σ entropic distance``.

    Where all that is learnt enters linearly (inertias, armature, damping, friction) and the loss is
    that of squares, the data are first compressed by a QR factorisation to as many equations as
    there are parameters, and steps cost no more than that. The problem is convex then, but for the
    charts, and solved as such first, so that the start hardly matters.

    Source: the entropic prior: Lee, Wensing, Park (2020); physical consistency is the charts'.

    Args:
        learn: what to learn, see :func:`choose`.
        data: samples with q, v, a and tau, leading axes of any number.
        sigma: standard deviation of the torque noise of each joint (N m, N); if None, estimated
            from the residuals of first fits.
        prior: weight of the entropic distance from the nominal inertias. A little of it (1e-6 …
            1e-2) keeps what the data do not tell at the nominal robot.
        loss: ``"squares"``; ``"huber"`` or ``"cauchy"`` for data with outliers.
        width: smoothing of dry friction, see :func:`friction_torque`.
        start: first guess of z, the nominal robot's if None.
        max_steps: limit of steps of the solver in each of a few rounds.
        tol: its tolerance, in standard deviations of z and relative in the cost; 1e-5 in float64,
            1e-3 in float32 if None.
        solver: an ``optimistix`` least-squares solver, ``LevenbergMarquardt`` if None.

    Returns:
        The fit; may be mapped over data, nominal robots and starts.

    Raises:
        ImportError: without optimistix. ValueError: for data without v, a or tau.
    """
    _needs("fit_torques", data, "v", "a", "tau")
    data = data.samples()
    options = {"prior": prior, "loss": loss, "max_steps": max_steps, "tol": tol, "solver": solver}
    if loss == "squares" and all(block.leaf in TERMS for block in learn.blocks):
        terms = tuple(t for t in TERMS if any(block.leaf == t for block in learn.blocks))
        Y, tau = regression(learn.nominal, data, terms, width)

        def linear(model: Model, _):
            return jnp.einsum("nvp,p->nv", Y, linear_parameters(model, terms),
                              precision="highest") - tau  # fmt: skip

        def compressed(s: Array):
            W = jnp.concatenate([Y, tau[..., None]], axis=-1) / s[None, :, None]
            R = jnp.linalg.qr(W.reshape(-1, W.shape[-1]), mode="r")

            def few(model: Model, _):
                theta = jnp.append(linear_parameters(model, terms), -jnp.ones((), tau.dtype))
                return jnp.matmul(R, theta, precision="highest")

            return few

        return _fit(learn, linear, data, sigma, start, options, compressed)

    def errors(model: Model, data: Dataset):
        return predicted_torques(model, data, width) - data.tau

    return _fit(learn, errors, data, sigma, start, options)


def fit_accelerations(
    learn: Parameters,
    data: Dataset,
    sigma: Float[Array, " nv"] | None = None,
    *,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 100,
    tol: float | None = None,
    solver: Any = None,
) -> Fit:
    """Fit by forward dynamics: errors are those of accelerations (rad/s², m/s²).

    Arguments as :func:`fit_torques`. Use it where torques are commanded exactly and the motion is
    what is measured: errors then count as the measurement makes them.
    """
    _needs("fit_accelerations", data, "v", "a", "tau")
    options = {"prior": prior, "loss": loss, "max_steps": max_steps, "tol": tol, "solver": solver}

    def errors(model: Model, data: Dataset):
        return predicted_accelerations(model, data, width) - data.a

    return _fit(learn, errors, data.samples(), sigma, start, options)


def _fit(learn, errors, data, sigma, start, options: dict, compressed=None) -> Fit:
    """Minimise; if the noise is not known, with that of first fits."""
    z0 = learn.start if start is None else start
    prior, loss = options["prior"], options["loss"]
    robust(loss, z0)  # refuses an unknown loss
    limits = options["max_steps"], options["tol"], options["solver"]

    def residuals(s: Array) -> Callable:
        if compressed is not None:
            few = compressed(s)
            data_part = lambda model, data: few(model, data)  # noqa: E731
        else:
            data_part = lambda model, data: robust(  # noqa: E731
                loss, (errors(model, data) / s[None]).reshape(-1)
            )

        def function(z, data):
            model = learn.model(z)
            return jnp.concatenate([data_part(model, data), prior_residuals(learn, model, prior)])

        return function

    estimate = sigma is None
    if sigma is None:
        first = _rms(errors(learn.model(z0), data))
        sigma = jnp.maximum(first, jnp.sqrt(jnp.finfo(z0.dtype).tiny))
    least = jnp.finfo(z0.dtype).eps * sigma
    rounds = _ROUNDS[loss]

    def again(k, state):  # each round also scales the unknowns anew
        z = state[0]
        if compressed is not None and is_convex(learn):
            few = compressed(state[1])
            z = convex_start(learn, z, lambda model: few(model, None), prior)
        z, steps = levenberg_marquardt(residuals(state[1]), z, data, *limits)
        left = errors(learn.model(z), data)
        if loss == "squares":
            n = left.size
            spread = _rms(left) * (n / max(n - z.size, 1)) ** 0.5
        else:
            spread = 1.4826 * jnp.median(jnp.abs(left), axis=0)
        s = jnp.where(estimate & (k < rounds), jnp.maximum(spread, least), state[1])
        return z, s, state[2] + steps

    state = z0, sigma, jnp.zeros((), jnp.int32)
    z, sigma, steps = jax.lax.fori_loop(0, rounds + 1, again, state)
    function = residuals(sigma)
    r = function(z, data)
    J = jax.jacfwd(function)(z, data)
    cost, good = 0.5 * jnp.sum(r * r), stationary(J, r)
    return Fit(learn.model(z), z, covariance_of(J), sigma, cost, good, steps)
