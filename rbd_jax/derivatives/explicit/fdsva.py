"""Explicit derivatives of forward dynamics. Source: Singh (5) and §IV-E (FDSVA)."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...algorithms import formulations
from ...algorithms.passive import minus_springs, spring_matrix, without_springs
from ...model import CoordinateModel, Model
from ...model.arguments import algorithm
from ...spatial import linear
from ..custom_jvp.driven_joints import coordinate_accelerations
from ..custom_jvp.forward_dynamics import accelerations
from ..linearization import linearization_point
from .articulated import articulated_derivatives
from .idsva import inverse_dynamics_derivatives, torque_matrices

Method = Literal["auto", "aza", "dmm", "aba"]


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of the accelerations a; the one along τ is the inverse of the mass matrix."""

    da_dq: Float[Array, "nv nv"]
    da_dv: Float[Array, "nv nv"]
    Minv: Float[Array, "nv nv"]


@algorithm(driven_joints=True)
def forward_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    *,
    method: Method = "auto",
) -> ForwardDynamicsDerivatives:
    """``(∂a/∂q, ∂a/∂v, M⁻¹)`` in the tangent space: column k is along ``integrate(q, ε e_k)``.

    Source: Singh (5), ``∂FD = −M⁻¹ ∂ID`` at the acceleration of ``tau``. The result's own
    derivatives are those of autodiff.

    Args:
        model: the robot.
        q: configuration. v: velocity. tau: torques (N m, N).
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).
        method: how the columns are found. ``"aza"`` solves for every column with the factor that
            forward dynamics leaves behind. ``"dmm"`` makes the inverse matrix and multiplies by
            it. ``"auto"`` takes the faster of these two, which the number of pairs of a joint and
            an ancestor and the length of the longest chain decide.
            ``"aba"`` linearizes the articulated bodies and makes no derivatives of torques
            (:mod:`rbd_jax.derivatives.explicit.articulated`): it takes longer, and on chains of
            100 links its errors are 40 to 100 times smaller than those of ``"aza"``. It takes
            robots without driven joints.

    Returns:
        Derivatives of :func:`rbd_jax.forward_dynamics`; ``∂a/∂τ = M⁻¹``. Cost: O(n²), and O(n³) by
        ``"dmm"``. For trees of depth d a column of ``"aza"`` costs O(n d) while d is small.

    Raises:
        ValueError: for a wrong shape or an unknown method.
    """
    return acceleration_with_derivatives(model, q, v, tau, f_ext, method)[1]


def acceleration_with_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None,
    method: Method = "auto",
) -> tuple[Float[Array, " nv"], ForwardDynamicsDerivatives]:
    """The accelerations and their :func:`forward_dynamics_derivatives`. Source: Singh, §IV-E."""
    if method not in get_args(Method):
        raise ValueError(
            f"forward_dynamics_derivatives: method must be one of {get_args(Method)}, got "
            f"{method!r}"
        )
    if method == "aba":
        if isinstance(model, CoordinateModel):
            raise ValueError(
                "forward_dynamics_derivatives: method 'aba' takes no robot with driven joints as "
                f"{model.topology.name!r}; take 'auto'"
            )
        a, by_q, by_v, Minv = articulated_derivatives(model, q, v, tau, f_ext)
        return a, ForwardDynamicsDerivatives(by_q, by_v, 0.5 * (Minv + Minv.T))
    if method == "auto":
        tree, single = model.space.dof_tree, model.dtype == jnp.float32
        method = formulations.for_columns(tree, single, inverse="dmm", solves="aza")
    if isinstance(model, CoordinateModel):
        a, solver = coordinate_accelerations(model, q, v, tau, f_ext)
        dtau_dq, dtau_dv, _ = inverse_dynamics_derivatives(model, q, v, a, f_ext)
    else:
        tau, still = minus_springs(model, q, tau), jnp.zeros_like(v)
        a, _, g, m, solver = accelerations(without_springs(model), q, v, still, tau, None, f_ext)
        dtau_dq, dtau_dv, _ = torque_matrices(model, linearization_point(model, g, m))
        if model.stiffness is not None:
            dtau_dq = dtau_dq + spring_matrix(model, q)
    solve = partial(solver.columns, model.topology)
    eye = jnp.eye(model.nv, dtype=dtau_dq.dtype)
    if method == "dmm":
        Minv = solve(eye)
        by_q, by_v = (linear.matmul(Minv, -x) for x in (dtau_dq, dtau_dv))
    else:
        by_q, by_v, Minv = formulations.for_matrices(joined=_solved_as_one, apart=map)(
            solve, (-dtau_dq, -dtau_dv, eye)
        )
    return a, ForwardDynamicsDerivatives(by_q, by_v, 0.5 * (Minv + Minv.T))


def _solved_as_one(solve: Callable, matrices: tuple[Array, ...]) -> list[Array]:
    """The solutions for several square matrices, of which all columns are solved for together."""
    return jnp.split(solve(jnp.concatenate(matrices, axis=1)), len(matrices), axis=1)
