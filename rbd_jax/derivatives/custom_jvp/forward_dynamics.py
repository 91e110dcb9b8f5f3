"""The derivative rules of the dynamics: functions with analytical ``custom_jvp``.

Each rule is linear in the tangents, so that reverse mode is its transpose. It is written with
plain operations on the residual, so that higher derivatives follow. Terms whose tangent is
symbolically zero are left out. The rules are

    inverse dynamics   δτ = ∂τ/∂q δq + ∂τ/∂v δv + M δa + (model, f_ext)
    forward dynamics   δa = M⁻¹ (δτ_in − δτ(δq, δv, 0; model, f_ext))
    hybrid dynamics    forward dynamics with rows and columns exchanged for prescribed joints

where δτ is the operator of :mod:`rbd_jax.derivatives.linearization` (Singh, Algorithm 1; Kim,
Table 5). The tangent of an ambient q is first mapped to the tangent space, which drops the change of a
quaternion's length. The matrix M⁻¹ itself has the rule ``−M⁻¹ δM M⁻¹``.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...algorithms import formulations, world_frame
from ...algorithms.aba import articulated_dynamics
from ...algorithms.crba import composite_mass_matrix, crba
from ...algorithms.factor import Factor
from ...algorithms.springs import minus_springs, plus_springs, unsprung
from ...algorithms.torques import at_rest
from ...algorithms.tree import per_dof
from ...lanes import lanes
from ...model import CoordinateModel, Model
from ...model.arguments import checked, takes_coordinates
from ..linearization import residual
from .driven_joints import coordinate_dynamics, coordinate_inverse
from .inverse import invert
from .inverse_dynamics import inverse_dynamics as inverse_dynamics, torque_tangent as torque_tangent
from .mass_matrix_solver import Solver, torque_map
from .mechanism import ruled

# --- forward and hybrid dynamics ----------------------------------------------


@ruled
def _dynamics(model, q, v, a, tau, f_ext, prescribed):
    """Accelerations, torques and the factor of M, of which no derivative is taken."""
    chosen, depth = formulations.current(), model.topology.dof_tree.depths.max(initial=-1)
    if model.nv <= chosen.inverse and depth < chosen.depth:
        return _by_inverse(model, q, v, a, tau, f_ext, prescribed)
    return articulated_dynamics(model, q, v, a, tau, prescribed, f_ext)


def _by_inverse(model, q, v, a, tau, f_ext, prescribed):
    """As :func:`_dynamics`, by M⁻¹ and one step of iterative refinement. Source: Singh (3)."""
    topology, g = model.topology, world_frame.pose(model, q)
    M = composite_mass_matrix(topology, g.p, g.S_own, g.I_own, model.armature)
    if prescribed is None:
        Minv, acc = invert(M), jnp.zeros_like(v)
    else:
        solved = (~prescribed).astype(v.dtype)
        both = solved[:, None] * solved[None, :]
        Minv, acc = invert(M * both + jnp.diag(1 - solved)) * both, jnp.where(prescribed, a, 0)
    for _ in range(2):
        torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
        missing = tau - torque if prescribed is None else jnp.where(prescribed, 0, tau - torque)
        acc = acc + jnp.matmul(Minv, missing, precision="highest")
    if prescribed is None:
        return acc, tau, Minv
    torque = world_frame.torque(model, g, world_frame.motion(model, g, v, acc, f_ext), v, acc)
    return acc, jnp.where(prescribed, torque, tau), Minv


def accelerations(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nv"] | None,
    f_ext: Float[Array, "nb 6"] | None,
) -> tuple[
    Float[Array, " nv"], Float[Array, " nv"], world_frame.Placed, world_frame.Motion, Solver
]:
    """Accelerations and torques, and what rules need beside them: poses, motion and a solver.

    ``prescribed`` is a flag for each degree of freedom, or None for none. Source: Singh (3), (34).
    """
    acc, torque, factor = _dynamics(model, q, v, a, tau, f_ext, prescribed)
    g = world_frame.pose(model, q)
    m = world_frame.motion(model, g, v, acc, f_ext)
    solved = jnp.ones_like(v) if prescribed is None else (~prescribed).astype(v.dtype)
    solver = Solver(factor, g.R, g.p, g.S_own, g.I_own, model.armature, solved)
    return acc, torque, g, m, solver


@_dynamics.def_jvp
def _dynamics_jvp(primals, tangents):
    model, q, v, a, tau, f_ext, prescribed = primals
    dmodel, dq, dv, da, dtau, df_ext, _ = tangents
    acc, torque, g, m, solve = accelerations(model, q, v, a, tau, prescribed, f_ext)
    r = residual(model, g, m)
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


@checked
@lanes
@takes_coordinates
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
    return _dynamics(unsprung(model), q, v, jnp.zeros_like(v), tau, f_ext, None)[0]


@checked
@lanes
def hybrid_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nb"],
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
        prescribed: which joints have a prescribed acceleration; data, it may be mapped over.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        ``(a, tau)`` of all joints, the inputs among them.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    prescribed = per_dof(model.topology, prescribed[:, None])[:, 0]
    tau = minus_springs(model, q, tau)
    a, tau, _ = _dynamics(unsprung(model), q, v, a, tau, f_ext, prescribed)
    return a, plus_springs(model, q, tau)


# --- the mass matrix as a linear map ------------------------------------------


@checked
@lanes
@takes_coordinates
def mass_matrix_product(
    model: Model, q: Float[Array, " nq"], a: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q) a`` in O(n): inverse dynamics at rest, with its analytical derivatives.

    Source: Kim, Table 2.
    """
    return inverse_dynamics(at_rest(model), q, jnp.zeros_like(a), a)


@checked
@lanes
@takes_coordinates
def mass_matrix_solve(
    model: Model, q: Float[Array, " nq"], tau: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q)⁻¹ tau``: forward dynamics at rest, with its analytical derivatives.

    Source: Singh (34).
    """
    return forward_dynamics(at_rest(model), q, jnp.zeros_like(tau), tau)


@ruled
def _mass_matrix_inverse(model, q):
    if isinstance(model, CoordinateModel):
        return coordinate_inverse(model, q)
    zero = jnp.zeros((model.nv,), model.dtype)
    *_, g, _, solver = accelerations(model, q, zero, zero, zero, None, None)
    if not isinstance(solver.factor, Factor):
        return solver.factor
    X = solver.columns(model.topology, jnp.eye(model.nv, dtype=model.dtype))
    return 0.5 * (X + X.T)


@_mass_matrix_inverse.def_jvp
def _mass_matrix_inverse_jvp(primals, tangents):
    X = _mass_matrix_inverse(*primals)
    dM = eqx.filter_jvp(crba, primals, tangents)[1]
    product = jnp.matmul(dM, X, precision="highest")
    return X, -jnp.matmul(X, product, precision="highest")


@checked
@lanes
@takes_coordinates
def mass_matrix_inverse(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M(q)⁻¹``, symmetric, with the analytical rule ``−M⁻¹ δM M⁻¹`` for its derivative.

    Source: Singh, §IV-E: the factor of the articulated-body algorithm, applied to unit columns.
    """
    return _mass_matrix_inverse(model, q)
