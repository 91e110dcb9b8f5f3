"""Forward dynamics in O(n) in every representation of twists, by articulated bodies.

Source: Müller §5.1: the system Jacobian ``J = A X`` is block triangular, so that (78) and the
inverse of A give an O(n) algorithm in any representation. In the spatial one it is Featherstone's
[30], and in the hybrid one it is the algorithm of [38, 39, 75, 76].

Letters, all of a body and in its representation: V is the twist, X a joint screw, M the inertia, Π
the articulated inertia that the parent feels, W the wrench on a body at zero joint accelerations,
F the wrench that the parent feels, ``U = Π̂ X`` and ``Ψ = 1 / (Xᵀ U + armature)``. With
``A = V̇ − V̇(q̈ = 0)`` the bodies obey ``W + M A`` and ``A = P A_λ + X q̈``, where P carries twists
from the parent to the body. So only P, M, X and W depend on the representation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import minus_springs
from ..algorithms.tree import at_first_dof, at_last_dof, leaf_to_root, root_to_leaf
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import articulated, inertia, so3
from ..spatial.articulated import Articulated
from ..spatial.motion import shift, to_child, wrench_to_parent
from . import hybrid, spatial
from .representations import Representation, module_of


class Carrier(NamedTuple):
    """How quantities pass a joint; ``row`` is where the body is relative to its parent."""

    twist: Callable[[Any, Array], Array]
    """From the parent to the body: ``P V``."""
    wrench: Callable[[Any, Array], Array]
    """From the body to the parent: ``Pᵀ W``."""
    inertia: Callable[[Any, Articulated], Articulated]
    """From the body to the parent: ``Pᵀ Π P``."""


class Bodies(NamedTuple):
    """A robot at a configuration in one representation."""

    rows: Any
    """Where each body is relative to its parent."""
    still: Any
    """A row of a joint that does not displace its body."""
    X: Float[Array, "nv 6"]
    M: Articulated


class Factor(NamedTuple):
    """What the elimination leaves of each degree of freedom."""

    rows: Any
    X: Float[Array, "nv 6"]
    U: Float[Array, "nv 6"]
    psi: Float[Array, " nv"]


def _levered(Pi: Articulated, L: Float[Array, "3 3"]) -> Articulated:
    """``Pᵀ Π P`` for ``P = [[1, 0], [L, 1]]``."""
    A, B, C = Pi
    BL, CL = so3.matmul(B, L), so3.matmul(C, L)
    Lt = so3.transpose(L)
    return A + BL + so3.transpose(BL) + so3.matmul(Lt, CL), B + so3.transpose(CL), C


def _hybrid_wrench(d: Float[Array, "3"], W: Float[Array, "6"]) -> Float[Array, "6"]:
    return jnp.concatenate([W[:3] - so3.cross(d, W[3:]), W[3:]])


def _mixed_twist(row: tuple[Array, Array, Array], V: Float[Array, "6"]) -> Float[Array, "6"]:
    (R, p, R_up), (w, v) = row, jnp.split(V, 2)
    return jnp.concatenate([so3.rotate_inverse(R, w), v + so3.rotate(R_up, so3.cross(w, p))])


def _mixed_wrench(row: tuple[Array, Array, Array], W: Float[Array, "6"]) -> Float[Array, "6"]:
    (R, p, R_up), (t, f) = row, jnp.split(W, 2)
    return jnp.concatenate([so3.rotate(R, t) + so3.cross(p, so3.rotate_inverse(R_up, f)), f])


def _mixed_inertia(row: tuple[Array, Array, Array], Pi: Articulated) -> Articulated:
    (R, p, R_up), (A, B, C) = row, Pi
    A = so3.matmul(so3.matmul(R, A), so3.transpose(R))
    return _levered((A, so3.matmul(R, B), C), -so3.matmul(R_up, so3.hat(p)))


CARRIERS = {
    "body_fixed": Carrier(to_child, wrench_to_parent, articulated.to_parent),
    "spatial": Carrier(lambda _, V: V, lambda _, W: W, lambda _, Pi: Pi),
    "hybrid": Carrier(shift, _hybrid_wrench, lambda d, Pi: _levered(Pi, so3.hat(d))),
    "mixed": Carrier(_mixed_twist, _mixed_wrench, _mixed_inertia),
}


def bodies_of(model: Model, q: Float[Array, " nq"], representation: Representation) -> Bodies:
    """Placements, joint screws and inertias.

    Source: Müller (40), (71a), (76a), (58), and the screws of (66a), (70b), (75b).
    """
    T, X, I = joint_placements(model, q), motion_subspace(model), model.inertia
    eye, zero = jnp.eye(3, dtype=X.dtype), jnp.zeros((3,), X.dtype)
    blocks = jax.vmap(articulated.from_inertia)
    if representation == "body_fixed":
        return Bodies(T, (eye, zero), X, blocks(I))
    R, r = forward_kinematics(model, q)
    if representation == "spatial":
        # one number, so that a row is an array
        nothing = jnp.zeros((model.nb, 1), X.dtype)
        M = blocks(inertia.to_parent((R, r), I))
        return Bodies(nothing, jnp.zeros((1,), X.dtype), spatial.joint_screws(model, (R, r)), M)
    turned, d = hybrid.joint_screws(model, R), hybrid.to_parents(model.topology, r)
    if representation == "hybrid":
        return Bodies(d, zero, turned, blocks(inertia.rotate(R, I)))
    A, B, C = blocks(I)
    R_up = jnp.concatenate([R, eye[None]])[model.topology.tree.parent_rows]
    M = A, so3.matmul(B, so3.transpose(R)), C
    X = jnp.concatenate([X[:, :3], turned[:, 3:]], axis=-1)
    return Bodies((*T, R_up), (eye, zero, eye), X, M)


def factorize(model: Model, carrier: Carrier, x: Bodies, armature: Float[Array, " nv"]) -> Factor:
    """The elimination of all joints, from the leaves to the roots. Cost: O(n).

    Joints of several degrees of freedom are eliminated one screw at a time, as in
    :mod:`rbd_jax.algorithms.aba`.
    """
    topology = model.topology
    rows = jax.tree.map(lambda r, one: at_first_dof(topology, r, one), x.rows, x.still)
    M = jax.tree.map(lambda m: at_last_dof(topology, m), x.M)

    def backward(row, below):
        T, X, M, armature = row
        whole = jax.tree.map(jnp.add, M, below)
        U, psi, Pi = articulated.eliminate(whole, X, armature, jnp.zeros_like(armature))
        return carrier.inertia(T, Pi), (U, psi)

    zero = jax.tree.map(lambda m: jnp.zeros(m.shape[1:], m.dtype), x.M)
    U, psi = leaf_to_root(topology.dof_tree, backward, (rows, x.X, M, armature), zero)
    return Factor(rows, x.X, U, psi)


def solve(
    model: Model,
    carrier: Carrier,
    factor: Factor,
    tau: Float[Array, " nv"],
    W: Float[Array, "nb 6"],
) -> Float[Array, " nv"]:
    """The q̈ with ``Jᵀ (M J q̈ + W) + armature q̈ = τ``. Cost: O(n)."""
    topology, zero = model.topology, jnp.zeros((6,), W.dtype)

    def backward(row, F):
        f, W, tau = row
        F = W + F
        u = tau - jnp.sum(f.X * F)
        return carrier.wrench(f.rows, F + f.U * (f.psi * u)), u

    u = leaf_to_root(topology.dof_tree, backward, (factor, at_last_dof(topology, W), tau), zero)

    def forward(above, row):
        f, u = row
        A = carrier.twist(f.rows, above[0])
        a = f.psi * (u - jnp.sum(f.U * A))
        return A + f.X * a, a

    return root_to_leaf(topology.dof_tree, forward, (factor, u), (zero, zero[0]))[1]


@checked
def forward_dynamics(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
    representation: Representation = "body_fixed",
) -> Float[Array, " nv"]:
    """Joint accelerations under the torques ``tau``, by articulated bodies (rad/s², m/s²).

    Arguments and results are those of :func:`rbd_jax.aba`; take that function to compute, and this
    one to compare representations. Derivatives are those of autodiff. Cost: O(n).

    Source: Müller §4 (remarks on forward dynamics) and §5.1: (78) solved by its block-triangular
    structure, with the recursions (66) body-fixed, (70) spatial, (75) hybrid, and (33) mixed.

    Raises:
        ValueError: for an unknown representation or a wrong shape.
    """
    module, carrier = module_of("forward_dynamics", representation), CARRIERS[representation]
    W = module.wrenches(model, q, v, jnp.zeros_like(v), f_ext)
    factor = factorize(model, carrier, bodies_of(model, q, representation), model.armature)
    tau = minus_springs(model, q, tau - model.damping * v)
    return solve(model, carrier, factor, tau, W)
