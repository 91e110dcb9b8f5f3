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


def limb_weights(model: Model) -> Float[Array, " nv"]:
    """How much a turn along each degree of freedom counts: 0 for translations and wheels, 1 for
    limbs, between 0 and 1 for wheels that are out of balance.
    """
    space, topology = model.space, model.topology
    turns = np.zeros(space.nv)
    for kind in ("revolute", "spherical", "free"):
        for body in space.bodies_of(kind):
            start = int(space.v_starts[body])
            turns[start : start + (1 if kind == "revolute" else 3)] = 1.0
    leaf = topology.tree.slots.leaf
    wheels = [  # degrees of freedom and bodies that may be wheels
        (int(space.v_starts[b]), topology.joint_names.index(space.joint_names[b]))
        for b in space.bodies_of("revolute")
        if space.joint_names[b] in topology.joint_names
        and leaf[topology.joint_names.index(space.joint_names[b])]
    ]
    weights = jnp.asarray(turns, model.dtype)
    if not wheels:
        return weights
    dofs, bodies = (np.array(x) for x in zip(*wheels, strict=True))
    I10, axis = model.inertia[bodies], model.axis[bodies]
    J, K, m = inertia.rotational(I10), so3.hat(axis), inertia.mass(I10)
    change = ((so3.matmul(K, J) - so3.matmul(J, K)) ** 2).sum(axis=(1, 2))
    shift = (jnp.cross(axis, I10[:, 1:4]) ** 2).sum(axis=1)
    size, moment = (J**2).sum(axis=(1, 2)), m * jnp.trace(J, axis1=1, axis2=2)
    asymmetry = _ratio(change, size) + _ratio(shift, moment)
    return weights.at[dofs].set(jnp.minimum(asymmetry / SYMMETRY**2, 1.0))


def _ratio(x: Array, y: Array) -> Array:
    """x / y, and zero where y is."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)


def below_half_a_turn(
    model: Model, v: Float[Array, " nv"], dt: Float[Array, ""]
) -> Float[Array, " nv"]:
    """The velocity, scaled so that no limb turns by half a revolution or more in ``dt`` seconds.

    With w the largest turn of a limb, ``dt |v_i|``, and w₀ = π/2, the factor is ``r (2 − r)`` with
    ``r = min(1, w₀ / w)``. The largest turn is then ``w₀ (2 − r)``.
    """
    turn = dt * jnp.max(limb_weights(model) * jnp.abs(v), initial=0.0)
    r = QUARTER / jnp.maximum(turn, QUARTER)
    return v * (r * (2 - r))
