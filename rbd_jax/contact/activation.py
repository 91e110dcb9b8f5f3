"""Activation dynamics: actuators with a state of their own, and muscles among them.

Source: MuJoCo's documentation, "Computation", activation dynamics, and "Modeling", muscles. The
rate of an activation w depends on its control u only:

- ``integrator``: ``ẇ = u``
- ``filter`` and ``filterexact``: ``ẇ = (u − w) / τ``, integrated by Euler or exactly
- ``muscle``: ``ẇ = (u − w) / τ(u, w)``, after Millard et al. (2013)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spatial.clamp import clamp

KINDS = ("integrator", "filter", "filterexact", "muscle", "held")
"""The kinds of dynamics. A held activation stays as it is: its actuator is switched off."""
TINY = 1e-15


class Activation(eqx.Module):
    """The activations of actuators, one for each actuator that has one."""

    parameters: Float[Array, "na 3"]
    """Filters: the time constant (s). Muscles: time constants of activation and deactivation (s),
    and the width of the transition between them (1)."""
    limits: Float[Array, "na 2"]
    """The least and the greatest activation; infinite for none."""
    actuators: tuple[int, ...] = eqx.field(static=True)
    """The actuator of each activation."""
    kinds: tuple[str, ...] = eqx.field(static=True)
    early: tuple[bool, ...] = eqx.field(static=True)
    """Whether a force follows from the activation at the end of the step."""

    def rate(self, act: Float[Array, " na"], u: Float[Array, " nu"]) -> Float[Array, " na"]:
        """The rates of the activations (1/s).

        Args:
            act: activations. u: controls, after their limits.
        """
        u = u[np.array(self.actuators, dtype=np.int32)]
        rates = {"integrator": lambda: u, "filter": lambda: self._filter(act, u),
                 "muscle": lambda: _muscle(act, u, self.parameters)}  # fmt: skip
        rates["filterexact"] = rates["filter"]
        total = jnp.zeros_like(act)
        for kind in dict.fromkeys(self.kinds):
            if kind in rates:
                total = jnp.where(self._are(kind), rates[kind](), total)
        return total

    def after(
        self, act: Float[Array, " na"], rate: Float[Array, " na"], dt: Float[Array, ""]
    ) -> Float[Array, " na"]:
        """The activations after ``dt`` seconds, within their limits."""
        time = jnp.broadcast_to(dt, act.shape)
        if "filterexact" in self.kinds:
            constant = jnp.maximum(self.parameters[:, 0], TINY)
            time = jnp.where(self._are("filterexact"), -constant * jnp.expm1(-dt / constant), time)
        return clamp(act + rate * time, self.limits[:, 0], self.limits[:, 1])

    def acting(
        self, act: Float[Array, " na"], u: Float[Array, " nu"], dt: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        """What the gains of all actuators multiply: the activation, or the control without one."""
        if any(self.early):
            next_ = self.after(act, self.rate(act, u), dt)
            act = jnp.where(np.array(self.early), next_, act)
        return u.at[np.array(self.actuators, dtype=np.int32)].set(act)

    def _are(self, kind: str) -> np.ndarray:
        return np.array([k == kind for k in self.kinds])

    def _filter(self, act: Array, u: Array) -> Float[Array, " na"]:
        return (u - act) / jnp.maximum(self.parameters[:, 0], TINY)


def _muscle(act: Array, u: Array, parameters: Float[Array, "na 3"]) -> Float[Array, " na"]:
    """The rate of the activation of muscles."""
    share = 0.5 + 1.5 * clamp(act, 0, 1)
    excess = clamp(u, 0, 1) - act
    rises, falls, width = parameters[:, 0] * share, parameters[:, 1] / share, parameters[:, 2]
    smooth = width >= TINY
    x = jnp.clip(excess / jnp.where(smooth, width, 1) + 0.5, 0, 1)
    step = x * x * x * (3 * x * (2 * x - 5) + 10)  # MuJoCo's sigmoid, a polynomial
    mixed = falls + (rises - falls) * step
    # an activation at its control has the derivative of the way that is open to the control
    up = (excess > 0) | ((excess == 0) & (act < 1))
    time = jnp.where(smooth, mixed, jnp.where(up, rises, falls))
    return excess / jnp.maximum(TINY, time)


class Muscles(eqx.Module):
    """Gains and biases that follow the force, length and velocity curves of muscles.

    A muscle has a gain, which its activation multiplies, and a passive force. Both may have
    parameters of their own, as in MuJoCo.
    """

    gain: Float[Array, "ng 9"]
    """Parameters of the gains: the two operating lengths, the greatest force (N), or a negative
    number if it is ``scale`` over the acceleration by a unit force; ``scale``; the least and the
    greatest length, the greatest speed, the passive force at the greatest length, and the greatest
    active force at a rising length. Lengths are in units of the optimal length."""
    bias: Float[Array, "nb 9"]
    """The same of the passive forces."""
    lengths: Float[Array, "nu 2"]
    """The least and the greatest length of each actuator, which are the operating lengths (m)."""
    gains: tuple[int, ...] = eqx.field(static=True)
    """The actuator of each gain."""
    biases: tuple[int, ...] = eqx.field(static=True)
    """The actuator of each passive force."""
    scaled: bool = eqx.field(static=True)
    """Whether the greatest force of any muscle follows from its ``scale``."""

    def gain_at(
        self, length: Float[Array, " nu"], speed: Float[Array, " nu"], acc0: Array | None
    ) -> Float[Array, " ng"]:
        """The gains (N), negative because muscles pull."""
        at = np.array(self.gains, dtype=np.int32)
        force, optimal, L = self._normalized(self.gain, at, length, acc0)
        vmax, fvmax = self.gain[:, 6], self.gain[:, 8]
        V = speed[at] / jnp.maximum(TINY, optimal * vmax)
        y = fvmax - 1
        slower = V + 1
        faster = fvmax - (y - V) ** 2 / jnp.maximum(TINY, y)
        FV = jnp.where(V <= 0, slower * slower, jnp.where(y >= V, faster, fvmax))
        FV = jnp.where(V <= -1, 0, FV)
        return -force * _active(L, self.gain[:, 4], self.gain[:, 5]) * FV

    def gain_slope(self, length: Array, speed: Array, acc0: Array | None) -> Float[Array, " ng"]:
        """The derivative of the gains by the speeds (N s/m)."""
        one = jnp.ones_like(speed)
        return jax.jvp(lambda v: self.gain_at(length, v, acc0), (speed,), (one,))[1]

    def bias_at(self, length: Float[Array, " nu"], acc0: Array | None) -> Float[Array, " nb"]:
        """The passive forces (N)."""
        at = np.array(self.biases, dtype=np.int32)
        force, _, L = self._normalized(self.bias, at, length, acc0)
        lmax, fpmax = self.bias[:, 5], self.bias[:, 7]
        b = 0.5 * (1 + lmax)
        x = (L - 1) / jnp.maximum(TINY, b - 1)
        beyond = (L - b) / jnp.maximum(TINY, b - 1)
        passive = jnp.where(b >= L, 0.5 * x * x, 0.5 + beyond)
        return jnp.where(L <= 1, 0, -force * fpmax * passive)

    def _normalized(self, prm: Array, at: np.ndarray, length: Array, acc0: Array | None):
        """The greatest force (N), the optimal length (m), and the length in units of it."""
        force = prm[:, 2]
        if acc0 is not None:
            force = jnp.where(force < 0, prm[:, 3] / jnp.maximum(TINY, acc0[at]), force)
        own = self.lengths[at]
        optimal = (own[:, 1] - own[:, 0]) / jnp.maximum(TINY, prm[:, 1] - prm[:, 0])
        return force, optimal, prm[:, 0] + (length[at] - own[:, 0]) / jnp.maximum(TINY, optimal)


def _active(L: Array, lmin: Array, lmax: Array) -> Float[Array, " n"]:
    """The active force by the length, a bump of four parabolas between the least and the greatest.

    Lengths are in units of the optimal length, where the force is one.
    """
    a, b = 0.5 * (lmin + 1), 0.5 * (1 + lmax)
    parts = (L - lmin, a - lmin), (1 - L, 1 - a), (L - 1, b - 1), (lmax - L, lmax - b)
    x = [u / jnp.maximum(TINY, w) for u, w in parts]
    low, high = 0.5 * x[0] * x[0], 0.5 * x[3] * x[3]
    middle = [1 - 0.5 * y * y for y in x[1:3]]
    bump = jnp.where(a >= L, low, jnp.where(L <= 1, middle[0], jnp.where(b >= L, middle[1], high)))
    return jnp.where((lmin <= L) & (lmax >= L), bump, 0)
