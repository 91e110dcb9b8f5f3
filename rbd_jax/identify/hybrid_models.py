"""Robots whose dynamics are partly rigid bodies, partly learned.

The equations of motion, every θ an optional learned term:

    (M + M_θ) a + h + c_θ + ∂V_θ/∂q + f_θ = τ + τ_θ(q, v),     then  a + a_θ(q, v, τ)

with h the bias torques of the rigid bodies, M_θ = LᵀL ≥ 0 and its Coriolis torques c_θ, a potential
V_θ(q) and friction f_θ that only takes energy. With M_θ and V_θ alone, energy is conserved by
construction. Leave out the rigid bodies, and M_θ, V_θ, f_θ are a Lagrangian neural network
(Lutter, Ritter, Peters, "Deep Lagrangian networks", 2019), and a_θ is a plain network: the two
baselines. Every class is an equinox module: its arrays are differentiable and may be mapped over.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..algorithms.crba import crba
from ..algorithms.energy import kinetic_energy, potential_energy
from ..derivatives.inverse import invert
from ..derivatives.rules import forward_dynamics, inverse_dynamics
from ..model import Model
from ._dynamics import Dynamics
from ._networks import SIZES, Scaling, Sizes, unit_scaling
from ._terms import Friction, MassMatrix, Potential, StateNetwork

PARTS: tuple[str, ...] = ("torque", "acceleration", "potential", "mass", "friction")


class Hybrid(Dynamics):
    """Rigid bodies and learned terms; see the module's equation. Made by :func:`hybrid_model`."""

    model: Model
    torque: StateNetwork | None = None
    acceleration: StateNetwork | None = None
    potential: Potential | None = None
    mass: MassMatrix | None = None
    friction: Friction | None = None
    rigid: bool = eqx.field(static=True, default=True)
    """False: the model gives only its joints, not its masses, to a baseline."""

    def __check_init__(self):
        if not self.rigid and self.mass is None and self.acceleration is None:
            raise ValueError("Hybrid: without rigid bodies, a mass or an acceleration is needed")

    def __call__(self, q, v, tau, f_ext=None):
        """Accelerations. Raises ValueError for a wrong shape, or wrenches without rigid bodies."""
        self._checked(q=q, v=v, tau=tau, f_ext=f_ext)
        a = self._accelerations(q, v, tau, f_ext)
        return a if self.acceleration is None else a + self.acceleration(self.model, q, v, tau)

    def inverse(
        self,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        a: Float[Array, " nv"],
        f_ext: Float[Array, "nb 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Torques of the motion (N m, N), arguments as :func:`rbd_jax.inverse_dynamics`.

        Raises:
            ValueError: if there is a term a_θ(q, v, τ), of which no inverse is known.
        """
        tau = self.learned(q, v, a)
        self._checked(f_ext=f_ext)
        return tau + inverse_dynamics(self.model, q, v, a, f_ext) if self.rigid else tau

    def learned(
        self, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
    ) -> Float[Array, " nv"]:
        """The share of the learned terms in :meth:`inverse`, in which no rigid body is computed."""
        self._checked(q=q, v=v, a=a)
        if self.acceleration is not None:
            raise ValueError("Hybrid: dynamics with an acceleration network have no inverse")
        tau = -self._applied(q, v)
        return tau if self.mass is None else tau + self.mass.momentum(self.model, q, a)

    def energy(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, ""]:
        """Kinetic and potential energy, rigid and learned (J).

        Its rate is the power of τ, τ_θ, f_θ and the model's damping, if there is no a_θ.
        """
        self._checked(q=q, v=v)
        E = jnp.zeros((), v.dtype)
        if self.rigid:
            E = kinetic_energy(self.model, q, v) + potential_energy(self.model, q)
        if self.potential is not None:
            E = E + self.potential.energy(self.model, q)
        return E if self.mass is None else E + self.mass.energy(self.model, q, v)

    @property
    def _bodies(self) -> bool:
        return self.rigid

    def _applied(self, q: Array, v: Array) -> Float[Array, " nv"]:
        """Learned torques besides those of accelerations: ``τ_θ − f_θ − ∂V_θ/∂q − c_θ``."""
        m, total = self.model, jnp.zeros_like(v)
        if self.torque is not None:
            total = total + self.torque(m, q, v, None)
        if self.friction is not None:
            total = total - self.friction.torque(m, q, v)
        if self.potential is not None:
            total = total - self.potential.torque(m, q)
        return total if self.mass is None else total - self.mass.coriolis(m, q, v)

    def _accelerations(self, q, v, tau, f_ext) -> Float[Array, " nv"]:
        drive = tau + self._applied(q, v)
        if self.mass is None:
            if not self.rigid:
                return jnp.zeros_like(v)
            return forward_dynamics(self.model, q, v, drive, f_ext)
        M = self.mass.matrix(self.model, q)
        if self.rigid:
            M = M + crba(self.model, q)
            drive = drive - inverse_dynamics(self.model, q, v, jnp.zeros_like(v), f_ext)
        return jnp.matmul(invert(M), drive, precision="highest")


def hybrid_model(
    model: Model,
    parts: tuple[str, ...],
    key: Key[Array, ""],
    *,
    scaling: Scaling | None = None,
    sizes: Sizes = SIZES,
    rigid: bool = True,
) -> Hybrid:
    """A robot with untrained learned terms; all but the mass start at zero, friction small.

    Args:
        model: the robot as far as it is known.
        parts: which of ``"torque"``, ``"acceleration"``, ``"potential"``, ``"mass"`` and
            ``"friction"`` to learn.
        key: random key of the networks' weights.
        scaling: typical sizes, from data by :func:`scaling_of`; all one if None.
        sizes: units in a layer and hidden layers of each network.
        rigid: False leaves the rigid bodies out. With ``("acceleration",)`` that is a plain
            network, with ``("mass", "potential", "friction")`` a Lagrangian neural network.

    Raises:
        ValueError: for an unknown part, or a robot that cannot move.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"hybrid_model: parts must be of {PARTS}, got {unknown}")
    if model.nv == 0:
        raise ValueError(f"hybrid_model: robot {model.topology.name!r} has no degree of freedom")
    scaling = unit_scaling(model) if scaling is None else scaling
    keys = dict(zip(PARTS, jax.random.split(key, len(PARTS)), strict=True))
    arguments = {p: (model, scaling, sizes, keys[p]) for p in parts}
    learned: dict[str, Any] = {}
    for part in ("torque", "acceleration"):
        if part in parts:
            learned[part] = StateNetwork(*arguments[part], part)
    if "potential" in parts:
        learned["potential"] = Potential(*arguments["potential"])
    if "mass" in parts:
        learned["mass"] = MassMatrix(*arguments["mass"], 0.0 if rigid else 0.05)
    if "friction" in parts:
        learned["friction"] = Friction(*arguments["friction"])
    return Hybrid(model, **learned, rigid=rigid)
