"""Losses of standardized errors: least squares, and two robust losses for data with outliers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LOSSES = ("squares", "huber", "cauchy")
# With these widths a fit is 95 % as efficient as least squares if the noise is normal after all.
_HUBER, _CAUCHY = 1.345, 2.385


def check_loss(loss: str) -> None:
    """Raise ValueError for an unknown loss."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}")


def loss_root(loss: str, r: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Numbers whose squares are twice the loss of the standardized errors r; odd and smooth in r.

    ``"huber"`` is the smooth form ``δ² (√(1 + (r/δ)²) − 1)``, which grows like |r|. ``"cauchy"`` is
    ``½ δ² log(1 + (r/δ)²)``, which grows like log |r|.
    """
    if loss == "huber":
        return r * jnp.sqrt(2 / (1 + jnp.sqrt(1 + (r / _HUBER) ** 2)))
    if loss == "cauchy":
        x = (r / _CAUCHY) ** 2
        small = x < 1e-4
        far = jnp.where(small, 1, x)
        ratio = jnp.where(small, 1 - x / 2 + x * x / 3, jnp.log1p(far) / far)
        return r * jnp.sqrt(ratio)
    return r


def loss_weight(loss: str, r: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The weight ``w(r) = ρ'(r) / r`` of iteratively reweighted least squares, between 0 and 1.

    Source: Holland, Welsch, "Robust regression using iteratively reweighted least-squares", 1977.
    The weighted squares ``½ w(r₀) r²`` touch the loss at r₀ and lie above it elsewhere.
    """
    if loss == "huber":
        return 1 / jnp.sqrt(1 + (r / _HUBER) ** 2)
    if loss == "cauchy":
        return 1 / (1 + (r / _CAUCHY) ** 2)
    return jnp.ones_like(r)


def loss_efficiency(loss: str, r: Float[Array, "N n"]) -> Float[Array, " n"]:
    """The information of one error of each column, relative to that of normal noise; at most 1.

    Source: the asymptotic covariance of M-estimators, Huber, "Robust statistics", 1981, chapter 7:
    with ψ = ρ', the information is multiplied by ``(mean ψ')² / mean ψ²``.
    """
    if loss == "squares":
        return jnp.ones_like(r[0])
    psi, slope = jax.jvp(lambda r: r * loss_weight(loss, r), (r,), (jnp.ones_like(r),))
    square = jnp.mean(psi**2, axis=0)
    ratio = jnp.mean(slope, axis=0) ** 2 / jnp.where(square > 0, square, 1)
    return jnp.where(square > 0, jnp.minimum(ratio, 1), 1)
