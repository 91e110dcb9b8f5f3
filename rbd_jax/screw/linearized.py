"""Linearized equations of motion. Source: Müller §6.1."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..derivatives.explicit.fdsva import forward_dynamics_derivatives
from ..derivatives.explicit.idsva import inverse_dynamics_derivatives
from ..model import Model, coadjoint
from ..model.arguments import checked


class LinearizedEquations(NamedTuple):
    """``M δa + D δv + K δq = δτ`` about a motion, where δq is along ``integrate(q, δq)``."""

    M: Float[Array, "nv nv"]
    D: Float[Array, "nv nv"]
    K: Float[Array, "nv nv"]


@checked
def linearized_equations(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> LinearizedEquations:
    """Mass, damping and stiffness matrix for small deviations from the motion (q, v, a).

    The matrices are the analytical derivatives of inverse dynamics, and their own derivatives are
    those of autodiff. The arguments are those of :func:`rbd_jax.inverse_dynamics`.

    Source: Müller §6.1. The closed form in screw products, with the brackets (12), (20), (25)
    summed over subtrees, is Singh, Algorithm 1.
    """
    dq, dv, M = inverse_dynamics_derivatives(model, q, v, a, f_ext)
    return LinearizedEquations(M, dv, dq)


@checked
def linearized_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> tuple[Float[Array, "2*nv 2*nv"], Float[Array, "2*nv nv"]]:
    """``(A, B)`` of ``δẋ = A δx + B δτ`` with ``x = (q, v)`` in the tangent space.

    For joints of several degrees of freedom ``δq̇ = δv − ad_v δq``, because the deviation is
    measured in the moving body. The matrices hold the analytical derivatives of forward dynamics,
    and their own derivatives are those of autodiff. The arguments are those of
    :func:`rbd_jax.forward_dynamics`.

    Source: Müller §6.1.
    """
    dq, dv, Minv = forward_dynamics_derivatives(model, q, v, tau, f_ext)
    ad = jax.jacfwd(lambda p: coadjoint(model, v, p))(jnp.zeros_like(v)).T
    top = jnp.concatenate([-ad, jnp.eye(model.nv, dtype=ad.dtype)], axis=1)
    A = jnp.concatenate([top, jnp.concatenate([dq, dv], axis=1)])
    return A, jnp.concatenate([jnp.zeros_like(Minv), Minv])
