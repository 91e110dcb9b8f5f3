"""Bodies that are moved by hand, as data: MuJoCo's mocap bodies and what they carry."""

import equinox as eqx
from jaxtyping import Array, Float

Carried = tuple[tuple[int, int], ...]
"""Rows of an array, and the number of the mocap body that carries what each stands for."""


class Mocap(eqx.Module):
    """The mocap bodies of a scene: their poses, and what they carry."""

    p: Float[Array, "n 3"]
    """Places in the world (m)."""
    quat: Float[Array, "n 4"]
    """Orientations, ``wxyz``."""
    names: tuple[str, ...] = eqx.field(static=True)
    """The names of the bodies, in the order of MuJoCo's ``mocap_pos``."""
    shapes: Carried = eqx.field(static=True)
    frames: Carried = eqx.field(static=True)
    """Frames of the model."""
    sensed: Carried = eqx.field(static=True)
    """Frames of sensors."""
    first: Carried = eqx.field(static=True)
    second: Carried = eqx.field(static=True)
    """The first and the second ends of connects and welds."""
    points: Carried = eqx.field(static=True)
    wraps: Carried = eqx.field(static=True)
    """Points of tendons, and bodies around which they wrap."""
