"""Explicit derivatives of forward dynamics. Source: Singh (5) and §IV-E (FDSVA)."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model
from ._maps import inverse_matrix
from ._operator import residual
from ._rules import accelerations
from .idsva import torque_matrices


@checked
def forward_dynamics_derivatives(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    *,
    method: Literal["dmm", "aza"] = "dmm",
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """``(∂a/∂q, ∂a/∂v, M⁻¹)`` in the tangent space: column k is along ``integrate(q, ε e_k)``.

    Source: Singh (5), ``∂FD = −M⁻¹ ∂ID`` at the acceleration of ``tau``.

    Args:
        model: the robot.
        q: configuration. v: velocity. tau: torques (N m, N).
        f_ext: external wrench (n, f) on each body, in its frame (N m, N).
        method: how to multiply by M⁻¹: ``"dmm"`` makes the inverse matrix and multiplies by it
            (in float32 that of a chain of over 24 degrees of freedom by the other algorithm),
            ``"aza"`` runs the paper's ABA-zero algorithm on every column, articulated inertias
            computed once.

    Returns:
        Derivatives of :func:`rbd_jax.forward_dynamics`; ``∂a/∂τ = M⁻¹``.

    Raises:
        ValueError: for a wrong shape or an unknown method.
    """
    return acceleration_with_derivatives(model, q, v, tau, f_ext, method)[1]


def acceleration_with_derivatives(model, q, v, tau, f_ext, method="dmm"):
    """``a`` and ``(∂a/∂q, ∂a/∂v, M⁻¹)``, see :func:`forward_dynamics_derivatives`."""
    dense = method == "dmm"
    a, _, g, m, solver = accelerations(model, q, v, jnp.zeros_like(v), tau, None, f_ext, dense)
    dq, dv = torque_matrices(model, residual(model, g, m))[:2]
    if method == "dmm":
        Minv = inverse_matrix(model.topology, solver)
        by_q, by_v = (jnp.matmul(Minv, -x, precision="highest") for x in (dq, dv))
        return a, (by_q, by_v, Minv)
    if method == "aza":
        columns = jnp.concatenate([-dq, -dv, jnp.eye(model.nv, dtype=dq.dtype)], axis=1)
        by_q, by_v, Minv = jnp.split(solver.columns(model.topology, columns), 3, axis=1)
        return a, (by_q, by_v, Minv)
    raise ValueError(f"forward_dynamics_derivatives: method must be 'dmm' or 'aza', got {method!r}")
