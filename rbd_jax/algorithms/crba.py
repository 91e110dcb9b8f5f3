"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

from jaxtyping import Array, Float

from .._check import checked
from ..model import Model
from . import ground


@checked
def crba(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The mass matrix M(q), symmetric, with the armature on its diagonal (kg m², kg m, kg).

    Source: Singh, Algorithm 1, line 13: ``t1 = I^C S`` and ``M = t1ᵀ S`` on ancestors, in ground
    coordinates centred on the root body. Cost: O(n²). Raw: derivatives are those of autodiff.
    """
    return ground.mass_matrix(model, ground.pose(model, q))


mass_matrix = crba
