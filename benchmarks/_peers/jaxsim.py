"""JaxSim: ABA and RNEA, mixed representation. Read from SDF: its URDF reader needs a program."""

import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import jaxsim.api as js
from jaxsim import VelRepr

from . import layout

PACKAGE = "jaxsim"


def _pose(element, frame):
    origin = element.find("origin")
    xyz, rpy = (origin.get(k) for k in ("xyz", "rpy"))
    at = f' relative_to="{frame}"' if frame else ""
    return f"<pose{at}>{xyz} {rpy}</pose>"


def to_sdf(urdf: str, floating: bool) -> str:
    """The same robot in SDF: link frames are joint frames, inertias are taken over."""
    robot = ET.fromstring(urdf)
    joint_of = {j.find("child").get("link"): j for j in robot.findall("joint")}
    lines = ['<sdf version="1.10"><model name="robot">']
    for link in robot.findall("link"):
        name, joint = link.get("name"), joint_of.get(link.get("name"))
        inertial = link.find("inertial")
        mass, inertia = inertial.find("mass").get("value"), inertial.find("inertia").attrib
        numbers = "".join(f"<{k}>{x}</{k}>" for k, x in inertia.items())
        at = (
            f'<pose relative_to="{joint.get("name")}">0 0 0 0 0 0</pose>'
            if joint is not None
            else ""
        )
        lines.append(
            f'<link name="{name}">{at}<inertial>{_pose(inertial, None)}<mass>{mass}</mass>'
            f"<inertia>{numbers}</inertia></inertial></link>"
        )
    for child, joint in joint_of.items():
        parent = joint.find("parent").get("link")
        lines.append(
            f'<joint name="{joint.get("name")}" type="{joint.get("type")}">{_pose(joint, parent)}'
            f"<parent>{parent}</parent><child>{child}</child><axis>"
            f"<xyz>{joint.find('axis').get('xyz')}</xyz>"
            "<limit><lower>-1e16</lower><upper>1e16</upper></limit></axis></joint>"
        )
    if not floating:
        root = robot.find("link").get("name")
        lines.append('<joint name="the_root" type="fixed"><parent>world</parent>')
        lines.append(f"<child>{root}</child></joint>")
    return "".join(lines) + "</model></sdf>"


class Robot:
    """The functions of ``jaxsim.api.model``; the base's wrench is taken to be zero."""

    def __init__(self, urdf, floating, joints, dtype):
        self.model = js.model.JaxSimModel.build_from_model_description(
            model_description=to_sdf(urdf, floating), is_urdf=False, gravity=9.81
        )
        self.joints = [n for n in self.model.joint_names() if n in joints]
        self.floating, self.parallel = floating, jax.default_backend() != "cpu"

    inputs = staticmethod(layout.mixed)

    def _data(self, q, v):
        base = {}
        if self.floating:
            base = {
                "base_position": q[:3],
                "base_quaternion": q[3:7],
                "base_linear_velocity": v[:3],
                "base_angular_velocity": v[3:6],
            }
        n = len(self.joints)
        return js.data.JaxSimModelData.build(
            model=self.model,
            joint_positions=q[-n:],
            joint_velocities=v[-n:],
            velocity_representation=VelRepr.Mixed,
            **base,
        )

    def inverse_dynamics(self, q, v, a):
        """RNEA."""
        n = len(self.joints)
        base = {"base_acceleration": a[:6]} if self.floating else {}
        f, tau = js.model.inverse_dynamics(
            self.model, self._data(q, v), joint_accelerations=a[-n:], **base
        )
        return jnp.concatenate([f, tau]) if self.floating else tau

    def forward_dynamics(self, q, v, tau):
        """ABA; by levels where its documentation recommends that, on accelerators."""
        n = len(self.joints)
        base, a = js.model.forward_dynamics_aba(self.model, self._data(q, v), joint_forces=tau[-n:])
        return jnp.concatenate([base, a]) if self.floating else a

    def integrate(self, q, v, dt):
        """Fixed bases only: its integrator does not stand alone."""
        if self.floating:
            raise NotImplementedError("no integrator of a floating base that stands alone")
        return q + dt * v
