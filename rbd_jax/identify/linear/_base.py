"""Base parameters: the combinations of parameters that torques depend on, and their estimate.

The factorization runs on the host in NumPy: what is identifiable is a property of a robot and is
not differentiated. The estimate from torques, :func:`least_squares`, runs in JAX.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...spatial import linear
from ...spatial.linear import qr_factor, solve_upper
from .._extras import extra


class BaseParameters(NamedTuple):
    """The minimal parameters ``π_b = B θ``, with ``Y θ = Y[:, independent] π_b``."""

    names: tuple[str, ...]
    """Names of the parameters θ."""
    independent: np.ndarray
    """For each base parameter the parameter that has coefficient 1 in it, (r,)."""
    B: np.ndarray
    """Coefficients of the base parameters in θ, (r, p)."""
    nullspace: np.ndarray
    """Orthonormal directions of θ that do not change any torque, (p, p − r)."""

    @property
    def count(self) -> int:
        """Number of base parameters, which is the rank of the regressor."""
        return len(self.independent)

    def combinations(self, tol: float = 1e-9) -> tuple[str, ...]:
        """Each base parameter as text: ``Izz:upper + 0.25 m:lower …``."""

        def words(row):
            used = sorted(np.flatnonzero(np.abs(row) > tol), key=lambda k: abs(row[k] - 1) > tol)
            terms = [f"{row[k]:+.4g} {self.names[k]}".replace("+1 ", "+ ") for k in used]
            return " ".join(terms).removeprefix("+").strip()

        return tuple(words(row) for row in self.B)

    def verdicts(self, tol: float = 1e-7) -> tuple[str, ...]:
        """For each parameter ``"identifiable"``, ``"in combination"`` or ``"not identifiable"``."""
        hidden = np.sum(self.nullspace**2, axis=1)  # squared length within the null space
        return tuple(
            "identifiable" if h < tol else "not identifiable" if h > 1 - tol else "in combination"
            for h in hidden
        )


def default_tolerance(dtype: np.dtype) -> float:
    """The relative tolerance of ranks: above the rounding errors of numbers of this type."""
    return 1e-5 if dtype == np.float32 else 1e-9


def numerical_base_parameters(
    Y: np.ndarray, names: tuple[str, ...], tol: float | None = None
) -> BaseParameters:
    """Base parameters from a regressor of many samples, by singular values.

    A parameter that the recorded motion does not excite counts as not identifiable. Columns are
    scaled to unit length. Singular values below ``tol`` times the greatest one count as zero. The
    result is NumPy and is not differentiable.

    Args:
        Y: regressors of the samples, (…, p).
        names: names of the p parameters.
        tol: relative tolerance. None stands for 1e-9, or 1e-5 for regressors in float32, whose
            rounding errors give singular values of 1e-7 to 2e-6.
    """
    tol = tol or default_tolerance(np.asarray(Y).dtype)
    Y = np.asarray(Y, dtype=float).reshape(-1, len(names))
    R = np.linalg.qr(Y, mode="r")
    length = np.linalg.norm(R, axis=0)
    excited = length > tol * length.max(initial=0)
    scale = np.where(excited, length, 1)
    _, s, Vt = np.linalg.svd(np.where(excited, R / scale, 0), full_matrices=True)
    rank = int(np.sum(s > tol * s.max(initial=0)))
    N = Vt[rank:].T / scale[:, None]
    return from_nullspace(names, np.linalg.qr(N)[0] if N.size else N.reshape(len(names), 0))


def from_nullspace(names: tuple[str, ...], N: np.ndarray) -> BaseParameters:
    """B from the null space N, by a QR factorization of Nᵀ with pivoting.

    The pivots are the dependent parameters.
    """
    p, k = N.shape
    if k == 0:
        return BaseParameters(names, np.arange(p), np.eye(p), N)
    _, _, order = extra("scipy.linalg").qr(N.T, pivoting=True, mode="economic")
    dependent, independent = np.sort(order[:k]), np.sort(order[k:])
    # θ and θ + N y give the same torques. Choose y so that the dependent parameters become zero.
    coefficients = -np.linalg.solve(N[dependent].T, N[independent].T).T
    B = np.zeros((p - k, p))
    B[np.arange(p - k), independent] = 1
    B[:, dependent] = coefficients
    B[np.abs(B) < 1e-12] = 0
    return BaseParameters(names, independent, B, N)


class Estimate(NamedTuple):
    """Estimated base parameters, their covariance, and the residual torques."""

    value: Float[Array, " r"]
    covariance: Float[Array, "r r"]
    sigma: Float[Array, " nv"]
    """Standard deviation of the torque noise of each joint, estimated or as given (N m, N)."""
    residuals: Float[Array, "N nv"]
    """Measured torques minus predicted torques (N m, N)."""

    @property
    def deviation(self) -> Float[Array, " r"]:
        """Standard deviations of the base parameters."""
        return jnp.sqrt(jnp.diagonal(self.covariance))


def least_squares(
    base: BaseParameters,
    Y: Float[Array, "N nv p"],
    tau: Float[Array, "N nv"],
    sigma: Float[Array, " nv"] | None = None,
    *,
    sweeps: int = 4,
) -> Estimate:
    """Weighted linear least squares: ``minimize Σ |(τ − Y_b π_b) / σ|²``.

    Columns are scaled and the problem is solved by QR, so that the condition number is not squared.
    Derivatives are those of autodiff.

    Source: Gautier, "Dynamic identification of robots with power model", 1997 (one weight a
    joint). The noise of each joint is estimated from its residuals, with a correction for the
    fitted parameters, in a few sweeps.

    Args:
        base: which columns are independent.
        Y: regressors, see :func:`regression`.
        tau: torques to predict (N m, N).
        sigma: standard deviations of the torque noise of each joint (N m, N); estimated if None.
        sweeps: number of sweeps that estimate the noise.

    Returns:
        The estimate. Its covariance ``(Y_bᵀ Σ⁻¹ Y_b)⁻¹`` is exact for independent normal noise.

    Raises:
        ValueError: for fewer equations than base parameters.
    """
    Yb = Y[..., base.independent]
    N, nv, r = Yb.shape
    if N * nv < r:
        raise ValueError(
            f"least_squares: {N} samples of {nv} torques are too few for {r} base parameters"
        )

    def solve(s: Array):
        W = (Yb / s[None, :, None]).reshape(-1, r)
        length = jnp.sqrt(jnp.sum(W * W, axis=0))
        length = jnp.where(length > 0, length, 1)
        W = W / length[None]
        R = qr_factor(jnp.concatenate([W, (tau / s[None]).reshape(-1, 1)], axis=1))
        right = jnp.concatenate([R[:r, r:], jnp.eye(r, dtype=Y.dtype)], axis=1)
        solved = solve_upper(R[:r, :r], right)
        Q = linear.matmul(W, solved[:, 1:])
        solved = solved / length[:, None]
        value, spread = solved[:, 0], solved[:, 1:]
        return value, linear.matmul(spread, spread.T), Q

    def residuals(value: Array):
        return tau - linear.einsum("nvr,r->nv", Yb, value)

    if sigma is None:

        def sweep(s, _):
            value, _, Q = solve(s)
            leverage = jnp.sum((Q * Q).reshape(N, nv, r), axis=(0, 2))
            freedom = jnp.maximum(N - leverage, 1)
            return jnp.sqrt(jnp.sum(residuals(value) ** 2, axis=0) / freedom), None

        first = jnp.std(tau, axis=0)
        first = jnp.where(first > 0, first, 1)
        found, _ = jax.lax.scan(sweep, first, None, length=sweeps)
        floor = jnp.finfo(Y.dtype).eps * first  # Data without noise need finite weights too.
        sigma = jnp.maximum(found, floor)
    value, covariance, _ = solve(sigma)
    return Estimate(value, covariance, sigma, residuals(value))
