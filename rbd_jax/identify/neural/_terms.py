"""Learned terms of the equations of motion that conserve energy or are passive by construction."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ...model import Model, coadjoint, rate_from_velocity
from ...spatial import linear
from ._networks import Network, Scaling, Sizes, feature_count, features


def tangent_gradient(model: Model, energy, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """``∂E/∂q`` along ``integrate(q, ε e_k)``: the transposed map v ↦ q̇ of the ambient gradient."""
    slope = jax.grad(energy)(q)
    zero = jnp.zeros((model.nv,), q.dtype)
    return jax.vjp(lambda v: rate_from_velocity(model, q, v), zero)[1](slope)[0]


class Potential(eqx.Module):
    """A learned potential energy ``V_θ(q)`` (J)."""

    network: Network
    scaling: Scaling

    def __init__(self, model: Model, scaling: Scaling, sizes: Sizes, key: Key[Array, ""]):
        count = feature_count(model.topology)
        self.network = Network(count, 1, sizes, key, model.dtype, 0.0)
        self.scaling = scaling

    def energy(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, ""]:
        """``V_θ(q)``, in units of the greatest residual torque."""
        out = self.network(self.scaling.configuration(features(model, q)))
        return jnp.max(self.scaling.residual, initial=0) * out[0]

    def torque(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
        """``∂V_θ/∂q`` in the tangent space: the torque that balances it, as for gravity torques."""
        return tangent_gradient(model, lambda q: self.energy(model, q), q)


class MassMatrix(eqx.Module):
    """A learned mass matrix ``M_θ(q) = LᵀL + floor``, positive (semi)definite, with its energy.

    L(q) is a square matrix of network outputs. The unit of each column is the square root of a
    typical inertia (residual torque over acceleration). ``floor`` bounds M_θ from below in those
    units. It is zero for a correction of a rigid-body model. With ``inverse`` the matrix stands for
    an inverse mass matrix, in the inverse units.
    """

    network: Network
    scaling: Scaling
    floor: float = eqx.field(static=True)
    inverse: bool = eqx.field(static=True)

    def __init__(
        self,
        model: Model,
        scaling: Scaling,
        sizes: Sizes,
        key: Key[Array, ""],
        floor: float = 0.0,
        inverse: bool = False,
    ):
        count = feature_count(model.topology)
        # It does not start at zero, where the derivative of LᵀL is zero.
        self.network = Network(count, model.nv**2, sizes, key, model.dtype, 0.3)
        self.scaling, self.floor, self.inverse = scaling, floor, inverse

    def _unit(self) -> Float[Array, " nv"]:
        inertia = self.scaling.residual / self.scaling.acceleration
        return jnp.sqrt(1 / inertia if self.inverse else inertia)

    def _factor(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
        out = self.network(self.scaling.configuration(features(model, q)))
        return out.reshape(model.nv, model.nv) * self._unit()[None, :]

    def matrix(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
        """``M_θ(q)``."""
        L = self._factor(model, q)
        return linear.matmul(L.T, L) + jnp.diag(self.floor * self._unit() ** 2)

    def momentum(self, model: Model, q: Array, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``M_θ v``."""
        L = self._factor(model, q)
        w = linear.matmul(L, v)
        return linear.matmul(w, L) + self.floor * self._unit() ** 2 * v

    def energy(self, model: Model, q: Array, v: Float[Array, " nv"]) -> Float[Array, ""]:
        """``½ vᵀ M_θ v`` (J)."""
        w = linear.matmul(self._factor(model, q), v)
        return 0.5 * (jnp.sum(w * w) + self.floor * jnp.sum((self._unit() * v) ** 2))

    def coriolis(self, model: Model, q: Array, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The Coriolis torques of M_θ: ``Ṁ_θ v − ∂T_θ/∂q − ad*_v (M_θ v)``.

        Source: the Euler–Poincaré equations of the energy T_θ. The last term, Müller (41), is
        needed for joints of several degrees of freedom, whose v is not a rate of coordinates. These
        torques conserve the energy: ``vᵀ(M_θ a + c_θ) = dT_θ/dt``.
        """
        rate = rate_from_velocity(model, q, v)
        p, dp = jax.jvp(lambda q: self.momentum(model, q, v), (q,), (rate,))
        slope = tangent_gradient(model, lambda q: self.energy(model, q, v), q)
        return dp - slope - coadjoint(model, v, p)


class Friction(eqx.Module):
    """Learned joint friction that only dissipates energy.

    ``f = d₁ v/v̄ + d₂ tanh(v/s)`` with coefficients d(q, |v|) ≥ 0. They can represent Coulomb,
    Stribeck and viscous friction and their dependence on the configuration. v̄ are the typical
    speeds of the scaling. s starts at the slow speeds of the scaling and is trained.
    """

    network: Network
    scaling: Scaling
    log_slow: Float[Array, "*b nv"]
    """Logarithms of the speeds over which dry friction changes its sign."""

    def __init__(self, model: Model, scaling: Scaling, sizes: Sizes, key: Key[Array, ""]):
        count = feature_count(model.topology) + 3 * model.nv
        self.network = Network(count, 2 * model.nv, sizes, key, model.dtype, 0.0)
        self.scaling, self.log_slow = scaling, jnp.log(scaling.slow)

    def torque(self, model: Model, q: Array, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``f_θ``, the torque that overcomes friction; no entry of ``v f`` is negative (N m, N)."""
        s, slow = self.scaling, jnp.exp(self.log_slow)
        scales = s.velocity, jnp.sqrt(s.velocity * slow), slow
        speeds = [jnp.log1p((v / x) ** 2) for x in scales]  # even and smooth in v
        out = self.network(jnp.concatenate([s.configuration(features(model, q)), *speeds]))
        # Each part starts at an eighth of the residual torque.
        d = s.residual[None] * jax.nn.softplus(out.reshape(2, -1) - 2.0)
        return d[0] * v / s.velocity + d[1] * jnp.tanh(v / slow)


class StateNetwork(eqx.Module):
    """A vector of joint torques or accelerations as a network of (q, v), or of (q, v, τ)."""

    network: Network
    scaling: Scaling
    of: str = eqx.field(static=True)
    """``"torque"``: of (q, v), in units of the residual torque. ``"acceleration"``: of (q, v, τ),
    in units of the acceleration."""

    def __init__(self, model: Model, scaling: Scaling, sizes: Sizes, key: Key[Array, ""], of: str):
        motion = {"torque": 3, "acceleration": 4}[of] * model.nv
        count = feature_count(model.topology) + motion
        self.network = Network(count, model.nv, sizes, key, model.dtype, 0.0)
        self.scaling, self.of = scaling, of

    def __call__(self, model: Model, q: Array, v: Array, tau: Array | None) -> Array:
        """The torques (N m, N) or accelerations (rad/s², m/s²)."""
        s = self.scaling
        inputs = [s.configuration(features(model, q)), s.motion(v)]
        if tau is not None:
            inputs.append(tau / s.torque)
        size = s.residual if self.of == "torque" else s.acceleration
        return size * self.network(jnp.concatenate(inputs))
