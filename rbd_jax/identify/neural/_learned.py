"""Dynamics that are partly rigid bodies and partly learned.

The equations of motion are

    (M + M_θ) a + h + c_θ + ∂V_θ/∂q + f_θ = τ + τ_θ(q, v),     then  a + a_θ(q, v, τ).

Every term with an index θ is learned and optional. h are the bias torques of the rigid bodies.
M_θ = LᵀL ≥ 0 has the Coriolis torques c_θ. V_θ(q) is a potential, and the friction f_θ only
dissipates energy. With M_θ and V_θ alone, energy is conserved by construction.

Without the rigid bodies there are two baselines: M_θ, V_θ and f_θ form a Lagrangian neural network
(Lutter, Ritter, Peters, "Deep Lagrangian networks", 2019), and a_θ alone is a plain network. Every
class is an equinox module, whose arrays are differentiable and may be mapped over.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ...algorithms.crba import crba
from ...algorithms.energy import kinetic_energy, potential_energy
from ...derivatives.custom_jvp.forward_dynamics import forward_dynamics
from ...derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ...derivatives.custom_jvp.matrix_inverse import inverse_custom_jvp
from ...model import Model
from ...spatial import linear
from ._dynamics import Dynamics
from ._networks import SIZES, Scaling, Sizes, unit_scaling
from ._terms import Friction, MassMatrix, Potential, StateNetwork

PARTS: tuple[str, ...] = ("torque", "acceleration", "potential", "mass", "friction")


class LearnedDynamics(Dynamics):
    """Rigid bodies and learned terms, as in the equation of the module.

    :func:`learned_dynamics` makes it. Derivatives of the rigid bodies follow the analytical rules,
    and those of the learned terms are autodiff.
    """

    model: Model
    torque: StateNetwork | None = None
    acceleration: StateNetwork | None = None
    potential: Potential | None = None
    mass: MassMatrix | None = None
    friction: Friction | None = None
    rigid: bool = eqx.field(static=True, default=True)
    """If False, only the joints of the model are used and not its inertias, as for a baseline."""

    def __check_init__(self):
        if not self.rigid and self.mass is None and self.acceleration is None:
            raise ValueError(
                "LearnedDynamics: without rigid bodies, a learned mass or acceleration is needed"
            )

    def __call__(self, q, v, tau, f_ext=None):
        """Accelerations. Raises ValueError for wrong shapes, or wrenches without rigid bodies."""
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
        """Torques of the motion (N m, N), with the arguments of :func:`rbd_jax.inverse_dynamics`.

        Raises:
            ValueError: if there is a term a_θ(q, v, τ), because its inverse is not known.
        """
        tau = self.learned(q, v, a)
        self._checked(f_ext=f_ext)
        return tau + inverse_dynamics(self.model, q, v, a, f_ext) if self.rigid else tau

    def learned(
        self, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
    ) -> Float[Array, " nv"]:
        """The torques of the learned terms in :meth:`inverse`, without the rigid bodies."""
        self._checked(q=q, v=v, a=a)
        if self.acceleration is not None:
            raise ValueError("LearnedDynamics: an acceleration network has no inverse")
        tau = -self._applied(q, v)
        return tau if self.mass is None else tau + self.mass.momentum(self.model, q, a)

    def energy(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, ""]:
        """Kinetic and potential energy, rigid and learned (J).

        Without a_θ, its rate is the power of τ, τ_θ, f_θ and the model's damping.
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
        """The learned torques that do not depend on a: ``τ_θ − f_θ − ∂V_θ/∂q − c_θ``."""
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
        return linear.matmul(inverse_custom_jvp(M), drive)


def learned_dynamics(
    model: Model,
    parts: tuple[str, ...],
    key: Key[Array, ""],
    *,
    scaling: Scaling | None = None,
    sizes: Sizes = SIZES,
    rigid: bool = True,
) -> LearnedDynamics:
    """Dynamics with untrained learned terms.

    The friction starts small, the mass matrix at a random matrix, and all other terms at zero.

    Args:
        model: the robot, as far as it is known.
        parts: which of ``"torque"``, ``"acceleration"``, ``"potential"``, ``"mass"`` and
            ``"friction"`` to learn.
        key: random key of the networks' weights.
        scaling: typical sizes, from data by :func:`scaling_of`; all one if None.
        sizes: units in a layer and hidden layers of each network.
        rigid: whether rigid bodies are included. Without them, ``("acceleration",)`` makes a plain
            network and ``("mass", "potential", "friction")`` a Lagrangian neural network.

    Raises:
        ValueError: for an unknown part, or a robot that cannot move.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"learned_dynamics: parts must be of {PARTS}, got {unknown}")
    if model.nv == 0:
        raise ValueError(
            f"learned_dynamics: robot {model.topology.name!r} has no degree of freedom"
        )
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
    return LearnedDynamics(model, **learned, rigid=rigid)
