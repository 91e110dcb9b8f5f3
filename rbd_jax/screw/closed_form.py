"""The equations of motion in closed form, from the Jacobians of the bodies. Source: Müller §5.

Letters: J_i is the Jacobian, V_i the twist and M_i the inertia of body i, all body-fixed. J^s and
the momenta Π are spatial. These functions need O(n²) memory and more time than the recursions. They
are for study and serve as test oracles. Their derivatives are those of autodiff.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.passive import plus_springs
from ..algorithms.tree import per_dof, subtree_sum
from ..model import Model
from ..model.arguments import checked, projected
from ..spatial import inertia, linear, so3
from ..spatial.motion import cross_wrench, wrench_to_parent
from . import spatial
from .newton_euler import body_fixed_wrench, spatial_wrench
from .representations import jacobians, twists
from .system import system_jacobian_rate

Columns = Float[Array, "nb 6 nv"]


def momenta_of(model: Model, J: Columns) -> Columns:
    """``M_i J_i`` for all bodies: the inertias times the columns of a Jacobian."""
    columns = so3.transpose(J)
    return so3.transpose(inertia.apply(model.inertia[:, None], columns))


def _times(J: Columns, x: Float[Array, " nv"]) -> Float[Array, "nb 6"]:
    return linear.einsum("bcj,j->bc", J, x)


def project(J: Columns, W: Float[Array, "nb 6 *n"]) -> Float[Array, "nv *n"]:
    """``Jᵀ W = Σ_i J_iᵀ W_i``: wrenches, or columns of wrenches, as joint torques."""
    return linear.einsum("bcj,bc...->j...", J, W)


def gravity_wrench(model: Model, R: Float[Array, "nb 3 3"]) -> Float[Array, "nb 6"]:
    """The wrench of gravity on each body, in its frame."""
    g = so3.rotate_inverse(R, model.gravity[None])
    return inertia.apply(model.inertia, jnp.concatenate([jnp.zeros_like(g), g], axis=-1))


@checked
@projected(0)
def euler_jourdain_torque(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques by projection: ``Jᵀ (M V̇ − ad_Vᵀ M V − W)``, Kane's equations (N m, N).

    The applied wrenches W include gravity. Arguments, armature and damping are those of
    :func:`rbd_jax.rnea`.

    Source: Müller (78), with V̇ from (10).
    """
    J = jacobians(model, q)
    dJ = system_jacobian_rate(model, q, v).reshape(J.shape)
    V, dV = _times(J, v), _times(J, a) + _times(dJ, v)
    W = gravity_wrench(model, forward_kinematics(model, q)[0])
    if f_ext is not None:
        W = W + f_ext
    Q = project(J, body_fixed_wrench(model.inertia, V, dV) - W)
    return plus_springs(model, q, Q + model.armature * a + model.damping * v)


@checked
@projected(0, 1)
def lagrange_mass_matrix(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """``M = Jᵀ diag(M_1, …, M_n) J``, with the armature on its diagonal. Source: Müller (81)."""
    J = jacobians(model, q)
    return project(J, momenta_of(model, J)) + jnp.diag(model.armature)


@checked
def lagrange_coriolis_matrix(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """``C = −Jᵀ (M A a + bᵀ M) J``, with C v the Coriolis torques.

    This C is passive, ``vᵀ(Ṁ − 2C)v = 0``, but ``Ṁ − 2C`` is not antisymmetric. It is antisymmetric
    with :func:`rbd_jax.coriolis_matrix`.

    Source: Müller (84), with J̇ of (8) for ``−A a J``.
    """
    J = jacobians(model, q)
    V = twists(model, q, v)
    dJ = system_jacobian_rate(model, q, v).reshape(J.shape)
    turning = cross_wrench(V[:, None], so3.transpose(momenta_of(model, J)))
    return project(J, momenta_of(model, dJ) + so3.transpose(turning))


# --- momentum form -----------------------------------------------------------------------------


@checked
@projected()
def spatial_momenta(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """Momenta ``Π_i = M_iˢ J_iˢ q̇`` of all bodies about the world's origin (N m s, N s).

    Source: Müller (35), (79).
    """
    M = inertia.to_parent(forward_kinematics(model, q), model.inertia)
    return inertia.apply(M, twists(model, q, v, "spatial"))


@checked
def spatial_momentum_rates(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nb 6"]:
    """``Π̇_i``, the total wrenches on the bodies, about the world's origin (N m, N).

    Source: Müller (36), (38).
    """
    M = inertia.to_parent(forward_kinematics(model, q), model.inertia)
    V, dV = spatial.motion(model, q, (v, a))
    return spatial_wrench(M, V, dV)


@checked
def torque_of_momentum_rates(
    model: Model,
    q: Float[Array, " nq"],
    dPi: Float[Array, "nb 6"],
    f_ext: Float[Array, "nb 6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques ``(Jˢ)ᵀ (Π̇ − W)`` of given rates of momentum (N m, N).

    W includes gravity. The torques of rotor inertia and damping are not included.

    Source: Müller (79), first line.

    Args:
        model: the robot.
        q: configuration.
        dPi: rates of the spatial momenta of the bodies (N m, N).
        f_ext: external wrench on each body, in its frame (N m, N).
    """
    C = forward_kinematics(model, q)
    W = gravity_wrench(model, C[0])
    if f_ext is not None:
        W = W + f_ext
    below = subtree_sum(model.topology.tree, dPi - wrench_to_parent(C, W))
    return jnp.sum(spatial.joint_screws(model, C) * per_dof(model.topology, below), axis=-1)
