"""Nonlinear least squares: the solver, robust losses, and what a fit returns."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..model import Model
from ..spatial import inertia
from ._charts import InEllipsoid, LogCholesky, Positive
from ._extras import extra
from ._parameters import Parameters
from ._physical import entropic_residuals, entropic_root, upper_cholesky

LOSSES = ("squares", "huber", "cauchy")
_HUBER, _CAUCHY = 1.345, 2.385  # 95 % efficient where the noise is normal after all


class Fit(eqx.Module):
    """A fitted robot and how it was found."""

    model: Model
    z: Float[Array, " k"]
    """Its coordinates, see :class:`Parameters`."""
    covariance: Float[Array, "k k"]
    """Of z, to first order; directions that the data do not show have a huge variance."""
    sigma: Float[Array, " n"]
    """Standard deviation of the noise of each joint, as given or estimated."""
    cost: Float[Array, ""]
    """Half the sum of squares of the residuals, the prior included."""
    converged: Array
    """Whether no coordinate of z would lower the cost by a step of a thousandth of its standard
    deviation (in float32 a hundredth), others held (bool)."""
    steps: Int[Array, ""]


def robust(loss: str, r: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Residuals whose squares are the loss of the standardised residuals r; odd and smooth.

    ``"huber"``: ``2 δ² (√(1 + (r/δ)²) − 1)``, growing like |r|; ``"cauchy"``:
    ``δ² log(1 + (r/δ)²)``, growing like log |r|.
    """
    if loss == "huber":
        return r * jnp.sqrt(2 / (1 + jnp.sqrt(1 + (r / _HUBER) ** 2)))
    if loss == "cauchy":
        x = (r / _CAUCHY) ** 2
        small = x < 1e-4
        far = jnp.where(small, 1, x)
        ratio = jnp.where(small, 1 - x / 2 + x * x / 3, jnp.log1p(far) / far)
        return r * jnp.sqrt(ratio)
    if loss != "squares":
        raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}")
    return r


def tolerance(tol: float | None, dtype) -> float:
    """Of solvers, in standard deviations; what float32 and float64 allow if None."""
    return tol or (1e-5 if dtype == jnp.float64 else 1e-3)


def prior_weight(prior: float, dtype) -> float:
    """The weight of the prior, at least a tiny one: what no data show is then told by it."""
    return max(float(prior), 1e-6, float(jnp.finfo(dtype).eps) ** 0.5)


def prior_residuals(
    learn: Parameters, z: Float[Array, " k"], model: Model, weight: float
) -> Float[Array, " m"]:
    """``√weight`` times those of the entropic distance of all inertias and positive numbers learnt.

    A weight w says that they are as far from the nominal ones as w⁻¹ᐟ² in relative terms. The
    coordinates of other charts are held by the least weight alone: of all robots that fit equally
    well, the one nearest to the nominal one is the best.
    """
    parts, at = [jnp.zeros((0,), model.dtype)], 0
    for block in learn.blocks:
        rows, here = np.array(block.rows, np.int32), slice(at, at := at + len(block.names))
        if isinstance(block.chart, (LogCholesky, InEllipsoid)):
            U0 = upper_cholesky(inertia.pseudo(learn.nominal.inertia[rows]))
            parts.append(weight**0.5 * entropic_residuals(U0, model.inertia[rows]).reshape(-1))
        elif isinstance(block.chart, Positive):
            old, new = (getattr(m, block.leaf)[rows] for m in (learn.nominal, model))
            parts.append(weight**0.5 * entropic_root(0.5 * jnp.log(new / old)))
        else:
            least = prior_weight(0.0, z.dtype)
            parts.append(least**0.5 * (z[here] - block.coordinates(learn.nominal)))
    return jnp.concatenate(parts)


def levenberg_marquardt(
    function: Callable[[Array, Any], Array],
    z0: Float[Array, " k"],
    args: Any,
    max_steps: int,
    tol: float | None,
    solver: Any = None,
) -> tuple[Array, Array]:
    """Minimise ``½ |function(z, args)|²``: z and the number of steps.

    The Jacobian is that of forward mode through the analytical rules. Unknowns are whitened by
    that of the start, so that the damping weighs all directions alike, those too that only a prior
    shows, and tolerances are in units of a standard deviation. Nothing is raised, so that this may
    be mapped.
    """
    optimistix = extra("optimistix")
    if solver is None:
        tol = tolerance(tol, z0.dtype)
        solver = optimistix.LevenbergMarquardt(rtol=tol, atol=tol)
        # damping that only falls after nearly perfect predictions, as is its default, crawls
        # along what the data hardly show
        search = optimistix.ClassicalTrustRegion(high_cutoff=0.5, high_constant=5.0)
        solver = eqx.tree_at(lambda s: s.search, solver, search)
    basis = whitening(jax.jacfwd(function)(z0, args), 1e-10 if z0.dtype == jnp.float64 else 1e-5)

    def at(y: Array) -> Array:
        return z0 + jnp.matmul(basis, y, precision="highest")

    # solvers are not written for the strict settings that a user may have
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = optimistix.least_squares(
            lambda y, args: function(at(y), args),
            solver,
            jnp.zeros_like(z0),
            args,
            max_steps=max_steps,
            throw=False,
        )
    return at(found.value), jnp.asarray(found.stats["num_steps"], jnp.int32)


def lengths(jacobian: Float[Array, "n k"]) -> Float[Array, " k"]:
    """Of the columns; 1 for those that are zero."""
    length = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    return jnp.where(length > 0, length, 1)


def stationary(jacobian: Float[Array, "n k"], r: Float[Array, " n"]) -> Array:
    """Whether every coordinate is within a thousandth of its standard deviation of the best (bool).

    Said of one coordinate at a time: ``|J_kᵀ r| ≤ 10⁻³ |J_k|``, or what rounding leaves of it: of
    exact data 10⁻² in float32, a few times √ε, since no smaller noise than √ε is believed.
    """
    slope = jnp.abs(jnp.matmul(r, jacobian / lengths(jacobian)[None], precision="highest"))
    eps = jnp.finfo(r.dtype).eps
    rounding = jnp.maximum(30 * eps**0.5, 100 * eps * jnp.sqrt(jnp.sum(r * r)))
    return jnp.all(slope <= jnp.maximum(1e-3, rounding))


def whitening(jacobian: Float[Array, "n k"], floor: float) -> Float[Array, "k k"]:
    """A matrix B with ``Bᵀ JᵀJ B = 1``, and ``B Bᵀ = (JᵀJ)⁻¹``.

    Eigenvalues below ``floor`` of the greatest, once columns have unit length, are raised to it.
    """
    length = lengths(jacobian)
    J = jacobian / length[None]
    values, vectors = jnp.linalg.eigh(jnp.matmul(J.T, J, precision="highest"))
    least = floor * jnp.max(values, initial=1)
    return vectors / length[:, None] / jnp.sqrt(jnp.maximum(values, least))[None]


def covariance_of(jacobian: Float[Array, "n k"]) -> Float[Array, "k k"]:
    """``(JᵀJ)⁻¹``; directions that J does not show get the variance of one over rounding."""
    B = whitening(jacobian, float(jnp.finfo(jacobian.dtype).eps))
    return jnp.matmul(B, B.T, precision="highest")
