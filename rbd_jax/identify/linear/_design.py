"""Design of experiments: motions whose torques determine the base parameters best."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model import Model
from ...spatial import linear
from .._extras import extra
from ..data._dataset import Dataset
from ..data._excitation import Excitation
from ._base import BaseParameters
from ._regressors import TERMS, WIDTH, torque_regressor
from ._structure import base_parameters


def information(
    model: Model,
    base: BaseParameters,
    data: Dataset,
    sigma: Float[Array, " nv"],
    terms: tuple[str, ...] = TERMS,
    width: float = WIDTH,
) -> Float[Array, "r r"]:
    """``Σ Y_bᵀ Σ⁻¹ Y_b``, the inverse of the base parameters' covariance.

    It takes the arguments of :func:`torque_regressor` and of :func:`least_squares`. Derivatives are
    those of autodiff.
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
