"""Passive forces beside springs and dampers: gravity compensation and the drag of a fluid.

Source: MuJoCo's documentation, "Computation", passive forces, and "Fluid forces". The fluid acts on
each body as on a box of the same inertia, MuJoCo's inertia-box model, or on ellipsoids.
"""

from collections.abc import Collection

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
from .wrapping import root


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


class Ellipsoids(eqx.Module):
    """Ellipsoids on which a fluid acts, MuJoCo's ``fluidshape="ellipsoid"``.

    Source: MuJoCo's documentation, "Fluid forces", ellipsoid model: the forces of the added mass,
    viscous drag, and the lifts of Magnus and of Kutta and Joukowski.
    """

    R: Float[Array, "n 3 3"]
    p: Float[Array, "n 3"]
    """Their frames in the frames of the bodies (m)."""
    axes: Float[Array, "n 3"]
    """The semi-axes (m)."""
    share: Float[Array, " n"]
    """The factor of all forces (1)."""
    coef: Float[Array, "n 5"]
    """Coefficients of blunt drag, slender drag, angular drag, Kutta lift, Magnus lift (1)."""
    added: Float[Array, "n 2 3"]
    """The inertia (m⁵) and the mass (m³) of the fluid that moves along, over its density."""
    bodies: tuple[int, ...] = eqx.field(static=True)

    def velocities(
        self, model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
    ) -> Float[Array, "n 6"]:
        """The velocities in the frames of the ellipsoids; they are linear in v."""
        V = body_velocities(model, q, v)[np.array(self.bodies, dtype=np.int32)]
        R = so3.orthonormalize(self.R)
        linear = V[:, 3:] + so3.cross(V[:, :3], self.p)
        both = so3.rotate_inverse(R, V[:, :3]), so3.rotate_inverse(R, linear)
        return jnp.concatenate(both, axis=1)

    def force(
        self, velocity: Float[Array, "n 6"], density: Array, viscosity: Array
    ) -> Float[Array, "n 6"]:
        """Torques and forces from velocities against the fluid, in the frames of the ellipsoids."""
        w, v, s = velocity[:, :3], velocity[:, 3:], self.axes
        blunt, slender, angular, kutta, magnus = (self.coef[:, k : k + 1] for k in range(5))
        total = lambda x: jnp.sum(x, axis=1, keepdims=True)  # noqa: E731
        large, small = (f(s, axis=1, keepdims=True) for f in (jnp.max, jnp.min))
        middle = total(s) - large - small
        volume = 4 / 3 * jnp.pi * jnp.prod(s, axis=1, keepdims=True)
        # the area that the flow sees, and the cosine of its angle to the surface
        face = (jnp.roll(s, -1, axis=1) * jnp.roll(s, -2, axis=1)) ** 2
        square, normal = total(face * face * v * v), face * v
        seen = total(normal * v)
        area = jnp.pi * root(_over(square, seen))
        speed = root(total(v * v))
        cosine = _over(seen, speed * square)
        lift = so3.cross(kutta * density * cosine * area * so3.cross(normal, v), v)
        lift = lift + magnus * density * volume * so3.cross(w, v)
        width = 2 / 3 * total(s)
        widest = jnp.pi * large * middle
        slow = viscosity * 3 * jnp.pi * width
        drag = slow + density * speed * (area * blunt + slender * (widest - area))
        other = jnp.maximum(jnp.roll(s, -1, axis=1), jnp.roll(s, -2, axis=1))
        moment, largest = (8 / 15 * jnp.pi * x for x in (s * other**4, middle * large**4))
        spin = w * (angular * moment + slender * (largest - moment))
        turning = viscosity * jnp.pi * width**3 + density * root(total(spin * spin))
        turned, pushed = density * self.added[:, 0] * w, density * self.added[:, 1] * v
        torque = so3.cross(pushed, v) + so3.cross(turned, w) - turning * w
        force = so3.cross(pushed, w) + lift - drag * v
        return self.share[:, None] * jnp.concatenate([torque, force], axis=1)


def _over(x: Float[Array, "n 1"], y: Float[Array, "n 1"]) -> Float[Array, "n 1"]:
    """``x / y``, and zero where y is zero."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)


class Fluid(eqx.Module):
    """A fluid that fills the world, and the boxes and ellipsoids that stand for bodies in it."""

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
    ellipsoids: Ellipsoids | None = None
    """Shapes of bodies that are no boxes for the fluid; None without any."""

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
    total = pull(force(velocity - _wind(model, q, fluid.wind, fluid.R, fluid.parts.bodies)))[0]
    shapes = fluid.ellipsoids
    if shapes is None:
        return total
    velocity, pull = jax.vjp(lambda v: shapes.velocities(model, q, v), v)
    velocity = velocity - _wind(model, q, fluid.wind, shapes.R, shapes.bodies)
    return total + pull(shapes.force(velocity, fluid.density, fluid.viscosity))[0]


def drag_slope(
    model: Model,
    fluid: Fluid,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    exact: Collection[int] | None = None,
) -> Float[Array, "nv nv"]:
    """The derivative of :func:`drag` with respect to v.

    Args:
        model: the robot. fluid: the fluid. q: configuration. v: velocity.
        exact: the bodies whose ellipsoids have this derivative; that of others is made symmetric.
            None for all. The derivative of boxes is symmetric.
    """
    local, force = _local(model, fluid, q), _law(model, fluid)
    velocity = local(v) - _wind(model, q, fluid.wind, fluid.R, fluid.parts.bodies)
    slope = jax.jvp(force, (velocity,), (jnp.ones_like(velocity),))[1]
    J = jax.vmap(local)(jnp.eye(model.nv, dtype=v.dtype)).reshape(model.nv, -1)
    total = jnp.matmul(J * slope.reshape(1, -1), J.T, precision="highest")
    shapes = fluid.ellipsoids
    if shapes is None:
        return total
    velocity = shapes.velocities(model, q, v)
    velocity = velocity - _wind(model, q, fluid.wind, shapes.R, shapes.bodies)
    law = lambda x: shapes.force(x, fluid.density, fluid.viscosity)  # noqa: E731
    unit = jnp.eye(6, dtype=v.dtype)
    columns = [jax.jvp(law, (velocity,), (jnp.broadcast_to(e, velocity.shape),))[1] for e in unit]
    B = jnp.stack(columns, axis=2)
    if exact is not None:
        own = np.isin(shapes.bodies, list(exact))[:, None, None]
        B = jnp.where(own, B, 0.5 * (B + so3.transpose(B)))
    J = jax.vmap(lambda e: shapes.velocities(model, q, e))(jnp.eye(model.nv, dtype=v.dtype))
    BJ = jnp.sum(B[None] * J[:, :, None, :], axis=3)
    flat = (model.nv, -1)
    return total + jnp.matmul(J.reshape(flat), BJ.reshape(flat).T, precision="highest")


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


def _wind(
    model: Model, q: Array, wind: Float[Array, "3"], R: Float[Array, "n 3 3"], bodies: tuple
) -> Float[Array, "n 6"]:
    """The velocity of the fluid in frames of some bodies."""
    body = np.array(bodies, dtype=np.int32)
    R = so3.matmul(forward_kinematics(model, q)[0][body], so3.orthonormalize(R))
    wind = so3.rotate_inverse(R, jnp.broadcast_to(wind[None], (len(body), 3)))
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
