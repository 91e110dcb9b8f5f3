"""Motions that excite a robot: Fourier series within its position and speed limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...model import Model, integrate, neutral
from ._dataset import Dataset

_SHARP = 8  # The exponent of the smooth maximum that keeps motions within their limits.


class Excitation(eqx.Module):
    """A periodic motion ``q(t) = q_c ⊕ Σ_k (a_k sin kωt + b_k cos kωt)``.

    Joints of one degree of freedom move; the others stay at the center. Amplitudes that would
    exceed a limit are reduced joint by joint in a smooth way. So every choice of coefficients is
    within all position and speed limits at all times. Derivatives are those of autodiff.

    Source: Swevers et al., "Optimal robot excitation and identification", 1997.
    """

    center: Float[Array, " nq"]
    coefficients: Float[Array, "2 K nv"]
    """a and b before they are reduced (rad, m)."""
    reach: Float[Array, " nv"]
    """Greatest excursion of each degree of freedom (rad, m); 0 for those that do not move."""
    speed: Float[Array, " nv"]
    """Greatest speed (rad/s, m/s)."""
    period: float = eqx.field(static=True)
    """Period of the first harmonic (s)."""

    def amplitudes(self) -> Float[Array, "2 K nv"]:
        """The coefficients after the reduction to the limits (rad, m)."""
        c = self.coefficients
        k = jnp.arange(1.0, c.shape[1] + 1, dtype=c.dtype)[:, None]
        size = jnp.sqrt(jnp.sum(c * c, axis=0) + jnp.finfo(c.dtype).tiny)
        moves = self.reach > 0
        far = jnp.sum(size, axis=0) / jnp.where(moves, self.reach, 1)
        fast = jnp.sum(k * size, axis=0) * (2 * jnp.pi / self.period) / self.speed
        reduction = (1 + far**_SHARP + fast**_SHARP) ** (-1 / _SHARP)
        return jnp.where(moves[None, None], c * reduction[None, None], 0)

    def at(
        self, model: Model, t: Float[Array, ""]
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, " nv"]]:
        """q, v and a at a time (s)."""
        a, b = self.amplitudes()
        k = jnp.arange(1.0, a.shape[0] + 1, dtype=a.dtype)[:, None]
        w = k * (2 * jnp.pi / self.period)
        s, c = jnp.sin(w * t), jnp.cos(w * t)
        u = jnp.sum(a * s + b * c, axis=0)
        v = jnp.sum(w * (a * c - b * s), axis=0)
        acceleration = -jnp.sum(w * w * (a * s + b * c), axis=0)
        return integrate(model, self.center, u), v, acceleration

    def sample(self, model: Model, count: int) -> Dataset:
        """Evenly spaced samples of one period, with the torques of inverse dynamics."""
        t = jnp.arange(float(count), dtype=self.center.dtype) * (self.period / count)
        q, v, a = jax.vmap(self.at, (None, 0))(model, t)
        return Dataset(t, q, v, a, jax.vmap(inverse_dynamics, (None, 0, 0, 0))(model, q, v, a))


def excitation(
    model: Model,
    key: Key[Array, ""],
    *,
    harmonics: int = 5,
    period: float = 10.0,
    margin: float = 0.9,
    center: Float[Array, " nq"] | None = None,
) -> Excitation:
    """A random motion within the position and speed limits of the model.

    Args:
        model: the robot. Joints without limits move by ±π or ±1 m, at 2π rad/s or 2 m/s at most.
        key: random key of the coefficients.
        harmonics: number of harmonics.
        period: period of the first harmonic (s).
        margin: fraction of the limits to use.
        center: configuration to move about; the middle of the limits if None.

    Raises:
        ValueError: if the center is not within the position limits.
    """
    topology = model.space
    one = np.array([k in ("revolute", "prismatic", "helical") for k in topology.kinds])
    turns = np.array([k != "prismatic" for k in topology.kinds])[topology.dof_bodies]
    dofs = topology.v_starts[:-1][one]
    places = topology.q_starts[:-1][one]
    lower, upper = (np.asarray(x)[places] for x in (model.position_lower, model.position_upper))
    free = np.where(turns[dofs], np.pi, 1.0)
    low = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper - 2 * free, -free))
    high = np.where(np.isfinite(upper), upper, low + 2 * free)
    middle = np.asarray(neutral(model)).copy()
    middle[places] = 0.5 * (low + high)
    if center is not None:
        middle = np.asarray(center).copy()
    reach = np.zeros(model.nv)
    reach[dofs] = np.minimum(high - middle[places], middle[places] - low)
    if (reach[dofs] <= 0).any():
        raise ValueError("excitation: the center is not between the position limits of every joint")
    speed = np.asarray(model.velocity_limit)
    speed = np.where(np.isfinite(speed), speed, np.where(turns, 2 * np.pi, 2.0))
    arrays = [jnp.asarray(x, model.dtype) for x in (middle, margin * reach, margin * speed)]
    shape = 2, harmonics, model.nv
    scale = arrays[1] / harmonics**0.5
    coefficients = scale[None, None] * jax.random.normal(key, shape, model.dtype)
    return Excitation(arrays[0], coefficients, arrays[1], arrays[2], period)
