"""What constraints need of the reference configuration, and the inverse weights among it.

MuJoCo scales the regularization of a constraint by inverse weights of the bodies and joints on
which it acts. They depend on the inertias, the armature and the geometry of the robot, so they are
computed from the model. MuJoCo's ``mj_setConst`` does the same when a file is compiled.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_inverse
from ..derivatives.custom_jvp.kinematics import world_quantities_custom_jvp
from ..model import Model, Topology
from ..spatial import inertia, so3

SAME = 1e-6
"""The distance at which MuJoCo takes a center of mass to be at the body's origin (m)."""


class Parts(eqx.Module):
    """The bodies of a file that constraints name, as parts of the bodies of the model.

    Bodies of a file that have no joints are parts of the body that carries them. Inverse weights
    are those of the center of mass of each part.
    """

    center: Float[Array, "n 3"]
    """Where the part's center of mass is: from the center of mass of its body if ``moves``, else
    from the body's origin; in the body's axes (m)."""
    bodies: tuple[int, ...] = eqx.field(static=True)
    """The body of each part, −1 for the world."""
    moves: tuple[bool, ...] = eqx.field(static=True)
    """Whether the center of a part follows the center of mass of its body, or is fixed in it."""
    sliders: tuple[tuple[int, int], ...] = eqx.field(static=True, default=())
    """Degrees of freedom and bodies of the file's ``simple`` bodies that only slide."""

    def centers(self, model: Model) -> Float[Array, "n 3"]:
        """The centers of mass of the parts in the frames of their bodies (m)."""
        own = inertia.com(model.inertia)[np.array(self.bodies, dtype=np.int32)]
        return self.center + jnp.where(np.array(self.moves, dtype=bool)[:, None], own, 0)


class Weights(NamedTuple):
    """MuJoCo's ``invweight0``: accelerations by unit forces in the reference configuration."""

    parts: Float[Array, "n 2"]
    """Acceleration of a part by a force on its center of mass (1/kg) and by a torque
    (1/(kg m²)), each the mean over three axes; MuJoCo's ``body_invweight0``."""
    dofs: Float[Array, " nv"]
    """Acceleration of a degree of freedom by a force of its own (1/(kg m²), 1/kg), the mean over
    the three of a rotation and the three of a translation; MuJoCo's ``dof_invweight0``."""

    def of(self, pairs: tuple[tuple[int, int], ...]) -> Float[Array, "n 2"]:
        """The sum of both parts' weights, for each pair of parts; −1 is the world."""
        parts = with_world(self.parts, jnp.zeros((2,), self.dofs.dtype))
        ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        return parts[ends[:, 0]] + parts[ends[:, 1]]


class Anchors(NamedTuple):
    """Anchors and frames that connects and welds hold, see :class:`rbd_jax.contact.Welds`."""

    p1: Float[Array, "n 3"]
    p2: Float[Array, "n 3"]
    quat1: Float[Array, "n 4"]


class TendonConstants(NamedTuple):
    """What tendons need of the reference configuration."""

    weight: Float[Array, " nt"]
    """Acceleration of the length by a force along the tendon, MuJoCo's ``tendon_invweight0``."""
    length: Float[Array, " nt"]
    """The length (m)."""
    rest: Float[Array, "nt 2"]
    """The shortest and the longest length at which the spring has no force (m)."""


class Constants(NamedTuple):
    """Constants of a scene, see :func:`rbd_jax.contact.constants`."""

    weights: Weights
    anchors: Anchors | None
    """The anchors of connects and welds; None if none refers to the reference configuration."""
    damping: Float[Array, " nu"] | None
    """Damping of the actuators that have a damping ratio; None if none has one."""
    tendons: TendonConstants | None = None
    """None without tendons."""
    acc0: Float[Array, " nu"] | None = None
    """Size of the accelerations by a unit force of each actuator; None without muscles whose
    strength follows from it."""
    mean_inertia: Float[Array, ""] | None = None
    """The mean of the diagonal of the mass matrix; None if the scene needs none."""


def with_world(x: Array, row: Array) -> Array:
    """The rows of the bodies, and a last row for the world."""
    return jnp.concatenate([x, row[None]])


def weights(
    model: Model,
    q: Float[Array, " nq"],
    parts: Parts,
    inverse: Float[Array, "nv nv"] | None = None,
) -> Weights:
    """The mean diagonals of ``J M⁻¹ Jᵀ`` of parts, and of ``M⁻¹``, at a configuration.

    Source: MuJoCo's ``mj_setConst``. There a body that hangs at the world by slides along its own
    axes, carries no other and has its center of mass at its origin has ``1 / mass`` for the weight
    of its translation and of its slides, whatever their number and armature.

    Args:
        model: the robot. q: configuration. parts: whose weights to find.
        inverse: the inverse of the mass matrix, if it is not that of the robot alone.
    """
    topology = model.topology
    inverse_mass = mass_matrix_inverse(model, q) if inverse is None else inverse
    alike = jnp.asarray(_alike(topology), model.dtype)
    dofs = jnp.matmul(alike, jnp.diagonal(inverse_mass), precision="highest")
    light, slides = _light(model), np.array(parts.sliders, dtype=np.int32).reshape(-1, 2)
    dof, carrier = slides[:, 0], slides[:, 1]
    dofs = dofs.at[dof].set(jnp.where(light[carrier] > 0, light[carrier], dofs[dof]))
    if not parts.bodies:
        return Weights(jnp.zeros((0, 2), model.dtype), dofs)
    body = np.array(parts.bodies, dtype=np.int32)
    g, _ = world_quantities_custom_jvp(model, q)
    at = g.p[body] + so3.rotate(g.R[body], parts.centers(model))
    turning = jnp.broadcast_to(g.S[None, :, :3], (len(body), model.nv, 3))
    rows = jnp.stack([g.S[None, :, 3:] + so3.cross(turning, at[:, None]), turning], axis=1)
    moved = topology.tree.ancestor_mask[body][:, topology.dof_bodies]
    J = jnp.where(moved[:, None, None], jnp.swapaxes(rows, 2, 3), 0)  # (n, 2, 3, nv)
    both = jnp.matmul(J.reshape(-1, model.nv), inverse_mass, precision="highest").reshape(J.shape)
    found = jnp.sum(J * both, axis=(2, 3)) / 3
    simple = np.isin(body, carrier)
    own = jnp.where(simple, light[body], 0)[:, None]
    return Weights(jnp.where(own > 0, jnp.pad(own, ((0, 0), (0, 1))), found), dofs)


def _light(model: Model) -> Float[Array, " nb"]:
    """``1 / mass`` of bodies whose center of mass is at their origin, zero for others (1/kg)."""
    m, c = inertia.mass(model.inertia), inertia.com(model.inertia)
    there = (jnp.max(jnp.abs(c), axis=-1) < SAME) & (m > 0)
    return jnp.where(there, 1 / jnp.where(there, m, 1), 0)


def _alike(topology: Topology) -> np.ndarray:
    """The matrix that takes means over the rotation and over the translation of each joint."""
    mean = np.eye(topology.nv)
    for b in topology.bodies_of("free", "spherical"):
        first, end = topology.v_starts[b], topology.v_starts[b + 1]
        for k in range(int(first), int(end), 3):
            mean[k : k + 3, k : k + 3] = 1 / 3
    return mean
