"""The two linear maps behind the rules: the derivative of inverse dynamics, and M⁻¹."""

from functools import partial
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..algorithms import articulated, crba, ground
from ..model import Topology
from ._inverse import invert
from ._linear import LinearMap
from ._operator import Residual, joint_matrices, joint_operator


def _torque_operator(topology: Topology, r: Residual, x: Array) -> Array:
    return joint_operator(topology, r, x.reshape(3, topology.nv))


def _torque_matrix(topology: Topology, r: Residual) -> Array:
    return jnp.concatenate(joint_matrices(topology, r), axis=1)


torque_map = LinearMap(
    "rbd_torque_derivative", _torque_operator, _torque_matrix, lambda topology: 3 * topology.nv
)
"""``(δq, δv, δa) ↦ ∂τ/∂q δq + ∂τ/∂v δv + M δa``, without armature and damping."""


class Solver(NamedTuple):
    """The mass matrix of the free degrees of freedom: by articulated bodies, or its inverse.

    S and I have the world's axes about the origins p of the bodies.
    """

    factor: articulated.Factor | Float[Array, "nv nv"]
    p: Float[Array, "nb 3"]
    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    armature: Float[Array, " nv"]
    free: Float[Array, " nv"]

    def __call__(self, topology: Topology, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M⁻¹ b`` on the free degrees of freedom, zero on the others.

        The derivative is implicit, ``δx = M⁻¹ (δb − δM x)``: no factorisation is differentiated.
        """
        frozen = jax.lax.stop_gradient(self)

        def solve(_, y):
            return _solve_map(topology, frozen, y)

        matvec = partial(self._product, topology)
        b = jnp.where(self.free > 0, b, 0)
        return jax.lax.custom_linear_solve(matvec, b, solve, symmetric=True)

    def columns(self, topology: Topology, B: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
        """``M⁻¹ B`` by articulated bodies (all free), column by column; the derivative as above."""
        frozen = cast("articulated.Factor", jax.lax.stop_gradient(self.factor))

        def solve(_, Y):
            return articulated.solve_columns(topology, frozen, Y)

        matvec = jax.vmap(partial(self._product, topology), in_axes=1, out_axes=1)
        return jax.lax.custom_linear_solve(matvec, B, solve, symmetric=True)

    def _product(self, topology: Topology, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M x`` on the free degrees of freedom, x on the others."""
        S, I = ground.about_root(topology, self.p, self.S, self.I)
        Mx = articulated.product(topology, S, I, self.armature, self.free * x)
        return self.free * Mx + (1 - self.free) * x


def solver(
    topology: Topology,
    g: ground.Pose,
    armature: Float[Array, " nv"],
    given: Bool[Array, " nv"] | None,
    factor: articulated.Factor | Array | Literal["inverse"] | None = None,
) -> Solver:
    """Factorise; degrees of freedom with ``given`` accelerations are left out.

    ``factor``: what M was factorised into elsewhere, or to invert the matrix, for those who need it
    anyway; by default articulated bodies in ground coordinates.
    """
    free = jnp.ones_like(armature) if given is None else (~given).astype(armature.dtype)
    if isinstance(factor, str):
        factor = _inverse(topology, g.p, g.S_own, g.I_own, armature, free)
    elif factor is None:
        frozen = jax.lax.stop_gradient((g.S, g.I, armature))
        factor = articulated.factorize(topology, *frozen, given)
    return Solver(factor, g.p, g.S_own, g.I_own, armature, free)


_CHAIN_LIMIT = 24


def chain_is_short(topology: Topology, limit: int = _CHAIN_LIMIT) -> bool:
    """Whether M⁻¹ can do in single precision: so many degrees of freedom in a row at most.

    M⁻¹ of a chain of 24 joints at random is right to 2e-5, of 32 to 3e-4, in some states to 1e-2.
    """
    return bool(topology.dof_tree.depths.max(initial=0) < limit)


def _inverse(topology: Topology, p, S, I, armature, free) -> Float[Array, "nv nv"]:
    """``M⁻¹``, symmetric; zero rows and columns where accelerations are given."""
    both = free[:, None] * free[None, :]
    M = crba.composite_mass_matrix(topology, p, S, I, armature) * both + jnp.diag(1 - free)
    return invert(M) * both


def _solve(topology: Topology, s: Solver, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    if isinstance(s.factor, articulated.Factor):
        return s.free * articulated.solve(topology, s.factor, s.free * b)
    return jnp.matmul(s.factor, b, precision="highest")


def inverse_matrix(topology: Topology, s: Solver) -> Float[Array, "nv nv"]:
    """``M⁻¹``, symmetric; zero rows and columns where accelerations are given."""
    if not isinstance(s.factor, articulated.Factor):
        return s.factor
    if s.factor.T is None or chain_is_short(topology):
        return _inverse(topology, s.p, s.S, s.I, s.armature, s.free)
    X = articulated.solve_columns(topology, s.factor, jnp.diag(s.free))
    return 0.5 * (X + X.T)


_solve_map = LinearMap(
    "rbd_mass_matrix_solve",
    _solve,
    inverse_matrix,
    lambda topology: topology.nv,
    symmetric=True,  # passes that carry its constants and its vector as one cannot be transposed
)
