"""Gauss–Newton models of residuals, without the products of what is known to be zero.

The residuals of a problem are mostly joined out of parts of which each depends on little: the state
alone, the controls alone, the contact forces alone. Which these parts are is read off the program
of the function.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, Float

Block = Float[Array, "i j"] | None
"""A block of a matrix; None is zero."""


class Quadratic(NamedTuple):
    """``lx·x + lu·u + ½ (x, u)ᵀ L (x, u)``. The final cost has no u."""

    x: Float[Array, "*T n"]
    u: Float[Array, "*T m"]
    xx: Float[Array, "*T n n"]
    ux: Float[Array, "*T m n"]
    uu: Float[Array, "*T m m"]


def gauss_newton_blocks(
    residuals: Callable[..., Float[Array, " r"]], at: Iterable[Float[Array, " i"]]
) -> tuple[list[Float[Array, " i"]], list[list[Block]]]:
    """Gradient and Gauss–Newton Hessian of ``½ rᵀ r``, for arguments that are vectors.

    Returns:
        ``(g, H)``: of each argument its gradient, and for each pair of arguments ``Σ Jᵢᵀ Jⱼ`` over
        the parts of r that depend on both.
    """
    at = list(at)
    parts, depends = _apart(residuals, at)
    values, n = parts(*at), range(len(at))

    def slopes(k: int) -> dict[int, Array]:
        mine = [p for p, d in enumerate(depends) if k in d]

        def of(x):
            out = parts(*at[:k], x, *at[k + 1 :])
            return [out[p] for p in mine]

        return dict(zip(mine, jax.jacfwd(of)(at[k]), strict=True)) if mine and at[k].size else {}

    J = [slopes(k) for k in n]
    g = [summed(*[_times(J[k][p].T, values[p]) for p in J[k]]) for k in n]
    g = [jnp.zeros_like(x) if y is None else y for x, y in zip(at, g, strict=True)]

    def product(i: int, j: int) -> Block:
        both = [(J[i][p], J[j][p]) for p in J[i] if p in J[j]]
        return summed(*[mirrored(a, b) if i == j else _times(a.T, b) for a, b in both])

    low = [[product(i, j) for j in range(i + 1)] for i in n]
    return g, [[low[i][j] if j <= i else _transposed(low[j][i]) for j in n] for i in n]


def dense(
    H: list[list[Block]], sizes: Iterable[int], dtype, heights: Iterable[int] | None = None
) -> Float[Array, "n m"]:
    """The matrix of the blocks; ``sizes`` are their widths, and their heights if these are None."""
    sizes = list(sizes)
    heights = sizes if heights is None else heights
    rows = [
        jnp.concatenate(
            [jnp.zeros((a, b), dtype) if x is None else x for b, x in zip(sizes, row, strict=True)],
            axis=1,
        )
        for a, row in zip(heights, H, strict=True)
    ]
    return jnp.concatenate(rows)


def _apart(f: Callable, at: list[Array]) -> tuple[Callable, list[set[int]]]:
    """A function of the parts that f joins, and which arguments each part depends on."""
    closed = jax.make_jaxpr(f)(*at)
    jaxpr = closed.jaxpr
    made = {v: e for e in jaxpr.eqns for v in e.outvars}

    def joined(v) -> list:
        e = None if isinstance(v, Literal) else made.get(v)
        if e is None or e.primitive.name != "concatenate":
            return [v]
        return [part for x in e.invars for part in joined(x)]

    def arguments(v) -> set[int]:
        seen, waiting = set(), [v]
        while waiting:
            x = waiting.pop()
            if isinstance(x, Literal) or x in seen:
                continue
            seen.add(x)
            waiting += made[x].invars if x in made else []
        return {k for k, x in enumerate(jaxpr.invars) if x in seen}

    outs = joined(jaxpr.outvars[0])

    def parts(*args):
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
        value = lambda v: v.val if isinstance(v, Literal) else env[v]  # noqa: E731
        for e in jaxpr.eqns:
            out = e.primitive.bind(*map(value, e.invars), **e.primitive.get_bind_params(e.params))
            env.update(zip(e.outvars, out if e.primitive.multiple_results else [out], strict=True))
        return [value(v) for v in outs]

    return parts, [arguments(v) for v in outs]


def summed(*terms: Block) -> Block:
    """The sum of those that are not zero."""
    there = [x for x in terms if x is not None]
    return sum(there[1:], start=there[0]) if there else None


def mirrored(A: Float[Array, "k n"], B: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """``Aᵀ B`` where this is symmetric; of large matrices one of two equal blocks is computed."""
    n = A.shape[1]
    if n < 32:
        X = _times(A.T, B)
        return 0.5 * (X + X.T)
    k = n // 2
    low = _times(A[:, k:].T, B[:, :k])
    upper = jnp.concatenate([mirrored(A[:, :k], B[:, :k]), low.T], axis=1)
    lower = jnp.concatenate([low, mirrored(A[:, k:], B[:, k:])], axis=1)
    return jnp.concatenate([upper, lower])


def _transposed(x: Array | None) -> Array | None:
    return None if x is None else x.T


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
