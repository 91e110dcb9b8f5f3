"""Comparing a function's batches in lanes with XLA's."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.lanes import lanes

SIZES = (0, 1, 7, 8, 9, 1000)
ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5)


def numbers(shape, dtype, seed=0, samples=1000, odd=False):
    """Samples of random numbers, some of them NaN, infinite or whole if they are to be odd."""
    rng = np.random.default_rng(seed + sum(shape))
    shape, dtype = (samples, *shape), np.dtype(dtype)
    if dtype.kind == "b":
        return jnp.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -5
        x = rng.integers(low, 6, shape).astype(dtype)
        if odd:
            info = np.iinfo(dtype)
            x = np.where(rng.random(shape) < 0.1, info.min, x)
            x = np.where(rng.random(shape) < 0.1, info.max, x)
        return jnp.asarray(x.astype(dtype))
    x = rng.normal(size=shape)
    if odd:
        x = np.where(rng.random(shape) < 0.4, rng.choice(ODD, shape), x)
    return jnp.asarray(x.astype(dtype))


def close(found, wanted, name="", tolerance=None):
    """The same NaN and infinities, and numbers that agree to rounding.

    In JAX's default mode there are only float32 arrays; tolerances are not below their rounding.
    """
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, name)
        return
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = min(finite.max(initial=0.0), 1e30)
    eps = tolerance or 30 * np.finfo(found.dtype).eps
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        eps = max(eps, 100 * np.finfo(found.dtype).eps)
    np.testing.assert_allclose(found, wanted, rtol=eps, atol=eps * scale, err_msg=name)


def agree(f, *args, axes=0, sizes=SIZES, tolerance=None, transform=lambda f: f):
    """The batches of a function in lanes agree with those of XLA, at every size."""
    axes = (axes,) * len(args) if not isinstance(axes, tuple) else axes
    wanted = jax.jit(jax.vmap(transform(f), axes))(*args)
    mapped = jax.jit(jax.vmap(transform(lanes(f, strict=True)), axes))
    for n in sizes:
        part = [a if k is None else a[:n] for a, k in zip(args, axes, strict=True)]
        found = mapped(*part)
        compare = partial(_compare, n, tolerance)
        jax.tree_util.tree_map_with_path(compare, found, wanted)


def _compare(n, tolerance, path, found, wanted):
    if np.dtype(wanted.dtype).kind in "fiub":
        close(found, wanted[:n], f"{jax.tree_util.keystr(path)} of {n}", tolerance)
