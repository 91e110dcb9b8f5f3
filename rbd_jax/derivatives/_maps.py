"""The two linear maps behind the rules: the derivative of inverse dynamics, and M⁻¹."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..algorithms import articulated
from ..algorithms.crba import composite_mass_matrix
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


class Solver(NamedTuple):
    """The mass matrix of the free degrees of freedom, factorised by articulated bodies."""

    factor: articulated.Factor
    I: Float[Array, "nb 10"]
    armature: Float[Array, " nv"]
    free: Float[Array, " nv"]

    def __call__(self, topology: Topology, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M⁻¹ b`` on the free degrees of freedom, zero on the others.

        The derivative is implicit, ``δx = M⁻¹ (δb − δM x)``: no factorisation is differentiated.
        """
        frozen = jax.lax.stop_gradient(self)

        def matvec(x):
            Mx = articulated.product(topology, self.factor.S, self.I, self.armature, self.free * x)
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
) -> Solver:
    """Factorise; degrees of freedom with ``given`` accelerations are left out."""
    free = jnp.ones_like(armature) if given is None else (~given).astype(armature.dtype)
    frozen = jax.lax.stop_gradient((S, I, armature))
    U_psi = articulated.factorize(topology, *frozen, given)
    return Solver(U_psi._replace(S=S), I, armature, free)


def inverse_matrix(topology: Topology, s: Solver) -> Float[Array, "nv nv"]:
    """``M⁻¹``, symmetric; zero rows and columns where accelerations are given."""
    M = composite_mass_matrix(topology, s.factor.S, s.I, s.armature)
    M = M * s.free[:, None] * s.free[None, :] + jnp.diag(1 - s.free)
    return articulated.invert(M) * s.free[:, None] * s.free[None, :]


_solve_map = LinearMap(
    "rbd_mass_matrix_solve",
    lambda topology, s, b: s.free * articulated.solve(topology, s.factor, s.free * b),
    inverse_matrix,
    lambda topology: topology.nv,
    symmetric=True,  # passes that carry its constants and its vector as one cannot be transposed
)
