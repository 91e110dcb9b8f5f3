"""Forward dynamics of a robot with driven joints, its rule, and all explicit derivatives.

With ``τ_y = Φᵀ ID(φ(y), Φ ẏ, Φ ÿ + Φ̇ ẏ)``, whose derivatives are those of inverse dynamics and of
the laws, forward dynamics is implicit: ``δÿ = M_y⁻¹ (δτ − δτ_y)`` at the computed ÿ.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import coordinates, formulations, ground
from ..algorithms.crba import crba
from ..algorithms.factor import product
from ..model import CoordinateModel
from ..model.expansion import Expansion
from .inverse import invert
from .torque_rule import inverse_dynamics

Factor = coordinates.Factor | Float[Array, "nv nv"]


def _factor(model: CoordinateModel, q: Array) -> Factor:
    """The factor of the mass matrix, or its inverse where loops are slow."""
    if model.nv <= formulations.current().inverse:
        return invert(crba(model, q))
    return coordinates.factorize(model, q)


def _solve_columns(model: CoordinateModel, factor: Factor, B: Array) -> Array:
    if isinstance(factor, coordinates.Factor):
        return coordinates.solve(model, factor, B)
    return jnp.matmul(factor, B, precision="highest")


def _solver(model: CoordinateModel, q: Array, factor: Factor):
    """``B ↦ M_y⁻¹ B``, with an implicit derivative: no factorization is differentiated."""
    expansion = Expansion(model, q)
    robot = expansion.robot
    g = ground.pose(robot, expansion.q)
    frozen, still = jax.lax.stop_gradient((factor, model))

    def multiply(x):
        return expansion.project(
            product(model.topology, g.S, g.I, robot.armature, expansion.velocity(x))
        )

    return partial(
        jax.lax.custom_linear_solve,
        jax.vmap(multiply, in_axes=1, out_axes=1),
        solve=lambda _, B: _solve_columns(still, frozen, B),
        symmetric=True,
    )


@eqx.filter_custom_jvp
def _dynamics(model, q, v, tau, f_ext):
    """The accelerations and the factor, of which no derivative is taken."""
    factor, a = _factor(model, q), jnp.zeros_like(v)
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
    if jax.tree.leaves((dmodel, dq, dv, df_ext)):

        def torque(model, q, v, f_ext):
            return inverse_dynamics(model, q, v, a, f_ext)

        right = right - eqx.filter_jvp(torque, (model, q, v, f_ext), (dmodel, dq, dv, df_ext))[1]
    da = _solver(model, q, factor)(right[:, None])[:, 0]
    return (a, factor), (da, jax.tree.map(jnp.zeros_like, factor))


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
) -> tuple[Float[Array, " nv"], Callable]:
    """ÿ, and the function ``B ↦ M_y⁻¹ B`` for many columns."""
    a, factor = _dynamics(model, q, v, tau, f_ext)
    return a, _solver(model, q, factor)


def coordinate_inverse(model: CoordinateModel, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M_y⁻¹``; its derivative is that of :func:`rbd_jax.mass_matrix_inverse`."""
    X = _solve_columns(model, _factor(model, q), jnp.eye(model.nv, dtype=model.dtype))
    return 0.5 * (X + X.T)
