"""A scene: a robot, its actuators, everything it may touch, and how time advances."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from ..io import Layout
from ..model import Model
from .actuators import Actuators
from .fluid import Fluid
from .gravcomp import GravityCompensation
from .kinds.contacts import Contacts
from .solver.rows import Constraints


class Keyframe(NamedTuple):
    """A named state."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    controls: Float[Array, " nu"]


class Scene(eqx.Module):
    """What :func:`rbd_jax.load_mjcf` returns. Every float array in it is a leaf."""

    model: Model
    actuators: Actuators
    constraints: Constraints
    q0: Float[Array, " nq"]
    """The reference configuration, MuJoCo's ``qpos0``: as the file places the bodies. The softness
    of constraints is scaled there."""
    keyframes: dict[str, Keyframe]
    gravcomp: GravityCompensation | None
    """The share of the weight of each body that is carried; None for none."""
    fluid: Fluid | None
    """What resists the motion of the bodies; None for nothing."""
    dt: Float[Array, ""]
    """Time step (s)."""
    integrator: str = eqx.field(static=True)
    """``"euler"`` (semi-implicit, damping implicit), ``"implicitfast"`` or ``"rk4"``."""
    implicit_damping: bool = eqx.field(static=True)
    """Whether ``"euler"`` takes joint damping implicitly."""
    layout: Layout | None = eqx.field(static=True)
    """To and from MuJoCo's ``qpos``, ``qvel`` and generalized forces."""

    def torque(
        self, q: Float[Array, " nq"], v: Float[Array, " nv"], controls: Float[Array, " nu"]
    ) -> Float[Array, " nv"]:
        """The generalized forces of the actuators (N m, N), see :meth:`Actuators.torque`."""
        damping = self.actuators.damping(self.model, self.q0)
        return self.actuators.damped(damping).torque(self.model, q, v, controls)

    @property
    def contacts(self) -> Contacts:
        """Shapes, pairs and their parameters."""
        return self.constraints.contacts

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.actuators.nu
