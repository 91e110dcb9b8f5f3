"""Quadratic programs with bounds on the unknowns, for the control limits of DDP.

Projected Newton is written here because optax and optimistix have no solver for this problem.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..problems._local_models import times


def restricted_cholesky(
    H: Float[Array, "m m"], free: Bool[Array, " m"]
) -> tuple[Float[Array, "m m"], Bool[Array, ""]]:
    """Cholesky factor of H, with the identity in the rows and columns that are not free.

    The second result says whether this matrix is positive definite. If it is not, the factor is
    the identity.
    """
    both = free[:, None] & free[None, :]
    eye = jnp.eye(H.shape[0], dtype=H.dtype)
    L = jnp.linalg.cholesky(jnp.where(both, H, eye))
    definite = jnp.all(jnp.isfinite(L))
    return jnp.where(definite, L, eye), definite


def solve_free(L: Array, free: Array, b: Float[Array, "m *r"]) -> Float[Array, "m *r"]:
    """``H⁻¹ b`` restricted to the free coordinates, and zero in the others."""
    mask = free.reshape(-1, *[1] * (b.ndim - 1))
    columns = jnp.where(mask, b, 0).reshape(b.shape[0], -1)
    y = jax.scipy.linalg.solve_triangular(L, columns, lower=True)
    x = jax.scipy.linalg.solve_triangular(L, y, lower=True, trans="T")
    return jnp.where(mask, x.reshape(b.shape), 0)


def box_qp(
    H: Float[Array, "m m"],
    g: Float[Array, " m"],
    low: Float[Array, " m"],
    high: Float[Array, " m"],
    max_steps: int = 100,
) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
    """Minimize ``½ xᵀ H x + gᵀ x`` within ``low ≤ x ≤ high`` for a positive definite H.

    The loop has no reverse mode. Solvers that use it are differentiated by the implicit function
    theorem.

    Source: projected Newton (Bertsekas 1982), as in Tassa, Mansard, Todorov (2014), Alg. 1.
    Departures: the first point is the minimizer without bounds, clipped. All step lengths of the
    line search are tried at once. Projected Newton alone can get stuck where a bound is so near
    that no step length helps. So projected steps along the gradient, scaled by the diagonal of H,
    are tried as well. Since ``H ≤ m diag(H)``, one of them lowers the value unless x is optimal.

    Args:
        H: symmetric positive definite matrix. g: linear term.
        low: lower bounds. high: upper bounds.
        max_steps: limit of steps. Nearly all problems of up to twelve unknowns need less than 30.

    Returns:
        The minimizer, and which coordinates are free, that is, not held at a bound.
    """
    m = g.size
    newton_lengths = 0.5 ** jnp.arange(12.0, dtype=H.dtype)
    gradient_lengths = 2.0 ** jnp.arange(4.0, dtype=H.dtype) / max(m, 1)
    small = 100 * jnp.finfo(H.dtype).eps * (1 + jnp.max(jnp.abs(g), initial=0))

    def value(x):
        return jnp.sum(x * (0.5 * times(H, x) + g))

    def state_at(x, k, improved):
        slope = times(H, x) + g
        held = ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))
        converged = jnp.max(jnp.abs(jnp.where(held, 0, slope)), initial=0) <= small
        return x, slope, ~held, k, ~improved | converged

    def unfinished(state):
        *_, k, done = state
        return ~done & (k < max_steps)

    def body(state):
        x, slope, free, k, _ = state
        L, _ = restricted_cholesky(H, free)
        newton, gradient = -solve_free(L, free, slope), -slope / jnp.diagonal(H)
        moves = newton_lengths[:, None] * newton[None], gradient_lengths[:, None] * gradient[None]
        candidates = jnp.clip(x[None] + jnp.concatenate(moves), low[None], high[None])
        values = jax.vmap(value)(candidates)
        best = jnp.argmin(values)
        improved = values[best] < value(x)
        return state_at(jnp.where(improved, candidates[best], x), k + 1, improved)

    everywhere = jnp.ones((m,), bool)
    x = -solve_free(restricted_cholesky(H, everywhere)[0], everywhere, g)
    yes, zero = jnp.ones((), bool), jnp.zeros((), jnp.int32)
    first = state_at(jnp.clip(x, low, high), zero, yes)
    x, _, free, _, _ = jax.lax.while_loop(unfinished, body, first)
    return x, free
