"""Fits that are linear in what is learned, solved as convex programs.

As a function of the parameters themselves, the sum of squares is quadratic and the entropic prior
is convex. So the best physical robot is found from any start. In the coordinates of charts, the
parameters that no torque shows would form curved valleys, along which a solver takes small steps.
This is why the solver is written here: with optimistix's Levenberg-Marquardt in those coordinates,
a robust fit of an arm of seven joints to 100 samples did not converge in 500 steps, which took a
minute. Here it takes 210 steps and 7 s of processor time. Letters are those of :mod:`._cones`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...model import Model
from ...spatial import linear
from ...spatial.linear import qr_factor, solve_upper
from ..fits._solve import Progress, report
from ..parameters._charts import LogCholesky, Positive, Real
from ..parameters._parameters import Parameters
from ._cones import Cone, cone_of, cone_steps, matrices, ones, rescaled_dual, step_length

_FALL = 0.1  # The weight of the barrier falls by no more than this factor in one step.


def is_convex(learn: Parameters) -> bool:
    """Whether the values of all charts form cones for which this module has steps."""
    return all(isinstance(b.chart, (LogCholesky, Positive, Real)) for b in learn.blocks)


def _values(learn: Parameters, model: Model) -> list[Array]:
    return [getattr(model, b.leaf)[np.array(b.rows, np.int32)] for b in learn.blocks]


def learned_values(learn: Parameters, model: Model) -> Float[Array, " p"]:
    """The numbers behind the charts, block by block: ten a body, one a degree of freedom."""
    parts = [x.reshape(-1) for x in _values(learn, model)]
    return jnp.concatenate([jnp.zeros((0,), model.dtype), *parts])


def linear_residuals(
    learn: Parameters, R: Float[Array, "m c"], x: Float[Array, " p"]
) -> Float[Array, " m"]:
    """``R (x − x₀, −1)``, where x₀ are the nominal values."""
    change = jnp.append(x - learned_values(learn, learn.nominal), -jnp.ones((), R.dtype))
    return linear.matmul(R, change)


def convex_fit(
    learn: Parameters,
    z0: Float[Array, " k"],
    R: Float[Array, "m c"],
    weight: float,
    max_steps: int | Int[Array, ""],
    tol: float,
    barrier: Float[Array, ""],
    progress: Progress | None = None,
) -> tuple[Float[Array, " k"], Int[Array, ""]]:
    """Minimize ``½ |R (x − x₀, −1)|² + weight · entropic distance`` over robots, from any start.

    Source: the problem is that of Lee, Wensing, Park (2020). The method takes primal-dual steps
    towards a path on which the weight of the barrier falls, in the direction of Helmberg, Rendl,
    Vanderbei, Wolkowicz, "An interior-point method for semidefinite programming", 1996 (also
    called HKM). Each step is a linear least-squares problem, solved by QR without squaring its
    condition number.

    Args:
        learn: what to learn, for which :func:`is_convex` holds; x₀ are its nominal values.
        z0: coordinates to start from.
        R: coefficients of the residuals in ``(x − x₀, −1)``, see :func:`learned_values`.
        weight: weight of the prior; positive.
        max_steps: limit of the steps.
        tol: the last step is shorter than this, in standard deviations.
        barrier: greatest weight of the barrier at the start; the sum of squares at the start is
            used if it is smaller. A small value suits a start close to the minimum.
        progress: called with the step and the cost.

    Returns:
        The coordinates of the minimum and the number of steps.
    """
    start = learn.model(z0)
    nominal = _values(learn, learn.nominal)

    def robot(x: list[Array]) -> Model:
        model = start
        for b, new in zip(learn.blocks, x, strict=True):
            put = getattr(model, b.leaf).at[np.array(b.rows, np.int32)].set(new)
            model = eqx.tree_at(lambda m, b=b: getattr(m, b.leaf), model, put)
        return model

    def step(state):
        x, Z, w, k, _ = state
        cones = [cone_of(*y, w, weight) for y in zip(learn.blocks, x, nominal, Z, strict=True)]
        r = linear_residuals(learn, R, jnp.concatenate([y.reshape(-1) for y in x]))
        report(progress, k, 0.5 * jnp.sum(r * r))
        d, length = _newton_step(_local(R, cones), r, cones)
        steps = [cone_steps(c, y, z, w) for c, y, z in zip(cones, d, Z, strict=True)]
        a = step_length(steps, Z)
        x = [y + a * linear.einsum("npk,nk->np", c.T, e).reshape(y.shape)
             for y, c, e in zip(x, cones, d, strict=True)]  # fmt: skip
        Z = [rescaled_dual(z + a * dZ, a * D) for z, (D, dZ) in zip(Z, steps, strict=True)]
        done = (w <= weight) & (length < tol)
        traces = sum(jnp.trace(z, axis1=-2, axis2=-1).sum() for z in Z)
        mean = traces / max(sum(z.shape[0] * z.shape[1] for z in Z), 1)
        fall = jnp.maximum(_FALL, 1 - a)  # Short steps show that the border has come too near.
        return x, Z, jnp.maximum(fall * mean, weight), k + 1, done

    def going(state):
        return (state[3] < max_steps) & ~state[4]

    r = linear_residuals(learn, R, learned_values(learn, start))
    w = jnp.maximum(jnp.minimum(jnp.sum(r * r), barrier), weight)
    x = _values(learn, start)
    Z = [w * ones(matrices(b, y)) for b, y in zip(learn.blocks, x, strict=True)]
    state = x, Z, w, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    x, _, _, steps, _ = jax.lax.while_loop(going, step, state)
    return learn.coordinates(robot(x)), steps


def _local(R: Float[Array, "m c"], cones: list[Cone]) -> Float[Array, "m k"]:
    """The coefficients of the residuals in d."""
    parts, at = [], 0
    for c in cones:
        n, p, _ = c.T.shape
        columns = R[:, at : at + n * p].reshape(-1, n, p)
        part = linear.einsum("mnp,npk->mnk", columns, c.T)
        parts.append(part.reshape(len(R), -1))
        at += n * p
    return jnp.concatenate(parts, axis=1)


def _newton_step(
    A: Float[Array, "m k"], r: Float[Array, " m"], cones: list[Cone]
) -> tuple[list[Array], Float[Array, ""]]:
    """The minimum of ``½ |A d + r|² + ½ |rows d + right|²``, and its length by that Hessian."""
    blocks = [x for c in cones for x in c.rows]
    bottom = jax.scipy.linalg.block_diag(*blocks)
    right = jnp.concatenate([c.right.reshape(-1) for c in cones])
    k = A.shape[1]
    both = jnp.concatenate([A, bottom]), jnp.concatenate([r, right])[:, None]
    Q = qr_factor(jnp.concatenate(both, axis=1))
    d = -solve_upper(Q[:k, :k], Q[:k, k:])[:, 0]
    parts, at = [], 0
    for c in cones:
        n, _, size = c.rows.shape
        parts.append(d[at : at + n * size].reshape(n, size))
        at += n * size
    return parts, jnp.sqrt(jnp.sum(Q[:k, k] ** 2))
