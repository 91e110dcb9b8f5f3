"""Forward and hybrid dynamics, and the mass matrix as a linear map, with their rules.

    forward dynamics   δa = M⁻¹ (δτ_in − δτ(δq, δv, 0; model, f_ext))
    hybrid dynamics    forward dynamics with rows and columns exchanged for prescribed joints
    mass matrix        δ(M⁻¹) = −M⁻¹ δM M⁻¹

Here δτ is the rule of inverse dynamics (:mod:`rbd_jax.derivatives.custom_jvp.inverse_dynamics`), at
the acceleration that was found. Linearity, higher derivatives and symbolic zeros are as there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms import formulations, world_frame
from ...algorithms.aba import articulated_dynamics, prescribed_dofs
from ...algorithms.crba import composite_mass_entries, composite_mass_matrix, crba
from ...algorithms.factor import (
    Entries,
    Factor,
    entry_places,
    factorized_entries,
    solve_entries,
)
from ...algorithms.passive import at_rest, minus_springs, plus_springs, without_springs
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...spatial import linear
from ..linearization import linearization_point
from .driven_joints import (
    coordinate_dynamics,
    coordinate_inverse,
    driven_dynamics_custom_jvp,
)
from .inverse_dynamics import inverse_dynamics, torque_map, torque_tangent
from .mass_matrix_solver import Solver
from .matrix_inverse import inverse_custom_jvp
from .mechanism import custom_jvp

# --- forward and hybrid dynamics ----------------------------------------------


@custom_jvp
def hybrid_dynamics_custom_jvp(model, q, v, a, tau, f_ext, prescribed):
    """Accelerations, torques and the factor of M, of which no derivative is taken."""
    dynamics = formulations.for_mass_matrix(
        model.nv,
        int(model.topology.dof_tree.depths.max(initial=-1)),
        inverse=_dynamics_by_inverse,
        factor=formulations.for_solves(
            bodies=_dynamics_by_articulated_bodies, entries=_dynamics_by_entries
        ),
    )
    return dynamics(model, q, v, a, tau, f_ext, prescribed)


def _dynamics_by_articulated_bodies(model, q, v, a, tau, f_ext, prescribed):
    return articulated_dynamics(model, q, v, a, tau, prescribed, f_ext)


def _dynamics_by_inverse(model, q, v, a, tau, f_ext, prescribed):
    """The same by M⁻¹ and one step of iterative refinement. Source: Singh (3)."""
    topology, g = model.topology, world_frame.quantities(model, q)
    M = composite_mass_matrix(topology, g.p, g.S_own, g.I_own, model.armature)
    if prescribed is None:
        Minv, acc = inverse_custom_jvp(M), jnp.zeros_like(v)
    else:
        solved = (~prescribed).astype(v.dtype)
        both = solved[:, None] * solved[None, :]
        Minv, acc = (
            inverse_custom_jvp(M * both + jnp.diag(1 - solved)) * both,
            jnp.where(prescribed, a, 0),
        )
    for _ in range(2):
        torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
        missing = tau - torque if prescribed is None else jnp.where(prescribed, 0, tau - torque)
        acc = acc + linear.matmul(Minv, missing)
    if prescribed is None:
        return acc, tau, Minv
    torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
    return acc, jnp.where(prescribed, torque, tau), Minv


def _dynamics_by_entries(model, q, v, a, tau, f_ext, prescribed):
    """The same by the entries of ``M = Lᵀ L``, and one step of iterative refinement."""
    topology, g = model.topology, world_frame.quantities(model, q)
    M = composite_mass_entries(topology, g.p, g.S_own, g.I_own, model.armature)
    acc = jnp.zeros_like(v)
    if prescribed is not None:
        i, j = entry_places(topology)
        solved = (~prescribed).astype(v.dtype)
        M = M * solved[i] * solved[j] + jnp.where(i == j, 1 - solved[i], 0)
        acc = jnp.where(prescribed, a, 0)
    factor = factorized_entries(topology, M)
    for _ in range(2):
        torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
        missing = tau - torque if prescribed is None else jnp.where(prescribed, 0, tau - torque)
        acc = acc + solve_entries(topology, factor, missing)
    if prescribed is None:
        return acc, tau, factor
    torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
    return acc, jnp.where(prescribed, torque, tau), factor


def accelerations(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"] | None,
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[
    Float[Array, " nv"],
    Float[Array, " nv"],
    world_frame.WorldQuantities,
    world_frame.Motion,
    Solver,
]:
    """Accelerations and torques, and what rules need beside them: poses, motion and a solver.

    ``prescribed`` is a flag for each degree of freedom, or None for none. Source: Singh (3), (34).
    """
    acc, torque, factor = hybrid_dynamics_custom_jvp(model, q, v, a, tau, f_ext, prescribed)
    g = world_frame.quantities(model, q)
    m = world_frame.motion(model, g, v, acc, f_ext)
    solved = jnp.ones_like(v) if prescribed is None else (~prescribed).astype(v.dtype)
    solver = Solver(factor, g.R, g.p, g.S_own, g.I_own, model.armature, solved)
    return acc, torque, g, m, solver


@hybrid_dynamics_custom_jvp.def_jvp
def _hybrid_dynamics_jvp(primals, tangents):
    model, q, v, a, tau, f_ext, prescribed = primals
    dmodel, dq, dv, da, dtau, df_ext, _ = tangents
    acc, torque, g, m, solve = accelerations(model, q, v, a, tau, prescribed, f_ext)
    r = linearization_point(model, g, m)
    da_prescribed = None if da is None or prescribed is None else jnp.where(prescribed, da, 0)
    change = torque_tangent(model, q, v, acc, g, r, dmodel, dq, dv, da_prescribed, df_ext)
    change = jnp.zeros_like(v) if change is None else change
    dacc = da_solved = solve(model.topology, -change if dtau is None else dtau - change)
    dtorque = jnp.zeros_like(tau) if dtau is None else dtau
    if prescribed is not None:
        dacc = da_solved if da_prescribed is None else da_solved + da_prescribed
        zero = jnp.zeros_like(v)
        reaction = torque_map(model.topology, r, jnp.concatenate([zero, zero, da_solved]))
        reaction = change + reaction + model.armature * da_solved
        dtorque = jnp.where(prescribed, reaction, dtorque)
    unmoved = jax.tree.map(jnp.zeros_like, solve.factor)
    return (acc, torque, solve.factor), (dacc, dtorque, unmoved)


@algorithm(driven_joints=True)
def forward_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations under the torques ``tau``, with exact analytical derivatives.

    Source: the value is that of :func:`rbd_jax.aba` (Kim, Table 3). On an accelerator, robots that
    are not too large take Singh (3), the inverse of the mass matrix. The derivative is an
    analytical rule, Singh (5), ``δa = M⁻¹ (δτ − ∂ID)``, implicit through inverse dynamics.

    Arguments as :func:`inverse_dynamics`, with torques (N m, N) in and accelerations out.
    A jvp or vjp costs one operator and one solve beside the value.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    if isinstance(model, CoordinateModel):
        return coordinate_dynamics(model, q, v, tau, f_ext)
    tau = minus_springs(model, q, tau)
    return hybrid_dynamics_custom_jvp(
        without_springs(model), q, v, jnp.zeros_like(v), tau, f_ext, None
    )[0]


@algorithm(driven_joints=True)
def hybrid_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nj"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Torques of prescribed joints and accelerations of the others, with analytical derivatives.

    Source: the value is that of :func:`rbd_jax.hybrid_aba`, the raw form (Kim, Table 4).
    Derivative: Singh (5) with rows and columns exchanged for prescribed joints, implicit through
    inverse dynamics; Kim, Table 7, gives the same by differentiating the recursions.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have a prescribed acceleration, as in :func:`rbd_jax.hybrid_aba`.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        ``(a, tau)`` of all joints, the inputs among them.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    prescribed = prescribed_dofs(model, prescribed)
    if isinstance(model, CoordinateModel):
        return driven_dynamics_custom_jvp(model, q, v, a, tau, f_ext, prescribed)[:2]
    tau = minus_springs(model, q, tau)
    a, tau, _ = hybrid_dynamics_custom_jvp(without_springs(model), q, v, a, tau, f_ext, prescribed)
    return a, plus_springs(model, q, tau)


# --- the mass matrix as a linear map ------------------------------------------


@algorithm(driven_joints=True)
def mass_matrix_product(
    model: Model, q: Float[Array, " nq"], a: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q) a`` in O(n): inverse dynamics at rest, with its analytical derivatives.

    Source: Kim, Table 2.
    """
    return inverse_dynamics(at_rest(model), q, jnp.zeros_like(a), a)


@algorithm(driven_joints=True)
def mass_matrix_solve(
    model: Model, q: Float[Array, " nq"], tau: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q)⁻¹ tau``: forward dynamics at rest, with its analytical derivatives.

    Source: Singh (34).
    """
    return forward_dynamics(at_rest(model), q, jnp.zeros_like(tau), tau)


@custom_jvp
def mass_matrix_inverse_custom_jvp(model, q):
    """``M⁻¹`` with the rule ``−M⁻¹ δM M⁻¹``."""
    if isinstance(model, CoordinateModel):
        return coordinate_inverse(model, q)
    zero = jnp.zeros((model.nv,), model.dtype)
    *_, g, _, solver = accelerations(model, q, zero, zero, zero, None, None)
    if not isinstance(solver.factor, Factor | Entries):
        return solver.factor
    X = solver.columns(model.topology, jnp.eye(model.nv, dtype=model.dtype))
    return 0.5 * (X + X.T)


@mass_matrix_inverse_custom_jvp.def_jvp
def _mass_matrix_inverse_jvp(primals, tangents):
    X = mass_matrix_inverse_custom_jvp(*primals)
    dM = eqx.filter_jvp(crba, primals, tangents)[1]
    product = linear.matmul(dM, X)
    return X, -linear.matmul(X, product)


@algorithm(driven_joints=True)
def mass_matrix_inverse(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M(q)⁻¹``, symmetric, with the analytical rule ``−M⁻¹ δM M⁻¹`` for its derivative.

    Source: Singh, §IV-E: the factor of the articulated-body algorithm, applied to unit columns.
    """
    return mass_matrix_inverse_custom_jvp(model, q)
