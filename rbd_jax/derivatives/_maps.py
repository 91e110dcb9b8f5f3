"""The two linear maps behind the rules: the derivative of inverse dynamics, and M⁻¹."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..algorithms import articulated, crba
from ..model import Topology
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


_DENSE = 32  # up to so many degrees of freedom a Cholesky factorisation is faster than recursions


class Solver(NamedTuple):
    """The mass matrix of the free degrees of freedom, factorised.

    By Cholesky for small robots: no loop over bodies, which halves the time of a single call. By
    articulated bodies for large ones, in O(n).
    """

    factor: articulated.Factor | Float[Array, "nv nv"]
    S: Float[Array, "nv 6"]
    I: Float[Array, "nb 10"]
    armature: Float[Array, " nv"]
    free: Float[Array, " nv"]

    def __call__(self, topology: Topology, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M⁻¹ b`` on the free degrees of freedom, zero on the others.

        The derivative is implicit, ``δx = M⁻¹ (δb − δM x)``: no factorisation is differentiated.
        """
        frozen = jax.lax.stop_gradient(self)

        def matvec(x):
            Mx = articulated.product(topology, self.S, self.I, self.armature, self.free * x)
            return self.free * Mx + (1 - self.free) * x

        def solve(_, y):
            return _solve_map(topology, frozen, y)

        return jax.lax.custom_linear_solve(matvec, self.free * b, solve, symmetric=True)


def solver(
    topology: Topology,
    S: Float[Array, "nv 6"],
    I: Float[Array, "nb 10"],
    armature: Float[Array, " nv"],
    given: Bool[Array, " nv"] | None,
    dense: bool | None = None,
) -> Solver:
    """Factorise; degrees of freedom with ``given`` accelerations are left out.

    ``dense``: by Cholesky; if None, for small robots.
    """
    free = jnp.ones_like(armature) if given is None else (~given).astype(armature.dtype)
    frozen = jax.lax.stop_gradient((S, I, armature))
    if topology.nv <= _DENSE if dense is None else dense:
        factor = crba.inverse_factor(_free_matrix(topology, *frozen, free))
    else:
        factor = articulated.factorize(topology, *frozen, given)
    return Solver(factor, S, I, armature, free)


def _free_matrix(topology: Topology, S, I, armature, free) -> Float[Array, "nv nv"]:
    """M with the rows and columns of given accelerations replaced by those of the identity."""
    M = crba.composite_mass_matrix(topology, S, I, armature)
    return M * free[:, None] * free[None, :] + jnp.diag(1 - free)


def _solve(topology: Topology, s: Solver, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    if isinstance(s.factor, articulated.Factor):
        return s.free * articulated.solve(topology, s.factor, s.free * b)
    return s.free * crba.solve(s.factor, s.free * b)


def inverse_matrix(topology: Topology, s: Solver) -> Float[Array, "nv nv"]:
    """``M⁻¹``, symmetric; zero rows and columns where accelerations are given."""
    factor = s.factor
    if isinstance(factor, articulated.Factor):
        factor = crba.inverse_factor(_free_matrix(topology, s.S, s.I, s.armature, s.free))
    return crba.inverse(factor) * s.free[:, None] * s.free[None, :]


_solve_map = LinearMap(
    "rbd_mass_matrix_solve",
    _solve,
    inverse_matrix,
    lambda topology: topology.nv,
    symmetric=True,  # passes that carry its constants and its vector as one cannot be transposed
)
