"""Physical consistency of inertias: the pseudo-inertia, its factor, distances and ellipsoids.

Letters: P is the pseudo-inertia ``∫ (x, 1)(x, 1)ᵀ dm``, and U is its upper triangular factor with
``P = U Uᵀ``. Derivatives are those of autodiff.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...model import Model
from ...spatial import inertia, linear, so3
from ...spatial.linear import cholesky, definite, solve_lower


def upper_cholesky(P: Float[Array, "*b 4 4"]) -> Float[Array, "*b 4 4"]:
    """The upper triangular U with positive diagonal and ``P = U Uᵀ``; NaN if there is none."""
    return _reversed(cholesky(_reversed(P)))


def _reversed(A: Float[Array, "*b 4 4"]) -> Float[Array, "*b 4 4"]:
    """Rows and columns in the opposite order. This makes upper triangular matrices lower ones."""
    return A[..., ::-1, ::-1]


def relative_factor(
    U0: Float[Array, "*b 4 4"], I10: Float[Array, "*b 10"]
) -> Float[Array, "*b 4 4"]:
    """``U₀⁻¹ U``, the factor of ``U₀⁻¹ P U₀⁻ᵀ``; dimensionless, and the identity if P = P₀."""
    U = upper_cholesky(inertia.pseudo(I10))
    return _reversed(solve_lower(_reversed(U0), _reversed(U)))


def entropic_root(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """``sign(x) √(e²ˣ − 2x − 1)``, which is smooth and close to ``√2 x`` near zero."""
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
    """Ten smooth residuals whose squares add up to :func:`entropic_distance`, for least squares.

    With ``X = U₀⁻¹ U`` the distance is ``Σ_{i<j} X_ij² + Σ_i (X_ii² − 2 log X_ii − 1)``. Each term
    is the square of a smooth function of the entry or of its logarithm.
    """
    X = relative_factor(U0, I10)
    diagonal = entropic_root(jnp.log(jnp.diagonal(X, axis1=-2, axis2=-1)))
    i, j = np.triu_indices(4, 1)
    return jnp.concatenate([diagonal, X[..., i, j]], axis=-1)


def entropic_distance(I0: Float[Array, "*b 10"], I10: Float[Array, "*b 10"]) -> Float[Array, "*b"]:
    """``tr(P₀⁻¹ P) − log det(P₀⁻¹ P) − 4``, which does not depend on frames and units.

    It is zero where both inertias are equal, and grows without bound towards the border of the
    physically consistent inertias.

    Source: Lee, Wensing, Park, "Geometric robot dynamic identification: a convex programming
    approach", 2020 (the Bregman divergence of −log det).
    """
    r = entropic_residuals(upper_cholesky(inertia.pseudo(I0)), I10)
    return jnp.sum(r * r, axis=-1)


class Ellipsoid(eqx.Module):
    """The points ``center + axes · y`` with ``|y| ≤ 1``, for one body or for stacked bodies."""

    center: Float[Array, "*b 3"]
    """Center in the body frame (m)."""
    axes: Float[Array, "*b 3 3"]
    """The columns are the semi-axes (m)."""

    @staticmethod
    def around_box(lower: Float[Array, "*b 3"], upper: Float[Array, "*b 3"]) -> "Ellipsoid":
        """The ellipsoid through the corners of a box, with the proportions of the box.

        A body within the box is within the ellipsoid. The reverse does not hold.
        """
        half = 0.5 * jnp.sqrt(jnp.asarray(3.0, lower.dtype)) * (upper - lower)
        return Ellipsoid(0.5 * (lower + upper), half[..., None] * so3.identity(half))

    def to_unit_ball(self, I10: Float[Array, "*b 10"]) -> Float[Array, "*b 4 4"]:
        """The pseudo-inertia in the coordinates y, in which the ellipsoid is the unit ball."""
        a, b, c = (self.axes[..., k] for k in range(3))
        rows = jnp.stack([so3.cross(b, c), so3.cross(c, a), so3.cross(a, b)], axis=-2)
        W = rows / so3.dot(a, rows[..., 0, :])[..., None, None]  # the inverse of the axes
        inverse = _affine(W, -so3.rotate(W, self.center))
        product = linear.matmul(inverse, inertia.pseudo(I10))
        return linear.matmul(product, so3.transpose(inverse))

    def from_unit_ball(self, P: Float[Array, "*b 4 4"]) -> Float[Array, "*b 10"]:
        """Inverse of :meth:`to_unit_ball`."""
        A = _affine(self.axes, self.center)
        product = linear.matmul(linear.matmul(A, P), so3.transpose(A))
        return inertia.from_pseudo(product)

    def contains(self, I10: Float[Array, "*b 10"]) -> Bool[Array, "*b"]:
        """Whether some mass distribution within the ellipsoid has this inertia.

        Source: Wensing, Kim, Slotine (2018). The condition is that P is positive definite and
        ``tr(P Q) > 0``, which says ``∫ (1 − |y|²) dm > 0``.
        """
        P = self.to_unit_ball(I10)
        inside = P[..., 3, 3] > P[..., 0, 0] + P[..., 1, 1] + P[..., 2, 2]
        return inside & definite(P)


def _affine(A: Float[Array, "*b 3 3"], b: Float[Array, "*b 3"]) -> Float[Array, "*b 4 4"]:
    """The matrix of ``x ↦ A x + b``."""
    top = jnp.concatenate([A, b[..., None]], axis=-1)
    last = jnp.array([0.0, 0.0, 0.0, 1.0], top.dtype)
    bottom = jnp.broadcast_to(last, (*top.shape[:-2], 1, 4))
    return jnp.concatenate([top, bottom], axis=-2)


def consistent(model: Model) -> Bool[Array, " nb"]:
    """Whether each body's inertia belongs to some mass distribution.

    The test is that the pseudo-inertia is positive definite. Point masses and massless bodies are
    on the border and do not pass.

    Source: Wensing, Kim, Slotine (2018).
    """
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(inertia.pseudo(model.inertia), axis1=-2, axis2=-1)))
    scale = jnp.where(scale > 0, scale, 1)
    P = inertia.pseudo(model.inertia) / (scale[:, :, None] * scale[:, None, :])
    rounding = 8 * jnp.finfo(model.dtype).eps * jnp.eye(4, dtype=model.dtype)
    return definite(P - rounding[None])


def made_consistent(model: Model, size: float = 0.05, least_mass: float = 1e-3) -> Model:
    """The robot with inconsistent inertias replaced by those of small solid bodies.

    Use it for the start of a fit. Where a body's pseudo-inertia is not positive definite, its mass
    is raised to ``least_mass`` (kg) at least. The second moments about its center of mass are
    raised to ``size² · mass / 5`` at least in every direction, which are those of a ball of radius
    ``size`` (m). Derivatives are those of autodiff.
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
