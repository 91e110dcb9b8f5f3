"""Explicit derivatives of forward dynamics. Source: Singh (5) and §IV-E (FDSVA)."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..algorithms.hybrid import aba
from ..model import Model
from ._rules import forward_dynamics
from ._solve import factorize, solve_factored
from .idsva import inverse_dynamics_derivatives


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
        method: how to multiply by M⁻¹: ``"dmm"`` by the inverse matrix, from a Cholesky
            factorisation of M, or ``"aza"``, the paper's ABA-zero algorithm, which runs the
            articulated-body algorithm on every column with zero velocity and gravity.

    Returns:
        Derivatives of :func:`rbd_jax.forward_dynamics`; ``∂a/∂τ = M⁻¹``.

    Raises:
        ValueError: for a wrong shape or an unknown method.
    """
    a = forward_dynamics(model, q, v, tau, f_ext)
    dq, dv, M = inverse_dynamics_derivatives(model, q, v, a, f_ext)
    eye = jnp.eye(model.nv, dtype=M.dtype)
    if method == "dmm":
        factor = factorize(M)
        Minv = solve_factored(factor, eye)
        Minv = 0.5 * (Minv + Minv.T)
        product = -jnp.matmul(Minv, jnp.concatenate([dq, dv], axis=1), precision="highest")
    elif method == "aza":
        columns = jnp.concatenate([-dq, -dv, eye], axis=1)
        product = mass_matrix_solve_aza(model, q, columns)
        product, Minv = product[:, : 2 * model.nv], product[:, 2 * model.nv :]
    else:
        raise ValueError(
            f"forward_dynamics_derivatives: method must be 'dmm' or 'aza', got {method!r}"
        )
    return product[:, : model.nv], product[:, model.nv :], Minv


def mass_matrix_solve_aza(
    model: Model, q: Float[Array, " nq"], b: Float[Array, "nv m"]
) -> Float[Array, "nv m"]:
    """``M⁻¹ b`` by the ABA-zero algorithm. Source: Singh (34): ``ABA(q, 0, b, 0)`` on each column.

    ``vmap`` over the columns alone leaves the articulated inertias unbatched, so that they are
    computed once and used again for every column, as the paper has it.
    """
    still = eqx.tree_at(lambda m: m.gravity, model, jnp.zeros_like(model.gravity))
    zero = jnp.zeros((model.nv,), b.dtype)
    return jax.vmap(lambda x: aba(still, q, zero, x), in_axes=1, out_axes=1)(b)
