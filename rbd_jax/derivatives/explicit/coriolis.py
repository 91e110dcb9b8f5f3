"""The Coriolis matrix and the Christoffel symbols, in ground coordinates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.crba import crba
from ...algorithms.tree import ancestor_matrices, ancestor_sum, per_dof, subtree_sum, sum_dofs
from ...model import CoordinateModel, Model, Topology
from ...model.arguments import algorithm
from ...model.coordinates import CoordinateMap
from ...spatial import inertia, linear
from ...spatial.motion import cross_twist
from ..linearization import LinearizationPoint, composites, linearization_point, two_B
from .coordinate_chain import coriolis_block


class _Row(NamedTuple):
    """A degree of freedom: S, Ṡ, ``I^C S``, the angular part of ``B^Cᵀ S``, ``B^C S + I^C Ṡ``."""

    S: Float[Array, "6"]
    dS: Float[Array, "6"]
    momentum: Float[Array, "6"]
    twisted: Float[Array, "3"]
    below: Float[Array, "6"]


def _rows(topology: Topology, r: LinearizationPoint) -> _Row:
    S = r.S
    dS = subspace_rates(topology, r)
    C = composites(topology, r)
    below = 0.5 * C.two_B(S[:, :3]) + inertia.apply(C.I, dS)
    return _Row(S, dS, inertia.apply(C.I, S), 0.5 * C.two_B_transposed(S), below)


def _entries(i: _Row, j: _Row) -> tuple[Array, Array]:
    """``(C_ij, C_ji)`` by Singh, Algorithm 1, where j moves the body of i or one above it.

    ``C_ij = B^Cᵀ S_i · S_j + I^C S_i · Ṡ_j`` and ``C_ji = S_jᵀ (B^C S + I^C Ṡ)_i``.
    """
    return linear.matmul(i.twisted, j.S[:3]) + linear.matmul(i.momentum, j.dS), linear.matmul(
        j.S, i.below
    )


def subspace_rates(topology: Topology, r: LinearizationPoint) -> Float[Array, "nv 6"]:
    """``Ṡ = v × S`` of axes that move with their bodies."""
    return cross_twist(per_dof(topology, r.v), r.S)


def coriolis_pairs(
    topology: Topology, r: LinearizationPoint
) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"], Float[Array, " nv"]]:
    """C at the pairs of a degree of freedom and an ancestor, and mirrored, and its diagonal."""
    rows = _rows(topology, r)
    i, j = topology.dof_tree.pairs
    low, high = jax.vmap(_entries)(*(jax.tree.map(lambda x, k=k: x[k], rows) for k in (i, j)))
    return low, high, jax.vmap(lambda x: _entries(x, x)[1])(rows)


def coriolis_product(
    topology: Topology, r: LinearizationPoint, x: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``C x`` for any x, in O(n): ``Sᵀ Σ_subtree (I Σ Ṡ x + B Σ S x)``. Source: Singh (28)."""
    columns = jnp.concatenate([r.S[:, :3], subspace_rates(topology, r)], axis=-1) * x[:, None]
    moved = ancestor_sum(topology.tree, sum_dofs(topology, columns))
    wrench = inertia.apply(r.I, moved[:, 3:]) + 0.5 * two_B(r.I, r.v, moved[:, :3])
    return jnp.sum(r.S * per_dof(topology, subtree_sum(topology.tree, wrench)), axis=-1)


def _at(
    model: Model, g: world_frame.WorldQuantities, v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    r = linearization_point(model, g, world_frame.motion(model, g, v, jnp.zeros_like(v), None))
    rows = _rows(model.topology, r)
    return ancestor_matrices(model.topology.dofs_above, lambda i, j: (_entries(i, j),), rows)[0]


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
