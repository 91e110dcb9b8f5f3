"""How much bodies and joints give way to forces, by which MuJoCo scales the softness."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.crba import crba
from ..algorithms.kinematics import body_velocities
from ..model import Model
from ..spatial import inertia


def inverse_weights(model: Model, q: Float[Array, " nq"]) -> tuple[np.ndarray, np.ndarray]:
    """How much bodies and joints give way: mean diagonals of ``J M⁻¹ Jᵀ`` at a configuration.

    Source: MuJoCo's ``body_invweight0`` and ``dof_invweight0``.

    Returns:
        ``(nb + 1, 2)``, for a force at the center of mass (1/kg) and a torque (1/(kg m²)), the last
        row the world's zeros; ``(nv,)``, the diagonal of ``M⁻¹``.
    """

    def each(q):
        V = jax.vmap(lambda v: body_velocities(model, q, v))(jnp.eye(model.nv, dtype=q.dtype))
        shifted = V[..., 3:] + jnp.cross(V[..., :3], inertia.com(model.inertia)[None])
        return crba(model, q), V[..., :3], shifted

    M, w, v = (np.asarray(x, float) for x in jax.jit(each)(q))
    inverse = np.linalg.inv(M)
    of = lambda J: np.einsum("ibk,ij,jbk->b", J, inverse, J) / 3  # noqa: E731
    return np.vstack([np.stack([of(v), of(w)], axis=1), np.zeros((1, 2))]), np.diag(inverse)
