"""A robot from a model compiled by MuJoCo: links, joints, sites by name. Extra ``mjcf``.

MuJoCo parses and compiles the XML; nothing here reads XML. A body of MuJoCo with several joints
becomes a chain of bodies, the last of which carries its inertia. Our q is MuJoCo's ``qpos``, number
for number: ``ref`` is absorbed into the placements. Only the velocity of a free joint differs
(``rbd_jax.convert.mujoco``).
"""

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..model import JointSpec, LinkSpec, Model, RobotDescriptionError, RobotSpec
from ..spatial import host
from ._build import build_model

KINDS = ("free", "spherical", "prismatic", "revolute")
"""Our joint kinds in the order of ``mujoco.mjtJoint``."""


def mujoco() -> Any:
    """The package ``mujoco``. Raises ImportError with the remedy."""
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise ImportError("reading MJCF needs mujoco: pip install 'rbd-jax[mjcf]'") from error


def compile_mjcf(source: str | os.PathLike, drop_meshes: bool = False) -> Any:
    """A ``mujoco.MjModel`` of a file or an XML string.

    Args:
        source: a path, or a string that holds the XML.
        drop_meshes: leave out mesh geoms, with what they refer to, before compiling. Bodies then
            need explicit inertias.

    Raises:
        RobotDescriptionError: if MuJoCo refuses the file, with MuJoCo's message.
    """
    return read_mjcf(source, drop_meshes)[1]


def read_mjcf(source: str | os.PathLike, drop_meshes: bool = False) -> tuple[Any, Any]:
    """A ``mujoco.MjSpec`` of a file or an XML string, and the ``mujoco.MjModel`` compiled of it.

    Arguments and errors as :func:`compile_mjcf`.
    """
    mj = mujoco()
    text = str(source)
    inline = text.lstrip().startswith("<")
    if not inline and not Path(text).is_file():
        raise RobotDescriptionError(f"load_mjcf: there is no file {text!r}")
    where = "the XML string" if inline else text
    try:
        spec = mjcf_spec(source, drop_meshes)
        return spec, spec.compile()
    except (ValueError, RuntimeError, mj.FatalError) as error:
        raise RobotDescriptionError(f"load_mjcf: MuJoCo refuses {where}: {error}") from error


def mjcf_spec(source: str | os.PathLike, drop_meshes: bool = False) -> Any:
    """A ``mujoco.MjSpec`` without what is only drawn. Arguments as :func:`compile_mjcf`."""
    mj, text = mujoco(), str(source)
    inline = text.lstrip().startswith("<")
    spec = mj.MjSpec.from_string(text) if inline else mj.MjSpec.from_file(text)
    _undress(spec)
    if drop_meshes:
        for geom in list(spec.geoms):
            if geom.type == mj.mjtGeom.mjGEOM_MESH:
                spec.delete(geom)
        for mesh in list(spec.meshes):
            spec.delete(mesh)
    return spec


def _undress(spec: Any) -> None:
    """Leave out materials, textures and skins: they move nothing, and their files may be absent."""
    for geom in (*spec.geoms, *spec.sites):
        geom.material = ""
    for tendon in spec.tendons:
        tendon.material = ""
    for x in (*spec.skins, *spec.materials, *spec.textures):
        spec.delete(x)


def name_of(mj_model: Any, kind: str, index: int) -> str:
    """The name of an element, or its kind and number if it has none, such as ``joint#3``."""
    return getattr(mj_model, kind)(index).name or f"{kind}#{index}"


@dataclass(frozen=True)
class Bodies:
    """Where the bodies of MuJoCo are in our model, one row a body of MuJoCo.

    ``index`` is our body, −1 for the world; ``R``, ``p`` is MuJoCo's body frame in it.
    """

    index: np.ndarray
    R: np.ndarray
    p: np.ndarray


class _Reader:
    """Walks through the bodies of a compiled model and collects links, joints and frames."""

    def __init__(self, mj_model: Any):
        self.mj = mj_model
        self.links: list[LinkSpec] = [LinkSpec("world")]
        self.joints: list[JointSpec] = []
        self.taken = {"world"}
        self.link: list[str] = ["world"]  # the link that carries each body of MuJoCo
        self.offset: list[np.ndarray] = [np.eye(4)]  # the body's frame in that link
        for b in range(1, mj_model.nbody):
            self._body(b)
        for s in range(mj_model.nsite):
            m, body = self.mj, int(mj_model.site_bodyid[s])
            name = self._free_name(name_of(m, "site", s), "site")
            self._fix(name, body, host.pose(host.rotation_of_quat(m.site_quat[s]), m.site_pos[s]))

    def _free_name(self, name: str, kind: str) -> str:
        name = name if name not in self.taken else f"{kind}:{name}"
        self.taken.add(name)
        return name

    def _fix(self, name: str, body: int, T: np.ndarray, link: LinkSpec | None = None) -> None:
        """A frame at T in a body of MuJoCo."""
        T = self.offset[body] @ T
        parent = self.link[body]
        self.links.append(link or LinkSpec(name))
        self.joints.append(
            JointSpec(f"{name}:fixed", "fixed", parent, name, R=T[:3, :3], p=T[:3, 3])
        )

    def _body(self, b: int) -> None:
        m = self.mj
        parent = int(m.body_parentid[b])
        T = host.pose(host.rotation_of_quat(m.body_quat[b]), m.body_pos[b])
        name = self._free_name(name_of(m, "body", b), "body")
        R, com = host.rotation_of_quat(m.body_iquat[b]), np.array(m.body_ipos[b])
        if m.body_sameframe[b]:  # MuJoCo calls frames one that differ by less than 1e-6
            R, com = np.eye(3), com if m.body_sameframe[b] == 3 else 0 * com
        inertia = R @ np.diag(m.body_inertia[b]) @ R.T
        count = int(m.body_jntnum[b])
        if count == 0:
            self._fix(name, parent, T, LinkSpec(name, m.body_mass[b], com, inertia))
            self.link.append(name)
            self.offset.append(np.eye(4))
            return
        above, T = self.link[parent], self.offset[parent] @ T
        anchor = np.zeros(3)
        for k in range(count):
            j = int(m.body_jntadr[b]) + k
            joint = name_of(m, "joint", j)
            free = m.jnt_type[j] == 0
            T = np.eye(4) if free else T @ host.pose(np.eye(3), m.jnt_pos[j] - anchor)
            anchor = np.zeros(3) if free else np.array(m.jnt_pos[j])
            last = k == count - 1
            child = name if last else self._free_name(f"{name}:{joint}", "body")
            own = (
                (m.body_mass[b], com - anchor, inertia)
                if last
                else (0.0, np.zeros(3), np.zeros((3, 3)))
            )
            self.links.append(LinkSpec(child, *own))
            self.joints.append(self._joint(j, joint, above, child, T))
            above, T = child, np.eye(4)
        self.link.append(name)
        self.offset.append(host.pose(np.eye(3), -anchor))

    def _joint(self, j: int, name: str, parent: str, child: str, T: np.ndarray) -> JointSpec:
        m = self.mj
        kind = KINDS[m.jnt_type[j]]
        q, d = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
        nq = {"free": 7, "spherical": 4}.get(kind, 1)
        axis = np.array(m.jnt_axis[j])
        if nq == 1:
            ref = m.qpos0[q]
            turned = kind == "revolute"
            R = host.about(axis, -ref) if turned else np.eye(3)
            T = T @ host.pose(R, np.zeros(3) if turned else -ref * axis)
        limited = bool(m.jnt_limited[j]) and nq == 1
        effort = max(abs(m.jnt_actfrcrange[j])) if m.jnt_actfrclimited[j] else None
        return JointSpec(
            name,
            kind,
            parent,
            child,
            R=T[:3, :3],
            p=T[:3, 3],
            axis=axis if nq == 1 else np.array([1.0, 0.0, 0.0]),
            lower=float(m.jnt_range[j, 0]) if limited else None,
            upper=float(m.jnt_range[j, 1]) if limited else None,
            effort=effort,
            damping=float(m.dof_damping[d]),
            friction=float(m.dof_frictionloss[d]),
            armature=float(m.dof_armature[d]),
            stiffness=float(m.jnt_stiffness[j]),
            rest=tuple(m.qpos_spring[q : q + nq]),
        )


def robot_of(mj_model: Any, dtype=None) -> tuple[Model, Bodies]:
    """The robot of a compiled MuJoCo model, and where MuJoCo's bodies are in it.

    All trees of the world are one robot. Bodies and sites are frames under their names; where a
    body and a site share a name, the site's frame is ``site:name``.
    """
    reader = _Reader(mj_model)
    name = str(mj_model.names[: mj_model.names.index(b"\0")], "utf8") or "mjcf"
    spec = RobotSpec(name, tuple(reader.links), tuple(reader.joints))
    model = build_model(spec, dtype=dtype, gravity=np.array(mj_model.opt.gravity))
    topology = model.topology
    at = [topology.frame_index(n) for n in reader.link]
    offset = np.array(reader.offset)
    frame_R, frame_p = np.array(model.frame_R, float), np.array(model.frame_p, float)
    index = np.array([topology.frame_bodies[i] for i in at])
    p = frame_p[at] + np.einsum("nij,nj->ni", frame_R[at], offset[:, :3, 3])
    R = frame_R[at]
    # a body's frame is MuJoCo's, also where the body's last joint is not at its origin
    moved = jnp.asarray(model.frame_p).at[np.array(at)].set(jnp.asarray(p, model.dtype))
    return eqx.tree_at(lambda m: m.frame_p, model, moved), Bodies(index, R, p)
