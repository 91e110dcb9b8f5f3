"""Energies, center of mass and momentum of the whole robot. Source: Kim (15), (23)."""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..model import Model
from ..model.arguments import algorithm
from ..spatial import inertia, so3
from ..spatial.motion import wrench_to_parent
from .kinematics import body_velocities, forward_kinematics
from .passive import spring_energy


@algorithm(project=())
def kinetic_energy(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, ""]:
    """``½ vᵀ M v``, the kinetic energy of bodies and rotors (J). Derivatives are those of autodiff.

    Source: Kim (15), ``½ Σ Vᵀ I V``.
    """
    V = body_velocities(model, q, v)
    return 0.5 * (jnp.sum(V * inertia.apply(model.inertia, V)) + jnp.sum(model.armature * v * v))


@algorithm(project=())
def potential_energy(model: Model, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """``−Σ m gᵀ c``, zero with every center of mass at the world's origin, and the springs' (J).

    Source: Kim, footnote 6, for the sign of gravity. Derivatives are those of autodiff.
    """
    energy = -so3.dot(model.gravity, _first_moment(model, q))
    return energy if model.stiffness is None else energy + spring_energy(model, q)


@algorithm(driven_joints=True)
def total_mass(model: Model) -> Float[Array, ""]:
    """Mass of all moving bodies (kg). Derivatives are those of autodiff."""
    return jnp.sum(inertia.mass(model.inertia))


def _has_mass(name: str, model: Model) -> None:
    """Refuse robots whose moving bodies have no mass, where the masses are known."""
    known = not isinstance(model.inertia, Tracer)
    if known and not np.sum(np.asarray(model.inertia), axis=0)[0]:
        raise ValueError(
            f"{name}: robot {model.topology.name!r} has no center of mass, "
            f"because its {model.nb} moving bodies have no mass; give them masses, or load "
            "the robot with floating_base=True if its root link is to move"
        )


@algorithm(driven_joints=True, requires=_has_mass)
def center_of_mass(model: Model, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Center of mass of all moving bodies in the world frame (m).

    Derivatives are those of autodiff.

    Raises:
        ValueError: if the robot has no mass. Where its inertias are traced, by ``jax.jit`` of them
            for example, the result is NaN instead.
    """
    return _first_moment(model, q) / total_mass(model)


def _first_moment(model: Model, q: Array) -> Float[Array, "3"]:
    R, p = forward_kinematics(model, q)
    m, mc = model.inertia[:, :1], model.inertia[:, 1:4]
    return jnp.sum(so3.rotate(R, mc) + m * p, axis=0)


@algorithm(driven_joints=True, requires=_has_mass)
def centroidal_momentum(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, "6"]:
    """Momentum (angular about the center of mass, linear) in world axes (N m s, N s).

    Source: Kim (23)–(24), momenta of the bodies summed at the center of mass. Derivatives are those
    of autodiff.

    Raises:
        ValueError: if the robot has no mass, as :func:`center_of_mass`.
    """
    R, p = forward_kinematics(model, q)
    L = inertia.apply(model.inertia, body_velocities(model, q, v))
    shifted = R, p - center_of_mass(model, q)[None]
    return jnp.sum(wrench_to_parent(shifted, L), axis=0)
