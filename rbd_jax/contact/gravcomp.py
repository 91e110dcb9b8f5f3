"""Gravity compensation: forces that carry a part of each body's weight, as ``gravcomp`` in MJCF."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.springs import unsprung
from ..derivatives.rules import inverse_dynamics
from ..model import Model
from ..spatial import inertia
from .mjcf.reader import Reader
from .weights import Parts


class GravityCompensation(eqx.Module):
    """The part of the robot's weight that is carried."""

    share: Float[Array, " n"]
    """How much of the mass of its body is carried at each part (1)."""
    parts: Parts
    """At whose centers of mass."""


def gravcomp_of(r: Reader) -> GravityCompensation | None:
    """What is carried, by the bodies of the file that have a ``gravcomp``."""
    m = r.m
    share = np.asarray(m.body_gravcomp)
    off = r.disabled("SPRING") and r.disabled("DAMPER")  # of all passive forces
    found = [b for b in np.flatnonzero(share).tolist() if r.bodies.index[b] >= 0]
    found = [b for b in found if m.body_mass[b] > 0]
    if not found or r.disabled("GRAVITY") or off:
        return None
    own = [share[b] * r.part_of_mass(b) for b in found]
    return GravityCompensation(r.array(own, len(found)), r.parts(found))


def compensation(
    model: Model, lift: GravityCompensation | None, q: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """The generalized forces that carry the weight of ``lift``, MuJoCo's ``qfrc_gravcomp``.

    Source: MuJoCo's documentation, "Computation", passive forces. They are what inverse dynamics
    asks for at rest for bodies of that mass.
    """
    zero = jnp.zeros((model.nv,), model.dtype)
    if lift is None:
        return zero
    body = np.array(lift.parts.bodies, dtype=np.int32)
    mass = (lift.share * inertia.mass(model.inertia)[body])[:, None]
    carried = jnp.concatenate([mass, mass * lift.parts.centers(model)], axis=1)
    I10 = jnp.zeros_like(model.inertia).at[body, :4].add(carried)
    return inverse_dynamics(eqx.tree_at(lambda m: m.inertia, unsprung(model), I10), q, zero, zero)
