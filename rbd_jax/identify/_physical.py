"""Inertias that some mass distribution has: the pseudo-inertia, its factor, distances, ellipsoids.

Letters: P pseudo-inertia ``∫ (x, 1)(x, 1)ᵀ dm``, U its upper triangular factor with ``P = U Uᵀ``.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model import Model
from ..spatial import inertia, so3
from ._small import cholesky, definite, solve_lower


def upper_cholesky(P: Float[Array, "*b 4 4"]) -> Float[Array, "*b 4 4"]:
    """The upper triangular U with positive diagonal and ``P = U Uᵀ``; NaN if there is none."""
    return _turned(cholesky(_turned(P)))


def _turned(A: Float[Array, "*b 4 4"]) -> Float[Array, "*b 4 4"]:
    """Rows and columns in the opposite order: upper triangular to lower and back."""
    return A[..., ::-1, ::-1]


def relative_factor(
    U0: Float[Array, "*b 4 4"], I10: Float[Array, "*b 10"]
) -> Float[Array, "*b 4 4"]:
    """``U₀⁻¹ U``, the factor of ``U₀⁻¹ P U₀⁻ᵀ``: dimensionless, the identity where P is P₀."""
    U = upper_cholesky(inertia.pseudo(I10))
    return _turned(solve_lower(_turned(U0), _turned(U)))


def entropic_root(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``sign(x) √(e²ˣ − 2x − 1)``, smooth through zero, where it is ``√2 x``."""
    small = jnp.abs(x) < 0.1
    near, far = jnp.where(small, x, 0), jnp.where(small, 1, x)
    taylor = jnp.zeros_like(x)
    for k in reversed(range(2, 14)):  # Σ 2ᵏ xᵏ⁻² / k!
        taylor = taylor * near + 2.0**k / float(np.prod(np.arange(1, k + 1, dtype=float)))
    closed = jnp.expm1(2 * far) - 2 * far
    return jnp.where(small, near * jnp.sqrt(taylor), jnp.sign(far) * jnp.sqrt(closed))


def entropic_residuals(
    U0: Float[Array, "*b 4 4"], I10: Float[Array, "*b 10"]
) -> Float[Array, "*b 10"]:
    """Ten smooth numbers whose squares add up to :func:`entropic_distance`, for least squares.

    With ``X = U₀⁻¹ U`` the distance is ``Σ_{i<j} X_ij² + Σ_i (X_ii² − 2 log X_ii − 1)``, and each
    term is the square of a smooth function of the entry, or of its logarithm.
    """
    X = relative_factor(U0, I10)
    diagonal = entropic_root(jnp.log(jnp.diagonal(X, axis1=-2, axis2=-1)))
    i, j = np.triu_indices(4, 1)
    return jnp.concatenate([diagonal, X[..., i, j]], axis=-1)


def entropic_distance(I0: Float[Array, "*b 10"], I10: Float[Array, "*b 10"]) -> Float[Array, "*b"]:
    """``tr(P₀⁻¹ P) − log det(P₀⁻¹ P) − 4``: zero where equal, invariant to frames and units.

    Source: Lee, Wensing, Park, "Geometric robot dynamic identification: a convex programming
    approach", 2020 (the Bregman divergence of −log det). It grows without bound towards an
    inertia that no body can have.
    """
    r = entropic_residuals(upper_cholesky(inertia.pseudo(I0)), I10)
    return jnp.sum(r * r, axis=-1)


class Ellipsoid(eqx.Module):
    """The points ``center + axes · y`` with ``|y| ≤ 1``; the last axes are those of a body each."""

    center: Float[Array, "*b 3"]
    """m, body frame."""
    axes: Float[Array, "*b 3 3"]
    """Columns: semi-axes (m)."""

    @staticmethod
    def around_box(lower: Float[Array, "*b 3"], upper: Float[Array, "*b 3"]) -> "Ellipsoid":
        """The smallest ellipsoid, with the box's proportions, through the corners of a box.

        A body within the box is within the ellipsoid, not the other way round.
        """
        half = 0.5 * jnp.sqrt(jnp.asarray(3.0, lower.dtype)) * (upper - lower)
        return Ellipsoid(0.5 * (lower + upper), half[..., None] * so3.identity(half))

    def seen(self, I10: Float[Array, "*b 10"]) -> Float[Array, "*b 4 4"]:
        """Pseudo-inertia in the coordinates y, in which the ellipsoid is the unit ball."""
        inverse = jnp.linalg.inv(self._map())
        product = jnp.matmul(inverse, inertia.pseudo(I10), precision="highest")
        return jnp.matmul(product, so3.transpose(inverse), precision="highest")

    def unseen(self, P: Float[Array, "*b 4 4"]) -> Float[Array, "*b 10"]:
        """Inverse of :meth:`seen`."""
        A = self._map()
        product = jnp.matmul(jnp.matmul(A, P, precision="highest"), so3.transpose(A),
                             precision="highest")  # fmt: skip
        return inertia.from_pseudo(product)

    def _map(self) -> Float[Array, "*b 4 4"]:
        top = jnp.concatenate([self.axes, self.center[..., None]], axis=-1)
        last = jnp.array([0.0, 0.0, 0.0, 1.0], top.dtype)
        bottom = jnp.broadcast_to(last, (*top.shape[:-2], 1, 4))
        return jnp.concatenate([top, bottom], axis=-2)

    def holds(self, I10: Float[Array, "*b 10"]) -> Bool[Array, "*b"]:
        """Whether some mass distribution within the ellipsoid has this inertia.

        Source: Wensing, Kim, Slotine (2018): iff P is positive definite and ``tr(P Q) > 0``, that
        is ``∫ (1 − |y|²) dm > 0``.
        """
        P = self.seen(I10)
        inside = P[..., 3, 3] > P[..., 0, 0] + P[..., 1, 1] + P[..., 2, 2]
        return inside & definite(P)


def consistent(model: Model) -> Bool[Array, " nb"]:
    """Whether each body's inertia is that of some mass distribution (pseudo-inertia > 0).

    Source: Wensing, Kim, Slotine (2018). Point masses and massless bodies are on the border.
    """
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(inertia.pseudo(model.inertia), axis1=-2, axis2=-1)))
    scale = jnp.where(scale > 0, scale, 1)
    P = inertia.pseudo(model.inertia) / (scale[:, :, None] * scale[:, None, :])
    rounding = 8 * jnp.finfo(model.dtype).eps * jnp.eye(4, dtype=model.dtype)
    return definite(P - rounding[None])


def made_consistent(model: Model, size: float = 0.05, least_mass: float = 1e-3) -> Model:
    """The robot with inertias that no body has, or only a point, made those of small solid bodies.

    A start for fits: where a body's pseudo-inertia is not positive definite, its mass is made at
    least ``least_mass`` (kg) and the second moments about its centre of mass at least
    ``size² · mass / 5``, those of a ball of that radius (m), in every direction.
    """
    I10 = model.inertia
    mass = jnp.maximum(I10[:, 0], least_mass)
    com = jnp.where(I10[:, :1] > 0, inertia.com(I10), 0)
    J = inertia.inertia_com(I10)
    half_trace = 0.5 * jnp.trace(J, axis1=-2, axis2=-1)
    Sigma = half_trace[:, None, None] * jnp.eye(3, dtype=J.dtype)[None] - J
    values, vectors = jnp.linalg.eigh(Sigma)
    values = jnp.maximum(values, (size**2 / 5) * mass[:, None])
    Sigma = so3.matmul(vectors * values[:, None, :], so3.transpose(vectors))
    trace = jnp.trace(Sigma, axis1=-2, axis2=-1)
    J = trace[:, None, None] * jnp.eye(3, dtype=J.dtype)[None] - Sigma
    repaired = jnp.where(consistent(model)[:, None], I10, inertia.from_com(mass, com, J))
    return eqx.tree_at(lambda m: m.inertia, model, repaired)
