"""Steps along which the numbers behind the charts change evenly."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._charts import Direction, Pose
from ._parameters import Parameters

_NEAR = 0.9  # of the way to the border, at most
_LENGTHS = 0.8 ** np.arange(30)  # of steps, to choose from


def straight_step(
    learn: Parameters, z: Float[Array, " k"], dz: Float[Array, " k"]
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """``z`` after a step along which inertias and other numbers themselves change evenly.

    What no data show are straight lines for them and curves in coordinates, which a solver could
    only follow in small steps. Steps that leave what a chart holds, as inertias of no body, are
    shortened. Rotations and poses go by their charts.

    Returns:
        The new coordinates, and which part of the step they are (at most 1).
    """
    model, rate = jax.jvp(learn.model, (z,), (dz,))

    def after(a: Array) -> Array:
        moved, parts, at = jax.tree.map(lambda x, dx: x + a * dx, model, rate), [z[:0]], 0
        for block in learn.blocks:
            here = slice(at, at := at + len(block.names))
            curved = isinstance(block.chart, (Direction, Pose))
            parts.append(z[here] + a * dz[here] if curved else block.coordinates(moved))
        return jnp.concatenate(parts)

    lengths = jnp.asarray(_LENGTHS, z.dtype)
    inside = jnp.all(jnp.isfinite(jax.vmap(after)(lengths / _NEAR)), axis=1)
    a = jnp.where(jnp.any(inside), lengths[jnp.argmax(inside)], 0)
    return after(a), a
