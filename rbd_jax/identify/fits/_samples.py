"""Fits of a robot's parameters to torques or to accelerations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...derivatives.custom_jvp.forward_dynamics import forward_dynamics
from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...model import Model
from ...spatial.linear import einsum, qr_factor
from .._progress import Progress
from ..data._dataset import Dataset, required
from ..linear._convex import learned_values
from ..linear._regressors import (
    TERMS,
    WIDTH,
    friction_torque,
    linear_parameters,
    regression,
    with_linear_parameters,
)
from ..parameters._parameters import Parameters
from ._minimize import Options, minimize, rms
from ._solve import Fit


def predicted_torques(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, "*b nv"]:
    """Torques of inverse dynamics with dry friction, at every sample (N m, N).

    Derivatives follow the analytical rule of :func:`rbd_jax.inverse_dynamics`.
    """
    required("predicted_torques", data, "v", "a")

    def one(s: Dataset):
        tau = inverse_dynamics(model, s.q, s.v, s.a, s.f_ext)
        return tau + friction_torque(model, s.v, width)

    return _each(one, data)


def predicted_accelerations(
    model: Model, data: Dataset, width: float = WIDTH
) -> Float[Array, "*b nv"]:
    """Accelerations of forward dynamics with dry friction, at every sample (rad/s², m/s²).

    Derivatives follow the analytical rule of :func:`rbd_jax.forward_dynamics`.
    """
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
    """Root mean square error of the torques of each joint (N m, N).

    On data that were held out, it measures the quality of a fit.
    """
    (tau,) = required("torque_error", data, "tau")
    return rms(predicted_torques(model, data, width) - tau)


def acceleration_error(model: Model, data: Dataset, width: float = WIDTH) -> Float[Array, " nv"]:
    """Root mean square error of the accelerations of each joint (rad/s², m/s²)."""
    (a,) = required("acceleration_error", data, "a")
    return rms(predicted_accelerations(model, data, width) - a)


def fit_torques(
    parameters: Parameters,
    data: Dataset,
    sigma: Float[Array, " nv"] | None = None,
    *,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 500,
    tol: float | None = None,
    solver: Any = None,
    throw: bool = True,
    progress: Progress | None = None,
) -> Fit:
    """Fit by inverse dynamics: ``minimize Σ loss((τ(z) − τ) / σ) + ½ prior · Σ entropic distance``.

    Inertias, armature, damping and friction enter the torques linearly. If nothing else is learned,
    a QR factorization compresses the data to one equation more than there are parameters. With
    :class:`LogCholesky`, :class:`Positive` and :class:`Real` charts the problem is then a convex
    program, and the best physical robot is found from any start. Robust losses solve a few such
    programs, with weights from the errors of the last one (iteratively reweighted least squares).

    All fits take their arguments in the same order: what to fit, the data, and what else they need.

    Source: Lee, Wensing, Park (2020) for the entropic prior, and Holland, Welsch (1977) for the
    weights. The charts ensure physical consistency.

    Args:
        parameters: what to fit, see :func:`select`.
        data: samples with q, v, a and tau, with any number of leading axes.
        sigma: standard deviation of the torque noise of each joint (N m, N). If None, it is
            estimated from the residuals: their root mean square for ``"squares"``, else 1.4826
            times their median absolute value. The least value is √ε times the torques' root mean
            square.
        prior: weight of the entropic distance of inertias and positive numbers from their nominal
            values. Parameters that the data do not determine keep their nominal values, even with
            few data. The least weight is 1e-6 (√ε in float32). The coordinates of all other charts
            have this least weight. Weights of 1e-3 … 1e-2 also keep inertias away from the border
            of physical consistency.
        loss: ``"squares"``, or ``"huber"`` or ``"cauchy"`` for data with outliers.
        width: smoothing of dry friction, see :func:`friction_torque`.
        start: first guess of z; the nominal robot's if None.
        max_steps: limit of the solver's steps, in all rounds together. If the problem is not
            convex, the sum is checked between rounds, and each round takes no more than this.
        tol: tolerance of the solver, in standard deviations of z and relative in the cost. None
            stands for 1e-5 in float64 and 1e-3 in float32.
        solver: an ``optimistix`` least-squares solver. If None, the convex program's own solver,
            or ``LevenbergMarquardt`` if the problem is not convex.
        throw: raise an error if the fit does not converge; else say so in ``result``.
        progress: called with the step and the cost, see :data:`Progress`.

    Returns:
        The fit. The function may be mapped over data, nominal robots and starts.

    Raises:
        ImportError: without optimistix, if it is needed.
        ValueError: for data without v, a or tau, or an unknown loss.
        RuntimeError: if the fit does not converge and ``throw`` is set.
    """
    data = data.samples()
    _, _, measured = required("fit_torques", data, "v", "a", "tau")

    def errors(model: Model) -> Array:
        return predicted_torques(model, data, width) - measured

    options = Options(prior, loss, max_steps, tol, solver, throw, progress)
    if not all(block.leaf in TERMS for block in parameters.blocks):
        return minimize(parameters, errors, measured, sigma, start, options)
    terms = tuple(t for t in TERMS if any(block.leaf == t for block in parameters.blocks))
    Y, tau = regression(parameters.nominal, data, terms, width)
    theta = linear_parameters(parameters.nominal, terms)
    left = tau - einsum("nvp,p->nv", Y, theta)
    places = with_linear_parameters(
        parameters.nominal, jnp.arange(theta.size, dtype=tau.dtype), terms
    )
    Y = Y[..., learned_values(parameters, places).astype(jnp.int32)]

    def equations(factor: Array) -> Float[Array, "m k"]:
        W = jnp.concatenate([Y, left[..., None]], axis=-1) * factor[..., None]
        return qr_factor(W.reshape(-1, W.shape[-1]))

    def linear(model: Model) -> Array:
        x = learned_values(parameters, model) - learned_values(parameters, parameters.nominal)
        return einsum("nvp,p->nv", Y, x) - left

    return minimize(parameters, linear, measured, sigma, start, options, equations)


def fit_accelerations(
    parameters: Parameters,
    data: Dataset,
    sigma: Float[Array, " nv"] | None = None,
    *,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 500,
    tol: float | None = None,
    solver: Any = None,
    throw: bool = True,
    progress: Progress | None = None,
) -> Fit:
    """Fit by forward dynamics, with errors of accelerations (rad/s², m/s²).

    It takes the arguments of :func:`fit_torques`. Use it if torques are known exactly and the
    motion is measured with noise, so that errors are weighted by the noise that they have.
    """
    data = data.samples()
    _, measured, _ = required("fit_accelerations", data, "v", "a", "tau")

    def errors(model: Model) -> Array:
        return predicted_accelerations(model, data, width) - measured

    options = Options(prior, loss, max_steps, tol, solver, throw, progress)
    return minimize(parameters, errors, measured, sigma, start, options)
