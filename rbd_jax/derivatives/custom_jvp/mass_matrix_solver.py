"""Solving with the mass matrix, with an implicit derivative: ``δ(M⁻¹ b) = M⁻¹ (δb − δM x)``."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import world_frame
from ...algorithms.block_columns import BlockColumns, half_solve, half_solve_by_inverse
from ...algorithms.factor import (
    Entries,
    Factor,
    couplings,
    product,
    solve,
    solve_columns,
    solve_entries,
    unit_entries,
)
from ...algorithms.tree import down_along_branches
from ...model import Topology
from ...spatial import linear
from .linear_map import LinearMap


class Solver(NamedTuple):
    """The mass matrix of the degrees of freedom that are not prescribed, and its factor.

    R and p are the poses of the bodies. S and I have the axes of the world and refer to the origins
    p of the bodies.
    """

    factor: Factor | Entries | Float[Array, "nv nv"]
    """Articulated bodies in body frames, the entries of ``M = Lᵀ L``, or M⁻¹ with zeros where
    accelerations are prescribed."""
    R: Float[Array, "nb 3 3"]
    p: Float[Array, "nb 3"]
    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    armature: Float[Array, " nv"]
    solved: Float[Array, " nv"]
    """1 where the acceleration is solved for, 0 where it is prescribed."""

    def __call__(self, topology: Topology, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M⁻¹ b`` on the degrees of freedom solved for, zero on the others.

        The derivative is implicit, ``δx = M⁻¹ (δb − δM x)``; no factorization is differentiated.
        """
        frozen = jax.lax.stop_gradient(self)

        def solve(_, y):
            return _solve_map(topology, frozen, y)

        matvec = partial(self.product, topology)
        b = jnp.where(self.solved > 0, b, 0)
        return jax.lax.custom_linear_solve(matvec, b, solve, symmetric=True)

    def columns(self, topology: Topology, B: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
        """``M⁻¹ B`` for many columns, with an implicit derivative too."""
        frozen = jax.lax.stop_gradient(self)

        def solve(_, Y):
            return _solve_columns(topology, frozen, Y)

        matvec = jax.vmap(partial(self.product, topology), in_axes=1, out_axes=1)
        B = jnp.where(self.solved[:, None] > 0, B, 0)
        return jax.lax.custom_linear_solve(matvec, B, solve, symmetric=True)

    def half_solve(
        self, topology: Topology, B: Float[Array, "nv m"], nonzero: np.ndarray
    ) -> tuple[BlockColumns, BlockColumns]:
        """``(W, X)`` with ``Bᵀ M⁻¹ B = Wᵀ X`` and ``M⁻¹ B = down(X)``, where nothing is prescribed.

        No derivative is taken.
        """
        s = jax.lax.stop_gradient(self)
        if isinstance(s.factor, Factor | Entries):
            return half_solve(topology.dof_tree, *_unit_factor(topology, s), B, nonzero)
        return half_solve_by_inverse(s.factor, B)

    def down(self, topology: Topology, X: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
        """The second half of a solve."""
        s = jax.lax.stop_gradient(self)
        if not isinstance(s.factor, Factor | Entries):
            return X
        return down_along_branches(topology.dof_tree, _unit_factor(topology, s)[0], X)

    def product(self, topology: Topology, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M x`` on the degrees of freedom solved for, x on the others."""
        S, I = world_frame.about_root(topology, self.p, self.S, self.I)
        Mx = product(topology, S, I, self.armature, self.solved * x)
        return self.solved * Mx + (1 - self.solved) * x


def _unit_factor(topology: Topology, s: Solver) -> tuple[Array, Array]:
    """``(L, Ψ)`` of ``M = Lᵀ Ψ⁻¹ L``."""
    if isinstance(s.factor, Entries):
        return unit_entries(topology, s.factor)
    assert isinstance(s.factor, Factor)
    return couplings(topology, s.factor, s.R, s.p), s.factor.psi


def _solve(topology: Topology, s: Solver, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    if isinstance(s.factor, Factor):
        return s.solved * solve(topology, s.factor, s.solved * b)
    if isinstance(s.factor, Entries):
        return s.solved * solve_entries(topology, s.factor, s.solved * b)
    return linear.matmul(s.factor, b)


def _solve_columns(topology: Topology, s: Solver, B: Array) -> Array:
    if isinstance(s.factor, Factor):
        solved = s.solved[:, None]
        return solved * solve_columns(topology, s.factor, s.R, s.p, solved * B)
    if isinstance(s.factor, Entries):
        solved = s.solved[:, None]
        return solved * solve_entries(topology, s.factor, solved * B)
    return linear.matmul(s.factor, B)


def _solve_many(topology: Topology, s: Solver, X: Array, transposed: bool) -> Array:
    return _solve_columns(topology, s, X.T).T


_solve_map = LinearMap(
    "rbd_mass_matrix_solve",
    _solve,
    _solve_many,
    lambda topology: topology.nv,
    symmetric=True,  # passes that carry its constants and its vector as one cannot be transposed
)
