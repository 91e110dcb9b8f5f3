"""The drag of a fluid on bodies, each as a box of its inertia.

Source: MuJoCo's documentation, "Computation", passive forces, inertia-box model.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import body_velocities, forward_kinematics
from ..model import Model
from ..spatial import so3
from ..spatial.host import rotation_of_quat
from .reader import Reader

LIGHTEST = 1e-15
"""MuJoCo's smallest mass, and the smallest inertia of a side of the box."""


class Fluid(eqx.Module):
    """A fluid that fills the world, and n boxes that stand for what moves in it."""

    density: Float[Array, ""]
    """(kg/m³)"""
    viscosity: Float[Array, ""]
    """(Pa s)"""
    wind: Float[Array, "3"]
    """Velocity of the fluid in the world (m/s)."""
    box: Float[Array, "n 3"]
    """Side lengths (m)."""
    R: Float[Array, "n 3 3"]
    """Orientation in the body's frame."""
    p: Float[Array, "n 3"]
    """Center of mass in the body's frame (m)."""
    bodies: tuple[int, ...] = eqx.field(static=True)


def fluid_of(r: Reader) -> Fluid | None:
    """The fluid of a compiled MuJoCo model; None if it has neither density nor viscosity."""
    m, o = r.m, r.m.opt
    if not (o.density > 0 or o.viscosity > 0) or (r.disabled("SPRING") and r.disabled("DAMPER")):
        return None
    index = np.asarray(r.bodies.index)
    moving = [b for b in range(m.nbody) if index[b] >= 0 and m.body_mass[b] >= LIGHTEST]
    box, R, p = [], [], []
    for b in moving:
        own = np.asarray(m.body_inertia[b])
        spread = np.maximum(own.sum() - 2 * own, LIGHTEST)
        box.append(np.sqrt(6 * spread / m.body_mass[b]))
        R.append(r.bodies.R[b] @ rotation_of_quat(m.body_iquat[b]))
        p.append(r.bodies.p[b] + r.bodies.R[b] @ m.body_ipos[b])
    n = len(moving)
    return Fluid(
        r.array(o.density),
        r.array(o.viscosity),
        r.array(o.wind, 3),
        r.array(box, n, 3),
        r.array(R, n, 3, 3),
        r.array(p, n, 3),
        tuple(int(index[b]) for b in moving),
    )


def drag(
    model: Model, fluid: Fluid, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The generalized forces of the fluid, MuJoCo's ``qfrc_fluid`` (N m, N)."""
    local, force = _local(model, fluid, q), _law(fluid)
    velocity, pull = jax.vjp(local, v)
    return pull(force(velocity - _wind(model, fluid, q)))[0]


def drag_slope(
    model: Model, fluid: Fluid, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "nv nv"]:
    """The derivative of :func:`drag` with respect to v, symmetric."""
    local, force = _local(model, fluid, q), _law(fluid)
    velocity = local(v) - _wind(model, fluid, q)
    slope = jax.jvp(force, (velocity,), (jnp.ones_like(velocity),))[1]
    J = jax.vmap(local)(jnp.eye(model.nv, dtype=v.dtype)).reshape(model.nv, -1)
    return jnp.matmul(J * slope.reshape(1, -1), J.T, precision="highest")


def _local(model: Model, fluid: Fluid, q: Array):
    """The map from v to the velocities of the boxes in their frames, ``(n, 6)``; it is linear."""
    body = np.array(fluid.bodies, dtype=np.int32)
    R = so3.orthonormalize(fluid.R)

    def velocities(v):
        V = body_velocities(model, q, v)[body]
        w, at = V[:, :3], V[:, 3:] + so3.cross(V[:, :3], fluid.p)
        both = so3.rotate_inverse(R, w), so3.rotate_inverse(R, at)
        return jnp.concatenate(both, axis=1)

    return velocities


def _wind(model: Model, fluid: Fluid, q: Array) -> Float[Array, "n 6"]:
    """The velocity of the fluid in the frames of the boxes."""
    body = np.array(fluid.bodies, dtype=np.int32)
    R = so3.matmul(forward_kinematics(model, q)[0][body], so3.orthonormalize(fluid.R))
    wind = so3.rotate_inverse(R, jnp.broadcast_to(fluid.wind[None], fluid.p.shape))
    return jnp.concatenate([jnp.zeros_like(wind), wind], axis=1)


def _law(fluid: Fluid):
    """Torques and forces from velocities in the frames of the boxes, one component at a time."""
    a, b, c = (fluid.box[:, k] for k in range(3))
    turning = [x * (y**4 + z**4) / 64 for x, y, z in ((a, b, c), (b, a, c), (c, a, b))]
    quadratic = fluid.density * jnp.stack([*turning, b * c / 2, a * c / 2, a * b / 2], axis=1)
    size = jnp.mean(fluid.box, axis=1)
    linear = jnp.pi * fluid.viscosity * jnp.stack([size**3] * 3 + [3 * size] * 3, axis=1)

    def force(velocity: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
        return -(linear + quadratic * jnp.abs(velocity)) * velocity

    return force
