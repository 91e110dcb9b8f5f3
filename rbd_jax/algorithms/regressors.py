"""Linearity in the dynamic parameters: torques, momenta and energies as ``Y π``.

``π = model.inertia.reshape(-1)`` holds p = 10 nb numbers: ten for each body in the order of
:mod:`rbd_jax.spatial.inertia`, and the bodies in the order of the model. Rotor inertia and damping
are not part of π. Their torques are ``armature · a + damping · v``, which is linear already.
Derivatives are those of autodiff.
Source: Müller §6. The columns of a body are carried to the joints above it by their screws.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import algorithm
from ..spatial import inertia, linear, so3
from ..spatial.motion import cross_wrench, to_child, wrench_to_parent
from . import world_frame
from .kinematics import body_velocities, forward_kinematics


def _columns(V: Float[Array, "nb 6"]) -> Float[Array, "nb 10 6"]:
    """The momentum that each parameter of a body adds, in its frame."""
    return so3.transpose(inertia.regressor(V))


def _through_joints(
    model: Model, g: world_frame.WorldQuantities, columns: Float[Array, "nb 10 6"]
) -> Float[Array, "nv p"]:
    """``S_kᵀ`` times the columns of all bodies that degree of freedom k moves."""
    topology = model.topology
    carried = jax.vmap(wrench_to_parent, (None, 1), 1)((g.R, g.p), columns)
    Y = linear.einsum("ki,bpi->kbp", g.S, carried)
    moves = topology.tree.ancestor_mask[:, topology.dof_bodies].T
    return jnp.where(moves[:, :, None], Y, 0).reshape(model.nv, 10 * model.nb)


@algorithm(project=(0,))
def joint_torque_regressor(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nv p"]:
    """``Y(q, v, a)`` with ``τ = Y π + armature · a + damping · v`` for inverse dynamics τ.

    Source: Müller §6 (linearity in the dynamic parameters), (41) column by column: a body's wrench
    is ``(K(V̇) + V ×* K(V)) π`` with K of :func:`rbd_jax.spatial.inertia.regressor`.

    Args:
        model: the robot; its inertias are not used.
        q: configuration. v: velocity. a: acceleration.

    Returns:
        Y; cost: O(nv · nb), the size of the result.
    """
    g = world_frame.quantities(model, q)
    m = world_frame.motion(model, g, v, a, None)
    V, dV = (to_child((g.R, g.p), x) for x in (m.v, m.a))
    columns = _columns(dV) + cross_wrench(V[:, None], _columns(V))
    return _through_joints(model, g, columns)


@algorithm(project=(0,))
def momentum_regressor(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv p"]:
    """``Y(q, v)`` with ``M v = Y π + armature · v``, the momenta ∂T/∂v of the joints.

    Source: Müller §6 and (79). It serves identification without accelerations: the momentum changes
    by the integral of ``τ + ∂T/∂q − g``. Cost: O(nv · nb).
    """
    return _through_joints(
        model, world_frame.quantities(model, q), _columns(body_velocities(model, q, v))
    )


@algorithm(project=())
def kinetic_energy_regressor(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " p"]:
    """``y(q, v)`` with kinetic energy ``y · π + ½ Σ armature · v²`` (J). Source: Müller §6."""
    V = body_velocities(model, q, v)
    return 0.5 * jnp.sum(_columns(V) * V[:, None], axis=-1).reshape(-1)


@algorithm(project=())
def potential_energy_regressor(model: Model, q: Float[Array, " nq"]) -> Float[Array, " p"]:
    """``y(q)`` with potential energy ``y · π`` (J): ``−gᵀ p`` of m, ``−Rᵀ g`` of m c.

    Source: Müller §6.
    """
    R, p = forward_kinematics(model, q)
    g = jnp.broadcast_to(model.gravity, p.shape)
    rows = [so3.dot(p, g)[:, None], so3.rotate_inverse(R, g), jnp.zeros((model.nb, 6), p.dtype)]
    return -jnp.concatenate(rows, axis=-1).reshape(-1)
