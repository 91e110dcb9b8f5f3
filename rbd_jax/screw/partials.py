"""Partial derivatives of the Jacobian of a body: nested screw products. Source: Müller §2.

Letters: J_j column j of the Jacobian, [X, Y] = ad_X Y. A derivative along degree of freedom k is
that along ``integrate(q, ε e_k)``; higher ones are along successive steps, the first index first:
``integrate(integrate(q, ε₁ e_{α₁}), ε₂ e_{α₂}) …``. They commute but for two degrees of freedom of
one joint. No product is needed for a pair of joints of which neither carries the other.
"""

from itertools import combinations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import checked
from ..spatial import so3
from ..spatial.motion import cross_twist
from .representations import Representation, jacobians, module_of


def _chain(model: Model, body: int) -> tuple[np.ndarray, np.ndarray]:
    """The degrees of freedom that move a body, and how many joints lie below each of theirs."""
    topology = model.topology
    if not 0 <= body < model.nb:
        raise IndexError(
            f"robot {topology.name!r} has the bodies 0 to {model.nb - 1}, no body {body}"
            + ("; −1 is the world, whose Jacobian is zero" if body == -1 else "")
        )
    bodies = topology.dof_bodies
    dofs = np.flatnonzero(topology.tree.ancestor_mask[body][bodies])
    return dofs, topology.tree.depths[bodies[dofs]]


def _scatter(model: Model, dofs: np.ndarray, x: Array) -> Array:
    """Rows of all tuples of ``dofs``, put into an array (6, nv, …) of zeros."""
    order = x.ndim - 1
    full = jnp.zeros((*[model.nv] * order, 6), x.dtype)
    return jnp.moveaxis(full.at[np.ix_(*[dofs] * order)].set(x), -1, 0)


@checked
def jacobian_partials(
    model: Model,
    q: Float[Array, " nq"],
    body: int,
    order: int = 1,
    representation: Representation = "body_fixed",
) -> Float[Array, "6 nv *n"]:
    """``∂^ν J / ∂q_{α₁} … ∂q_{α_ν}`` of a body's Jacobian, for all indices, without autodiff.

    Source: Müller (5), (12), (14) body-fixed: ``[…[[J_j, J_{β₁}], J_{β₂}]…, J_{β_ν}]`` for
    ``j < β₁ ≤ … ≤ β_ν``; (15), (20), (23) spatial: ``[J_{β_ν}, […[J_{β₁}, J_j]…]]`` for
    ``β_ν ≤ … ≤ β₁ ≤ j``, with β the ordered α; (24)–(25) hybrid, and beyond the first order, which
    the paper stops at, the spatial brackets about the body's origin less those of its motion.
    Indices of one joint keep their order. Equation (25) as printed holds for j ≤ k only; the case
    k < j is that of (24), ``[J^ω_k, J_j]``.

    Args:
        model: the robot.
        q: configuration.
        body: number of the body.
        order: ν, 1 or more.
        representation: of the twist.

    Returns:
        ``[c, j, α₁, …, α_ν]``. Cost: O(nv^(ν+1)), and 2^ν such sums for hybrid and mixed Jacobians.

    Raises:
        ValueError: for an unknown representation or an order below 1.
        IndexError: for an unknown body.
    """
    module_of("jacobian_partials", representation)
    dofs, depth = _chain(model, body)
    if order < 1:
        raise ValueError(f"jacobian_partials: order is {order}, expected 1 or more")
    if representation in ("body_fixed", "spatial"):
        J = jacobians(model, q, representation)[body].T[dofs]
        return _scatter(model, dofs, _nested(J, depth, order, representation == "spatial"))
    J = jacobians(model, q, "hybrid")[body].T[dofs]
    partial = _hybrid(J, depth, order)
    if representation == "mixed":  # its angular part is the body-fixed one's
        Jb = jacobians(model, q, "body_fixed")[body].T[dofs]
        angular = _nested(Jb, depth, order, False)[..., :3]
        partial = jnp.concatenate([angular, partial[..., 3:]], axis=-1)
    return _scatter(model, dofs, partial)


def _nested(J: Float[Array, "d 6"], depth: np.ndarray, order: int, spatial: bool) -> Array:
    """Brackets of all tuples ``(j, α₁, …, α_ν)``, (d, …, d, 6)."""
    d = len(depth)
    j, *alpha = np.indices((d,) * (order + 1))
    if not order:
        return J[j]
    alpha = np.stack(alpha)
    sort = np.argsort(depth[alpha], axis=0, kind="stable")
    beta = np.take_along_axis(alpha, sort, axis=0)
    x = J[j]
    if spatial:
        for b in beta[::-1]:
            x = cross_twist(J[b], x)
        holds = depth[beta[-1]] <= depth[j]
    else:
        for b in beta:
            x = cross_twist(x, J[b])
        holds = depth[beta[0]] > depth[j]
    return jnp.where(holds[..., None], x, 0)


def _point(J: Float[Array, "d 6"], depth: np.ndarray, order: int) -> Array:
    """Derivatives of the body's origin along all tuples, (d, …, d, 3).

    ``Ĵ_{β₁} Ĵ_{β₂} … Ĵ_{β_ν}`` applied to the point, β from the root on: the velocity of the
    outermost joint, turned by the others.
    """
    alpha = np.indices((len(depth),) * order)
    beta = np.take_along_axis(alpha, np.argsort(depth[alpha], axis=0, kind="stable"), axis=0)
    x = J[beta[-1], 3:]
    for b in beta[-2::-1]:
        x = so3.cross(J[b, :3], x)
    return x


def _spread(x: Array, axes: tuple[int, ...], rank: int) -> Array:
    """The axes of ``x`` but its last, put at ``axes`` of an array of ``rank`` axes and its last."""
    shape = [1] * rank
    for axis, size in zip(axes, x.shape[:-1], strict=True):
        shape[axis] = size
    return x.reshape(*shape, x.shape[-1])


def _hybrid(J: Float[Array, "d 6"], depth: np.ndarray, order: int) -> Array:
    """Partials of the hybrid Jacobian of all tuples ``(j, α₁, …, α_ν)``, (d, …, d, 6).

    About the point of space where the body's origin r is, J_j is a spatial screw, whose partials
    are brackets; seen from r itself its linear part is less by ``r × ω_j``, whose partials are
    Leibniz's sum over the subsets of α. For ν = 1 this is (25) for k beyond joint j, else (24).
    """
    d, rank = len(depth), order + 1
    x = _nested(J, depth, order, True)
    linear = x[..., 3:]
    for count in range(1, rank):
        for moved in combinations(range(1, rank), count):
            rest = (0, *(k for k in range(1, rank) if k not in moved))
            turned = _nested(J, depth, order - count, True)[..., :3]
            r = _spread(_point(J, depth, count), moved, rank)
            linear = linear - so3.cross(r, _spread(turned, rest, rank))
    linear = jnp.broadcast_to(linear, (d,) * rank + (3,))
    return jnp.concatenate([x[..., :3], linear], axis=-1)
