"""Programs that have derivatives, for every transformation of a program in lanes."""

import jax
import jax.numpy as jnp
from jax import lax

from rbd_jax.lanes import lanes


def smooth(x, y):
    return jnp.sin(x) * jnp.exp(-y * y) + jnp.arctan2(x, 2 + y * y)


def chained(x, y):
    def step(c, row):
        c = c + 0.1 * jnp.sin(c * row)
        return c, jnp.cos(c)

    c, out = lax.scan(step, y[0], x)
    return out * c


def remembered(x, y):
    def step(c, row):
        return jax.checkpoint(lambda a, b: jnp.tanh(a * b) + b)(c, row), c

    return jax.checkpoint(lambda x, y: lax.scan(step, y[0], x)[1])(x, y)


def multiplied(x, y):
    return jnp.tanh(x @ y.T) @ x


def indexed(x, y):
    at = jnp.array([2, 0, 1])
    own = jnp.argmax(x, axis=0)[:3]
    return (
        x[at] * y[own],
        x.at[own].add(y[:3] * x[0]),
        lax.dynamic_slice(x, (own[0], 0), (2, 3)) ** 2,
    )


def pieced(x, y):
    z = jnp.concatenate([x, y[:1]])[::-1]
    return jnp.pad(z, ((1, 0), (0, 0))).T * 2, z.reshape(-1)[2:9] ** 3, jnp.cumsum(z, 0) * z


def decided(x, y):
    z = lax.cond(x[0, 0] > 0, lambda: x * y, lambda: jnp.sin(x))
    return jnp.where(y > 0, z, z * z), jnp.max(z, 0), jnp.linalg.norm(z + 3), jnp.sort(z, 0)[:1]


def repeated(x, y):
    return lax.fori_loop(0, 4, lambda k, a: a * jnp.cos(a) + y, x)


def nested(x, y):
    inner = lanes(lambda a, b: jnp.sin(a) * jnp.sum(b))
    return jax.vmap(inner, (0, None))(x, y), inner(x, y)


def solved(x, y):
    a = x[:3, :3] @ x[:3, :3].T + 3 * jnp.eye(3, dtype=x.dtype)
    l = jnp.linalg.cholesky(a)
    z = jax.scipy.linalg.solve_triangular(l, y[:3], lower=True)
    return z, jnp.linalg.solve(a + jnp.eye(3, k=1, dtype=x.dtype), y[:3, :2]), jnp.linalg.det(a)


SMOOTH = [
    smooth,
    chained,
    remembered,
    multiplied,
    indexed,
    pieced,
    decided,
    repeated,
    nested,
    solved,
]
