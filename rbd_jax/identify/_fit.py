"""Fits of a robot's parameters to torques or to accelerations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.rules import forward_dynamics, inverse_dynamics
from ..model import Model
from ._convex import learnt
from ._linear import (
    TERMS,
    WIDTH,
    friction_torque,
    linear_parameters,
    regression,
    with_linear_parameters,
)
from ._minimise import Options, minimise, rms
from ._parameters import Parameters
from ._solve import Fit
from .data import Dataset, required


def predicted_torques(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, "*b nv"]:
    """Torques of inverse dynamics with dry friction, at every sample (N m, N)."""
    required("predicted_torques", data, "v", "a")

    def one(s: Dataset):
        tau = inverse_dynamics(model, s.q, s.v, s.a, s.f_ext)
        return tau + friction_torque(model, s.v, width)

    return _each(one, data)


def predicted_accelerations(
    model: Model, data: Dataset, width: float = WIDTH
) -> Float[Array, "*b nv"]:
    """Accelerations of forward dynamics with dry friction, at every sample (rad/s², m/s²)."""
    required("predicted_accelerations", data, "v", "tau")

    def one(s: Dataset):
        tau = s.tau - friction_torque(model, s.v, width)
        return forward_dynamics(model, s.q, s.v, tau, s.f_ext)

    return _each(one, data)


def _each(function: Callable, data: Dataset) -> Array:
    for _ in data.shape:
        function = jax.vmap(function)
    return function(data)


def torque_error(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, " nv"]:
    """Root mean square of the torques' error, a joint: on data held out, what a fit is worth."""
    (tau,) = required("torque_error", data, "tau")
    return rms(predicted_torques(model, data, width) - tau)


def acceleration_error(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, " nv"]:
    """Root mean square of the accelerations' error, a joint."""
    (a,) = required("acceleration_error", data, "a")
    return rms(predicted_accelerations(model, data, width) - a)


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
    that of squares, the data are first compressed by a QR factorisation to one equation more than
    there are parameters. With :class:`LogCholesky`, :class:`Positive` and :class:`Real` charts the
    problem is convex then and solved as such: the best physical robot is found from any start.

    Source: the entropic prior: Lee, Wensing, Park (2020); physical consistency is the charts'.

    Args:
        learn: what to learn, see :func:`choose`.
        data: samples with q, v, a and tau, leading axes of any number.
        sigma: standard deviation of the torque noise of each joint (N m, N); if None, estimated
            from the residuals of first fits. At least the root of the rounding error, relative to
            the torques' root mean square, is taken.
        prior: weight of the entropic distance of inertias and positive numbers from the nominal
            ones. It keeps what the data do not tell at the nominal robot; at least 1e-6 (in float32
            the root of the rounding error) is taken, and as much for the coordinates of all other
            charts: of all robots that fit equally well, however few the data, the nearest one is
            found where the problem is convex, and one nearby else. 1e-3 … 1e-2 also keeps inertias
            away from the border of those that no body has.
        loss: ``"squares"``; ``"huber"`` or ``"cauchy"`` for data with outliers.
        width: smoothing of dry friction, see :func:`friction_torque`.
        start: first guess of z, the nominal robot's if None.
        max_steps: limit of steps of the solver in each of a few rounds.
        tol: its tolerance, in standard deviations of z and relative in the cost; 1e-5 in float64,
            1e-3 in float32 if None.
        solver: an ``optimistix`` least-squares solver; ``LevenbergMarquardt`` if None, or the
            convex program's own.

    Returns:
        The fit; may be mapped over data, nominal robots and starts.

    Raises:
        ImportError: without optimistix, where it is needed.
        ValueError: for data without v, a or tau.
    """
    data = data.samples()
    _, _, measured = required("fit_torques", data, "v", "a", "tau")

    def errors(model: Model) -> Array:
        return predicted_torques(model, data, width) - measured

    options = Options(prior, loss, max_steps, tol, solver)
    if loss != "squares" or not all(block.leaf in TERMS for block in learn.blocks):
        return minimise(learn, errors, measured, sigma, start, options)
    terms = tuple(t for t in TERMS if any(block.leaf == t for block in learn.blocks))
    Y, tau = regression(learn.nominal, data, terms, width)
    theta = linear_parameters(learn.nominal, terms)
    left = tau - jnp.einsum("nvp,p->nv", Y, theta, precision="highest")
    places = with_linear_parameters(learn.nominal, jnp.arange(theta.size, dtype=tau.dtype), terms)
    Y = Y[..., learnt(learn, places).astype(jnp.int32)]

    def equations(s: Array) -> Float[Array, "m k"]:
        W = jnp.concatenate([Y, left[..., None]], axis=-1) / s[None, :, None]
        return jnp.linalg.qr(W.reshape(-1, W.shape[-1]), mode="r")

    def linear(model: Model) -> Array:
        x = learnt(learn, model) - learnt(learn, learn.nominal)
        return jnp.einsum("nvp,p->nv", Y, x, precision="highest") - left

    return minimise(learn, linear, measured, sigma, start, options, equations)


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
    data = data.samples()
    _, measured, _ = required("fit_accelerations", data, "v", "a", "tau")

    def errors(model: Model) -> Array:
        return predicted_accelerations(model, data, width) - measured

    options = Options(prior, loss, max_steps, tol, solver)
    return minimise(learn, errors, measured, sigma, start, options)
