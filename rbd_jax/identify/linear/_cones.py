"""Steps of learned values that stay within the cones of physical values.

Letters: P is the pseudo-inertia of a body, or a positive number as a 1×1 matrix, and ``P = L Lᵀ``.
Everything else is scaled by L. Z is the dual variable, ``Z = N Nᵀ``; on the central path it is
``w 1``. D is a step, ``dP = L D Lᵀ``, and d are its components in a basis E of the symmetric
matrices.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...spatial import inertia, linear, so3
from ...spatial.linear import cholesky, definite, solve_lower
from ..fits._solve import prior_weight
from ..parameters._charts import LogCholesky, Positive, Real
from ..parameters._parameters import Block

_NEAR = 0.9  # A step goes at most this part of the way to the border.
_LENGTHS = 0.8 ** np.arange(30)  # The lengths of steps to choose from.
_NO_CONE = np.zeros((1, 0, 0))


class Cone(NamedTuple):
    """The least-squares problem of a step of one block of values."""

    T: Float[Array, "n p k"]
    """The change of the values is ``T d``."""
    rows: Float[Array, "n l k"]
    """Prior and barrier are ``½ |rows d + right|²`` to second order."""
    right: Float[Array, "n l"]
    E: np.ndarray
    """Basis of the steps D, (k, s, s)."""


def _symmetric_basis(s: int) -> np.ndarray:
    """An orthonormal basis of the symmetric s×s matrices, (s (s + 1) / 2, s, s)."""
    i, j = np.tril_indices(s)
    E = np.zeros((len(i), s, s))
    E[np.arange(len(i)), i, j] = E[np.arange(len(i)), j, i] = np.where(i == j, 1, 0.5**0.5)
    return E


def matrices(block: Block, x: Array) -> Float[Array, "n s s"]:
    """The matrices P of a block's values; of size 0 for real numbers, which have no border."""
    if isinstance(block.chart, LogCholesky):
        return inertia.pseudo(x)
    size = int(isinstance(block.chart, Positive))
    return x[:, None, None] * jnp.ones((1, size, size), x.dtype)


def cone_of(block: Block, x: Array, nominal: Array, Z: Array, w: Array, weight: float) -> Cone:
    """The problem of a step from the values x, in the HKM direction.

    The slope of prior and barrier is ``C = weight Lᵀ P₀⁻¹ L − w 1``. Up to a constant, the step D
    minimizes ``½ |D N|² + ⟨C, D⟩ = ½ |D N + C N⁻ᵀ|²``.
    """
    P, n = matrices(block, x), len(x)
    s = P.shape[-1]
    if isinstance(block.chart, Real):
        one, hold = jnp.ones((n, 1), x.dtype), prior_weight(0.0, x.dtype) ** 0.5
        right = hold * (x - nominal).reshape(n, 1) / block.chart.scale
        return Cone(block.chart.scale * one[..., None], hold * one[..., None], right, _NO_CONE)
    L, L0, N = cholesky(P), cholesky(matrices(block, nominal)), cholesky(Z)
    X = solve_lower(L0, L)
    C = weight * linear.matmul(so3.transpose(X), X) - w * ones(P)
    E = _symmetric_basis(s)
    basis = jnp.asarray(E, x.dtype)
    rows = linear.einsum("kij,njl->nilk", basis, N).reshape(n, s * s, -1)
    right = so3.transpose(solve_lower(N, C)).reshape(n, s * s)
    moves = linear.einsum("nij,kjl,nml->nkim", L, basis, L)
    T = inertia.from_pseudo(moves) if s == 4 else moves[..., 0]
    return Cone(so3.transpose(T), rows, right, E)


def ones(like: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    """Unit matrices of the same number and size."""
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


def cone_steps(cone: Cone, d: Array, Z: Array, w: Array) -> tuple[Array, Array]:
    """The scaled steps of P and of its dual: D, and ``w 1 − Z − (D Z + Z D) / 2``."""
    D = linear.einsum("nk,kij->nij", d, jnp.asarray(cone.E, d.dtype))
    DZ = linear.matmul(D, Z)
    return D, w * ones(Z) - Z - 0.5 * (DZ + so3.transpose(DZ))


def step_length(steps: list[tuple[Array, Array]], Z: list[Array]) -> Float[Array, ""]:
    """The greatest of a few step lengths up to 1 that keeps P and its dual well inside the cone."""
    lengths = jnp.asarray(_LENGTHS, Z[0].dtype)

    def inside(a: Array) -> Bool[Array, ""]:
        good = [jnp.all(definite(y + a * dy)) for z, (D, dZ) in zip(Z, steps, strict=True)
                if z.size for y, dy in ((ones(z), D), (z, dZ))]  # fmt: skip
        return jnp.all(jnp.stack([jnp.ones((), bool), *good]))

    good = jax.vmap(inside)(lengths / _NEAR)
    return jnp.where(jnp.any(good), lengths[jnp.argmax(good)], 0)


def rescaled_dual(Z: Float[Array, "n s s"], D: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    """The dual scaled by the factor of the next P, which is ``L K`` with ``1 + D = K Kᵀ``."""
    if not Z.size:
        return Z
    K = cholesky(ones(Z) + D)
    return linear.matmul(linear.matmul(so3.transpose(K), Z), K)
