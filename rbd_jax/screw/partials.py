"""Partial derivatives of the Jacobian of a body: nested screw products. Source: Müller §2.

Letters: J_j column j of the Jacobian, [X, Y] = ad_X Y. A derivative along degree of freedom k is
that along ``integrate(q, ε e_k)``; higher ones are along successive steps, the first index first:
``integrate(integrate(q, ε₁ e_{α₁}), ε₂ e_{α₂}) …``. They commute but for two degrees of freedom of
one joint. No product is needed for a pair of joints of which neither carries the other.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import checked
from ..model import Model
from ..spatial.motion import cross_twist
from .hybrid import lever, spin
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
    ``β_ν ≤ … ≤ β₁ ≤ j``, with β the ordered α; (24)–(25) hybrid. Indices of one joint keep their
    order. Equation (25) as printed holds for j ≤ k only; the case k < j is that of (24),
    ``[J^ω_k, J_j]``.

    Args:
        model: the robot.
        q: configuration.
        body: number of the body.
        order: ν, of any size for body-fixed and spatial Jacobians, 1 for the others.
        representation: of the twist.

    Returns:
        ``[c, j, α₁, …, α_ν]``. Cost: O(nv^(ν+1)).

    Raises:
        ValueError: for an unknown representation or an order that it has no formula for.
        IndexError: for an unknown body.
    """
    module_of("jacobian_partials", representation)
    dofs, depth = _chain(model, body)
    if order < 1 or (order > 1 and representation not in ("body_fixed", "spatial")):
        raise ValueError(
            f"jacobian_partials: order {order} of the {representation} Jacobian; the order is at "
            "least 1, and 1 for hybrid and mixed Jacobians: differentiate the body-fixed one"
        )
    if representation in ("body_fixed", "spatial"):
        J = jacobians(model, q, representation)[body].T[dofs]
        return _scatter(model, dofs, _nested(J, depth, order, representation == "spatial"))
    J = jacobians(model, q, "hybrid")[body].T[dofs]
    partial = _hybrid(J, depth)
    if representation == "mixed":  # its angular part is the body-fixed one's
        Jb = jacobians(model, q, "body_fixed")[body].T[dofs]
        angular = _nested(Jb, depth, 1, False)[..., :3]
        partial = jnp.concatenate([angular, partial[..., 3:]], axis=-1)
    return _scatter(model, dofs, partial)


def _nested(J: Float[Array, "d 6"], depth: np.ndarray, order: int, spatial: bool) -> Array:
    """Brackets of all tuples ``(j, α₁, …, α_ν)``, (d, …, d, 6)."""
    d = len(depth)
    j, *alpha = np.indices((d,) * (order + 1))
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


def _hybrid(J: Float[Array, "d 6"], depth: np.ndarray) -> Float[Array, "d d 6"]:
    """First partials of the hybrid Jacobian: (25) for k beyond joint j, (24) else."""
    Jj, Jk = J[:, None], J[None]
    # [J_j, J_k^v] = −ad_{J_k^v} J_j has a linear part only
    beyond = -lever(Jk[..., 3:], Jj)
    within = spin(Jk[..., :3], Jj)
    later = depth[None, :] > depth[:, None]
    return jnp.where(later[..., None], beyond, within)
