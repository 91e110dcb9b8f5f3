"""frax: the MuJoCo layout of a floating base."""

import tempfile

import frax
import jax.numpy as jnp

from . import layout

PACKAGE = "frax"


class Robot:
    """``frax.Robot`` with standard gravity."""

    def __init__(self, urdf, floating, joints, dtype):
        with tempfile.NamedTemporaryFile("w", suffix=".urdf") as file:
            file.write(urdf)
            file.flush()
            base = {"floating_base": "quaternion"} if floating else {}
            self.robot = frax.Robot(file.name, **base)
        self.joints = [n for n in self.robot.joint_names if n in joints]
        self.up = jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0], dtype)

    inputs = staticmethod(layout.mujoco)

    def inverse_dynamics(self, q, v, a):
        """RNEA."""
        return self.robot.rnea(q, v, a, self.up, None)

    def forward_dynamics(self, q, v, tau):
        """Mass matrix and Cholesky."""
        return self.robot.forward_dynamics(q, v, tau, None)

    def integrate(self, q, v, dt):
        """On the manifold."""
        return self.robot.integrate(q, v, dt) if q.shape != v.shape else q + dt * v
