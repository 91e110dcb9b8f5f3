"""A first guess for fits that are linear in the parameters: the convex problem behind them.

In the parameters θ themselves the squares are a quadratic and the entropic distance is convex, so
the best physical robot is found from any start; in the coordinates of the charts the directions
that no torque shows are curved valleys, which a solver would follow in small steps.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..model import Model
from ..spatial import inertia
from ._charts import LogCholesky, Positive, Real
from ._parameters import Parameters

_STEPS, _FALL = 60, 0.5  # Newton steps, and how fast the barrier falls from one to the next
_FLOOR = 1e-6  # weight of the barrier that keeps positive what has no prior, or no prior's weight


def is_convex(learn: Parameters) -> bool:
    """Whether all charts are those of cones that the barrier here knows."""
    return all(isinstance(b.chart, (LogCholesky, Positive, Real)) for b in learn.blocks)


def convex_start(
    learn: Parameters, z0: Float[Array, " k"], residuals: Callable[[Model], Array], prior: float
) -> Float[Array, " k"]:
    """Coordinates of the minimum of ``½ |residuals|² + prior · entropic distance``.

    Source: Lee, Wensing, Park (2020), (19), as a convex program; solved by Newton steps along a
    falling barrier, as in Boyd, Vandenberghe, "Convex optimization", §11.3.

    Args:
        learn: what to learn, for which :func:`is_convex` holds.
        z0: coordinates to start from.
        residuals: of a robot, affine in what is learnt.
        prior: weight of the entropic distance from the nominal inertias.
    """
    start = learn.model(z0)
    names = [block.leaf for block in learn.blocks]
    rows = [jnp.array(block.rows, jnp.int32) for block in learn.blocks]
    values = [getattr(start, n)[r] for n, r in zip(names, rows, strict=True)]
    flat, unflatten = ravel_pytree(values)
    scale = jnp.concatenate([_sizes(v) for v in values])

    def robot(x: Array) -> Model:
        new = unflatten(flat + scale * x)
        model = start
        for n, r, v in zip(names, rows, new, strict=True):
            model = _put(model, n, r, v)
        return model

    r0 = residuals(robot(jnp.zeros_like(flat)))
    A = jax.jacfwd(lambda x: residuals(robot(x)))(jnp.zeros_like(flat))

    def barrier(x: Array, weight: Array) -> Float[Array, ""]:
        new, total = unflatten(flat + scale * x), jnp.zeros((), flat.dtype)
        w = jnp.maximum(weight, _FLOOR)
        for block, r, v in zip(learn.blocks, rows, new, strict=True):
            if isinstance(block.chart, LogCholesky):
                U0, I10 = block.chart.U0, learn.nominal.inertia[r]
                X, X0 = (_relative(U0, y) for y in (v, I10))
                logs = jnp.log(jnp.diagonal(jnp.linalg.cholesky(X), axis1=-2, axis2=-1))
                back = jnp.linalg.solve(X0, X)
                traces = jnp.trace(back, axis1=-2, axis2=-1)
                total = total + w * (jnp.sum(traces) - 2 * jnp.sum(logs))
            elif isinstance(block.chart, Positive):
                total = total - jnp.maximum(weight - prior, _FLOOR) * jnp.sum(jnp.log(v))
        return total

    def cost(x: Array, weight: Array) -> Float[Array, ""]:
        r = r0 + jnp.matmul(A, x, precision="highest")
        return 0.5 * jnp.sum(r * r) + barrier(x, weight)

    fractions = 0.6 ** jnp.arange(16.0, dtype=flat.dtype)

    def newton(k, x):
        weight = jnp.maximum(first * _FALL ** k.astype(flat.dtype), prior)
        g = jax.grad(cost)(x, weight)
        H = jax.hessian(cost)(x, weight)
        d = jax.lax.rsqrt(jnp.maximum(jnp.diagonal(H), jnp.finfo(H.dtype).tiny))
        tiny = jnp.finfo(H.dtype).eps * H.shape[0] * jnp.eye(H.shape[0], dtype=H.dtype)
        step = -d * jnp.linalg.solve(H * d[:, None] * d[None, :] + tiny, d * g)
        tries = x[None] + fractions[:, None] * step[None]
        costs = jax.vmap(cost, (0, None))(tries, weight)
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        best = jnp.argmin(costs)
        return jnp.where(costs[best] < cost(x, weight), tries[best], x)

    first = jnp.maximum(0.5 * jnp.sum(r0 * r0) / max(flat.size, 1), prior)
    x = jax.lax.fori_loop(0, _STEPS, newton, jnp.zeros_like(flat))
    z = learn.coordinates(robot(x))
    return jnp.where(jnp.all(jnp.isfinite(z)), z, z0)


def _sizes(value: Array) -> Float[Array, " m"]:
    """Of what order each number is: for inertias by the geometric mean of its diagonal terms."""
    if value.ndim == 1:
        return jnp.maximum(jnp.abs(value), 1e-3)
    m = value[:, :1]
    J = (value[:, 4:5] + value[:, 6:7] + value[:, 9:]) / 3
    ones = jnp.ones((value.shape[0], 3), value.dtype)
    return jnp.concatenate([m, jnp.sqrt(m * J) * ones, J * ones, J * ones], axis=1).reshape(-1)


def _relative(U0: Array, I10: Array) -> Float[Array, "n 4 4"]:
    """``U₀⁻¹ P U₀⁻ᵀ``."""
    half = jax.scipy.linalg.solve_triangular(U0, inertia.pseudo(I10), lower=False)
    return jax.scipy.linalg.solve_triangular(U0, jnp.swapaxes(half, -1, -2), lower=False)


def _put(model: Model, leaf: str, rows: Array, value: Array) -> Model:
    return eqx.tree_at(lambda m: getattr(m, leaf), model, getattr(model, leaf).at[rows].set(value))
