"""Data from other libraries: torques of the dynamics of Pinocchio and of MuJoCo."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lxml import etree

import rbd_jax as rbd
from rbd_jax import identify
from rbd_jax.io import convert

_LINK = (
    '<link name="{n}"><inertial><origin xyz="{c}" rpy="0.3 -0.2 0.5"/><mass value="{m}"/>'
    '<inertia ixx="0.03" ixy="0.001" ixz="-0.002" iyy="0.04" iyz="0.003" izz="0.035"/></inertial>'
    "</link>"
)
_JOINT = (
    '<joint name="{n}" type="{t}"><parent link="{p}"/><child link="{c}"/>'
    '<origin xyz="0.1 0.2 -0.3" rpy="0.4 0.5 -0.6"/><axis xyz="{a}"/>'
    '<limit lower="-2" upper="2" effort="30" velocity="4"/>'
    '<dynamics damping="0.3" friction="0.4"/></joint>'
)
THREE = "".join([
    '<robot name="three"><link name="base"/>',
    _LINK.format(n="one", c="0.1 0 0.05", m=2.0),
    _LINK.format(n="two", c="0 0.1 -0.1", m=1.5),
    _LINK.format(n="three", c="-0.1 0.05 0.1", m=1.0),
    _JOINT.format(n="j1", t="revolute", p="base", c="one", a="0 0 1"),
    _JOINT.format(n="j2", t="revolute", p="one", c="two", a="0 1 0"),
    _JOINT.format(n="j3", t="prismatic", p="two", c="three", a="0.6 0 0.8"),
    "</robot>",
])  # fmt: skip
"""A robot with three joints: revolute, revolute, prismatic."""


def bare_urdf(source: str | Path, floating: bool = False) -> str:
    """A URDF for MuJoCo without geometry and with unchanged inertias.

    If ``floating``, a free joint connects the root to the world. MuJoCo itself merges links at
    fixed joints.
    """
    text = source if isinstance(source, str) else Path(source).read_text()
    root = etree.fromstring(text.encode(), etree.XMLParser(remove_comments=True))
    for link in root.findall("link"):
        for name in ("visual", "collision"):
            for element in link.findall(name):
                link.remove(element)
    for joint in root.findall("joint"):
        for element in joint.findall("mimic"):
            joint.remove(element)
    if floating:
        children = {joint.find("child").get("link") for joint in root.findall("joint")}
        top = next(x.get("name") for x in root.findall("link") if x.get("name") not in children)
        root.append(etree.fromstring('<link name="world"/>'))
        root.append(etree.fromstring(
            f'<joint name="root_joint" type="floating"><parent link="world"/>'
            f'<child link="{top}"/></joint>'
        ))  # fmt: skip
    options = '<mujoco><compiler balanceinertia="false" discardvisual="true"/></mujoco>'
    root.append(etree.fromstring(options))
    return etree.tostring(root, encoding="unicode")


class MuJoCo:
    """A robot in MuJoCo. States and torques are in our layout."""

    def __init__(self, model: rbd.Model, source: str | Path):
        self.mujoco = pytest.importorskip("mujoco")
        floating = model.joint_names[0] == "root_joint"
        self.mj = self.mujoco.MjModel.from_xml_string(bare_urdf(source, floating))
        self.mj.opt.disableflags |= self.mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        self.mj.opt.gravity[:] = np.asarray(model.gravity)
        self.layout = convert.mujoco(model, self.mj)
        order = self.layout.v_places
        self.mj.dof_damping[:] = np.asarray(model.damping)[order]
        self.mj.dof_armature[:] = np.asarray(model.armature)[order]
        self.data = self.mujoco.MjData(self.mj)

    def torques(self, q, v, a) -> np.ndarray:
        """Inverse dynamics of each sample."""
        to = jax.jit(jax.vmap(lambda q, v, a: (
            self.layout.q_to(q), self.layout.v_to(q, v), self.layout.a_to(q, v, a)
        )))  # fmt: skip
        rows, d = [], self.data
        for x in zip(*(np.asarray(y) for y in to(q, v, a)), strict=True):
            d.qpos[:], d.qvel[:], d.qacc[:] = x
            self.mujoco.mj_inverse(self.mj, d)
            rows.append(d.qfrc_inverse.copy())
        return np.asarray(jax.jit(jax.vmap(self.layout.tau_from))(q, jnp.array(rows)))

    def simulate(self, q0, v0, tau, dt: float, substeps: int = 10):
        """The motion under torques that are held over each step, by MuJoCo's RK4.

        It is for robots whose joints have one degree of freedom.
        """
        self.mj.opt.integrator = self.mujoco.mjtIntegrator.mjINT_RK4
        self.mj.opt.timestep = dt / substeps
        order, d = self.layout.v_places, self.data
        self.mujoco.mj_resetData(self.mj, d)
        d.qpos[:], d.qvel[:] = np.asarray(q0)[order], np.asarray(v0)[order]
        q, v = [], []
        for u in np.asarray(tau):
            q.append(d.qpos.copy())
            v.append(d.qvel.copy())
            d.qfrc_applied[:] = u[order]
            for _ in range(substeps):
                self.mujoco.mj_step(self.mj, d)
        back = np.argsort(order)
        return np.array(q)[:, back], np.array(v)[:, back]


def pinocchio_torques(model: rbd.Model, source: str | Path, q, v, a) -> np.ndarray:
    """Inverse dynamics of each sample by Pinocchio, with armature and damping of the model."""
    pin = pytest.importorskip("pinocchio")
    text = source if isinstance(source, str) else Path(source).read_text()
    floating = model.joint_names[0] == "root_joint"
    theirs = pin.buildModelFromXML(text, *((pin.JointModelFreeFlyer(),) if floating else ()))
    theirs.gravity.linear = np.asarray(model.gravity)
    layout, data = convert.pinocchio(model, theirs), theirs.createData()
    to = jax.jit(jax.vmap(lambda q, v, a: (
        layout.q_to(q), layout.v_to(q, v), layout.a_to(q, v, a)
    )))  # fmt: skip
    rows = [pin.rnea(theirs, data, *x).copy()
            for x in zip(*(np.asarray(y) for y in to(q, v, a)), strict=True)]  # fmt: skip
    tau = np.asarray(jax.jit(jax.vmap(layout.tau_from))(q, jnp.array(rows)))
    return (
        tau + np.asarray(model.armature) * np.asarray(a) + np.asarray(model.damping) * np.asarray(v)
    )


def noisy(tau, sigma, seed: int = 0) -> jax.Array:
    """Torques with independent normal noise of one standard deviation for each joint."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(tau + np.asarray(sigma) * rng.normal(size=np.shape(tau)))


def dataset(q, v, a, tau) -> identify.Dataset:
    return identify.Dataset(None, q, v, a, tau)
