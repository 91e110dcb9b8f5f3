"""Inverse and pseudoinverse of symmetric matrices, with their rules.

The inverse is for mass matrices, which are positive definite. The pseudoinverse is for
``G = J M⁻¹ Jᵀ``, which is semidefinite where rows of J depend on each other.

G is factorized first. If all pivots are large compared with the diagonal of G, this is enough.
Otherwise the rows of J decide the rank, see :func:`independent`. G itself cannot, because its
rounding hides what is smaller than √ε. The solution is then that of least squares where rows
contradict each other, and of least norm among all solutions. It is the limit of the proximal
iteration of Carpentier et al. 2021, §III, without its parameter μ and without an iteration.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms import formulations
from ...spatial import linear
from ...spatial.linear import cholesky, solve_lower
from .mechanism import custom_jvp


@custom_jvp
def inverse_custom_jvp(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix, with the rule ``−M⁻¹ δM M⁻¹``.

    Source: Gauss–Jordan elimination, see :func:`rbd_jax.spatial.linear.inverse`.
    """
    # An accelerator unrolls a block of it. XLA on a CPU would repeat the arithmetic of such steps.
    inverse = formulations.for_recursions(
        bodies=linear.inverse, levels=partial(linear.inverse, unroll=True)
    )
    return inverse(M)


@inverse_custom_jvp.def_jvp
def _inverse_jvp(primals, tangents):
    X = inverse_custom_jvp(primals[0])
    return X, -linear.matmul(X, linear.matmul(tangents[0], X))


@custom_jvp
def pseudoinverse_custom_jvp(
    G: Float[Array, "m m"],
    J: Float[Array, "m nv"],
    Y: Float[Array, "nv m"],
    active: Bool[Array, " m"],
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """``(G⁺, N)``: the pseudoinverse of ``G = J Y`` on the active rows, and its null projector.

    Rows that are not active are zero in both results. N is zero if no row depends on others.

    Args:
        G: the matrix, with ones on its diagonal for rows that are not active. Its derivative is
            that of J and Y, so none is taken along G itself.
        J: rows of constraints.
        Y: ``M⁻¹ Jᵀ``.
        active: which rows count.
    """
    f = factorized(G)
    whole = jnp.where(active[:, None], f.inverse(), 0), jnp.zeros_like(G)
    return once_if(f.dependent, lambda: independent(J, Y, active), whole)


@pseudoinverse_custom_jvp.def_jvp
def _pseudoinverse_jvp(primals, tangents):
    """The derivative where the rank does not change.

    Source: Golub, Pereyra, SIAM J. Numer. Anal. 1973, eq. (4.12).
    """
    G, J, Y, active = primals
    X, N = pseudoinverse_custom_jvp(G, J, Y, active)
    dJ, dY = (
        jnp.zeros_like(x) if t is None else t for x, t in zip((J, Y), tangents[1:3], strict=True)
    )
    dG = linear.matmul(dJ, Y) + linear.matmul(J, dY)
    dG = 0.5 * (dG + dG.T)
    turned = linear.matmul(N, linear.matmul(dG, X))
    outside = linear.matmul(turned, X)
    dX = outside + outside.T - linear.matmul(X, linear.matmul(dG, X))
    return (X, N), (dX, -turned - turned.T)


class Factorized(NamedTuple):
    """A symmetric matrix ``G`` after its factorization."""

    apply: Callable[[Float[Array, "m k"]], Float[Array, "m k"]]
    """Multiplies columns by ``G⁻¹``."""
    inverse: Callable[[], Float[Array, "m m"]]
    """``G⁻¹`` itself."""
    dependent: Bool[Array, ""]
    """Whether a pivot is small, so that the inverse is useless."""


def factorized(G: Float[Array, "m m"]) -> Factorized:
    """Factorize the symmetric matrix G, entry by entry or by loops."""
    factorization = formulations.for_factorization(len(G), written=_by_entries, loops=_by_sweeps)
    return factorization(G)


def _by_entries(G: Float[Array, "m m"]) -> Factorized:
    L = cholesky(G)
    back = L.T[::-1, ::-1]

    def apply(B):
        return solve_lower(back, solve_lower(L, B)[::-1])[::-1]

    def inverse():
        half = solve_lower(L, jnp.eye(len(L), dtype=L.dtype))
        return linear.matmul(half.T, half)

    return Factorized(apply, inverse, _dependent(G, L))


def _dependent(G: Float[Array, "m m"], L: Float[Array, "m m"]) -> Bool[Array, ""]:
    """Whether a row of J is only rounding, or a pivot is small.

    This is written entry by entry, as the factor L. Operations on the whole diagonals would read G
    and L in a loop. Lanes would put both into memory first, which costs as much as the
    factorization.
    """
    entries = range(len(G))
    if not entries:
        return jnp.asarray(False)
    least = reduce(jnp.minimum, [G[k, k] for k in entries])
    largest = reduce(jnp.maximum, [G[k, k] for k in entries])
    pivot = reduce(jnp.minimum, [L[k, k] ** 2 / G[k, k] for k in entries])
    return ~(_moved(least, largest) & ~_any_small(pivot))


def _by_sweeps(G: Float[Array, "m m"]) -> Factorized:
    """The same by loops. This is little code, and the whole inverse is little more work."""
    diagonal = jnp.diagonal(G)
    moved = _moved(diagonal, jnp.max(diagonal, initial=0))
    scale = jax.lax.rsqrt(jnp.where(moved, diagonal, 1))
    swept, pivots = _sweep(G * scale[:, None] * scale[None, :])
    negative = swept * scale[:, None] * scale[None, :]
    inverse = lambda: -0.5 * (negative + negative.T)  # noqa: E731
    dependent = _any_small(pivots) | ~jnp.all(moved)
    return Factorized(lambda B: -linear.matmul(negative, B), inverse, dependent)


def _moved(diagonal: Float[Array, "*m"], largest: Float[Array, ""]) -> Bool[Array, "*m"]:
    """Which rows of J are more than rounding; a force on any other row would do nothing.

    A row is the difference of the velocities of two bodies. If all its parts cancel, for example
    out of the plane of a flat loop, what is left of the row is ε of the other rows.
    """
    return diagonal > (256 * float(jnp.finfo(diagonal.dtype).eps)) ** 2 * largest


def _any_small(pivots: Float[Array, "*m"]) -> Bool[Array, ""]:
    least = float(jnp.finfo(pivots.dtype).eps) ** 0.4
    return ~jnp.all(pivots >= least)  # NaN is not large


def once_if(flag: Bool[Array, ""], function: Callable[[], Any], otherwise: Any) -> Any:
    """``function()`` if the flag is set.

    This is a loop of at most one round and not a branch, because lanes leave a loop out where no
    sample needs it.
    """
    start = flag, otherwise
    return jax.lax.while_loop(lambda x: x[0], lambda x: (x[0] & False, function()), start)[1]


def independent(
    J: Float[Array, "m nv"], Y: Float[Array, "nv m"], active: Bool[Array, " m"]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """``(G⁺, N)`` by modified Gram–Schmidt on the rows of J in the metric of ``M⁻¹``, with pivots.

    Of a dependent row ε is left, and ε² of its square, which is the pivot. A factorization of G
    itself would leave ε of the pivot. So single precision can tell a lever of 1e-4 of the largest
    one from none. Rows whose pivot is below ``max(1e-11, (256 ε)²)`` depend on the others.
    ``J = B W`` with r orthogonal rows W and the m × r matrix B of full rank gives
    ``N = 1 − B (BᵀB)⁻¹ Bᵀ``. With ``G = B Bᵀ`` (rows of W of unit length), ``G⁺ = B (BᵀB)⁻² Bᵀ``.

    Source: Björck, "Numerics of Gram–Schmidt orthogonalization", 1994.
    """
    m = J.shape[0]
    if m == 0:
        return jnp.zeros((0, 0), J.dtype), jnp.zeros((0, 0), J.dtype)
    tolerance = max(1e-11, (256 * float(jnp.finfo(J.dtype).eps)) ** 2)
    diagonal = jnp.where(active, jnp.sum(J * Y.T, axis=1), 0)
    used = _moved(diagonal, jnp.max(diagonal, initial=0))
    scale = jnp.where(used, jax.lax.rsqrt(jnp.where(used, diagonal, 1)), 0)
    W, Z = scale[:, None] * J, scale[:, None] * Y.T

    def step(carry, _):
        W, Z, left = carry
        lengths = jnp.where(left > 0, jnp.sum(W * Z, axis=1), -1)
        best = jnp.arange(m) == jnp.argmax(lengths)
        pick = best.astype(W.dtype)
        w, z, d = (jnp.sum(pick[:, None] * x, axis=0) for x in (W, Z, lengths[:, None]))
        good = d[0] > tolerance
        less = jnp.where(good, jax.lax.rsqrt(jnp.where(good, d[0], 1)), 0)
        left = jnp.where(best, 0, left)
        along = (
            jnp.where(best, d[0], left * 0.5 * (linear.matmul(W, z) + linear.matmul(Z, w))) * less
        )
        W = W - along[:, None] * (less * w)[None, :]
        Z = Z - along[:, None] * (less * z)[None, :]
        return (W, Z, left), along

    left = jnp.ones((m,), W.dtype)
    _, columns = jax.lax.scan(step, (W, Z, left), None, length=m)
    B = jnp.where(used, 1 / jnp.where(used, scale, 1), 0)[:, None] * columns.T
    bound = jnp.sum(B * B, axis=0)
    less = jnp.where(bound > 0, jax.lax.rsqrt(jnp.where(bound > 0, bound, 1)), 0)
    U = B * less[None, :]
    gram = linear.matmul(U.T, U) + jnp.diag((bound == 0).astype(U.dtype))
    back = linear.matmul(U, -_sweep(gram)[0])  # U (UᵀU)⁻¹, zero in columns of dependent rows
    half = back * less[None, :]
    project = linear.matmul(back, U.T)
    return linear.matmul(half, half.T), jnp.diag(active.astype(U.dtype)) - 0.5 * (
        project + project.T
    )


def _sweep(A: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Float[Array, " m"]]:
    """``−A⁻¹``, and the pivots; A is symmetric and has a unit diagonal.

    Source: the sweep operator, Goodnight, "A tutorial on the SWEEP operator", 1979. With the column
    c, its pivot d and ``x = c − e_k``, a sweep is ``A − x xᵀ / d − 2 e_k e_kᵀ``. No later step
    reads the diagonal at k, so the last term is added at the end. The result is useless where a
    pivot is not positive.
    """
    m = A.shape[0]
    if m == 0:
        return A, jnp.diagonal(A)

    def step(A, k_unit):
        k, unit = k_unit
        column = A[k]
        d = column[k]
        x = column - unit
        less = x / jnp.where(d > 0, d, 1)
        return A - x[:, None] * less[None, :], d

    eye = jnp.eye(m, dtype=A.dtype)
    A, pivots = jax.lax.scan(step, A, (jnp.arange(m), eye))
    return A - 2 * eye, pivots
