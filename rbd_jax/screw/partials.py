"""Partial derivatives of the Jacobian of a body: nested screw products. Source: Müller §2.

Letters: J_j is column j of the Jacobian, and [X, Y] = ad_X Y. The derivative along degree of
freedom k is taken along ``integrate(q, ε e_k)``. Higher derivatives are taken along successive
steps, the first index first: ``integrate(integrate(q, ε₁ e_{α₁}), ε₂ e_{α₂}) …``. They commute,
except for two degrees of freedom of one joint. If neither of two joints moves the other, their
product is zero.
"""

from itertools import combinations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import check_number, checked
from ..spatial import so3
from ..spatial.motion import cross_twist
from .representations import Representation, jacobians, module_of


def _chain(model: Model, body: int) -> tuple[np.ndarray, np.ndarray]:
    """The degrees of freedom that move a body, and the depths of their joints in the tree."""
    topology = model.topology
    if not 0 <= body < model.nb:
        raise IndexError(
            f"body must be within 0 and {model.nb - 1} for robot {topology.name!r}, got {body}"
            + ("; −1 stands for the world, whose Jacobian is zero" if body == -1 else "")
        )
    bodies = topology.dof_bodies
    dofs = np.flatnonzero(topology.tree.ancestor_mask[body][bodies])
    return dofs, topology.tree.depths[bodies[dofs]]


def _scatter(model: Model, dofs: np.ndarray, x: Array) -> Array:
    """Put the rows of all tuples of ``dofs`` into an array (6, nv, …) of zeros."""
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

    Its own derivatives are those of autodiff.

    Source: Müller, with β for the α in order, where indices of one joint keep their order.

    - Body-fixed (5), (12), (14): ``[…[[J_j, J_{β₁}], J_{β₂}]…, J_{β_ν}]`` for ``j < β₁ ≤ … ≤ β_ν``.
    - Spatial (15), (20), (23): ``[J_{β_ν}, […[J_{β₁}, J_j]…]]`` for ``β_ν ≤ … ≤ β₁ ≤ j``.
    - Hybrid (24)–(25). Equation (25) as printed holds for j ≤ k only. For k < j equation (24)
      holds, ``[J^ω_k, J_j]``. The paper has first order only. Higher orders are the spatial
      brackets about the body's origin minus the terms of the origin's motion.

    Args:
        model: the robot.
        q: configuration.
        body: number of the body.
        order: ν, at least 1.
        representation: representation of the twist.

    Returns:
        An array ``[c, j, α₁, …, α_ν]``. Cost: O(nv^(ν+1)); hybrid and mixed need 2^ν times as much.

    Raises:
        ValueError: for an unknown representation or an order below 1.
        IndexError: for an unknown body.
    """
    module_of("jacobian_partials", representation)
    dofs, depth = _chain(model, body)
    check_number("jacobian_partials", "order", order, least=1, whole=True)
    if representation in ("body_fixed", "spatial"):
        J = jacobians(model, q, representation)[body].T[dofs]
        return _scatter(model, dofs, _nested(J, depth, order, representation == "spatial"))
    J = jacobians(model, q, "hybrid")[body].T[dofs]
    partial = _hybrid(J, depth, order)
    if representation == "mixed":  # Its angular part is that of the body-fixed Jacobian.
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

    They are ``Ĵ_{β₁} Ĵ_{β₂} … Ĵ_{β_ν}`` applied to the point, with β from the root to the leaf: the
    velocity due to the outermost joint, turned by the other joints.
    """
    alpha = np.indices((len(depth),) * order)
    beta = np.take_along_axis(alpha, np.argsort(depth[alpha], axis=0, kind="stable"), axis=0)
    x = J[beta[-1], 3:]
    for b in beta[-2::-1]:
        x = so3.cross(J[b, :3], x)
    return x


def _spread(x: Array, axes: tuple[int, ...], rank: int) -> Array:
    """Move all but the last axis of ``x`` to ``axes`` of an array of rank ``rank`` + 1."""
    shape = [1] * rank
    for axis, size in zip(axes, x.shape[:-1], strict=True):
        shape[axis] = size
    return x.reshape(*shape, x.shape[-1])


def _hybrid(J: Float[Array, "d 6"], depth: np.ndarray, order: int) -> Array:
    """Partials of the hybrid Jacobian of all tuples ``(j, α₁, …, α_ν)``, (d, …, d, 6).

    About the fixed point of space where the body's origin r is now, J_j is a spatial screw, and its
    partial derivatives are brackets. About the moving origin, the linear part is smaller by
    ``r × ω_j``. The derivatives of this term are Leibniz's sum over the subsets of α. For ν = 1
    this is (25) if k is farther from the root than joint j, else (24).
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
