"""Gravity compensation: forces that carry a part of each body's weight, as ``gravcomp`` in MJCF."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.springs import unsprung
from ..derivatives.rules import inverse_dynamics
from ..model import Model
from .reader import Reader


def lift_of(r: Reader) -> Float[Array, "nb 4"] | None:
    """The mass of each of our bodies that is carried (kg), and its first moment (kg m)."""
    m, bodies = r.m, r.bodies
    share = np.asarray(m.body_gravcomp)
    off = r.disabled("SPRING") and r.disabled("DAMPER")  # of all passive forces
    if not share.any() or r.disabled("GRAVITY") or off:
        return None
    lift = np.zeros((r.model.nb + 1, 4))
    for b in np.flatnonzero(share):
        place = bodies.p[b] + bodies.R[b] @ m.body_ipos[b]
        lift[bodies.index[b]] += share[b] * m.body_mass[b] * np.append(1.0, place)
    return r.array(lift[:-1], r.model.nb, 4)


def compensation(
    model: Model, lift: Float[Array, "nb 4"] | None, q: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    """The generalized forces that carry the weight of ``lift``, MuJoCo's ``qfrc_gravcomp``.

    Source: MuJoCo's documentation, "Computation", passive forces. They are what inverse dynamics
    asks for at rest for bodies of that mass.
    """
    zero = jnp.zeros((model.nv,), model.dtype)
    if lift is None:
        return zero
    carried = jnp.pad(lift, ((0, 0), (0, 6)))
    return inverse_dynamics(
        eqx.tree_at(lambda m: m.inertia, unsprung(model), carried), q, zero, zero
    )
