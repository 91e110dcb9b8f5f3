"""The derivative rules of the dynamics: functions with analytical ``custom_jvp``.

Each rule is linear in the tangents, so reverse mode is its transpose, and is written with plain
operations on the residual, so higher derivatives follow. What no tangent reaches is left out. The
rules are

    inverse dynamics   δτ = ∂τ/∂q δq + ∂τ/∂v δv + M δa + (model, f_ext)
    forward dynamics   δa = M⁻¹ (δτ_in − δτ(δq, δv, 0; model, f_ext))
    hybrid dynamics    the same with rows and columns exchanged for prescribed joints

with δτ the operator of ``_operator`` (Singh, Algorithm 1; Kim, Table 5). The tangent of an
ambient q is first mapped to the tangent space, which drops the change of a quaternion's length.
The matrix M⁻¹ itself has the rule ``−M⁻¹ δM M⁻¹``.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._check import checked
from ..algorithms import ground
from ..algorithms._tree import loops_are_cheap, of_bodies
from ..algorithms.hybrid import articulated_dynamics
from ..algorithms.rnea import rnea
from ..model import Model, velocity_from_rate
from ._inverse import invert
from ._maps import chain_is_short, solver, torque_map
from ._operator import Residual, residual
from ._perturbation import model_torque


def _torque_tangent(model, q, v, a, g, r: Residual, dmodel, dq, dv, da, df_ext):
    """δτ of all tangents (None: zero), or None if there are none."""
    total = model_torque(model, dmodel, df_ext, q, v, a, g, r)
    if dq is None and dv is None and da is None:
        return total
    tangent = None if dq is None else velocity_from_rate(model, q, dq)
    parts = [jnp.zeros_like(v) if t is None else t for t in (tangent, dv, da)]
    part = torque_map(model.topology, r, jnp.concatenate(parts))
    if dv is not None:
        part = part + model.damping * dv
    if da is not None:
        part = part + model.armature * da
    return part if total is None else total + part


# --- inverse dynamics ---------------------------------------------------------


@eqx.filter_custom_jvp
def _inverse_dynamics(model, q, v, a, f_ext):
    if loops_are_cheap():
        return rnea(model, q, v, a, f_ext)
    g = ground.pose(model, q)
    return ground.torque(model, g, ground.motion(model, g, v, a, f_ext), v, a)


@_inverse_dynamics.def_jvp
def _inverse_dynamics_jvp(primals, tangents):
    model, q, v, a, f_ext = primals
    dmodel, dq, dv, da, df_ext = tangents
    g = ground.pose(model, q)
    m = ground.motion(model, g, v, a, f_ext)
    tau = ground.torque(model, g, m, v, a)
    r = residual(model, g, m)
    return tau, _torque_tangent(model, q, v, a, g, r, dmodel, dq, dv, da, df_ext)


@checked
def inverse_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques of the motion (q, v, a), with exact analytical derivatives in O(n).

    Source: value: Kim, Table 2 (that of :func:`rbd_jax.rnea`) on a CPU; on an accelerator, where
    loops are slow, and beside a derivative Singh, Algorithm 1, lines 1–10, in ground coordinates;
    derivative: Singh, Algorithm 1, in operator form; model leaves and f_ext: Kim, Table 5.

    Args:
        model: the robot; derivatives with respect to every float leaf are right.
        q: configuration (rad, m; quaternions wxyz are normalised inside).
        v: velocity (rad/s, m/s; body-fixed twist for a free joint).
        a: acceleration.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        Generalized forces (N m, N). A jvp or vjp costs O(n), a Jacobian O(n²).

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    return _inverse_dynamics(model, q, v, a, f_ext)


# --- forward and hybrid dynamics ----------------------------------------------

# Up to so many degrees of freedom M⁻¹ costs less than recursions over articulated bodies: in
# float64, in float32 (measured), and on accelerators, where a step of a recursion is some ten
# kernels (compiled for a GPU and counted). See benchmarks/README.md.
DENSE_LIMITS = 18, 30, 64
REFINE_LIMIT = 6  # in float32, M⁻¹ is good enough as it is for so many joints in a row
EXACT_LIMIT = 12  # in float32, where recursions cost little, for chains of so many at most


def _small(model: Model, v: Array) -> bool:
    """Whether M⁻¹ costs less than articulated bodies, and is as good or nearly so."""
    double, single, accelerator = DENSE_LIMITS
    if v.dtype == jnp.float64:
        return model.nv <= (double if loops_are_cheap() else accelerator)
    if loops_are_cheap():
        return model.nv <= single and chain_is_short(model.topology, EXACT_LIMIT)
    return model.nv <= accelerator and chain_is_short(model.topology)


def accelerations(model, q, v, a, tau, given, f_ext, dense):
    """Solve for the accelerations that are not given; returns also what the rule needs.

    By the inverse of the mass matrix if ``dense``, else by articulated bodies. In ground
    coordinates light links far from the root lose digits, which double precision has to spare.
    In single precision the mass matrix is taken where they are not lost, with a step of iterative
    refinement where many joints are in a row, and articulated bodies in body frames.
    """
    topology, g = model.topology, ground.pose(model, q)
    double = v.dtype == jnp.float64
    if not double and not (dense and chain_is_short(topology)):
        acc, torque, factor = _in_body_frames(model, q, v, a, tau, f_ext, given)
        m = ground.motion(model, g, v, acc, f_ext)
        return acc, torque, g, m, solver(topology, g, model.armature, given, factor)
    solve = solver(topology, g, model.armature, given, "inverse" if dense else None)
    acc = jnp.zeros_like(v) if given is None else jnp.where(given, a, 0)
    m = ground.motion(model, g, v, acc, f_ext)
    few = topology.tree.depths.max(initial=0) < REFINE_LIMIT
    for _ in range(1 if double or few else 2):
        acc = acc + solve(topology, tau - ground.torque(model, g, m, v, acc))
        m = ground.motion(model, g, v, acc, f_ext)
    return acc, ground.torque(model, g, m, v, acc), g, m, solve


@eqx.filter_custom_jvp
def _hybrid_dynamics(model, q, v, a, tau, f_ext, given, jacobians):
    small = _small(model, v)
    if not small and v.dtype != jnp.float64:
        return articulated_dynamics(model, q, v, a, tau, given, f_ext)[:2]
    acc, torque, *_ = accelerations(model, q, v, a, tau, given, f_ext, small)
    return acc, (tau if given is None else jnp.where(given, torque, tau))


@_hybrid_dynamics.def_jvp
def _hybrid_dynamics_jvp(primals, tangents):
    *state, jacobians = primals
    model, v = state[0], state[2]
    primal, tangent, _ = _implicit(state, tangents[:-1], jacobians or _small(model, v))
    return primal, tangent


@eqx.filter_custom_jvp
def _in_body_frames(model, q, v, a, tau, f_ext, given):
    """Accelerations, torques, and the factor of M: of the last one no derivative is taken."""
    return articulated_dynamics(model, q, v, a, tau, given, f_ext)


@_in_body_frames.def_jvp
def _in_body_frames_jvp(primals, tangents):
    primal, tangent, factor = _implicit(primals, tangents, False)
    return (*primal, factor), (*tangent, jax.tree.map(jnp.zeros_like, factor))


def _implicit(primals, tangents, dense):
    """Accelerations and torques, their tangents, and what M was solved by."""
    model, q, v, a, tau, f_ext, given = primals
    dmodel, dq, dv, da, dtau, df_ext, _ = tangents
    acc, torque, g, m, solve = accelerations(model, q, v, a, tau, given, f_ext, dense)
    r = residual(model, g, m)
    dknown = None if da is None or given is None else jnp.where(given, da, 0)
    change = _torque_tangent(model, q, v, acc, g, r, dmodel, dq, dv, dknown, df_ext)
    change = jnp.zeros_like(v) if change is None else change
    rhs = -change if dtau is None else dtau - change
    dfree = solve(model.topology, rhs)
    if given is None:
        return (acc, tau), (dfree, dtau), solve.factor
    dacc = dfree if dknown is None else dfree + dknown
    zero = jnp.zeros_like(v)
    reaction = torque_map(model.topology, r, jnp.concatenate([zero, zero, dfree]))
    reaction = change + reaction + model.armature * dfree
    dtau_in = jnp.zeros_like(tau) if dtau is None else dtau
    primal = acc, jnp.where(given, torque, tau)
    return primal, (dacc, jnp.where(given, reaction, dtau_in)), solve.factor


@checked
def forward_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations under the torques ``tau``, with exact analytical derivatives.

    Source: value: for small robots the inverse of the mass matrix (:func:`rbd_jax.crba`), else
    Kim, Table 3, in ground coordinates in float64, in body frames (that of :func:`rbd_jax.aba`)
    in float32; derivative: Singh (5), ``δa = M⁻¹ (δτ − ∂ID)``, implicit through inverse dynamics.

    Arguments as :func:`inverse_dynamics`, with torques (N m, N) in and accelerations out.
    A jvp or vjp costs one operator and one solve beside the value. In float32 derivatives are right
    to about 1e-6, but for long chains (1e-3 at 30 degrees of freedom in a row) and, by 1e-5, those
    by q of a humanoid with hands.

    Raises:
        ValueError: if a shape does not fit the robot.
    """
    return _hybrid_dynamics(model, q, v, jnp.zeros_like(v), tau, f_ext, None, False)[0]


def forward_dynamics_for_jacobians(model, q, v, tau, f_ext) -> Float[Array, " nv"]:
    """:func:`forward_dynamics` whose rule inverts M, for those who push many tangents at once.

    Assembling takes M⁻¹ anyway; here it also gives the accelerations, and no articulated bodies.
    """
    return _hybrid_dynamics(model, q, v, jnp.zeros_like(v), tau, f_ext, None, True)[0]


@checked
def hybrid_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    prescribed: Bool[Array, " nb"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Accelerations of free joints and torques of prescribed ones, with analytical derivatives.

    Source: value that of Kim, Table 4 (:func:`rbd_jax.algorithms.hybrid.hybrid_dynamics`, the raw
    form); derivative: implicit through inverse dynamics, as Kim, Table 7.

    Args:
        model: the robot.
        q: configuration. v: velocity.
        a: accelerations; those of joints that are not prescribed are ignored.
        tau: torques (N m, N); those of prescribed joints are ignored.
        prescribed: which joints have their acceleration given; data, it may be mapped over.
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).

    Returns:
        ``(a, tau)`` complete: inputs where given, results elsewhere.
    """
    given = of_bodies(model.topology, prescribed[:, None])[:, 0]
    return _hybrid_dynamics(model, q, v, a, tau, f_ext, given, False)


# --- the inverse of a matrix --------------------------------------------------


@invert.defjvp
def _invert_jvp(primals, tangents):
    X = invert(primals[0])
    product = jnp.matmul(tangents[0], X, precision="highest")
    return X, -jnp.matmul(X, product, precision="highest")


# --- the mass matrix as a linear map ------------------------------------------


def _at_rest(model: Model) -> Model:
    """The same robot without gravity and damping."""
    zeros = [jnp.zeros_like(model.gravity), jnp.zeros_like(model.damping)]
    return eqx.tree_at(lambda m: [m.gravity, m.damping], model, zeros)


@checked
def mass_matrix_product(
    model: Model, q: Float[Array, " nq"], a: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q) a`` in O(n), with analytical derivatives (inverse dynamics at rest, Kim Table 2)."""
    return inverse_dynamics(_at_rest(model), q, jnp.zeros_like(a), a)


@checked
def mass_matrix_solve(
    model: Model, q: Float[Array, " nq"], tau: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """``M(q)⁻¹ tau``, with analytical derivatives (forward dynamics at rest, Singh (34))."""
    return forward_dynamics(_at_rest(model), q, jnp.zeros_like(tau), tau)


@checked
def mass_matrix_inverse(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M(q)⁻¹``, symmetric, with analytical derivatives. Source: Singh (34) on unit columns."""
    eye = jnp.eye(model.nv, dtype=model.dtype)
    Minv = jax.vmap(lambda b: mass_matrix_solve(model, q, b))(eye)
    return 0.5 * (Minv + Minv.T)
