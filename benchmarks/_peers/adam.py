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
        self.robot = KinDynComputations(urdf, list(joints), gravity=gravity)
        self.joints, self.floating, self.dtype = list(joints), floating, dtype

    inputs = staticmethod(layout.mixed)

    def _terms(self, q, v):
        if self.floating:
            H = jnp.eye(4, dtype=self.dtype).at[:3, :3].set(_rotation(q[3:7])).at[:3, 3].set(q[:3])
            M = self.robot.mass_matrix(H, q[7:])
            return M, self.robot.bias_force(H, q[7:], v[:6], v[6:])
        H, still = jnp.eye(4, dtype=self.dtype), jnp.zeros(6, self.dtype)
        M, h = self.robot.mass_matrix(H, q), self.robot.bias_force(H, q, still, v)
        return M[6:, 6:], h[6:]

    def inverse_dynamics(self, q, v, a):
        """Mass matrix and bias force."""
        M, h = self._terms(q, v)
        return jnp.matmul(M, a) + h

    def forward_dynamics(self, q, v, tau):
        """Cholesky of the mass matrix."""
        M, h = self._terms(q, v)
        return jax.scipy.linalg.solve(M, tau - h, assume_a="pos")

    def integrate(self, q, v, dt):
        """Fixed bases only: it has no integrator."""
        if self.floating:
            raise NotImplementedError("no integrator of a floating base")
        return q + dt * v
