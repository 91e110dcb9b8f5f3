"""Gauss–Newton models of residuals, without the products of what is known to be zero.

The residuals of a problem are mostly joined out of parts of which each depends on little: the state
alone, the controls alone, the contact forces alone. Which these parts are is read off the program
of the function.
"""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, Float

from ...spatial import linear

Block = Float[Array, "_ _"] | None
"""A block of a matrix; None is zero."""


_ELEMENTWISE = {
    "add", "sub", "mul", "div", "neg", "abs", "max", "min", "sqrt", "square", "integer_pow", "exp",
    "log", "log1p", "sin", "cos", "tanh", "logistic", "convert_element_type", "copy", "add_any",
}  # fmt: skip
"""Operations whose results depend entry by entry on their arguments."""
_WHOLE = 31
"""The largest symmetric product that is computed whole, where the parts would be too small."""


def gauss_newton_blocks(
    residuals: Callable[..., Float[Array, " r"]], at: Iterable[Float[Array, " _"]]
) -> tuple[list[Float[Array, " _"]], list[list[Block]]]:
    """Gradient and Gauss–Newton Hessian of ``½ rᵀ r``, for arguments that are vectors.

    Returns:
        ``(g, H)``: of each argument its gradient, and for each pair of arguments ``Σ Jᵢᵀ Jⱼ`` over
        the parts of r that depend on both.
    """
    at = list(at)
    parts, depends = _apart(residuals, at)
    values, n = parts(*at), range(len(at))

    def slopes(k: int) -> dict[int, Array]:
        """Jacobians of the parts that depend on argument k, the diagonals alone if diagonal."""
        found: dict[int, Array] = {}
        for alone in (True, False):
            mine = [p for p, d in enumerate(depends) if d.get(k) == alone]

            def of(x, mine=mine):
                out = parts(*at[:k], x, *at[k + 1 :])
                return [out[p] for p in mine]

            if mine and at[k].size:
                ones = jnp.ones_like(at[k])
                J = jax.jvp(of, (at[k],), (ones,))[1] if alone else jax.jacfwd(of)(at[k])
                found |= dict(zip(mine, J, strict=True))
        return found

    def product(i: int, j: int) -> Block:
        both = [(J[i][p], J[j][p]) for p in J[i] if p in J[j]]
        return summed(*[_inner(a, b, i == j) for a, b in both])

    J = [slopes(k) for k in n]
    g = [summed(*[_inner(J[k][p], values[p][:, None], False)[:, 0] for p in J[k]]) for k in n]
    g = [jnp.zeros_like(x) if y is None else y for x, y in zip(at, g, strict=True)]
    low = [[product(i, j) for j in range(i + 1)] for i in n]
    return g, [[low[i][j] if j <= i else _transposed(low[j][i]) for j in n] for i in n]


def _inner(A: Array, B: Array, symmetric: bool) -> Array:
    """``Aᵀ B``, where vectors are diagonal matrices."""
    if A.ndim == B.ndim == 1:
        return jnp.diag(A * B)
    if A.ndim == 1:
        return A[:, None] * B
    if B.ndim == 1:
        return A.T * B[None]
    return mirrored(A, B) if symmetric else linear.matmul(A.T, B)


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


def _apart(f: Callable, at: list[Array]) -> tuple[Callable, list[dict[int, bool]]]:
    """A function of the parts that f joins, and which arguments each part depends on.

    An argument is marked as true if each entry of the part depends on the same entry of it alone.
    """
    closed = jax.make_jaxpr(f)(*at)
    jaxpr = closed.jaxpr
    made = {v: e for e in jaxpr.eqns for v in e.outvars}

    def joined(v) -> list:
        e = None if isinstance(v, Literal) else made.get(v)
        if e is None or e.primitive.name != "concatenate":
            return [v]
        return [part for x in e.invars for part in joined(x)]

    depends: dict = {v: {} for v in jaxpr.constvars}
    depends |= {v: {k: True} for k, v in enumerate(jaxpr.invars)}
    for e in jaxpr.eqns:
        found: dict[int, bool] = {}
        for x in e.invars:
            if not isinstance(x, Literal):
                alike = x.aval.shape == e.outvars[0].aval.shape
                alike = alike and e.primitive.name in _ELEMENTWISE
                for k, alone in depends[x].items():
                    found[k] = found.get(k, True) and alone and alike
        depends |= dict.fromkeys(e.outvars, found)

    outs = joined(jaxpr.outvars[0])

    def parts(*args):
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))

        def value(v):
            if isinstance(v, Literal):
                return np.asarray(v.val, v.aval.dtype)  # pyright: ignore[reportAttributeAccessIssue]
            return env[v]

        for e in jaxpr.eqns:
            out = e.primitive.bind(*map(value, e.invars), **e.primitive.get_bind_params(e.params))
            env.update(zip(e.outvars, out if e.primitive.multiple_results else [out], strict=True))
        return [value(v) for v in outs]

    return parts, [{} if isinstance(v, Literal) else depends[v] for v in outs]


def summed(*terms: Array | None) -> Array | None:
    """The sum of those that are not zero, which are None."""
    there = [x for x in terms if x is not None]
    return sum(there[1:], start=there[0]) if there else None


def mirrored(A: Float[Array, "k n"], B: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """``Aᵀ B`` where this is symmetric; of large matrices one of two equal blocks is computed."""
    n = A.shape[1]
    if n <= _WHOLE:
        X = linear.matmul(A.T, B)
        return 0.5 * (X + X.T)
    k = n // 2
    low = linear.matmul(A[:, k:].T, B[:, :k])
    upper = jnp.concatenate([mirrored(A[:, :k], B[:, :k]), low.T], axis=1)
    lower = jnp.concatenate([low, mirrored(A[:, k:], B[:, k:])], axis=1)
    return jnp.concatenate([upper, lower])


def _transposed(x: Array | None) -> Array | None:
    return None if x is None else x.T
