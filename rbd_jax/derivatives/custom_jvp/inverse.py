"""The inverse of a positive definite matrix, with its derivative ``−M⁻¹ δM M⁻¹``."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import formulations
from ...spatial import linear
from .mechanism import ruled


@ruled
def invert(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``M⁻¹`` of a symmetric positive definite matrix, with an analytical rule.

    Source: Gauss–Jordan elimination, see :func:`rbd_jax.spatial.linear.inverse`.
    """
    # an accelerator unrolls a block of it; XLA on a CPU would repeat the arithmetic of such steps
    return linear.inverse(M, unroll=formulations.current().recursions == "levels")


@invert.def_jvp
def _invert_jvp(primals, tangents):
    X = invert(primals[0])
    product = jnp.matmul(tangents[0], X, precision="highest")
    return X, -jnp.matmul(X, product, precision="highest")
