"""This library, measured in the same way as its peers."""

import rbd_jax as rbd

from . import layout

PACKAGE = "jax"


class Robot:
    """The ruled functions, and the explicit derivatives."""

    def __init__(self, urdf, floating, joints, dtype):
        self.model = rbd.load_urdf(urdf, floating_base=floating, dtype=dtype, mimic="independent")
        self.joints = [n for n in self.model.joint_names if n in joints]

    inputs = staticmethod(layout.body_fixed)
    whole = staticmethod(rbd.lanes)

    def inverse_dynamics(self, q, v, a):
        """By the rule."""
        return rbd.inverse_dynamics(self.model, q, v, a)

    def forward_dynamics(self, q, v, tau):
        """By the rule."""
        return rbd.forward_dynamics(self.model, q, v, tau)

    def forward_dynamics_derivatives(self, q, v, tau):
        """FDSVA."""
        return rbd.forward_dynamics_derivatives(self.model, q, v, tau)

    def integrate(self, q, v, dt):
        """On the manifold."""
        return rbd.integrate(self.model, q, dt * v)
