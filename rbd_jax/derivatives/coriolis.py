"""The Coriolis matrix and the Christoffel symbols, in ground coordinates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import checked
from ..algorithms import ground
from ..model import Model
from ._operator import coriolis_matrix as _coriolis_matrix, residual


def _at(model: Model, g: ground.Pose, v: Float[Array, " nv"]) -> Float[Array, "nv nv"]:
    m = ground.motion(model, g, v, jnp.zeros_like(v), None)
    return _coriolis_matrix(model.topology, residual(model, g, m))


@checked
def coriolis_matrix(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """``C(q, v)`` with ``C v`` the Coriolis torques and ``Ṁ − 2C`` antisymmetric.

    Source: Singh (28) for the matrix B of a body, which makes ``İ − 2B`` antisymmetric; the
    composites and pairs are those of Algorithm 1. It equals ``Σ_k Γ_ijk v_k`` (Vlasblom (1.16)).
    Damping is not part of it. Cost: O(n²).
    """
    return _at(model, ground.pose(model, q), v)


@checked
def christoffel(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """The symbols Γ of the second index convention ``C_ij = Σ_k Γ_ijk v_k``.

    Source: Singh (28): the matrix of :func:`coriolis_matrix` is linear in v, so Γ is that matrix at
    unit velocities, with the poses and inertias computed once. The symbols are those of Vlasblom
    (1.15); the closed forms of Müller (86)–(87) are in :mod:`rbd_jax.screw`. For joints of several
    degrees of freedom v is not the rate of coordinates, and Γ_ijk then differs from Γ_ikj by their
    structure constants. Cost: O(n³).
    """
    g = ground.pose(model, q)
    eye = jnp.eye(model.nv, dtype=g.S.dtype)
    return jax.vmap(lambda v: _at(model, g, v), out_axes=2)(eye)
