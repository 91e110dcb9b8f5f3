"""Exciting motions for identification: Fourier series within limits, optimized for information."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...model import Model, integrate, neutral
from ...spatial import linear
from .._extras import extra
from ..linear._base import BaseParameters
from ..linear._regressors import TERMS, WIDTH, torque_regressor
from ..linear._structure import base_parameters
from ._dataset import Dataset

_SHARP = 8  # The exponent of the smooth maximum that keeps motions within their limits.


class Excitation(eqx.Module):
    """A periodic motion ``q(t) = q_c ⊕ Σ_k (a_k sin kωt + b_k cos kωt)``.

    Joints of one degree of freedom move; the others stay at the center. Amplitudes that would
    exceed a limit are reduced joint by joint in a smooth way. So every choice of coefficients is
    within all position and speed limits at all times. Derivatives are those of autodiff.

    Source: Swevers et al., "Optimal robot excitation and identification", 1997.
    """

    center: Float[Array, " nq"]
    coefficients: Float[Array, "2 K nv"]
    """a and b before they are reduced (rad, m)."""
    reach: Float[Array, " nv"]
    """Greatest excursion of each degree of freedom (rad, m); 0 for those that do not move."""
    speed: Float[Array, " nv"]
    """Greatest speed (rad/s, m/s)."""
    period: float = eqx.field(static=True)
    """Period of the first harmonic (s)."""

    def amplitudes(self) -> Float[Array, "2 K nv"]:
        """The coefficients after the reduction to the limits (rad, m)."""
        c = self.coefficients
        k = jnp.arange(1.0, c.shape[1] + 1, dtype=c.dtype)[:, None]
        size = jnp.sqrt(jnp.sum(c * c, axis=0) + jnp.finfo(c.dtype).tiny)
        moves = self.reach > 0
        far = jnp.sum(size, axis=0) / jnp.where(moves, self.reach, 1)
        fast = jnp.sum(k * size, axis=0) * (2 * jnp.pi / self.period) / self.speed
        reduction = (1 + far**_SHARP + fast**_SHARP) ** (-1 / _SHARP)
        return jnp.where(moves[None, None], c * reduction[None, None], 0)

    def at(
        self, model: Model, t: Float[Array, ""]
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, " nv"]]:
        """q, v and a at a time (s)."""
        a, b = self.amplitudes()
        k = jnp.arange(1.0, a.shape[0] + 1, dtype=a.dtype)[:, None]
        w = k * (2 * jnp.pi / self.period)
        s, c = jnp.sin(w * t), jnp.cos(w * t)
        u = jnp.sum(a * s + b * c, axis=0)
        v = jnp.sum(w * (a * c - b * s), axis=0)
        acceleration = -jnp.sum(w * w * (a * s + b * c), axis=0)
        return integrate(model, self.center, u), v, acceleration

    def sample(self, model: Model, count: int) -> Dataset:
        """Evenly spaced samples of one period, with the torques of inverse dynamics."""
        t = jnp.arange(float(count), dtype=self.center.dtype) * (self.period / count)
        q, v, a = jax.vmap(self.at, (None, 0))(model, t)
        return Dataset(t, q, v, a, jax.vmap(inverse_dynamics, (None, 0, 0, 0))(model, q, v, a))


def excitation(
    model: Model,
    key: Key[Array, ""],
    *,
    harmonics: int = 5,
    period: float = 10.0,
    margin: float = 0.9,
    center: Float[Array, " nq"] | None = None,
) -> Excitation:
    """A random motion within the position and speed limits of the model.

    Args:
        model: the robot. Joints without limits move by ±π or ±1 m, at 2π rad/s or 2 m/s at most.
        key: random key of the coefficients.
        harmonics: number of harmonics.
        period: period of the first harmonic (s).
        margin: fraction of the limits to use.
        center: configuration to move about; the middle of the limits if None.

    Raises:
        ValueError: if the center is not within the position limits.
    """
    topology = model.topology
    one = np.array([k in ("revolute", "prismatic", "helical") for k in topology.kinds])
    turns = np.array([k != "prismatic" for k in topology.kinds])[topology.dof_bodies]
    dofs = topology.v_starts[:-1][one]
    places = topology.q_starts[:-1][one]
    lower, upper = (np.asarray(x)[places] for x in (model.position_lower, model.position_upper))
    free = np.where(turns[dofs], np.pi, 1.0)
    low = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper - 2 * free, -free))
    high = np.where(np.isfinite(upper), upper, low + 2 * free)
    middle = np.asarray(neutral(model)).copy()
    middle[places] = 0.5 * (low + high)
    if center is not None:
        middle = np.asarray(center).copy()
    reach = np.zeros(model.nv)
    reach[dofs] = np.minimum(high - middle[places], middle[places] - low)
    if (reach[dofs] <= 0).any():
        raise ValueError("excitation: the center is not between the position limits of every joint")
    speed = np.asarray(model.velocity_limit)
    speed = np.where(np.isfinite(speed), speed, np.where(turns, 2 * np.pi, 2.0))
    arrays = [jnp.asarray(x, model.dtype) for x in (middle, margin * reach, margin * speed)]
    shape = 2, harmonics, model.nv
    scale = arrays[1] / harmonics**0.5
    coefficients = scale[None, None] * jax.random.normal(key, shape, model.dtype)
    return Excitation(arrays[0], coefficients, arrays[1], arrays[2], period)


def information(
    model: Model,
    base: BaseParameters,
    data: Dataset,
    sigma: Float[Array, " nv"],
    terms: tuple[str, ...] = TERMS,
    width: float = WIDTH,
) -> Float[Array, "r r"]:
    """``Σ Y_bᵀ Σ⁻¹ Y_b``, the inverse of the base parameters' covariance.

    Arguments as :func:`torque_regressor` and :func:`least_squares`. Derivatives are those of
    autodiff.
    """

    def one(total, s: Dataset):
        Y = torque_regressor(model, s.q, s.v, s.a, terms, width)[:, base.independent]
        W = Y / sigma[:, None]
        return total + linear.matmul(W.T, W), None

    r = base.count
    return jax.lax.scan(one, jnp.zeros((r, r), model.dtype), data.samples())[0]


def optimal_excitation(
    model: Model,
    first: Excitation,
    *,
    base: BaseParameters | None = None,
    terms: tuple[str, ...] = TERMS,
    sigma: Float[Array, " nv"] | None = None,
    samples: int = 64,
    steps: int = 200,
    optimizer: Any = None,
    penalty: float = 1e3,
    keep_out: Callable[[Model, Array], Array] | None = None,
    width: float = 0.1,
) -> tuple[Excitation, Float[Array, " steps"]]:
    """Make a motion D-optimal: maximize ``log det`` of the information on the base parameters.

    The form of the motion ensures position and speed limits exactly. A penalty keeps the torques of
    the nominal robot within ``model.effort_limit``.

    Source: Swevers et al. (1997). Columns are scaled by those of the first motion. This changes the
    objective by a constant and avoids overflow.

    Args:
        model: the nominal robot.
        first: the motion to start from, see :func:`excitation`.
        base: base parameters; the structural ones of ``terms`` if None.
        terms: the parameters, see :func:`parameter_names`.
        sigma: standard deviation of the torque noise of each joint (N m, N); 1 for all if None.
        samples: number of times in a period at which the information is evaluated.
        steps: number of steps of the optimizer.
        optimizer: an optax ``GradientTransformation``; Adam if None.
        penalty: weight of the squared relative excess of torques, and of ``keep_out``.
        keep_out: ``keep_out(model, q)`` is positive where the robot must not be.
        width: smoothing of dry friction; it is wide here, so that the objective has a useful slope.

    Returns:
        The best motion found, and the objective ``log det − penalties`` of each step.

    Raises:
        ImportError: without optax.
    """
    optax = extra("optax")
    base = base_parameters(model, terms) if base is None else base
    s = jnp.ones((model.nv,), model.dtype) if sigma is None else sigma
    scale = jnp.sqrt(jnp.diagonal(information(model, base, first.sample(model, samples), s, terms,
                                              width)))  # fmt: skip
    scale = jnp.where(scale > 0, scale, 1)

    def objective(coefficients):
        motion = eqx.tree_at(lambda e: e.coefficients, first, coefficients)
        data = motion.sample(model, samples)
        H = information(model, base, data, s, terms, width) / (scale[:, None] * scale[None])
        tiny = 1e-12 * jnp.eye(base.count, dtype=H.dtype)
        over = jnp.maximum(jnp.abs(data.tau) / model.effort_limit[None] - 1, 0)
        cost = penalty * jnp.mean(jnp.sum(over**2, axis=-1))
        if keep_out is not None:
            inside = jax.vmap(keep_out, (None, 0))(model, data.q)
            cost = cost + penalty * jnp.mean(jnp.maximum(inside, 0) ** 2)
        return cost - 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(H + tiny))))

    optimizer = optax.adam(0.02) if optimizer is None else optimizer
    unit = jnp.maximum(first.reach, jnp.finfo(model.dtype).eps)[None, None]

    def step(state, _):
        x, memory, best = state
        cost, slope = jax.value_and_grad(lambda x: objective(unit * x))(x)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            change, memory = optimizer.update(slope, memory, x)
        best = jax.tree.map(lambda a, b: jnp.where(cost < best[1], a, b), (x, cost), best)
        return (x + change, memory, best), -cost

    x = first.coefficients / unit
    far = jnp.full((), jnp.inf, x.dtype)
    (_, _, (x, _)), history = jax.lax.scan(step, (x, optimizer.init(x), (x, far)), length=steps)
    return eqx.tree_at(lambda e: e.coefficients, first, unit * x), history
