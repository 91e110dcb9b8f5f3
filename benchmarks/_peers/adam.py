"""adam: mass matrix and bias force in its mixed representation."""

import jax
import jax.numpy as jnp
from adam.jax import KinDynComputations

from . import layout

PACKAGE = "adam-robotics"


def _rotation(quat):
    w, x, y, z = quat / jnp.linalg.norm(quat)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class Robot:
    """``KinDynComputations``; for a fixed base, the joints' part with the base at rest."""

    def __init__(self, urdf, floating, joints, dtype):
        gravity = jnp.array([0, 0, -9.81, 0, 0, 0], dtype)
        self.robot = KinDynComputations(urdf, list(joints), dtype, gravity=gravity)
        self.joints, self.floating, self.dtype = list(joints), floating, dtype

    inputs = staticmethod(layout.mixed)

    def _base(self, q, v):
        """Pose and twist of the base; the joints' q and v."""
        H = jnp.eye(4, dtype=self.dtype)
        if not self.floating:
            return H, jnp.zeros(6, self.dtype), q, v
        return H.at[:3, :3].set(_rotation(q[3:7])).at[:3, 3].set(q[:3]), v[:6], q[7:], v[6:]

    def _terms(self, q, v):
        H, twist, q, v = self._base(q, v)
        M, h = self.robot.mass_matrix(H, q), self.robot.bias_force(H, q, twist, v)
        return (M, h) if self.floating else (M[6:, 6:], h[6:])

    def inverse_dynamics(self, q, v, a):
        """Mass matrix and bias force."""
        M, h = self._terms(q, v)
        return jnp.matmul(M, a) + h

    def forward_dynamics(self, q, v, tau):
        """ABA, which is for floating bases; Cholesky of the joints' mass matrix for fixed ones."""
        if self.floating:
            H, twist, q, v = self._base(q, v)
            return self.robot.aba(H, q, twist, v, tau[6:])
        M, h = self._terms(q, v)
        return jax.scipy.linalg.solve(M, tau - h, assume_a="pos")

    def integrate(self, q, v, dt):
        """Fixed bases only: it has no integrator."""
        if self.floating:
            raise NotImplementedError("no integrator of a floating base")
        return q + dt * v
