"""Rows of arrays by static indices, and rows of several groups put back in order."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def take_rows(x: Array, index: np.ndarray) -> Array:
    """``x[index]`` for a static index; a slice of x, or x itself, where that is enough."""
    flat = index.reshape(-1)
    n = len(flat)
    if n and np.array_equal(flat, np.arange(flat[0], flat[0] + n)):
        x = x if n == x.shape[0] else jax.lax.slice_in_dim(x, int(flat[0]), int(flat[0]) + n)
        return x.reshape(*index.shape, *x.shape[1:])
    # JAX keeps an index of 64 bits, and does not trace it again where x64 has been switched off
    return x[index.astype(np.int32)]


def merge_rows(parts: list[tuple[np.ndarray, Array]], like: Array) -> Array:
    """Put the rows of several groups back in order: the inverse of :func:`take_rows`."""
    if not parts:
        return like
    index = np.concatenate([i.reshape(-1) for i, _ in parts])
    rows = [v.reshape(i.size, *v.shape[i.ndim :]) for i, v in parts]
    stacked = rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    return take_rows(stacked, np.argsort(index))
