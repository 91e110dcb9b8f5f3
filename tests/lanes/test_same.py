"""Equations that say the same are read once, and those that only look alike are not."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rbd_jax as rbd
from rbd_jax.lanes.frontend._read_program import read_program


def operations(f, *args) -> int:
    """How many operations the program of a function has, those inside loops included."""

    def count(block) -> int:
        return sum(1 + sum(map(count, op.blocks)) for op in block.ops)

    closed = jax.make_jaxpr(f)(*args)
    return count(read_program(closed, [False] * len(closed.jaxpr.invars)))


def test_a_loop_that_is_asked_for_again_costs_nothing():
    model = rbd.samples.arm()
    q, v = rbd.neutral(model), jnp.ones(model.nv)
    com = rbd.center_of_mass.__wrapped__
    once = operations(lambda q, v: com(model, q), q, v)
    assert operations(lambda q, v: com(model, q) + com(model, q), q, v) == once + 1
    assert operations(lambda q, v: com(model, q) + com(model, v), q, v) > 1.9 * once


def look_alikes(x, y):
    """Pairs of equations that differ in one thing each."""
    a, b = np.arange(12.0), np.arange(12.0)[::-1].copy()
    each = lambda f, rows: lax.scan(lambda c, r: (f(c, r), c), x, rows)[0]  # noqa: E731
    return (
        x + 0.5, x + 0.25, x * 0.5, x * jnp.nan, x * jnp.inf, x * -jnp.inf,
        each(lambda c, r: c * 0.5 + r, a), each(lambda c, r: c * 0.5 + r, b),
        each(lambda c, r: c * 0.25 + r, a), each(lambda c, r: c * 0.5 - r, a),
        each(lambda c, r: r + 0.1 * lax.cumsum(c), a),
        each(lambda c, r: r + 0.1 * lax.cumsum(c, reverse=True), a),
        x[:2], x[1:], lax.reduce_max(x, (0,)), lax.reduce_min(x, (0,)),
        x.astype(jnp.float32), x.astype(jnp.int32), x - y, y - x, jnp.sum(x, 0) + jnp.sum(y, 0),
        lax.cond(x[0] > 0, lambda: x, lambda: y), lax.cond(x[0] > 0, lambda: y, lambda: x),
        lax.while_loop(lambda s: s[0] < 9, lambda s: s + 1, jnp.abs(x)),
        lax.while_loop(lambda s: s[0] < 9, lambda s: s + 2, jnp.abs(x)),
    )  # fmt: skip


def test_equations_that_differ_in_one_thing_stay_apart():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 3)))
    found = jax.jit(jax.vmap(rbd.lanes(look_alikes, strict=True)))(*x)
    expected = jax.jit(jax.vmap(look_alikes))(*x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
