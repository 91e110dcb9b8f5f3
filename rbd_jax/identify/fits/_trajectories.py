"""Fits to whole motions by multiple shooting: each window is simulated from a fitted state."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from ...model import Model, difference
from ...model.outcome import throw_unless_successful
from ...simulate import warn_if_unstable
from ...spatial import linear
from .._progress import Progress, report
from ..data._dataset import Dataset, required
from ..linear._regressors import WIDTH
from ..parameters._charts import Direction, PoseChart
from ..parameters._parameters import Parameters, prior_weight
from ._chain import chain_cost, damped, solve_chain
from ._losses import check_loss
from ._solve import Fit, covariance_of, result_of, tolerance
from ._windows import Unknowns, Windows

_FIRST = 13  # The number of samples from which the first velocity is estimated.
_TRIES = 0.0, 1e-2, 1.0, 1e2  # Each step tries these multiples of the last damping.
# Distances from the minimum, in standard deviations: below the first one the weight of the gaps
# grows tenfold, and below the second one the fit has converged.
_NEAR, _CONVERGED = 0.3, 0.05
_INSIDE = 0.9  # A step goes at most this part of the way to the border of what a chart contains.
_LENGTHS = 0.8 ** np.arange(30)  # The lengths of steps to choose from.


class TrajectoryFit(NamedTuple):
    """A fit to motions, and the fitted states at the start of the windows."""

    fit: Fit
    q0: Float[Array, "B nq"]
    v0: Float[Array, "B nv"]


def fit_trajectories(
    parameters: Parameters,
    windows: Dataset,
    dt: float | Float[Array, ""],
    *,
    q_sigma: float = 1e-3,
    v_sigma: float | None = 1e-2,
    joined: bool = True,
    prior: float = 0.0,
    loss: str = "squares",
    width: float = WIDTH,
    integrator: str | Callable = "rk4",
    substeps: int = 1,
    start: Float[Array, " k"] | None = None,
    max_steps: int = 100,
    tol: float | None = None,
    throw: bool = True,
    progress: Progress | None = None,
) -> TrajectoryFit:
    """Fit by multiple shooting: simulations of short windows have to match the measurements.

    It needs no accelerations, and velocities are optional. The unknowns are the parameters and the
    first state of each window. Errors in q are ``difference`` on the manifold. Windows that share a
    sample become one motion: a penalty on the gaps between them grows from round to round. So the
    measured states guide the parameters at first, and one continuous motion does so in the end. The
    cost is linear in the number of windows.

    All fits take their arguments in the same order: what to fit, the data, and what else they need.

    Source: Bock (1983), multiple shooting for parameter estimation. The Gauss-Newton steps are
    damped (Levenberg-Marquardt) and eliminate one state after the other. The loop is written here,
    because a general solver would not use this structure and would take steps in the coordinates of
    charts, see :func:`linear_step`. The penalty grows until a gap of a thousandth of a standard
    deviation of a sample (a hundredth in float32) counts as much as an error of one.

    Args:
        parameters: what to fit, see :func:`select`.
        windows: q, tau and, if measured, v, with leading axes (B, L) and L ≥ 2, as
            :meth:`Dataset.windows` makes them. To join them, use ``stride=length - 1``, so that
            neighbors share a sample.
        dt: time between samples (s).
        q_sigma: standard deviation of measured configurations (rad, m).
        v_sigma: standard deviation of measured velocities (rad/s, m/s); None to ignore them.
        joined: whether windows that share a sample are one motion. If not, each window is its own.
        prior: as in :func:`fit_torques`.
        loss: the loss of each error, as in :func:`fit_torques`.
        width: smoothing of dry friction, see :func:`friction_torque`.
        integrator: integrator of the simulation, see :func:`rbd_jax.rollout`. A warning says if
            its steps are too long for the joint damping of the nominal robot.
        substeps: steps of the integrator in a time step.
        start: first guess of z; the nominal robot's if None.
        max_steps: limit of the steps.
        tol: length of the last step, in standard deviations, as in :func:`fit_torques`.
        throw: raise an error if the fit does not converge; else say so in ``fit.result``.
        progress: called with the step and the cost.

    Returns:
        The fit, with the covariance of z alone, and the fitted first states. The fit converged if
        all unknowns together are within a twentieth of a standard deviation of the minimum.

    Raises:
        ValueError: for data without tau, or that are not windows of at least two samples.
        RuntimeError: if the fit does not converge and ``throw`` is set.
    """
    required("fit_trajectories", windows, "tau")
    check_loss(loss)
    if len(windows.shape) != 2 or windows.shape[1] < 2:
        raise ValueError(
            f"fit_trajectories: windows must have the leading axes (B, L) with L at least 2, got "
            f"{windows.shape}; cut them with Dataset.windows"
        )
    z = parameters.start if start is None else start
    if not isinstance(dt, Tracer):
        h = np.asarray(dt) / substeps
        warn_if_unstable("fit_trajectories", parameters.nominal, None, h, integrator, 2)
    dt = jnp.asarray(dt, z.dtype)
    if windows.v is None:
        v_sigma = None
    problem = Windows(
        parameters,
        windows,
        _joined(windows) if joined else jnp.zeros(windows.shape[:1], bool),
        dt,
        q_sigma,
        v_sigma,
        v_sigma or q_sigma / (dt * (windows.shape[1] - 1)),
        prior_weight(prior, z.dtype),
        loss,
        (("width", width), ("integrator", integrator), ("substeps", substeps)),
    )
    v = _velocities(parameters.nominal, windows, dt) if windows.v is None else windows.v[:, 0]
    x = Unknowns(z, windows.q[:, 0], v)
    x, steps = _minimize(problem, x, max_steps, tolerance(tol, z.dtype), progress)
    chain = problem.linear(x).weighted(_gap_weights(dt)[-1])
    left, cost = solve_chain(chain), chain_cost(chain)
    result = result_of(left.length < _CONVERGED, cost, steps, max_steps)
    noise = jnp.full_like(v[0], q_sigma)
    fit = Fit(parameters.model(x.z), x.z, covariance_of(left.R), noise, cost, result, steps)
    found = TrajectoryFit(fit, x.q, x.v)
    return throw_unless_successful(found, result) if throw else found


def _minimize(
    problem: Windows, x: Unknowns, max_steps: int, tol: float, progress: Progress | None
) -> tuple[Unknowns, Int[Array, ""]]:
    """The best unknowns and the number of steps. Each step takes the best of a few dampings."""
    weights = _gap_weights(x.z)
    last = len(weights) - 1

    def step(state):
        x, damping, level, count, _ = state
        chain = problem.linear(x).weighted(weights[level])
        before = chain_cost(chain)
        report(progress, count, before)

        def attempt(amount: Array):
            found = solve_chain(damped(chain, amount))
            z, a = linear_step(problem.parameters, x.z, found.z)
            new = Unknowns(z, *jax.vmap(problem.moved)(x.q, x.v, a * found.x))
            return new, problem.cost(new, weights[level]), found.length

        amounts = damping * jnp.asarray(_TRIES, x.z.dtype)
        new, costs, lengths = jax.vmap(attempt)(amounts)
        best, length = jnp.argmin(costs), lengths[0]
        better = costs[best] < before
        x = jax.tree.map(lambda old, new: jnp.where(better, new[best], old), x, new)
        fruitless = ~better & ((damping > 1e6) | (length < _CONVERGED))
        near = length < jnp.where(level == last, tol, _NEAR)
        raised = jnp.where(fruitless | near, level + 1, level)
        damping = jnp.where(better, jnp.maximum(amounts[best], 1e-2 * damping), 1e3 * damping)
        done = raised > last
        return x, jnp.maximum(damping, 1e-8), jnp.minimum(raised, last), count + 1, done

    def going(state):
        return (state[3] < max_steps) & ~state[4]

    zero = jnp.zeros((), jnp.int32)
    state = x, jnp.ones((), x.z.dtype), zero, zero, jnp.zeros((), bool)
    x, _, _, count, _ = jax.lax.while_loop(going, step, state)
    return x, count


def linear_step(
    parameters: Parameters, z: Float[Array, " k"], dz: Float[Array, " k"]
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """``z`` after a step along which the learned values themselves, as inertias, change linearly.

    Directions that no data show are straight lines of the values and curves in the coordinates,
    along which a solver takes only small steps. Steps that leave what a chart contains, such as
    physically consistent inertias, are shortened. Rotations and poses move in their charts.

    Returns:
        The new coordinates, and the part of the step that was taken (at most 1).
    """
    model, rate = jax.jvp(parameters.model, (z,), (dz,))

    def after(a: Array) -> Array:
        moved, parts, at = jax.tree.map(lambda x, dx: x + a * dx, model, rate), [z[:0]], 0
        for block in parameters.blocks:
            here = slice(at, at := at + len(block.names))
            curved = isinstance(block.chart, (Direction, PoseChart))
            parts.append(z[here] + a * dz[here] if curved else block.coordinates(moved))
        return jnp.concatenate(parts)

    lengths = jnp.asarray(_LENGTHS, z.dtype)
    inside = jnp.all(jnp.isfinite(jax.vmap(after)(lengths / _INSIDE)), axis=1)
    a = jnp.where(jnp.any(inside), lengths[jnp.argmax(inside)], 0)
    return after(a), a


def _gap_weights(like: Array) -> Float[Array, " n"]:
    """The increasing weights of the gaps. Rounding limits the last one."""
    return 10.0 ** jnp.arange(-1, 4 if like.dtype == jnp.float64 else 3, dtype=like.dtype)


def _velocities(model: Model, windows: Dataset, dt: Array) -> Float[Array, "B nv"]:
    """First guesses of unmeasured velocities: slopes of cubics through the first samples."""
    n = min(windows.shape[1], _FIRST)
    slope = np.linalg.pinv(np.vander(np.arange(n), min(n, 4), increasing=True))[1]
    differences = jax.vmap(jax.vmap(difference, (None, None, 0)), (None, 0, 0))
    u = differences(model, windows.q[:, 0], windows.q[:, :n])
    return linear.einsum("k,bki->bi", jnp.asarray(slope, u.dtype), u) / dt


def _joined(windows: Dataset) -> Bool[Array, " B"]:
    """Whether each window's last sample is the first of the next one; False for the last window."""
    if windows.t is None:
        same = jnp.all(windows.q[:-1, -1] == windows.q[1:, 0], axis=-1)
    else:
        same = windows.t[:-1, -1] == windows.t[1:, 0]
    return jnp.append(same, False)
