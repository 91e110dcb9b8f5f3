"""The pseudoinverse of a small positive semidefinite matrix, by a loop of a fixed program."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def pseudoinverse(
    G: Float[Array, "m m"], active: Bool[Array, " m"]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """``(G⁺, N)``: the pseudoinverse on the active rows, and the projector on their null space.

    Rows and columns that are not active are left out, whatever they hold, and are zero in both
    results. G is scaled to unit diagonal and swept row by row; a row whose pivot is nothing but
    rounding depends on rows before it. Without such a row that is all. Otherwise the swept matrix
    holds a basis T of the null space, ``N = T (TᵀT)⁻¹ Tᵀ``, and ``G⁺ = (1 − N) G⁻ (1 − N)`` for the
    inverse G⁻ of the independent rows: least squares where rows contradict each other, and the
    least norm of all solutions. That is the limit of the proximal iteration of Carpentier et al.
    2021, §III, which it replaces: no parameter μ, no iteration to wait for.
    """
    m = G.shape[0]
    if m == 0:
        return G, G
    diagonal = jnp.diagonal(G)
    used = active & (diagonal > 0)
    scale = jnp.where(used, jax.lax.rsqrt(jnp.where(used, diagonal, 1)), 0)
    eye = jnp.eye(m, dtype=G.dtype)
    unit = G * scale[:, None] * scale[None, :] + jnp.diag((~used).astype(G.dtype))
    swept, free = _sweep(unit)  # rows that are not used are independent of all others
    both = scale[:, None] * scale[None, :]
    inverse = -swept * both * free[:, None] * free[None, :]
    still = active & ~used  # a row that nothing moves: any force on it does nothing

    def dependent(swept, inverse):
        bound = jnp.where(used, 1 - free, 0)
        T = (eye - swept * free[:, None]) * bound[None, :]
        T = scale[:, None] * T / jnp.where(bound > 0, scale, 1)[None, :]
        T = T + jnp.diag(still.astype(G.dtype))
        gram = _times(T.T, T)
        gram = gram + jnp.diag(1 - jnp.where(still, 1, bound))
        less = jax.lax.rsqrt(jnp.diagonal(gram))
        gram = -_sweep(gram * less[:, None] * less[None, :])[0] * less[:, None] * less[None, :]
        N = _times(T, _times(gram, T.T))
        P = eye - N
        return _times(P, _times(inverse, P)), N

    def independent(swept, inverse):
        return inverse, jnp.zeros_like(inverse)

    needed = jnp.any(free < 1) | jnp.any(still)
    inverse, N = jax.lax.cond(needed, dependent, independent, swept, inverse)
    return 0.5 * (inverse + inverse.T), N


def _times(A: Array, B: Array) -> Array:
    return jnp.matmul(A, B, precision="highest")


def _sweep(A: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Float[Array, " m"]]:
    """``−A⁻¹`` of the independent rows, ``A⁻¹ A`` beside it, and which rows are independent (0/1).

    Source: the sweep operator, Goodnight, "A tutorial on the SWEEP operator", 1979. A has a unit
    diagonal. A pivot below ε^0.7 (1e-11 in double, 1e-5 in single precision) counts as zero.
    """
    m = A.shape[0]
    tolerance = float(jnp.finfo(A.dtype).eps) ** 0.7

    def step(A, k_unit):
        k, unit = k_unit
        column = A[k]
        d = column[k]
        good = (d > tolerance).astype(A.dtype)
        x = column - unit
        less = x * (good / jnp.where(good > 0, d, 1))
        A = A - x[:, None] * less[None, :] - (2 * good) * unit[:, None] * unit[None, :]
        return A, good

    return jax.lax.scan(step, A, (jnp.arange(m), jnp.eye(m, dtype=A.dtype)))
