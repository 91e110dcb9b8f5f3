"""The scalar functions of x = θ² that exp, log and their Jacobians are made of.

Each one is a Taylor polynomial near zero and a closed form elsewhere. Both branches get an argument
at which they are finite, so that first and second derivatives, in forward and reverse mode, are
right at zero too.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

_SWITCH = 1.0  # in x = θ²; nine Taylor terms are exact to 1e-16 below it


def _piecewise(
    x: Float[Array, "..."], coefficients: list[float], closed: Callable
) -> Float[Array, "..."]:
    small = x < _SWITCH
    x_taylor = jnp.where(small, x, jnp.zeros_like(x))
    x_closed = jnp.where(small, jnp.full_like(x, _SWITCH), x)
    taylor = jnp.zeros_like(x)
    for c in reversed(coefficients):
        taylor = taylor * x_taylor + c
    return jnp.where(small, taylor, closed(x_closed))


def _series(offset: int) -> list[float]:
    return [(-1) ** k / math.factorial(2 * k + offset) for k in range(10)]


def cos_theta(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``cos θ`` as a function of ``x = θ²``."""
    return _piecewise(x, _series(0), lambda y: jnp.cos(jnp.sqrt(y)))


def sinc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``sin θ / θ``."""

    def closed(y):
        t = jnp.sqrt(y)
        return jnp.sin(t) / t

    return _piecewise(x, _series(1), closed)


def cosc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``(1 − cos θ) / θ²``."""
    return _piecewise(x, _series(2), lambda y: (1 - jnp.cos(jnp.sqrt(y))) / y)


def sinc3(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``(θ − sin θ) / θ³``."""

    def closed(y):
        t = jnp.sqrt(y)
        return (t - jnp.sin(t)) / (t * y)

    return _piecewise(x, _series(3), closed)


def cosc4(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``(θ²/2 + cos θ − 1) / θ⁴``."""
    return _piecewise(x, _series(4), lambda y: (0.5 - cosc(y)) / y)


def sinc5(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``(θ³/6 − θ + sin θ) / θ⁵``."""
    return _piecewise(x, _series(5), lambda y: (1 / 6 - sinc3(y)) / y)


_BERNOULLI = [
    1 / 12,
    1 / 720,
    1 / 30240,
    1 / 1209600,
    1 / 47900160,
    691 / 1307674368000,
    1 / 74724249600,
    3617 / 10670622842880000,
    43867 / 5109094217170944000,
    174611 / 802857662698291200000,
]


def cotc(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``1/θ² − (1 + cos θ) / (2 θ sin θ)``, the last coefficient of dexp⁻¹; for θ < 2π."""

    def closed(y):
        half = 0.5 * jnp.sqrt(y)
        return (1 - half * jnp.cos(half) / jnp.sin(half)) / y

    return _piecewise(x, _BERNOULLI, closed)


def two_atanc(w: Float[Array, "..."], n2: Float[Array, "..."]) -> Float[Array, "..."]:
    """``2 atan2(n, w) / n`` with ``n = √n2``, for ``w ≥ 0`` and ``w² + n2 = 1``."""
    small = n2 < 0.04
    one = jnp.ones_like(w)
    w_s, n2_s = jnp.where(small, w, one), jnp.where(small, n2, jnp.zeros_like(n2))
    y = n2_s / (w_s * w_s)
    taylor = jnp.zeros_like(y)
    for k in reversed(range(12)):
        taylor = taylor * y + (-1) ** k / (2 * k + 1)
    n = jnp.sqrt(jnp.where(small, one, n2))
    return jnp.where(small, 2 * taylor / w_s, 2 * jnp.arctan2(n, w) / n)
