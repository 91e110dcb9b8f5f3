"""The system matrices of the closed forms, J = A X and its rates, as dense matrices for study.

Source: Müller (8)–(11), (18)–(19), (112), and [62] (24)–(26), which it quotes. The twists of all
bodies are stacked to vectors of 6 nb numbers, and (6 nb, nv) matrices are ``jacobians(...)``
reshaped. The letters are those of the paper: A^b is block triangular with blocks ``Ad_{C_ij}`` for
j ≤ i, and X^b is block diagonal. a^b and b^b have the ad matrices of the joint twists and of the
body twists on their diagonals. D^b has the blocks ``Ad_{C_{i,λ}}``. Derivatives are those of
autodiff.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..algorithms.kinematics import forward_kinematics
from ..algorithms.tree import per_dof, sum_dofs
from ..model import Model, joint_placements, motion_subspace
from ..model.arguments import checked
from ..spatial import linear, se3, so3
from ..spatial.motion import Ad_matrix, ad_matrix, cross_twist, to_child
from . import hybrid
from .poe import spatial_screws
from .representations import Representation, jacobians, module_of, twists


def stacked(blocks: Float[Array, "nb 6 n"]) -> Float[Array, "m n"]:
    """Blocks stacked to a matrix (6 nb, n)."""
    return blocks.reshape(6 * blocks.shape[0], blocks.shape[-1])


def _dense(blocks: Float[Array, "nb nb 6 6"]) -> Float[Array, "m m"]:
    n = 6 * blocks.shape[0]
    return jnp.moveaxis(blocks, 2, 1).reshape(n, n)


def block_diagonal(blocks: Float[Array, "nb 6 6"]) -> Float[Array, "m m"]:
    """Blocks on the diagonal of a (6 nb, 6 nb) matrix."""
    eye = jnp.eye(blocks.shape[0], dtype=blocks.dtype)
    return _dense(eye[:, :, None, None] * blocks[:, None])


def _screw_matrix(model: Model, X: Float[Array, "nv 6"]) -> Float[Array, "m nv"]:
    """The block diagonal matrix X^b, Y^s or X^h with the screws of each body, (6 nb, nv)."""
    own = model.topology.dof_bodies[None] == jnp.arange(model.nb)[:, None]
    return stacked(jnp.where(own[:, None], X.T[None], 0))


@checked
def system_factors(
    model: Model, q: Float[Array, " nq"], representation: Representation = "body_fixed"
) -> tuple[Float[Array, "m m"], Float[Array, "m nv"]]:
    """``(A, X)`` with the system Jacobian ``J = A X``.

    Cost: O(n²), with dense 6×6 blocks.

    Source: Müller (112): ``A^b X^b``, ``A^s Y^s``, ``A^h X^h`` with the blocks ``Ad_{C_ij}``,
    ``Ad_{C_j A_j⁻¹}``, ``Ad_{r_ij}`` for j ≤ i. By (100), the mixed representation has
    ``diag(1, R_i)`` times the body-fixed blocks.

    Raises:
        ValueError: for an unknown representation.
    """
    module_of("system_factors", representation)
    topology, nb = model.topology, model.nb
    moves = jnp.asarray(topology.tree.ancestor_mask)[:, :, None, None]
    X = motion_subspace(model)
    if representation == "spatial":
        X, home = spatial_screws(model)
        C = se3.compose(forward_kinematics(model, q), se3.inverse(home))
        blocks = jnp.broadcast_to(Ad_matrix(C)[None], (nb, nb, 6, 6))
        return _dense(jnp.where(moves, blocks, 0)), _screw_matrix(model, X)
    R, r = world_frame.centered_poses(model, q)
    if representation == "hybrid":
        X = hybrid.joint_screws(model, R)
        d = r[None] - r[:, None]
        eye = jnp.broadcast_to(jnp.eye(3, dtype=r.dtype), (nb, nb, 3, 3))
        return _dense(jnp.where(moves, Ad_matrix((eye, d)), 0)), _screw_matrix(model, X)
    i = jnp.broadcast_to(R[:, None], (nb, nb, 3, 3)), jnp.broadcast_to(r[:, None], (nb, nb, 3))
    j = jnp.broadcast_to(R[None], (nb, nb, 3, 3)), jnp.broadcast_to(r[None], (nb, nb, 3))
    blocks = Ad_matrix(se3.compose(se3.inverse(i), j))
    if representation == "mixed":
        turn = lambda x: so3.matmul(R[:, None], x)  # noqa: E731
        rows = [blocks[..., :3, :], blocks[..., 3:, :]]
        rows[1] = jnp.concatenate([turn(rows[1][..., :3]), turn(rows[1][..., 3:])], axis=-1)
        blocks = jnp.concatenate(rows, axis=-2)
    return _dense(jnp.where(moves, blocks, 0)), _screw_matrix(model, X)


@checked
def system_jacobian(
    model: Model, q: Float[Array, " nq"], representation: Representation = "body_fixed"
) -> Float[Array, "m nv"]:
    """The system Jacobian J of (111), (6 nb, nv), which is :func:`jacobians` stacked."""
    return stacked(jacobians(model, q, representation))


def joint_twist_operators(model: Model, v: Float[Array, " nv"]) -> Float[Array, "m m"]:
    """``a^b = diag(ad_{X_i q̇_i})``. Source: Müller (9)."""
    Xv = sum_dofs(model.topology, motion_subspace(model) * v[:, None])
    return block_diagonal(ad_matrix(Xv))


def twist_operators(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    representation: Representation = "body_fixed",
) -> Float[Array, "m m"]:
    """``b = diag(ad_{V_i})``. Source: Müller (19) spatial, (82) body-fixed."""
    return block_diagonal(ad_matrix(twists(model, q, v, representation)))


@checked
def system_jacobian_rate(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "m nv"]:
    """``J̇ = −A a (A − 1) X`` of the body-fixed system Jacobian, (6 nb, nv).

    The system acceleration (10) is ``J q̈ − A a V``. Cost: O(n³), with dense matrices.

    Source: Müller (8), which has ``A X = J`` in place of ``(A − 1) X``. Both are equal for joints
    of one degree of freedom, where ``a X = 0``.
    """
    A, X = system_factors(model, q)
    beyond = linear.matmul(A, X) - X
    a = joint_twist_operators(model, v)
    return -linear.matmul(A, linear.matmul(a, beyond))


def _beyond_parent(model: Model, carry: Callable, x: Array) -> Float[Array, "nb 6"]:
    """``x_i − Ad x_λ`` of all bodies; the world has zero."""
    above = jnp.concatenate([x, jnp.zeros((1, 6), x.dtype)])[model.topology.tree.parent_rows]
    return x - carry(above)


def _along_screws(model: Model, x: Float[Array, "nb 6"]) -> Float[Array, " nv"]:
    """``X⁺ x`` for vectors in body frames."""
    X = motion_subspace(model)
    return jnp.sum(X * per_dof(model.topology, x), axis=-1) / jnp.sum(X * X, axis=-1)


def _body_or_spatial(function: str, representation: str) -> None:
    if representation not in ("body_fixed", "spatial"):
        raise ValueError(
            f"{function}: representation must be 'body_fixed' or 'spatial', got "
            f"{representation!r}; use convert_twist"
        )


@checked
def joint_velocities(
    model: Model,
    q: Float[Array, " nq"],
    V: Float[Array, "nb 6"],
    representation: Literal["body_fixed", "spatial"] = "body_fixed",
) -> Float[Array, " nv"]:
    """The joint velocities at which the bodies have the twists V (rad/s, m/s).

    With ``rate_from_velocity`` this is the kinematic reconstruction of a robot: q̇ from the twists
    of its bodies. It is a least-squares fit in body axes if no motion of the joints has these
    twists. Derivatives are those of autodiff. Cost: O(n).

    Source: Müller (111) solved for q̇, [62] (26): ``q̇ = X⁺ (1 − D) V``; with ``representation`` the
    two forms of (88).

    Args:
        model: the robot.
        q: configuration.
        V: twists of the bodies (rad/s, m/s).
        representation: representation of V.

    Raises:
        ValueError: for another representation or a wrong shape.
    """
    _body_or_spatial("joint_velocities", representation)
    if representation == "spatial":
        beyond = _beyond_parent(model, lambda x: x, V)
        return _along_screws(model, to_child(forward_kinematics(model, q), beyond))
    T = joint_placements(model, q)
    return _along_screws(model, _beyond_parent(model, lambda x: to_child(T, x), V))


@checked
def joint_accelerations(
    model: Model,
    q: Float[Array, " nq"],
    V: Float[Array, "nb 6"],
    dV: Float[Array, "nb 6"],
    representation: Literal["body_fixed", "spatial"] = "body_fixed",
) -> Float[Array, " nv"]:
    """The joint accelerations at which the bodies have the accelerations V̇ (rad/s², m/s²).

    It is a least-squares fit in body axes if no motion of the joints has these accelerations.
    Derivatives are those of autodiff. Cost: O(n).

    Source: Müller (11), with the joint twists ``X q̇ = (1 − D) V`` of [62] (26):
    ``q̈ = X⁺ ((1 − D) V̇ + a V)``. Spatial: (18) solved for q̈ by (70d),
    ``J_i q̈_i = V̇_i − V̇_λ − ad_{V_λ} V_i``.

    Args:
        model: the robot.
        q: configuration.
        V: twists of the bodies (rad/s, m/s).
        dV: rates of these twists (rad/s², m/s²).
        representation: representation of V and V̇.

    Raises:
        ValueError: for another representation or a wrong shape.
    """
    _body_or_spatial("joint_accelerations", representation)
    if representation == "spatial":
        beyond = [_beyond_parent(model, lambda x: x, x) for x in (V, dV)]
        rate = beyond[1] - cross_twist(V, beyond[0])  # V_λ × V_i = V_i × J_i q̇_i
        return _along_screws(model, to_child(forward_kinematics(model, q), rate))
    T = joint_placements(model, q)
    beyond = [_beyond_parent(model, lambda x: to_child(T, x), x) for x in (V, dV)]
    return _along_screws(model, beyond[1] + cross_twist(beyond[0], V))
