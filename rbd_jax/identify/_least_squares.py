"""Base parameters from torques in closed form, with their covariance."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._base import BaseParameters


class Estimate(NamedTuple):
    """Base parameters, how certain they are, and what they leave unexplained."""

    value: Float[Array, " r"]
    covariance: Float[Array, "r r"]
    sigma: Float[Array, " nv"]
    """Standard deviation of the torques' noise, estimated or as given (N m, N)."""
    residuals: Float[Array, "N nv"]
    """Measured less explained torques."""

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
    """Weighted linear least squares: ``minimise Σ |(τ − Y_b π_b) / σ|²``.

    Source: Gautier, "Dynamic identification of robots with power model", 1997 (weights by joint);
    the noise of each joint is estimated from its residuals, over its degrees of freedom, a few
    times over. By QR of scaled columns, so that the condition number is not squared.

    Args:
        base: which columns are independent.
        Y: regressors, see :func:`regression`. tau: torques to explain.
        sigma: standard deviations of the noise of each joint; estimated if None.
        sweeps: how often weights are estimated.

    Returns:
        The estimate; its covariance ``(Y_bᵀ Σ⁻¹ Y_b)⁻¹`` is exact for independent normal noise.
    """
    Yb = Y[..., base.independent]
    N, nv, r = Yb.shape
    if N * nv < r:
        raise ValueError(f"least_squares: {N} samples of {nv} torques for {r} base parameters")

    def solve(s: Array):
        W = (Yb / s[None, :, None]).reshape(-1, r)
        length = jnp.sqrt(jnp.sum(W * W, axis=0))
        length = jnp.where(length > 0, length, 1)
        Q, R = jnp.linalg.qr(W / length[None])
        y = jnp.matmul((tau / s[None]).reshape(-1), Q, precision="highest")
        right = jnp.concatenate([y[:, None], jnp.eye(r, dtype=Y.dtype)], axis=1)
        solved = jax.scipy.linalg.solve_triangular(R, right) / length[:, None]
        value, spread = solved[:, 0], solved[:, 1:]
        return value, jnp.matmul(spread, spread.T, precision="highest"), Q

    def residuals(value: Array):
        return tau - jnp.einsum("nvr,r->nv", Yb, value, precision="highest")

    if sigma is None:

        def sweep(s, _):
            value, _, Q = solve(s)
            leverage = jnp.sum((Q * Q).reshape(N, nv, r), axis=(0, 2))
            left = jnp.maximum(N - leverage, 1)
            return jnp.sqrt(jnp.sum(residuals(value) ** 2, axis=0) / left), None

        first = jnp.std(tau, axis=0)
        first = jnp.where(first > 0, first, 1)
        found, _ = jax.lax.scan(sweep, first, None, length=sweeps)
        floor = jnp.finfo(Y.dtype).eps * first  # noiseless data still have weights
        sigma = jnp.maximum(found, floor)
    value, covariance, _ = solve(sigma)
    return Estimate(value, covariance, sigma, residuals(value))
