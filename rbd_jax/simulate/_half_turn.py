"""No joint turns by more than half a revolution in a step: beyond, a step follows no motion.

A turn by more than half a revolution looks like a turn backwards, so a step that long says nothing
about where a limb is. Explicit steps get there when nothing holds a limp arm: they take energy from
the Coriolis torques, turn ever faster, and end in NaN. Velocities that turn a joint by more than a
quarter of a revolution in a step are therefore scaled down, all by one factor, so that the turn
stays below half a revolution. Accelerations then stay bounded too. The factor is one in every
motion that the step resolves, and has a continuous derivative. Because it is at most one, it only
takes energy out.

A wheel is no limb: where a body turns about its axis of symmetry and carries no other, its motion
does not depend on the angle, and any speed is resolved.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Model
from ..spatial import inertia, so3

QUARTER = math.pi / 2
"""The turn (rad) up to which velocities stay as they are. Twice as much is never reached."""
SYMMETRY = 0.1
"""Relative change of a wheel's inertia in a turn from which on it counts as a limb."""


def squared_turns(
    model: Model, v: Float[Array, " nv"], dt: float | Float[Array, ""]
) -> Float[Array, " nj"]:
    """The square of the angle by which each independent joint turns in ``dt`` seconds (rad²).

    It is zero for joints that do not turn and for wheels, and less than the true one for wheels
    that are a little out of balance.
    """
    space = model.space
    turns = jnp.zeros((space.nb,), v.dtype)
    hinges, balls = space.bodies_of("revolute", "helical"), space.bodies_of("spherical", "free")
    square = (dt * v) ** 2
    if len(hinges):
        turns = turns.at[hinges].set(square[space.v_starts[hinges]] * _limbs(model, hinges))
    if len(balls):  # the angular velocity comes first
        three = space.v_starts[balls][:, None] + np.arange(3)
        turns = turns.at[balls].set(jnp.sum(square[three], axis=1))
    return turns


def _limbs(model: Model, hinges: np.ndarray) -> Float[Array, " n"]:
    """How much the squared turn of each hinge counts: 1 for limbs, 0 for wheels in balance.

    Between them it is the squared relative change of the inertia over that of :data:`SYMMETRY`.
    """
    space, topology = model.space, model.topology
    names, leaf = topology.joint_names, topology.tree.slots.leaf
    wheels = [  # the row of a hinge and its body, if it may be a wheel
        (row, names.index(space.joint_names[h]))
        for row, h in enumerate(hinges)
        if space.kinds[h] == "revolute"
        and space.joint_names[h] in names
        and leaf[names.index(space.joint_names[h])]
    ]
    weights = jnp.ones((len(hinges),), model.dtype)
    if not wheels:
        return weights
    rows, bodies = (np.array(x) for x in zip(*wheels, strict=True))
    I10, axis = model.inertia[bodies], model.axis[bodies]
    J, K, m = inertia.rotational(I10), so3.hat(axis), inertia.mass(I10)
    change = ((so3.matmul(K, J) - so3.matmul(J, K)) ** 2).sum(axis=(1, 2))
    shift = (jnp.cross(axis, I10[:, 1:4]) ** 2).sum(axis=1)
    size, moment = (J**2).sum(axis=(1, 2)), m * jnp.trace(J, axis1=1, axis2=2)
    asymmetry = _ratio(change, size) + _ratio(shift, moment)
    return weights.at[rows].set(jnp.minimum(asymmetry / SYMMETRY**2, 1.0))


def _ratio(x: Array, y: Array) -> Array:
    """x / y, and zero where y is."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)


def below_half_a_turn(
    model: Model, v: Float[Array, " nv"], dt: Float[Array, ""]
) -> Float[Array, " nv"]:
    """The velocity, scaled so that no limb turns by half a revolution or more in ``dt`` seconds.

    With w the largest turn of an independent joint and w₀ = π/2, the factor is ``r (2 − r)`` with
    ``r = min(1, w₀ / w)``. The largest turn is then ``w₀ (2 − r)``. Source: own derivation.

    Args:
        model: the robot.
        v: velocity (rad/s, m/s; body-fixed for a free joint).
        dt: length of the step (s).
    """
    most = jnp.max(squared_turns(model, v, dt), initial=0.0)
    r = QUARTER / jnp.sqrt(jnp.maximum(most, QUARTER**2))
    return v * (r * (2 - r))
