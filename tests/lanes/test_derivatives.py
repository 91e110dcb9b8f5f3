"""Derivatives of programs in lanes, and long programs, against XLA."""

import jax
import jax.numpy as jnp
import pytest
from support.lane_programs import agree, numbers
from support.lane_smooth_programs import SMOOTH

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def ruled(x, y):
    f = jax.custom_jvp(jnp.sin)
    f.defjvps(lambda t, out, a: 2 * t * jnp.cos(a))
    g = jax.custom_vjp(lambda a: a * a)
    g.defvjp(lambda a: (a * a, a), lambda a, t: (3 * t * a,))
    return g(x) * y, f(x) if x.shape[0] == 3 else x


def test_long_programs():
    """Hundreds of operations, one after the other: neither deep recursions nor long searches."""

    def f(x):
        a = b = c = d = x
        for _ in range(300):
            a = a * 0.5 + 1
            b = b[::-1]
        for k in range(30):
            c = jnp.concatenate([c[1:], c[::-1]])[: c.shape[0]]
            d = d.at[k % 3].add(d[(k + 1) % 3]) * 0.5
        return a, jnp.sin(a).sum(0), b, c, d

    for rows in (3, 9):
        agree(f, numbers((rows, 4), "float32", 1, 9), sizes=(9,))


def total(f):
    return lambda x, y: sum(jnp.sum(z * z) for z in jax.tree.leaves(f(x, y)))


TRANSFORMS = {
    "jvp": lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x))[1],
    "vjp": lambda f: lambda x, y: jax.vjp(f, x, y)[1](f(x, y)),
    "jacfwd": lambda f: jax.jacfwd(f, 1),
    "jacrev": lambda f: jax.jacrev(f),
    "hessian": lambda f: jax.hessian(total(f)),
}


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("f", SMOOTH)
def test_derivatives(f, kind):
    """Of the function in lanes, and in lanes."""
    x, y = (numbers((6 if kind == "vjp" else 4, 4), "float64", seed, 9) for seed in (1, 2))
    agree(f, x, y, sizes=(9,), tolerance=1e-10, transform=TRANSFORMS[kind])
    if kind in ("vjp", "hessian"):
        agree(TRANSFORMS[kind](f), x, y, sizes=(9,), tolerance=1e-10)


def test_rules_of_others():
    x, y = (numbers((4, 4), "float64", seed, 9) for seed in (1, 2))
    agree(ruled, x, y, sizes=(9,), transform=TRANSFORMS["vjp"])
