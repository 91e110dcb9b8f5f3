"""Numbers between bounds, with derivatives that hold at the bounds too."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def clamp(x: Array, low: Array | float | int, high: Array | float | int) -> Float[Array, "..."]:
    """``x`` between ``low`` and ``high``, as :func:`jnp.clip` has it.

    At a bound, the derivative is that of x, which is the one from inside. ``jnp.clip`` takes the
    mean of both sides there, which neither side has. Where both bounds are equal, nothing is
    inside, and the derivative is that of the bound: dry friction of no size holds nothing, also
    where nothing moves.
    """
    below = (x < low) | ((x == low) & (low == high))
    return jnp.where(below, low, jnp.where(x > high, high, x))
