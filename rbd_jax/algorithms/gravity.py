"""Gravity as an acceleration of the world. Source: Kim, footnote 6 (V̇₀ against gravity)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model


def base_acceleration(model: Model) -> Float[Array, "6"]:
    """The fictitious twist rate ``(0, −g)`` of the world that replaces gravity."""
    return jnp.concatenate([jnp.zeros_like(model.gravity), -model.gravity])
