"""The joint-space mass matrix from composite inertias. Source: Singh, Algorithm 1, line 13."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model, Topology
from ..spatial import inertia
from . import ground
from ._tree import of_bodies, subtree_sum, subtree_sum_about


@checked
def crba(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The mass matrix M(q), symmetric, with the armature on its diagonal (kg m², kg m, kg).

    Source: Singh, Algorithm 1, line 13: ``t1 = I^C S`` and ``M = t1ᵀ S`` on ancestors, in ground
    coordinates centred on the root body, in single precision about the origin of each body. Cost:
    O(n²). Raw: derivatives are those of autodiff.
    """
    g = ground.pose(model, q)
    return composite_mass_matrix(model.topology, g.p, g.S_own, g.I_own, model.armature)


def composite_mass_matrix(
    topology: Topology,
    p: Float[Array, "nb 3"],
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
) -> Float[Array, "nv nv"]:
    """``M = E ∘ (t1ᵀ S)``, mirrored, of S and I about the origins p of the bodies.

    In single precision they stay there: the wrench ``t1 = (n, f)`` of a degree of freedom about its
    own body is ``(n + d × f, f)`` about that of an ancestor, d away. M and M⁻¹ are then right
    nearly to rounding, while about the root a finger's inertia is a small difference of large
    numbers (M⁻¹ of Talos: 2e-7 instead of 1e-4). Double precision takes the root: a third faster.
    """
    if S.dtype == jnp.float64:
        S, I = ground.about_root(topology, p, S, I)
        t1 = inertia.apply(of_bodies(topology, subtree_sum(topology.tree, I)), S)
        power, low, high = _power, t1.T, S.T
    else:
        IC = of_bodies(topology, subtree_sum_about(topology.tree, inertia.translate, p, I))
        P = of_bodies(topology, p).T
        power, low, high = _power_apart, (*P, *inertia.apply(IC, S).T), (*P, *S.T)
    E = topology.dof_tree.ancestor_mask
    low, high = [x[:, None] for x in low], [x[None, :] for x in high]  # descendant, ancestor
    M = jnp.where(E, power(low, high), power([x.T for x in low], [x.T for x in high]))
    return jnp.where(E | E.T, M, 0) + jnp.diag(armature)


def _power(wrench: list[Array], twist: list[Array]) -> Array:
    """``ω · n + v · f``, number by number: one loop of XLA's instead of a product."""
    first, *others = (a * b for a, b in zip(wrench, twist, strict=True))
    return sum(others, first)


def _power_apart(wrench: list[Array], twist: list[Array]) -> Array:
    """``ω · (n + d × f) + v · f``: before each its point; the wrench's lies d from the twist's."""
    (n, f), (w, v) = (wrench[3:6], wrench[6:]), (twist[3:6], twist[6:])
    d = [a - b for a, b in zip(wrench[:3], twist[:3], strict=True)]
    moved = [n[i] + d[j] * f[k] - d[k] * f[j] for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1))]
    return _power([*moved, *f], [*w, *v])


mass_matrix = crba
