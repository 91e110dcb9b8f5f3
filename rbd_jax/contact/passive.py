"""Passive forces beside springs and dampers: gravity compensation and the drag of a fluid.

Source: MuJoCo's documentation, "Computation", passive forces. The fluid acts on each body as on a
box of the same inertia, MuJoCo's inertia-box model.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import body_velocities, forward_kinematics
from ..algorithms.passive import without_springs
from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..model import Model
from ..spatial import inertia, so3
from .weights import Parts


class GravityCompensation(eqx.Module):
    """Gravity-compensated mass of each body, MuJoCo's ``gravcomp``."""

    share: Float[Array, " n"]
    """The compensated mass of each part over the mass of its body (1)."""
    parts: Parts
    """The centers of mass at which the compensating forces act."""
    by_actuators: tuple[int, ...] = eqx.field(static=True, default=())
    """Degrees of freedom whose compensation counts as a force of actuators."""

    def split(self, force: Float[Array, " nv"]) -> tuple[Array, Array]:
        """Compensating forces that are passive, and those of actuators."""
        own = np.isin(np.arange(len(force)), self.by_actuators)
        return jnp.where(own, 0, force), jnp.where(own, force, 0)


def gravity_compensation(
    model: Model, gravcomp: GravityCompensation | None, q: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """The generalized forces of gravity compensation, MuJoCo's ``qfrc_gravcomp`` (N m, N).

    Source: MuJoCo's documentation, "Computation", passive forces. They are the torques of inverse
    dynamics at rest, for bodies that have the compensated mass only.
    """
    zero = jnp.zeros((model.nv,), model.dtype)
    if gravcomp is None:
        return zero
    body = np.array(gravcomp.parts.bodies, dtype=np.int32)
    mass = (gravcomp.share * inertia.mass(model.inertia)[body])[:, None]
    carried = jnp.concatenate([mass, mass * gravcomp.parts.centers(model)], axis=1)
    I10 = jnp.zeros_like(model.inertia).at[body, :4].add(carried)
    return inverse_dynamics(
        eqx.tree_at(lambda m: m.inertia, without_springs(model), I10), q, zero, zero
    )


LIGHTEST = 1e-15
"""MuJoCo's smallest mass, and the smallest inertia of a side of the box."""


class Fluid(eqx.Module):
    """A fluid that fills the world, and the boxes that stand for the bodies in it."""

    density: Float[Array, ""]
    """(kg/m³)"""
    viscosity: Float[Array, ""]
    """(Pa s)"""
    wind: Float[Array, "3"]
    """Velocity of the fluid in the world (m/s)."""
    R: Float[Array, "n 3 3"]
    """Orientation in the body's frame: the principal axes of inertia."""
    gyration: Float[Array, "n 3"]
    """Moments of inertia over mass of the part, less those of its body, along the axes of the box.
    Zero where a body has one part (m²)."""
    parts: Parts
    """The centers of the boxes."""

    def boxes(self, model: Model) -> Float[Array, "n 3"]:
        """Side lengths of boxes with the inertia of the parts (m)."""
        I = model.inertia[np.array(self.parts.bodies, dtype=np.int32)]
        R, m = so3.orthonormalize(self.R), inertia.mass(I)[:, None]
        moments = jnp.sum(R * so3.matmul(inertia.inertia_com(I), R), axis=1) / m + self.gyration
        spread = jnp.sum(moments, axis=1, keepdims=True) - 2 * moments
        return jnp.sqrt(6 * jnp.maximum(spread, LIGHTEST / m))


def drag(
    model: Model, fluid: Fluid, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The generalized forces of the fluid, MuJoCo's ``qfrc_fluid`` (N m, N)."""
    local, force = _local(model, fluid, q), _law(model, fluid)
    velocity, pull = jax.vjp(local, v)
    return pull(force(velocity - _wind(model, fluid, q)))[0]


def drag_slope(
    model: Model, fluid: Fluid, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """The derivative of :func:`drag` with respect to v, symmetric."""
    local, force = _local(model, fluid, q), _law(model, fluid)
    velocity = local(v) - _wind(model, fluid, q)
    slope = jax.jvp(force, (velocity,), (jnp.ones_like(velocity),))[1]
    J = jax.vmap(local)(jnp.eye(model.nv, dtype=v.dtype)).reshape(model.nv, -1)
    return jnp.matmul(J * slope.reshape(1, -1), J.T, precision="highest")


def _local(model: Model, fluid: Fluid, q: Array):
    """The map from v to the velocities of the boxes in their frames, ``(n, 6)``; it is linear."""
    body, center = np.array(fluid.parts.bodies, dtype=np.int32), fluid.parts.centers(model)
    R = so3.orthonormalize(fluid.R)

    def velocities(v):
        V = body_velocities(model, q, v)[body]
        w, at = V[:, :3], V[:, 3:] + so3.cross(V[:, :3], center)
        both = so3.rotate_inverse(R, w), so3.rotate_inverse(R, at)
        return jnp.concatenate(both, axis=1)

    return velocities


def _wind(model: Model, fluid: Fluid, q: Array) -> Float[Array, "n 6"]:
    """The velocity of the fluid in the frames of the boxes."""
    body = np.array(fluid.parts.bodies, dtype=np.int32)
    R = so3.matmul(forward_kinematics(model, q)[0][body], so3.orthonormalize(fluid.R))
    wind = so3.rotate_inverse(R, jnp.broadcast_to(fluid.wind[None], (len(body), 3)))
    return jnp.concatenate([jnp.zeros_like(wind), wind], axis=1)


def _law(model: Model, fluid: Fluid):
    """Torques and forces from velocities in the frames of the boxes, one component at a time."""
    box = fluid.boxes(model)
    a, b, c = (box[:, k] for k in range(3))
    turning = [x * (y**4 + z**4) / 64 for x, y, z in ((a, b, c), (b, a, c), (c, a, b))]
    quadratic = fluid.density * jnp.stack([*turning, b * c / 2, a * c / 2, a * b / 2], axis=1)
    size = jnp.mean(box, axis=1)
    linear = jnp.pi * fluid.viscosity * jnp.stack([size**3] * 3 + [3 * size] * 3, axis=1)

    def force(velocity: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        return -(linear + quadratic * jnp.abs(velocity)) * velocity

    return force
