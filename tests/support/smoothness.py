"""Whether values are real numbers, which have derivatives."""

import jax
import jax.numpy as jnp


def is_smooth(x) -> bool:
    """Whether all arrays of a pytree are real."""
    return all(jnp.issubdtype(y.dtype, jnp.floating) for y in jax.tree.leaves(x))
