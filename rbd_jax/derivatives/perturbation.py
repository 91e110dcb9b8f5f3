"""From tangents of the inputs to the perturbations of Kim (64): ∂h, ∂S, ∂I, ∂F_ext of each body.

Placements and motion subspaces depend on q and on a few model leaves through small functions that
work joint by joint. Autodiff takes the tangents of these functions, and the operator does the
recursions over the tree.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.tree import per_dof, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..spatial import inertia, so3
from ..spatial.motion import cross_wrench, to_parent, wrench_to_parent
from .linearization import LinearizationPoint, body_operator

GEOMETRY = ("placement_R", "placement_p", "axis", "pitch")
"""The leaves of a model that move its bodies."""


def nonzero_tangents(tangent: Model | None, *names: str) -> dict[str, Array]:
    """The tangents of the named leaves that are not symbolically zero (None)."""
    found = {n: getattr(tangent, n, None) for n in names}
    return {n: t for n, t in found.items() if t is not None}


def _jvp_leaves(function, model: Model, tangents: dict[str, Array]):
    """Tangent of ``function(model)`` along some leaves."""

    def of_leaves(*values):
        return function(eqx.tree_at(lambda m: [getattr(m, n) for n in tangents], model, values))

    leaves = tuple(getattr(model, n) for n in tangents)
    return jax.jvp(of_leaves, leaves, tuple(tangents.values()))[1]


def placement_twists(
    model: Model, dmodel: Model | None, q: Float[Array, " nq"]
) -> Float[Array, "nb 6"] | None:
    """``∂h = T⁻¹ ∂T`` of every body, in its frame, along tangents of model leaves; None if zero.

    Source: Kim (61).
    """
    geometry = nonzero_tangents(dmodel, *GEOMETRY)
    if not geometry:
        return None
    dR, dp = _jvp_leaves(lambda m: joint_placements(m, q), model, geometry)
    R, _ = joint_placements(model, q)
    turn = so3.vee(so3.matmul(so3.transpose(R), dR))
    return jnp.concatenate([turn, so3.rotate_inverse(R, dp)], axis=-1)


def subspace_rates(model: Model, dmodel: Model | None) -> Float[Array, "nv 6"] | None:
    """``∂S`` in the child frames along tangents of model leaves; None if zero."""
    leaves = nonzero_tangents(dmodel, "axis", "pitch")
    return _jvp_leaves(motion_subspace, model, leaves) if leaves else None


def model_torque(
    model: Model,
    dmodel: Model | None,
    df_ext: Float[Array, "nb 6"] | None,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    g: world_frame.WorldQuantities,
    r: LinearizationPoint,
) -> Float[Array, " nv"] | None:
    """δτ of tangents of model leaves and external wrenches, None if all are zero.

    Source: Kim, Table 5 with the quantities (64).
    """
    topology, T = model.topology, (g.R, g.p)
    rows = lambda x: per_dof(topology, x)  # noqa: E731
    total = None
    zero = jnp.zeros_like(r.v)
    eta, zeta, alpha, phi, da0 = zero, zero, zero, None, None
    dh = placement_twists(model, dmodel, q)
    if dh is not None:
        eta = to_parent(T, dh)
    dS = subspace_rates(model, dmodel)
    if dS is not None:
        dS = to_parent((rows(g.R), rows(g.p)), dS)
        zeta = sum_dofs(topology, dS * v[:, None])
        alpha = sum_dofs(topology, dS * a[:, None])
        total = jnp.sum(dS * rows(r.F), axis=-1)
    for leaf in nonzero_tangents(dmodel, "inertia").values():
        dI = inertia.to_parent(T, leaf)
        phi = inertia.apply(dI, r.a) + cross_wrench(r.v, inertia.apply(dI, r.v))
    if df_ext is not None:
        push = wrench_to_parent(T, df_ext)
        phi = -push if phi is None else phi - push
    for leaf in nonzero_tangents(dmodel, "gravity").values():
        da0 = jnp.concatenate([jnp.zeros_like(leaf), -leaf])
    if dh is not None or phi is not None or da0 is not None:
        part = body_operator(topology, r, eta, zeta, alpha, phi, da0)
        total = part if total is None else total + part
    for name, rate in (("armature", a), ("damping", v)):
        for leaf in nonzero_tangents(dmodel, name).values():
            total = leaf * rate if total is None else total + leaf * rate
    return total
