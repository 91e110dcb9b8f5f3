"""Fits to whole motions: every window is simulated from a state that is fitted along."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..model import Model, difference
from ._chain import chain_cost, damped, solve_chain
from ._linear import WIDTH
from ._parameters import Parameters
from ._solve import Fit, covariance_of, prior_weight, tolerance
from ._straight import straight_step
from ._windows import Unknowns, Windows
from .data import Dataset, required

_FIRST = 13  # samples that tell the speed of the first one
_TRIES = 0.0, 1e-2, 1.0, 1e2  # of damping, times the last one
_NEAR = 0.3  # of the minimum, in standard deviations, where gaps are weighed ten times more
_THERE = 0.05  # likewise, to have converged


class Shooting(NamedTuple):
    """A fit to motions, and the states at the start of the windows that belong to it."""

    fit: Fit
    q0: Float[Array, "B nq"]
    v0: Float[Array, "B nv"]


def fit_trajectories(
    learn: Parameters,
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
) -> Shooting:
    """Fit by multiple shooting: simulations of short windows have to meet what was measured.

    Accelerations are not needed, and velocities need not be. Unknowns are the parameters and the
    first state of each window; errors in q are ``difference`` on the manifold. Windows that share
    a sample become one motion: the gaps between them are closed by and by, so that the measured
    states lead the parameters first and the motion leads them last. The work grows evenly with the
    number of windows.

    Source: Bock (1983), multiple shooting for parameter estimation. Gauss-Newton steps with damping
    (Levenberg-Marquardt) eliminate one state after the other; what is learnt moves straight as far
    as its values are numbers. Continuity is a penalty that grows to a thousandth of a standard
    deviation of a sample (a hundredth in float32), which leaves next to nothing open.

    Args:
        learn: what to learn.
        windows: q, tau and, if measured, v: (B, L) as :meth:`Dataset.windows` cuts them, L ≥ 2. To
            join them, cut with ``stride=length - 1``, so that neighbours share a sample.
        dt: time between samples (s).
        q_sigma: standard deviation of measured configurations (rad, m).
        v_sigma: of measured velocities (rad/s, m/s); None if they are not to be believed.
        joined: whether windows that share a sample are one motion; if not, each is its own.
        prior: as in :func:`fit_torques`. loss: of each error, likewise. width: likewise.
        integrator: of the simulation, see :func:`rbd_jax.rollout`. substeps: likewise.
        start: first guess of z. max_steps: limit of steps. tol: likewise.

    Returns:
        The fit, with the covariance of z alone, and the fitted first states. It has converged if
        the minimum is within a twentieth of a standard deviation of all unknowns together.

    Raises:
        ValueError: for data without tau, or that are not windows of two samples and more.
    """
    required("fit_trajectories", windows, "tau")
    if len(windows.shape) != 2 or windows.shape[1] < 2:
        raise ValueError(
            f"fit_trajectories: windows must be (B, L) with L at least 2, got {windows.shape}; "
            "see Dataset.windows"
        )
    z = learn.start if start is None else start
    dt = jnp.asarray(dt, z.dtype)
    if windows.v is None:
        v_sigma = None
    problem = Windows(
        learn,
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
    v = _velocities(learn.nominal, windows, dt) if windows.v is None else windows.v[:, 0]
    x = Unknowns(z, windows.q[:, 0], v)
    x, steps = _minimise(problem, x, max_steps, tolerance(tol, z.dtype))
    chain = problem.linear(x).tied(_ties(dt)[-1])
    left = solve_chain(chain)
    noise, good = jnp.full_like(v[0], q_sigma), left.length < _THERE
    fit = Fit(learn.model(x.z), x.z, covariance_of(left.R), noise, chain_cost(chain), good, steps)
    return Shooting(fit, x.q, x.v)


def _minimise(
    problem: Windows, x: Unknowns, max_steps: int, tol: float
) -> tuple[Unknowns, Int[Array, ""]]:
    """The best unknowns and the number of steps: the best of a few dampings, each time."""
    ties = _ties(x.z)
    last = len(ties) - 1

    def step(state):
        x, damping, level, count, _ = state
        chain = problem.linear(x).tied(ties[level])

        def attempt(amount: Array):
            found = solve_chain(damped(chain, amount))
            z, a = straight_step(problem.learn, x.z, found.z)
            new = Unknowns(z, *jax.vmap(problem.moved)(x.q, x.v, a * found.x))
            return new, problem.cost(new, ties[level]), found.length

        amounts = damping * jnp.asarray(_TRIES, x.z.dtype)
        new, costs, lengths = jax.vmap(attempt)(amounts)
        best, length = jnp.argmin(costs), lengths[0]
        better = costs[best] < chain_cost(chain)
        x = jax.tree.map(lambda old, new: jnp.where(better, new[best], old), x, new)
        fruitless = ~better & ((damping > 1e6) | (length < _THERE))
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


def _ties(like: Array) -> Float[Array, " n"]:
    """Weights of gaps, one after the other; the last as far above others as rounding allows."""
    return 10.0 ** jnp.arange(-1, 4 if like.dtype == jnp.float64 else 3, dtype=like.dtype)


def _velocities(model: Model, windows: Dataset, dt: Array) -> Float[Array, "B nv"]:
    """A first guess where none were measured: the slope of a cubic through the first samples."""
    n = min(windows.shape[1], _FIRST)
    slope = np.linalg.pinv(np.vander(np.arange(n), min(n, 4), increasing=True))[1]
    apart = jax.vmap(jax.vmap(difference, (None, None, 0)), (None, 0, 0))
    u = apart(model, windows.q[:, 0], windows.q[:, :n])
    return jnp.einsum("k,bki->bi", jnp.asarray(slope, u.dtype), u, precision="highest") / dt


def _joined(windows: Dataset) -> Bool[Array, " B"]:
    """Whether each window's last sample is the next one's first; not the last window's."""
    if windows.t is None:
        same = jnp.all(windows.q[:-1, -1] == windows.q[1:, 0], axis=-1)
    else:
        same = windows.t[:-1, -1] == windows.t[1:, 0]
    return jnp.append(same, False)
