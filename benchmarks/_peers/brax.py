"""Brax, generalized pipeline: the terms of smooth dynamics."""

import jax
from brax import kinematics
from brax.generalized import dynamics, mass
from brax.generalized.base import State
from brax.io import mjcf
from jax import numpy as jnp

from . import layout, mjx

PACKAGE = "brax"


class Robot:
    """Mass matrix and bias force of a system made from MuJoCo's model."""

    def __init__(self, urdf, floating, joints, dtype):
        model = mjx.compile_urdf(urdf, floating)
        self.joints = [n for n in mjx.joint_names(model) if n in joints]
        self.types = model.jnt_type
        self.system = mjcf.load_model(model)

    inputs = staticmethod(layout.mujoco)

    def _terms(self, q, v):
        x, xd = kinematics.forward(self.system, q, v)
        state = dynamics.transform_com(self.system, State.init(q, v, x, xd))
        return mass.matrix(self.system, state), dynamics.inverse(self.system, state)

    def inverse_dynamics(self, q, v, a):
        """Mass matrix and bias force."""
        M, bias = self._terms(q, v)
        return jnp.matmul(M, a) + bias

    def forward_dynamics(self, q, v, tau):
        """Cholesky of the mass matrix."""
        M, bias = self._terms(q, v)
        return jax.scipy.linalg.solve(M, tau - bias, assume_a="pos")

    def integrate(self, q, v, dt):
        """On the manifold, as MJX does."""
        return mjx.forward._integrate_pos(self.types, q, v, dt)
