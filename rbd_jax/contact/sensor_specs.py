"""What the sensors of a scene read, as data; :mod:`rbd_jax.contact.sensing` reads them.

Source: MuJoCo's documentation, "XML reference", sensor.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model


class Lumps(eqx.Module):
    """Rigid pieces of the robot, bodies of the file, as parts of the bodies of the model."""

    inertia: Float[Array, "n 10"]
    """Mass, first moments and inertia in the frame of the body (kg, kg m, kg m²). Not used for a
    piece that is ``whole``."""
    bodies: tuple[int, ...] = eqx.field(static=True)
    """The body of each piece; −1 is the world."""
    whole: tuple[bool, ...] = eqx.field(static=True)
    """Whether the piece is its body, with the inertia of the model."""

    def inertias(self, model: Model) -> Float[Array, "n 10"]:
        """The inertia of each piece in the frame of its body."""
        own = model.inertia[np.array(self.bodies, dtype=np.int32)]
        return jnp.where(np.array(self.whole, dtype=bool)[:, None], own, self.inertia)


class Sensor(NamedTuple):
    """What a sensor reads: its kind, and the numbers of what it reads, −1 for nothing."""

    kind: str
    name: str
    size: int
    """The number of its readings; 1 for numbers."""
    dof: int = -1
    """The first degree of freedom of a joint."""
    place: int = -1
    """Where the joint begins in q."""
    target: int = -1
    """A tendon, an actuator, or the row of a limit."""
    frame: int = -1
    reference: int = -1
    """Two of the frames of :class:`Sensors`."""
    lumps: tuple[int, ...] = ()
    """The pieces of a subtree."""
    shapes: tuple[int, ...] = ()
    """The scene's shapes on the file's body, or on its subtree."""
    welds: tuple[tuple[int, int], ...] = ()
    """The connects and welds that hold a body of the subtree, and which of their two bodies."""
    others: tuple[int, ...] | None = None
    """The shapes that a contact sensor wants to touch those of ``shapes``; None for any."""
    data: tuple[str, ...] = ()
    """What a contact sensor reads of the contact."""
    pulls: tuple[int, ...] = ()
    """Where tendons pull at the subtree, see :func:`rbd_jax.contact.tendons.pulls`."""
    shape: str = ""
    """The shape of the zone of a touch sensor."""
    positive: bool = False
    """Whether readings are cut off on the positive side only."""


class Sensors(eqx.Module):
    """The sensors of a scene; every float array is a leaf."""

    cutoff: Float[Array, " n"]
    """The greatest absolute reading of each sensor; infinite for none."""
    noise: Float[Array, " n"]
    """Standard deviation of the noise of each sensor, which is added where it is asked for."""
    R: Float[Array, "nf 3 3"]
    p: Float[Array, "nf 3"]
    """Frames in the frames of their bodies (m). Of a ``centered`` frame, p is measured from the
    center of mass of the body."""
    sizes: Float[Array, "n 3"]
    """The sizes of the zones of touch sensors (m)."""
    magnetic: Float[Array, "3"]
    """The magnetic flux in the world (T)."""
    lumps: Lumps
    bodies: tuple[int, ...] = eqx.field(static=True)
    """The body of each frame; −1 is the world."""
    centered: tuple[bool, ...] = eqx.field(static=True)
    signs: tuple[float, ...] = eqx.field(static=True)
    """The sign of MuJoCo's quaternion of each frame, against the product along its chain."""
    sensors: tuple[Sensor, ...] = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sensors."""
        return tuple(x.name for x in self.sensors)
