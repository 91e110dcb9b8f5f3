"""Forward dynamics of a robot with driven joints, its rule, and all explicit derivatives.

With ``τ_y = Φᵀ ID(φ(y), Φ ẏ, Φ ÿ + Φ̇ ẏ)``, whose derivatives are those of inverse dynamics and of
the laws, forward dynamics is implicit: ``δÿ = M_y⁻¹ (δτ − δτ_y)`` at the computed ÿ.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import coordinates, formulations, ground
from ..algorithms.crba import crba
from ..algorithms.factor import product
from ..model import CoordinateModel, Topology
from ..model.expansion import Expansion
from .inverse import invert
from .torque_rule import inverse_dynamics

Factor = coordinates.Factor | Float[Array, "nv nv"]


def _solve_columns(model: CoordinateModel, factor: Factor, B: Array) -> Array:
    if isinstance(factor, coordinates.Factor):
        return coordinates.solve(model, factor, B)
    return jnp.matmul(factor, B, precision="highest")


class CoordinateSolver(NamedTuple):
    """The mass matrix M_y and its factor; as ``Solver`` of robots whose joints are independent."""

    model: CoordinateModel
    q: Float[Array, " nq"]
    factor: Factor

    def __call__(self, topology: Topology, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M_y⁻¹ b``."""
        return self.columns(topology, b[:, None])[:, 0]

    def columns(self, topology: Topology, B: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
        """``M_y⁻¹ B`` with an implicit derivative: no factorization is differentiated."""
        still = jax.lax.stop_gradient(self)
        product = jax.vmap(partial(self.product, topology), in_axes=1, out_axes=1)

        def solve(_, B):
            return _solve_columns(still.model, still.factor, B)

        return jax.lax.custom_linear_solve(product, B, solve, symmetric=True)

    def product(self, topology: Topology, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M_y x``."""
        expansion = Expansion(self.model, self.q)
        robot, g = expansion.robot, ground.pose(expansion.robot, expansion.q)
        Mx = product(robot.topology, g.S, g.I, robot.armature, expansion.velocity(x))
        return expansion.project(Mx)


def factorized(model: CoordinateModel, q: Float[Array, " nq"]) -> CoordinateSolver:
    """The factor of the mass matrix, or its inverse where loops are slow."""
    if model.nv <= formulations.current().inverse:
        return CoordinateSolver(model, q, invert(crba(model, q)))
    return CoordinateSolver(model, q, coordinates.factorize(model, q))


@eqx.filter_custom_jvp
def _dynamics(model, q, v, tau, f_ext):
    """The accelerations and the factor, of which no derivative is taken."""
    factor, a = factorized(model, q).factor, jnp.zeros_like(v)
    for _ in range(2):  # the second is a step of iterative refinement
        missing = tau - inverse_dynamics(model, q, v, a, f_ext)
        a = a + _solve_columns(model, factor, missing[:, None])[:, 0]
    return a, factor


@_dynamics.def_jvp
def _dynamics_jvp(primals, tangents):
    model, q, v, tau, f_ext = primals
    dmodel, dq, dv, dtau, df_ext = tangents
    a, factor = _dynamics(*primals)
    right = jnp.zeros_like(tau) if dtau is None else dtau
    change = torque_change(model, q, v, a, f_ext, dmodel, dq, dv, df_ext)
    right = right if change is None else right - change
    da = CoordinateSolver(model, q, factor)(model.topology, right)
    return (a, factor), (da, jax.tree.map(jnp.zeros_like, factor))


def torque_change(model, q, v, a, f_ext, dmodel, dq, dv, df_ext) -> Float[Array, " nv"] | None:
    """``δτ_y`` at fixed ÿ along tangents, of which None are zero; None if all are zero."""
    if not jax.tree.leaves((dmodel, dq, dv, df_ext)):
        return None

    def torque(model, q, v, f_ext):
        return inverse_dynamics(model, q, v, a, f_ext)

    return eqx.filter_jvp(torque, (model, q, v, f_ext), (dmodel, dq, dv, df_ext))[1]


def coordinate_dynamics(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, " nv"]:
    """``ÿ = M_y⁻¹ (τ_y − h_y)`` with an implicit rule.

    One step of refinement gives single precision back the digits that the mass matrix loses.
    Source: Singh (3), (5).
    """
    return _dynamics(model, q, v, tau, f_ext)[0]


def coordinate_accelerations(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[Float[Array, " nv"], CoordinateSolver]:
    """ÿ, and what solves with M_y."""
    a, factor = _dynamics(model, q, v, tau, f_ext)
    return a, CoordinateSolver(model, q, factor)


def coordinate_inverse(model: CoordinateModel, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M_y⁻¹``; its derivative is that of :func:`rbd_jax.mass_matrix_inverse`."""
    X = factorized(model, q).columns(model.topology, jnp.eye(model.nv, dtype=model.dtype))
    return 0.5 * (X + X.T)
