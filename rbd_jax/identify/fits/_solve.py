"""What a fit returns, its covariance, and the solver of nonlinear least squares."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...model import Model
from ...model.outcome import RESULTS
from ...spatial import linear
from ...spatial.linear import qr_factor, solve_upper
from .._extras import extra
from .._progress import Progress, report


class Fit(eqx.Module):
    """A fitted robot and how it was found."""

    model: Model
    z: Float[Array, " k"]
    """Coordinates of the fitted robot, see :class:`Parameters`."""
    covariance: Float[Array, "k k"]
    """Covariance of z to first order; with robust losses the asymptotic one of M-estimators.
    Directions that the data do not show have a huge variance."""
    sigma: Float[Array, " n"]
    """Standard deviation of the noise of each joint, as given or as estimated."""
    cost: Float[Array, ""]
    """Sum of the losses of all errors, plus half the sum of squares of the prior."""
    result: RESULTS
    """Whether the fit converged: a step of any single coordinate of z, the others held fixed, can
    lower the cost only if it is shorter than a thousandth of the coordinate's standard deviation
    (a hundredth in float32)."""
    steps: Int[Array, ""]
    """Steps of the solver, in all rounds together."""

    @property
    def converged(self) -> Bool[Array, "*b"]:
        """Whether ``result`` is ``RESULTS.successful``."""
        return self.result == RESULTS.successful


def result_of(
    converged: Bool[Array, ""], cost: Float[Array, ""], steps: Int[Array, ""], max_steps: int
) -> RESULTS:
    """How a fit ended."""
    result = RESULTS.where(steps >= max_steps, RESULTS.max_steps_reached, RESULTS.stalled)
    result = RESULTS.where(jnp.isfinite(cost), result, RESULTS.nonfinite)
    return RESULTS.where(converged & jnp.isfinite(cost), RESULTS.successful, result)


def tolerance(tol: float | None, dtype) -> float:
    """The tolerance of solvers in standard deviations; by default what the dtype allows."""
    return tol or (1e-5 if dtype == jnp.float64 else 1e-3)


def levenberg_marquardt(
    function: Callable[[Array, Any], Array],
    z0: Float[Array, " k"],
    args: Any,
    max_steps: int,
    tol: float | None,
    solver: Any = None,
    progress: Progress | None = None,
) -> tuple[Float[Array, " k"], Int[Array, ""]]:
    """Minimize ``½ |function(z, args)|²`` with optimistix; returns z and the number of steps.

    The Jacobian comes from forward mode through the analytical rules. The unknowns are whitened by
    the Jacobian at the start. So the damping weighs all directions alike, also those that only the
    prior shows, and tolerances are in standard deviations. It never raises an error, so that it may
    be mapped with vmap.
    """
    optimistix = extra("optimistix")
    if solver is None:

        def verbose(**numbers: tuple[str, Array]) -> None:
            report(progress, numbers["num_steps"][1], numbers["loss_last_accepted_step"][1])

        tol = tolerance(tol, z0.dtype)
        solver = optimistix.LevenbergMarquardt(
            rtol=tol, atol=tol, verbose=False if progress is None else verbose
        )
        # By default the damping falls only after nearly perfect predictions. The solver then takes
        # very small steps along directions that the data hardly show.
        search = _trust_region()(high_cutoff=0.5, high_constant=5.0)
        solver = eqx.tree_at(lambda s: s.search, solver, search)
    basis = whitening(jax.jacfwd(function)(z0, args), 1e-10 if z0.dtype == jnp.float64 else 1e-5)

    def at(y: Array) -> Array:
        return z0 + linear.matmul(basis, y)

    # optimistix does not run under the strict promotion settings that a user may have.
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


@cache
def _trust_region() -> type:
    """Optimistix's search, which starts with a step size of JAX's default precision.

    With x64 on, that is not the precision of a robot in float32.
    """
    optimistix = extra("optimistix")

    class TrustRegion(optimistix.ClassicalTrustRegion):
        def init(self, y: Array, f_info_struct: Any) -> Any:
            return jax.tree.map(lambda x: x.astype(y.dtype), super().init(y, f_info_struct))

    return TrustRegion


def column_lengths(jacobian: Float[Array, "n k"]) -> Float[Array, " k"]:
    """Lengths of the columns; 1 for columns that are zero."""
    length = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    return jnp.where(length > 0, length, 1)


def stationary(
    jacobian: Float[Array, "n k"], r: Float[Array, " n"], resolution: float | Array = 0.0
) -> Bool[Array, ""]:
    """Whether every coordinate is within a thousandth of its standard deviation of its best value.

    The test takes one coordinate at a time: ``|J_kᵀ r| ≤ 10⁻³ |J_k|``. Where rounding allows less,
    the bound is what rounding allows. With exact data in float32 it is 10⁻², a few times √ε,
    because fits assume a noise of at least √ε. ``resolution`` is what rounding changes in r, where
    that is known.
    """
    slope = jnp.abs(linear.matmul(r, jacobian / column_lengths(jacobian)[None]))
    eps = jnp.finfo(r.dtype).eps
    rounding = jnp.maximum(30 * eps**0.5, 100 * eps * jnp.sqrt(jnp.sum(r * r)))
    return jnp.all(slope <= jnp.maximum(1e-3, jnp.maximum(rounding, resolution)))


def whitening(jacobian: Float[Array, "n k"], floor: float) -> Float[Array, "k k"]:
    """A matrix B with ``Bᵀ JᵀJ B = 1``, so that ``B Bᵀ = (JᵀJ)⁻¹``.

    The columns of J are first scaled to unit length. Then ``floor`` is added to the eigenvalues of
    JᵀJ, so that directions that J does not show have a length too. B is the inverse of the
    triangular factor of J, so that JᵀJ is never formed, whose rounding would hide directions.
    """
    length, k = column_lengths(jacobian), jacobian.shape[1]
    one = jnp.eye(k, dtype=jacobian.dtype)
    R = qr_factor(jnp.concatenate([jacobian / length[None], floor**0.5 * one]))
    return solve_upper(R, one) / length[:, None]


def covariance_of(jacobian: Float[Array, "n k"]) -> Float[Array, "k k"]:
    """``(JᵀJ)⁻¹``. Directions that J does not show get a huge variance, one over the rounding."""
    B = whitening(jacobian, float(jnp.finfo(jacobian.dtype).eps))
    return linear.matmul(B, B.T)
