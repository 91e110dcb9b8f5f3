"""The Coriolis matrix and the Christoffel symbols, in ground coordinates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.crba import crba
from ...algorithms.tree import ancestor_matrices, per_dof
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...model.coordinates import CoordinateMap
from ...spatial import inertia, linear
from ...spatial.motion import cross_twist
from ..linearization import composites, linearization_point
from .coordinate_chain import coriolis_block


def _at(
    model: Model, g: world_frame.WorldQuantities, v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """C by Singh, Algorithm 1, for j at or above i.

    ``C_ij = B^Cᵀ S_i · S_j + I^C S_i · Ṡ_j`` and ``C_ji = S_jᵀ (B^C S + I^C Ṡ)_i``.
    """
    topology, S = model.topology, g.S
    r = linearization_point(model, g, world_frame.motion(model, g, v, jnp.zeros_like(v), None))
    dS = cross_twist(per_dof(topology, r.v), S)
    C = composites(topology, r)
    below = 0.5 * C.two_B(S[:, :3]) + inertia.apply(C.I, dS)
    rows = S, dS, inertia.apply(C.I, S), 0.5 * C.two_B_transposed(S), below

    def entry(i, j):
        return (
            (linear.matmul(i[3], j[0][:3]) + linear.matmul(i[2], j[1]), linear.matmul(j[0], i[4])),
        )

    return ancestor_matrices(topology.dofs_above, entry, rows)[0]


@algorithm(driven_joints=True)
def coriolis_matrix(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """``C(q, v)`` with ``C v`` the Coriolis torques and ``Ṁ − 2C`` antisymmetric.

    Source: Singh (28) for the matrix B of a body, which makes ``İ − 2B`` antisymmetric, with the
    composites and pairs of Algorithm 1. It equals ``Σ_k Γ_ijk v_k`` (Vlasblom (1.16)). Damping is
    not part of it. Derivatives are those of autodiff. Cost: O(n²).
    """
    if isinstance(model, CoordinateModel):
        x = CoordinateMap(model, q)
        C = coriolis_matrix(x.robot, x.q, x.velocity(v))
        return coriolis_block(x, v, C, crba(x.robot, x.q))
    return _at(model, world_frame.quantities(model, q), v)


@algorithm(driven_joints=True)
def christoffel(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """The symbols Γ of the second index convention ``C_ij = Σ_k Γ_ijk v_k``.

    Source: Singh (28). The matrix of :func:`coriolis_matrix` is linear in v, so Γ is this matrix at
    unit velocities, with the poses and inertias computed once. The symbols agree with Vlasblom
    (1.15); the closed forms of Müller (86)–(87) are in :mod:`rbd_jax.screw`. For joints of several
    degrees of freedom v is not the rate of coordinates, and Γ_ijk then differs from Γ_ikj by
    structure constants. Derivatives are those of autodiff. Cost: O(n³).
    """
    eye = jnp.eye(model.nv, dtype=model.dtype)
    if isinstance(model, CoordinateModel):
        return jax.vmap(lambda v: coriolis_matrix(model, q, v), out_axes=2)(eye)
    g = world_frame.quantities(model, q)
    return jax.vmap(lambda v: _at(model, g, v), out_axes=2)(eye)
