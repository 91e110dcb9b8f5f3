"""A Hamiltonian neural network, as a baseline for comparisons."""

import jax
from jaxtyping import Array, Float, Key

from ...derivatives.custom_jvp.matrix_inverse import inverse_custom_jvp
from ...model import Model, coadjoint, rate_from_velocity
from ...spatial import linear
from ._dynamics import Dynamics
from ._networks import SIZES, Scaling, Sizes, unit_scaling
from ._terms import Friction, MassMatrix, Potential, tangent_gradient


class Hamiltonian(Dynamics):
    """Dynamics with a learned energy ``H(q, p) = ½ pᵀ W_θ(q) p + V_θ(q)`` and learned friction.

    Source: Greydanus, Dzamba, Yosinski, "Hamiltonian neural networks", 2019, with the kinetic
    energy of Zhong, Dey, Chakraborty, "Symplectic ODE-Net", 2020, written on the manifold:

        v = W p,    ṗ = −∂H/∂q + ad*_v p − f_θ + τ.

    Only the joints of the model are used. Derivatives are those of autodiff.
    """

    model: Model
    inverse_mass: MassMatrix
    potential: Potential
    friction: Friction

    def __init__(
        self,
        model: Model,
        key: Key[Array, ""],
        *,
        scaling: Scaling | None = None,
        sizes: Sizes = SIZES,
    ):
        s = unit_scaling(model) if scaling is None else scaling
        a, b, c = jax.random.split(key, 3)
        self.model, self.inverse_mass = model, MassMatrix(model, s, sizes, a, 0.05, inverse=True)
        self.potential = Potential(model, s, sizes, b)
        self.friction = Friction(model, s, sizes, c)

    def momentum(self, q: Array, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """``p = W⁻¹ v``."""
        W = self.inverse_mass.matrix(self.model, q)
        return linear.matmul(inverse_custom_jvp(W), v)

    def energy(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, ""]:
        """``H`` at the momentum that belongs to v (J, up to a constant)."""
        T = self.inverse_mass.energy(self.model, q, self.momentum(q, v))
        return T + self.potential.energy(self.model, q)

    def __call__(self, q, v, tau, f_ext=None):
        """Accelerations ``a = W ṗ + Ẇ p``. Raises ValueError for wrong shapes or a given f_ext."""
        self._checked(q=q, v=v, tau=tau, f_ext=f_ext)
        m, W = self.model, self.inverse_mass
        p = self.momentum(q, v)
        slope = tangent_gradient(m, lambda q: W.energy(m, q, p), q) + self.potential.torque(m, q)
        dp = tau - slope + coadjoint(m, v, p) - self.friction.torque(m, q, v)
        rate = rate_from_velocity(m, q, v)
        _, dWp = jax.jvp(lambda q: W.momentum(m, q, p), (q,), (rate,))
        return W.momentum(m, q, dp) + dWp

    @property
    def _bodies(self) -> bool:
        return False
