"""Accelerations and jerks as explicit sums over the joints that move a body: closed forms of §2.

Source: Müller (6), (13), (17), (21), (29), (31). The recursions in the files of the representations
give the same numbers in O(n). These sums over pairs are O(n²), and serve for study and as a test
oracle. They run over joints instead of degrees of freedom, so that joints of several degrees of
freedom are covered. Letters: v_ij = J_ij q̇_j is the twist of joint j in the representation of body
i, and a_ij and j_ij are the same with q̈ and q⃛. They are zero unless j ≤ i.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.kinematics import forward_kinematics
from ..algorithms.tree import ancestor_sum, subtree_sum, sum_dofs
from ..model import Model
from ..model.arguments import checked
from ..model.topology import Tree
from ..spatial.motion import cross_twist, shift, to_child
from . import hybrid, spatial
from .hybrid import lever, spin
from .mixed import of_hybrid
from .representations import Representation, module_of

Pairs = Float[Array, "nb nb 6"]


def _along_chain(sums: Callable, tree: Tree, x: Pairs) -> Pairs:
    """``sums`` over the second axis without joint j itself: Σ_{k<j} or Σ_{k>j} of x_ik."""
    flat = jnp.moveaxis(x, 1, 0).reshape(tree.n, tree.n * 6)
    return jnp.moveaxis((sums(tree, flat) - flat).reshape(tree.n, tree.n, 6), 0, 1)


def _body_fixed(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Array, ...]:
    tree, nb = model.topology.tree, model.nb
    R, r = world_frame.centered_poses(model, q)
    J = spatial.joint_screws(model, (R, r))
    C = jnp.broadcast_to(R[:, None], (nb, nb, 3, 3)), jnp.broadcast_to(r[:, None], (nb, nb, 3))
    moves = jnp.asarray(tree.ancestor_mask)[:, :, None]
    joint = [sum_dofs(model.topology, J * x[:, None])[None] for x in rates]
    v, a, *rest = [jnp.where(moves, to_child(C, x), 0) for x in joint]
    after = _along_chain(subtree_sum, tree, v)
    dV = jnp.sum(a + cross_twist(v, after), axis=1)
    if not rest:
        return (dV,)
    pair = cross_twist(_along_chain(ancestor_sum, tree, v), v)  # Σ_{j<k} [v_ij, v_ik] at k
    ddV = rest[0] + 2 * cross_twist(a, after) + cross_twist(pair, v + 2 * after)
    ddV = ddV + cross_twist(v, _along_chain(subtree_sum, tree, a))
    return dV, jnp.sum(ddV, axis=1)


def _spatial(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Array, ...]:
    tree = model.topology.tree
    J = spatial.joint_screws(model, forward_kinematics(model, q))
    v, a, *rest = [sum_dofs(model.topology, J * x[:, None]) for x in rates]
    V = ancestor_sum(tree, v)
    turning = cross_twist(V, v)  # [V_j, J_j] q̇_j
    dV = ancestor_sum(tree, a + turning)
    if not rest:
        return (dV,)
    terms = rest[0] + 2 * cross_twist(V, a) + cross_twist(ancestor_sum(tree, a), v)
    terms = terms + cross_twist(2 * V - v, turning)  # V_{j−1} + V_j = 2 V_j − J_j q̇_j
    return dV, ancestor_sum(tree, terms) - cross_twist(V, ancestor_sum(tree, turning))


def _hybrid(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Array, ...]:
    R, r = forward_kinematics(model, q)
    X = hybrid.joint_screws(model, R)
    moves = jnp.asarray(model.topology.tree.ancestor_mask)[:, :, None]
    v, a, *rest = [sum_dofs(model.topology, X * x[:, None]) for x in rates]

    def total(x: Pairs) -> Array:
        return jnp.sum(jnp.where(moves, x, 0), axis=1)

    def between(x: Array) -> Float[Array, "nb nb 3"]:
        """``x_ij = x_j − x_i`` of positions or of their rates."""
        return x[None] - x[:, None]

    d = between(r)
    V = total(shift(d, v[None]))
    w, dd = V[:, :3], between(V[:, 3:])
    turned = spin(w, v)
    dV = total(shift(d, (a + turned)[None]) + lever(dd, v[None]))
    if not rest:
        return (dV,)
    dw, ddd = dV[:, :3], between(dV[:, 3:])
    at_j = rest[0] + 2 * spin(w, a) + spin(dw, v) + spin(w, turned)
    ddV = shift(d, at_j[None]) + lever(ddd, v[None]) + 2 * lever(dd, (a + turned)[None])
    return dV, total(ddV)


def _mixed(model: Model, q: Array, rates: tuple[Array, ...]) -> tuple[Array, ...]:
    R, _ = forward_kinematics(model, q)
    V = hybrid.motion(model, q, rates[:1])
    return of_hybrid(R, (*V, *_hybrid(model, q, rates)))[1:]


_SUMS = {"body_fixed": _body_fixed, "spatial": _spatial, "hybrid": _hybrid, "mixed": _mixed}


@checked
def acceleration_sums(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6"]:
    """Accelerations of all bodies, without gravity, as explicit sums (rad/s², m/s²).

    Derivatives are those of autodiff. Cost: O(n²).

    Source: Müller (6) body-fixed, (17) spatial, (29) hybrid, (33) mixed. The sums in (26) and (28)
    lack the joints before j, which also turn J_ij.

    Raises:
        ValueError: for an unknown representation.
    """
    module_of("acceleration_sums", representation)
    return _SUMS[representation](model, q, (v, a))[0]


@checked
def jerk_sums(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    j: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "nb 6"]:
    """Jerks of all bodies as explicit sums (rad/s³, m/s³).

    Derivatives are those of autodiff. Cost: O(n²).

    Source: Müller (13) body-fixed, (21) spatial, (31)–(32) hybrid, (33) mixed. In (13) the pairs
    k = r count once instead of twice, and the first sum over pairs has q̈_j. For (33) see
    :mod:`rbd_jax.screw.mixed`.

    Raises:
        ValueError: for an unknown representation.
    """
    module_of("jerk_sums", representation)
    return _SUMS[representation](model, q, (v, a, j))[1]
