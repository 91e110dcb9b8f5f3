"""MJX: the terms of smooth dynamics, without collisions, constraints, sensors and actuators."""

import mujoco
from mujoco import mjx
from mujoco.mjx._src import forward, smooth

from . import layout

PACKAGE = "mujoco-mjx"
COMPILER = '<mujoco><compiler fusestatic="{}" discardvisual="false"/></mujoco>'


def compile_urdf(urdf: str, floating: bool) -> mujoco.MjModel:
    """MuJoCo's model of a URDF, without constraints."""
    compiler = COMPILER.format(str(not floating).lower())  # a floating base is no static body
    spec = mujoco.MjSpec.from_string(urdf.replace("</robot>", compiler + "</robot>"))
    if floating:
        spec.worldbody.first_body().add_freejoint()
    model = spec.compile()
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    return model


def joint_names(model: mujoco.MjModel) -> list[str]:
    """Names of all joints in MuJoCo's order."""
    return [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(model.njnt)]


class Robot:
    """The steps of ``mjx.forward`` that a robot in free space needs."""

    def __init__(self, urdf, floating, joints, dtype):
        model = compile_urdf(urdf, floating)
        self.joints = [n for n in joint_names(model) if n in joints]
        self.types = model.jnt_type
        self.model = mjx.put_model(model, impl="jax")
        self.data = mjx.make_data(model, impl="jax")

    inputs = staticmethod(layout.mujoco)

    def _moving(self, q, v):
        d = self.data.replace(qpos=q, qvel=v)
        d = smooth.com_pos(self.model, smooth.kinematics(self.model, d))
        return smooth.com_vel(self.model, d)

    def inverse_dynamics(self, q, v, a):
        """``rne`` with accelerations."""
        d = self._moving(q, v).replace(qacc=a)
        return smooth.rne(self.model, d, flg_acc=True).qfrc_bias

    def forward_dynamics(self, q, v, tau):
        """Composite inertias, factor, bias, solve."""
        d = self._moving(q, v)
        d = smooth.factor_m(self.model, smooth.crb(self.model, d))
        return smooth.solve_m(self.model, d, tau - smooth.rne(self.model, d).qfrc_bias)

    def integrate(self, q, v, dt):
        """On the manifold."""
        return forward._integrate_pos(self.types, q, v, dt)
