"""Fits to whole motions: every window is simulated from a state that is fitted along."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model, difference, integrate
from ..simulate._rollout import rollout
from ._linear import WIDTH, friction_torque
from ._parameters import Parameters
from ._solve import (
    Fit,
    covariance_of,
    levenberg_marquardt,
    prior_residuals,
    prior_weight,
    robust,
    stationary,
)
from .data import Dataset, required

_FIRST = 13  # samples that tell the speed of the first one


class Shooting(NamedTuple):
    """A fit to motions, and the states at the start of the windows that belong to it."""

    fit: Fit
    q0: Float[Array, "B nq"]
    v0: Float[Array, "B nv"]


def simulated(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    tau: Float[Array, "L nv"],
    dt: Float[Array, ""],
    *,
    width: float = WIDTH,
    integrator: str | Callable = "rk4",
    substeps: int = 1,
) -> tuple[Float[Array, "L nq"], Float[Array, "L nv"]]:
    """The motion from a state under torques held over each step, at as many times as torques.

    Dry friction is that of the start of each step.
    """

    def policy(t, q, v):
        k = jnp.clip(jnp.round(t / dt).astype(jnp.int32), 0, len(tau) - 1)
        return tau[k] - friction_torque(model, v, width)

    steps = len(tau) - 1
    path = rollout(model, q0, v0, policy, dt, steps=steps, integrator=integrator, substeps=substeps)
    return path.q, path.v


def fit_trajectories(
    learn: Parameters,
    windows: Dataset,
    dt: float | Float[Array, ""],
    *,
    q_sigma: float = 1e-3,
    v_sigma: float | None = 1e-2,
    continuity: float = 0.0,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    integrator: str | Callable = "rk4",
    substeps: int = 1,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 100,
    tol: float | None = None,
    solver: Any = None,
) -> Shooting:
    """Fit by multiple shooting: simulations of short windows have to meet what was measured.

    Accelerations are not needed, and velocities need not be. Unknowns are the parameters and the
    first state of each window, along the tangent at the measured one; errors in q are
    ``difference`` on the manifold.

    Source: Bock (1983), multiple shooting for parameter estimation, with continuity as a penalty.

    Args:
        learn: what to learn.
        windows: q, tau and, if measured, v: (B, L) as :meth:`Dataset.windows` cuts them. To join
            them, cut with ``stride=length - 1``, so that neighbours share a sample.
        dt: time between samples (s).
        q_sigma: standard deviation of measured configurations (rad, m).
        v_sigma: of measured velocities (rad/s, m/s); None if they are not to be believed.
        continuity: weight (1/rad, 1/m, s/rad, s/m) of the gap between the end of a window and the
            start of the next, where they share a sample; 0 for windows of their own.
        prior: as in :func:`fit_torques`. loss: of each window's errors, likewise. width: likewise.
        integrator: of the simulation, see :func:`rbd_jax.rollout`. substeps: likewise.
        start: first guess of z. max_steps: limit of steps. tol: tolerance. solver: likewise.

    Returns:
        The fit, with the covariance of z alone, and the fitted first states. The problem has narrow
        curved valleys, the more so the greater ``continuity``: start near, from a fit of torques
        say, and look at ``fit.converged``.
    """
    required("fit_trajectories", windows, "tau")
    if len(windows.shape) != 2:
        raise ValueError(
            f"fit_trajectories: windows must be (B, L), got {windows.shape}; see Dataset.windows"
        )
    if windows.v is None:
        v_sigma = None
    z0 = learn.start if start is None else start
    B, nv, dt = windows.shape[0], learn.nominal.nv, jnp.asarray(dt, z0.dtype)
    weight = prior_weight(prior, z0.dtype)
    options = {"width": width, "integrator": integrator, "substeps": substeps}
    q_first = windows.q[:, 0]
    v_first = _velocities(learn.nominal, windows, dt) if windows.v is None else windows.v[:, 0]

    def states(model: Model, d: Array):
        d = d.reshape(B, 2, nv)
        q = jax.vmap(integrate, (None, 0, 0))(model, q_first, q_sigma * d[:, 0])
        return q, v_first + (v_sigma or q_sigma / dt) * d[:, 1]

    def function(unknown: Array, windows: Dataset) -> Array:
        z, d = unknown[: z0.size], unknown[z0.size :]
        model = learn.model(z)
        q0, v0 = states(model, d)
        q, v = jax.vmap(lambda q, v, tau: simulated(model, q, v, tau, dt, **options))(
            q0, v0, windows.tau
        )
        apart = jax.vmap(difference, (None, 0, 0))
        miss = jax.vmap(apart, (None, 0, 0))(model, windows.q, q)
        parts = [robust(loss, miss / q_sigma).reshape(-1)]
        if v_sigma is not None and windows.v is not None:
            parts.append(robust(loss, (v - windows.v) / v_sigma).reshape(-1))
        if continuity > 0 and B > 1:
            gap = apart(model, q0[1:], q[:-1, -1]), v[:-1, -1] - v0[1:]
            joined = _joined(model, windows)[:, None]
            parts += [jnp.where(joined, continuity * g, 0).reshape(-1) for g in gap]
        return jnp.concatenate([*parts, prior_residuals(learn, model, weight)])

    unknown = jnp.concatenate([z0, jnp.zeros((2 * nv * B,), z0.dtype)])
    unknown, steps = levenberg_marquardt(function, unknown, windows, max_steps, tol, solver)
    r, J = function(unknown, windows), jax.jacfwd(function)(unknown, windows)
    k = z0.size
    covariance = covariance_of(J)[:k, :k]
    z, model = unknown[:k], learn.model(unknown[:k])
    noise = jnp.full((nv,), q_sigma, z0.dtype)
    cost, good = 0.5 * jnp.sum(r * r), stationary(J, r)
    fit = Fit(model, z, covariance, noise, cost, good, steps)
    return Shooting(fit, *states(model, unknown[k:]))


def _velocities(model: Model, windows: Dataset, dt: Array) -> Float[Array, "B nv"]:
    """A first guess where none were measured: the slope of a cubic through the first samples."""
    n = min(windows.shape[1], _FIRST)
    slope = np.linalg.pinv(np.vander(np.arange(n), min(n, 4), increasing=True))[1]
    apart = jax.vmap(jax.vmap(difference, (None, None, 0)), (None, 0, 0))
    u = apart(model, windows.q[:, 0], windows.q[:, :n])
    return jnp.einsum("k,bki->bi", jnp.asarray(slope, u.dtype), u, precision="highest") / dt


def _joined(model: Model, windows: Dataset) -> Array:
    """Whether each window's last sample is the next one's first."""
    if windows.t is None:
        same = windows.q[:-1, -1] == windows.q[1:, 0]
        return jnp.all(same, axis=-1)
    return windows.t[:-1, -1] == windows.t[1:, 0]
