"""Gravity and joint springs: what acts on a robot without being applied to it.

Gravity is an acceleration of the world, as in Kim. Springs belong to the robot, as damping does.
Every dynamics function counts them outside its recursion, so that a robot without springs pays
nothing. The derivative rules of the dynamics do not know of springs. These are added to torques,
and automatic differentiation of this file is exact.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Model, displacement, integrate


def base_acceleration(model: Model) -> Float[Array, "6"]:
    """The fictitious twist rate ``(0, −g)`` of the world that replaces gravity.

    Source: Kim, footnote 6 (V̇₀ against gravity).
    """
    return jnp.concatenate([jnp.zeros_like(model.gravity), -model.gravity])


class BaseMotion(NamedTuple):
    """The motion of the base that a robot stands on, in the axes of the base at that instant.

    Source: Kim, footnote 6 (V₀ and V̇₀ of Tables 2 to 4); the notes, §8.1 (ω₀ is a part of V₀).
    """

    V: Float[Array, "6"]
    """Twist V₀ of the base, angular first (rad/s, m/s)."""
    dV: Float[Array, "6"]
    """Its rate V̇₀, without gravity (rad/s², m/s²)."""


def world_motion(
    model: Model, base_motion: BaseMotion | None
) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """``(V₀, V̇₀)``, the latter with the acceleration that replaces gravity."""
    gravity = base_acceleration(model)
    if base_motion is None:
        return jnp.zeros_like(gravity), gravity
    for name, x in zip(BaseMotion._fields, base_motion, strict=True):
        if jnp.shape(x) != (6,):
            raise ValueError(
                f"base_motion: {name} has shape {jnp.shape(x)}, expected (6,): a twist (ω, v), or "
                "its rate, in the axes of the base"
            )
    V, dV = (jnp.asarray(x, gravity.dtype) for x in base_motion)
    return V, dV + gravity


def spring_torque(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """``stiffness · (q ⊖ rest)``, the torques that hold the joints against their springs (N m, N).

    Zero for a robot without springs. Source: MuJoCo's documentation, "Computation", passive forces.
    """
    if model.stiffness is None or model.rest is None:
        return jnp.zeros((model.nv,), model.dtype)
    return model.stiffness * displacement(model, model.rest, q)


def spring_energy(model: Model, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """``½ stiffness · (q ⊖ rest)²`` (J), for equal stiffness in every direction of a ball."""
    if model.stiffness is None or model.rest is None:
        return jnp.zeros((), model.dtype)
    return 0.5 * jnp.sum(model.stiffness * displacement(model, model.rest, q) ** 2)


def spring_matrix(model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The derivative of :func:`spring_torque` along ``integrate(q, ε e_k)``, one column each k."""
    zero = jnp.zeros((model.nv,), model.dtype)
    return jax.jacfwd(lambda d: spring_torque(model, integrate(model, q, d)))(zero)


def plus_springs(model: Model, q: Array, tau: Array) -> Float[Array, " nv"]:
    """The torques that joints need, from those that the bodies need; the same without springs."""
    return tau if model.stiffness is None else tau + spring_torque(model, q)


def minus_springs(model: Model, q: Array, tau: Array) -> Float[Array, " nv"]:
    """The torques that bodies get, from those at the joints; the same without springs."""
    return tau if model.stiffness is None else tau - spring_torque(model, q)


def without_springs(model: Model) -> Model:
    """The same robot without its springs."""
    return dataclasses.replace(model, stiffness=None, rest=None)


def at_rest(model: Model) -> Model:
    """The same robot without gravity, damping and springs."""
    model = without_springs(model)
    zeros = [jnp.zeros_like(model.gravity), jnp.zeros_like(model.damping)]
    return eqx.tree_at(lambda m: [m.gravity, m.damping], model, zeros)
