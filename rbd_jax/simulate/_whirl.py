"""The velocity after a step of semi-implicit Euler, also where limbs whirl."""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..model import Model
from ..model.topology import Topology

FAST = 1.0
"""Turn of a joint in one step (rad) from which on it may be too fast for the step."""
FOLLOWED = 0.3
"""Change of this turn from one step to the next (rad) that a step still follows."""


@lru_cache
def _turns(space: Topology) -> np.ndarray:
    """Which coordinates of v are angular rates."""
    within = np.arange(space.nv) - space.v_starts[space.dof_bodies]
    kinds = np.array(space.kinds)[space.dof_bodies] if space.nv else np.array([], str)
    straight = np.isin(kinds, ("prismatic", "translation")) | ((kinds == "free") & (within > 2))
    return ~straight


def euler_velocity(
    model: Model, v: Float[Array, " nv"], a: Float[Array, " nv"], dt: Float[Array, ""]
) -> Float[Array, " nv"]:
    """``v⁺ = s (v + dt a)`` with s = 1, except in steps that cannot follow the motion.

    Explicit Coriolis torques bring energy into joints that turn by a large part of a radian in a
    step, and light wrists of limp arms then turn ever faster until they are NaN. For the turn
    ``θ_i = dt |v_i + dt a_i|`` of a joint in the step and its change ``c_i = dt² |a_i|`` let

        s = 1 / (1 + y / max(dt max_i |v_i|, FAST)),
        y = max(0, max_i min(θ_i/FAST − 1, c_i − FOLLOWED)).

    So s differs from 1 only if a joint turns by more than 1 rad in the step and this turn changes
    by more than 0.3 rad at once. All other steps are exactly ``v + dt a``, those of wheels and
    rotors that turn fast and evenly too, and the long steps of trajectory optimization. Above 2 rad
    the greatest speed grows by ``FOLLOWED/dt`` in a step at most, so the motion stays finite. The
    factor s multiplies all angular rates, because the energy is in all of them, but no
    translations: what flies flies on. It is a function of v and a alone, and so costs no pass over
    the bodies and has derivatives everywhere.

    Source: our own. For one joint and with ``FOLLOWED = 0`` it is ``(v + dt a) / (1 + dt |a/v|)``,
    which is no greater than v. The tamed Euler scheme limits the increment of every step in a
    similar way (Hutzenthaler, Jentzen, Kloeden, Annals of Applied Probability 22, 2012).

    Args:
        model: the robot.
        v: velocity at the start of the step.
        a: accelerations of the step (rad/s², m/s²).
        dt: length of the step (s).
    """
    after, turns = v + dt * a, _turns(model.space)
    if not turns.any():
        return after
    missed = lax.min(lax.abs(after) * (dt / FAST) - 1, lax.abs(a) * (dt * dt) - FOLLOWED)
    y = jnp.max(jnp.where(turns, missed, 0), initial=0)
    rate = jnp.max(jnp.where(turns, lax.abs(v), 0))
    s = 1 / (1 + y / jnp.maximum(rate * dt, FAST))
    return after * (s if turns.all() else jnp.where(turns, s, 1))
