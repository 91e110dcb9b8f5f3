"""Forward and hybrid dynamics of a robot with driven joints: the rule, and explicit derivatives.

With ``τ_y = Φᵀ ID(φ(y), Φ ẏ, Φ ÿ + Φ̇ ẏ)``, whose derivatives are those of inverse dynamics and of
the laws, forward dynamics is implicit: ``δÿ = M_y⁻¹ (δτ − δτ_y)`` at the computed ÿ.
The value is that of articulated bodies, and M_y is factorized along the branches.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms import coordinates, formulations, world_frame
from ...algorithms.block_columns import BlockColumns, half_solve, half_solve_by_inverse
from ...algorithms.crba import crba
from ...algorithms.embedding import EmbeddedFactor, embedded_dynamics, solve
from ...algorithms.factor import product
from ...algorithms.tree import down_along_branches
from ...model import CoordinateModel, Topology
from ...model.coordinates import CoordinateMap
from ...spatial import linear
from .inverse_dynamics import inverse_dynamics
from .matrix_inverse import inverse_custom_jvp
from .mechanism import custom_jvp

Factor = coordinates.Factor | Float[Array, "nv nv"]


def _solve_columns(model: CoordinateModel, factor: Factor, B: Array) -> Array:
    if isinstance(factor, coordinates.Factor):
        return coordinates.solve(model, factor, B)
    return linear.matmul(factor, B)


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

    def half_solve(
        self, topology: Topology, B: Float[Array, "nv m"], nonzero: np.ndarray
    ) -> tuple[BlockColumns, BlockColumns]:
        """``(W, X)`` with ``Bᵀ M_y⁻¹ B = Wᵀ X`` and ``M_y⁻¹ B = down(X)``.

        No derivative is taken.
        """
        s = jax.lax.stop_gradient(self)
        if isinstance(s.factor, coordinates.Factor):
            table = coordinates.branches(s.model)
            return half_solve(table.tree, *s.factor, B[table.order], nonzero[table.order])
        return half_solve_by_inverse(s.factor, B)

    def down(self, topology: Topology, X: Float[Array, "nv m"]) -> Float[Array, "nv m"]:
        """The second half of a solve."""
        s = jax.lax.stop_gradient(self)
        if not isinstance(s.factor, coordinates.Factor):
            return X
        table = coordinates.branches(s.model)
        return down_along_branches(table.tree, s.factor.L, X)[np.argsort(table.order)]

    def product(self, topology: Topology, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M_y x``."""
        expansion = CoordinateMap(self.model, self.q)
        robot, g = expansion.robot, world_frame.quantities(expansion.robot, expansion.q)
        Mx = product(robot.topology, g.S, g.I, robot.armature, expansion.velocity(x))
        return expansion.project(Mx)


def factorized(model: CoordinateModel, q: Float[Array, " nq"]) -> CoordinateSolver:
    """The factor of the mass matrix, or its inverse where loops are slow."""
    factor = formulations.for_mass_matrix(
        model.nv, inverse=_inverse_of_mass_matrix, factor=coordinates.factorize
    )
    return CoordinateSolver(model, q, factor(model, q))


def _inverse_of_mass_matrix(model: CoordinateModel, q: Array) -> Float[Array, "nv nv"]:
    return inverse_custom_jvp(crba(model, q))


@custom_jvp
def driven_dynamics_custom_jvp(model, q, v, a, tau, f_ext, prescribed):
    """ÿ, τ_y and the factor of the articulated bodies, of which no derivative is taken."""
    return embedded_dynamics(model, q, v, a, tau, prescribed, f_ext)


@driven_dynamics_custom_jvp.def_jvp
def _driven_dynamics_jvp(primals, tangents):
    model, q, v, _, _, f_ext, prescribed = primals
    dmodel, dq, dv, da, dtau, df_ext, _ = tangents
    a, tau, factor = driven_dynamics_custom_jvp(*primals)
    da_given = None if da is None or prescribed is None else jnp.where(prescribed, da, 0)
    change = torque_change(model, q, v, a, f_ext, dmodel, dq, dv, da_given, df_ext)
    change = jnp.zeros_like(a) if change is None else change
    solved = jnp.ones_like(a) if prescribed is None else (~prescribed).astype(a.dtype)
    right = solved * (-change if dtau is None else dtau - change)
    da_new = da_solved = _solved(model, q, jax.lax.stop_gradient(factor), solved, right)
    dtorque = jnp.zeros_like(tau) if dtau is None else dtau
    if prescribed is not None:
        da_new = da_solved if da_given is None else da_solved + da_given
        reaction = change + _mass_product(model, q, da_solved)
        dtorque = jnp.where(prescribed, reaction, dtorque)
    return (a, tau, factor), (da_new, dtorque, jax.tree.map(jnp.zeros_like, factor))


def _mass_product(model: CoordinateModel, q: Array, x: Array) -> Float[Array, " nv"]:
    matrix = CoordinateSolver(model, q, jnp.zeros((0, 0), x.dtype))
    return matrix.product(model.topology, x)


def _solved(
    model: CoordinateModel, q: Array, factor: EmbeddedFactor, solved: Array, b: Array
) -> Array:
    """``M_y⁻¹ b`` of the coordinates solved for, with an implicit derivative."""
    still = jax.lax.stop_gradient(model)

    def product(x):
        return solved * _mass_product(model, q, solved * x) + (1 - solved) * x

    return jax.lax.custom_linear_solve(
        product, b, lambda _, b: solve(still, factor, b), symmetric=True
    )


def torque_change(model, q, v, a, f_ext, dmodel, dq, dv, da, df_ext) -> Float[Array, " nv"] | None:
    """``δτ_y`` along tangents, of which None are zero; None if all are zero."""
    if not jax.tree.leaves((dmodel, dq, dv, da, df_ext)):
        return None
    tangents = dmodel, dq, dv, da, df_ext
    return eqx.filter_jvp(inverse_dynamics, (model, q, v, a, f_ext), tangents)[1]


def coordinate_dynamics(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> Float[Array, " nv"]:
    """ÿ under τ_y, with the rule ``δÿ = M_y⁻¹ (δτ − δτ_y)``. Source: Singh (5)."""
    still = jnp.zeros_like(v)
    return driven_dynamics_custom_jvp(model, q, v, still, tau, f_ext, None)[0]


def coordinate_accelerations(
    model: CoordinateModel,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[Float[Array, " nv"], CoordinateSolver]:
    """ÿ, and what solves with M_y."""
    return coordinate_dynamics(model, q, v, tau, f_ext), factorized(model, q)


def coordinate_inverse(model: CoordinateModel, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M_y⁻¹``; its derivative is that of :func:`rbd_jax.mass_matrix_inverse`."""
    X = factorized(model, q).columns(model.topology, jnp.eye(model.nv, dtype=model.dtype))
    return 0.5 * (X + X.T)
