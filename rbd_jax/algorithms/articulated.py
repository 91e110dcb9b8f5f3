"""Solving with the mass matrix by articulated bodies, O(n).

``factorize`` is the inertia half of Kim's Table 4, in ground coordinates, where nothing is
transformed on the way from child to parent; it depends on the configuration alone. Articulated-body
dynamics (:mod:`rbd_jax.algorithms.hybrid`) leaves the same in body frames. ``solve`` is Singh's
ABA-zero algorithm (34), the rest of the table at rest, linear in its input.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model import Topology
from ..spatial import articulated as articulated_inertia, inertia
from ..spatial.motion import to_child, wrench_to_parent
from ..spatial.se3 import Pose
from ._tree import (
    ancestor_sum,
    leaf_to_root,
    of_bodies,
    root_to_leaf,
    subtree_sum,
    sum_dofs,
)


class Factor(NamedTuple):
    """``U = Î S`` and ``Ψ = 1 / (Sᵀ Î S + armature)`` of each degree of freedom.

    In ground coordinates, or each in a frame of its own, whose placement in its parent's is T.
    """

    S: Float[Array, "nv 6"]
    U: Float[Array, "nv 6"]
    psi: Float[Array, " nv"]
    T: Pose | None = None


def factorize(
    topology: Topology,
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
    given: Bool[Array, " nv"] | None = None,
) -> Factor:
    """Eliminate one degree of freedom after the other, leaves first; Ψ = 0 where ``given``.

    Source: Kim, Tables 3 and 4, lines of Î, Ψ and Π. A joint of several degrees of freedom is
    eliminated one column of S at a time, which is block elimination without a matrix inverse.
    """
    last = np.isin(np.arange(topology.nv), topology.v_starts[1:] - 1)
    own = jnp.where(last[:, None], of_bodies(topology, I), 0)
    free = jnp.ones_like(armature) if given is None else (~given).astype(S.dtype)

    def step(x, below):
        S, I, armature, free = x
        Ia = jax.tree.map(jnp.add, articulated_inertia.from_inertia(I), below)
        U = articulated_inertia.apply(Ia, S)
        D = jnp.sum(S * U) + armature
        psi = free / jnp.where(free > 0, D, 1)
        return articulated_inertia.less(Ia, psi, U), (U, psi)

    zero = articulated_inertia.from_inertia(jnp.zeros((10,), S.dtype))
    U, psi = leaf_to_root(topology.dof_tree, step, (S, own, armature, free), zero)
    return Factor(S, U, psi)


def solve(topology: Topology, factor: Factor, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """``M⁻¹ b``; zero out at given degrees of freedom. Source: Singh (34), ``ABA(q, 0, b, 0)``."""
    T = factor.T

    def up(x, F):
        T, S, U, psi, b = x
        u = b - jnp.sum(S * F)
        F = F + U * (psi * u)
        return F if T is None else wrench_to_parent(T, F), u

    rows = T, factor.S, factor.U, factor.psi
    zero = jnp.zeros((6,), b.dtype)
    u = leaf_to_root(topology.dof_tree, up, (*rows, b), zero)

    def down(above, x):
        T, S, U, psi, u = x
        A = above[0] if T is None else to_child(T, above[0])
        a = psi * (u - jnp.sum(U * A))
        return A + S * a, a

    return root_to_leaf(topology.dof_tree, down, (*rows, u), (zero, zero[0]))[1]


def solve_columns(
    topology: Topology, factor: Factor, b: Float[Array, "nv m"]
) -> Float[Array, "nv m"]:
    """``M⁻¹ b`` for many columns, factorised once. Source: Singh, §IV-E, the ABA-zero algorithm."""
    return jax.vmap(partial(solve, topology, factor), in_axes=1, out_axes=1)(b)


def product(
    topology: Topology,
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
    a: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """``M a``: inverse dynamics at rest. Source: Singh, Algorithm 1, lines 3–10 with v = g = 0."""
    A = ancestor_sum(topology.tree, sum_dofs(topology, S * a[:, None]))
    F = subtree_sum(topology.tree, inertia.apply(I, A))
    return jnp.sum(S * of_bodies(topology, F), axis=-1) + armature * a
