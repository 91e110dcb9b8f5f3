"""From tangents of the inputs to the perturbations of Kim (64): ∂h, ∂S, ∂I, ∂F_ext of each body.

Placements and motion subspaces depend on q and on few model leaves through small functions that
work joint by joint; their tangents are taken by autodiff, and the tree is left to the operator.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import ground
from ..algorithms._tree import of_bodies, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..spatial import inertia, so3
from ..spatial.motion import cross_wrench, to_parent, wrench_to_parent
from ._operator import Residual, body_operator

_GEOMETRY = ("placement_R", "placement_p", "axis", "pitch")


def _given(tangent: Model | None, *names: str) -> dict[str, Array]:
    """Those of the named leaves' tangents that are not symbolically zero."""
    found = {n: getattr(tangent, n, None) for n in names}
    return {n: t for n, t in found.items() if t is not None}


def _jvp_leaves(function, model: Model, tangents: dict[str, Array]):
    """Tangent of ``function(model)`` along some leaves."""

    def of_leaves(*values):
        return function(eqx.tree_at(lambda m: [getattr(m, n) for n in tangents], model, values))

    leaves = tuple(getattr(model, n) for n in tangents)
    return jax.jvp(of_leaves, leaves, tuple(tangents.values()))[1]


def model_torque(
    model: Model,
    dmodel: Model | None,
    df_ext: Float[Array, "nb 6"] | None,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    g: ground.Pose,
    r: Residual,
) -> Float[Array, " nv"] | None:
    """δτ of tangents of model leaves and external wrenches, None if all are zero.

    Source: Kim, Table 5 with the quantities (64).
    """
    topology, T = model.topology, (g.R, g.p)
    rows = lambda x: of_bodies(topology, x)  # noqa: E731
    total = None
    zero = jnp.zeros_like(r.v)
    eta, zeta, alpha, phi, da0 = zero, zero, zero, None, None
    geometry = _given(dmodel, *_GEOMETRY)
    if geometry:
        dR, dp = _jvp_leaves(lambda m: joint_placements(m, q), model, geometry)
        R, _ = joint_placements(model, q)
        dh = jnp.concatenate(
            [so3.vee(so3.matmul(so3.transpose(R), dR)), so3.rotate_inverse(R, dp)], axis=-1
        )
        eta = to_parent(T, dh)
    subspace = _given(dmodel, "axis", "pitch")
    if subspace:
        dS = to_parent((rows(g.R), rows(g.p)), _jvp_leaves(motion_subspace, model, subspace))
        zeta = sum_dofs(topology, dS * v[:, None])
        alpha = sum_dofs(topology, dS * a[:, None])
        total = jnp.sum(dS * rows(r.F), axis=-1)
    inertias = _given(dmodel, "inertia")
    if inertias:
        dI = inertia.to_parent(T, inertias["inertia"])
        phi = inertia.apply(dI, r.a) + cross_wrench(r.v, inertia.apply(dI, r.v))
    if df_ext is not None:
        push = wrench_to_parent(T, df_ext)
        phi = -push if phi is None else phi - push
    gravity = _given(dmodel, "gravity")
    if gravity:
        da0 = jnp.concatenate([jnp.zeros_like(gravity["gravity"]), -gravity["gravity"]])
    if geometry or phi is not None or da0 is not None:
        part = body_operator(topology, r, eta, zeta, alpha, phi, da0)
        total = part if total is None else total + part
    for name, rate in (("armature", a), ("damping", v)):
        for leaf in _given(dmodel, name).values():
            total = leaf * rate if total is None else total + leaf * rate
    return total
