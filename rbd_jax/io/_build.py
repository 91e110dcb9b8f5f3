"""From a robot description by name to a model of stacked arrays: the NumPy → JAX border."""

from collections import Counter
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from ..model._model import Model
from ..model._spec import KINDS, JointSpec, LinkSpec, RobotDescriptionError, RobotSpec
from ..model._topology import NQ, NV, Topology, depth_first

ROOT_JOINT = "root_joint"


def build_model(
    spec: RobotSpec,
    *,
    floating_base: bool = False,
    dtype=None,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
) -> Model:
    """Turn a description into a :class:`rbd_jax.Model`.

    Links behind fixed joints are merged into the body that carries them and stay as frames.
    Cylindrical, universal and planar joints become chains of one-degree-of-freedom joints with
    massless bodies between, named ``joint:part``; ``model.q_slice(joint)`` still finds the whole.

    Args:
        spec: links and joints by name.
        floating_base: put a free joint named ``root_joint`` between the world and the root link.
        dtype: of the leaves; JAX's default float if None.
        gravity: gravitational acceleration in the world frame (m/s²).

    Raises:
        RobotDescriptionError: if the description is not a tree of known joints with distinct names.
    """
    root = _check(spec)
    if floating_base:
        spec = _with_floating_base(spec, root)
    bodies = _Bodies(spec, None if floating_base else root)
    return bodies.model(dtype, np.asarray(gravity, dtype=float))


def _check(spec: RobotSpec) -> str:
    """Refuse anything but a tree; return the root link's name."""

    def fail(text: str) -> None:
        raise RobotDescriptionError(f"robot {spec.name!r}: {text}")

    for what, names in (
        ("link", [x.name for x in spec.links]),
        ("joint", [j.name for j in spec.joints]),
    ):
        twice = [n for n, k in Counter(names).items() if k > 1]
        if twice:
            fail(f"{what} name {twice[0]!r} is used more than once; rename one of them")
    links = {x.name for x in spec.links}
    if not links:
        fail("it has no links; a robot needs at least one <link>")
    for j in spec.joints:
        if j.kind not in KINDS:
            fail(f"joint {j.name!r} has the unknown type {j.kind!r}; known: {', '.join(KINDS)}")
        for role, name in (("parent", j.parent), ("child", j.child)):
            if name not in links:
                fail(f"joint {j.name!r} names the {role} link {name!r}, which does not exist")
        if j.kind not in ("fixed", "spherical", "translation", "free"):
            if not np.linalg.norm(j.axis) > 1e-9:
                fail(f"joint {j.name!r} has a zero axis; give it a direction")
    children = Counter(j.child for j in spec.joints)
    for name, k in children.items():
        if k > 1:
            joints = [j.name for j in spec.joints if j.child == name]
            fail(
                f"link {name!r} is the child of {k} joints {joints}: a kinematic loop. "
                "Cut it: keep one joint and model the closure as a constraint"
            )
    roots = [x.name for x in spec.links if x.name not in children]
    if not roots:
        fail("every link is some joint's child: the joints form a cycle; remove one of them")
    if len(roots) > 1:
        fail(f"it has {len(roots)} root links {roots[:5]}; join them to one with fixed joints")
    reached = {spec.links[i].name for i in _link_order(spec, roots[0])}
    if len(reached) < len(links):
        lost = sorted(links - reached)[:5]
        fail(f"links {lost} hang on a cycle of joints and not on the root; remove one joint of it")
    return roots[0]


def _link_order(spec: RobotSpec, root: str) -> list[int]:
    """Link numbers, depth first in document order."""
    number = {x.name: i for i, x in enumerate(spec.links)}
    below: list[list[int]] = [[] for _ in spec.links]
    for j in spec.joints:
        below[number[j.parent]].append(number[j.child])
    return depth_first(lambda i: below[i], number[root])


def _with_floating_base(spec: RobotSpec, root: str) -> RobotSpec:
    if any(j.name == ROOT_JOINT for j in spec.joints):
        raise RobotDescriptionError(
            f"robot {spec.name!r} has a joint named {ROOT_JOINT!r} already, the name of the "
            "floating base's free joint; rename it or load without floating_base"
        )
    joint = JointSpec(ROOT_JOINT, "free", "", root)
    return replace(spec, joints=(joint, *spec.joints))


def _pose(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, p
    return T


def _pseudo_inertia(link: LinkSpec, T: np.ndarray) -> np.ndarray:
    """4×4 pseudo-inertia of a link in the body frame; it transforms as ``T P Tᵀ`` and adds up."""
    Sigma = 0.5 * np.trace(link.inertia) * np.eye(3) - link.inertia
    P = np.zeros((4, 4))
    c = np.append(link.com, 1.0)
    P[:3, :3] = Sigma
    P += link.mass * np.outer(c, c)
    return T @ P @ T.T


def _ten_parameters(P: np.ndarray) -> np.ndarray:
    J = np.trace(P[:3, :3]) * np.eye(3) - P[:3, :3]
    six = [J[i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))]
    return np.array([P[3, 3], *P[:3, 3], *six])


def _plane_axes(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors that make a right-handed frame with ``normal``; x and y for z."""
    n = normal / np.linalg.norm(normal)
    k = np.array([0.0, 0.0, 1.0])
    if n[2] < -1 + 1e-12:
        return np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0])
    h = n + k  # rotation by π about the half-way vector, after π about z: takes z to n
    R = (2 * np.outer(h, h) / (h @ h) - np.eye(3)) @ np.diag([-1.0, -1.0, 1.0])
    return R[:, 0], R[:, 1]


def elementary_joints(joint: JointSpec) -> list[tuple[str, JointSpec]]:
    """The chain of elementary joints that a joint stands for, as ``(part, joint)``."""
    if joint.kind == "continuous":
        return [("", replace(joint, kind="revolute", lower=None, upper=None))]
    axis = joint.axis
    if joint.kind == "planar":
        x, y = _plane_axes(axis)
        parts = [("x", "prismatic", x), ("y", "prismatic", y), ("angle", "revolute", axis)]
    elif joint.kind == "cylindrical":
        parts = [("slide", "prismatic", axis), ("angle", "revolute", axis)]
    elif joint.kind == "universal":
        if joint.axis2 is None or np.linalg.norm(np.cross(axis, joint.axis2)) < 1e-9:
            raise RobotDescriptionError(
                f"universal joint {joint.name!r} needs axis2, not parallel to its axis"
            )
        parts = [("1", "revolute", axis), ("2", "revolute", joint.axis2)]
    else:
        return [("", joint)]
    chain = [(part, replace(joint, kind=kind, axis=a, mimic=None)) for part, kind, a in parts]
    identity = {"R": np.eye(3), "p": np.zeros(3)}
    return [chain[0], *((part, replace(j, **identity)) for part, j in chain[1:])]


class _Bodies:
    """Collects the stacked arrays while walking the tree depth first."""

    def __init__(self, spec: RobotSpec, fixed_root: str | None):
        self.spec = spec
        self.parents: list[int] = []
        self.joints: list[JointSpec] = []
        self.body_names: list[str] = []
        self.joint_names: list[str] = []
        self.placements: list[np.ndarray] = []
        self.pseudo: list[np.ndarray] = []
        self.composites: list[tuple[str, int, int]] = []
        self.frames: dict[str, tuple[int, np.ndarray]] = {}
        joint_of = {j.child: j for j in spec.joints}
        links = spec.links
        root = fixed_root or next(j.child for j in spec.joints if j.parent == "")
        tree = replace(spec, joints=tuple(j for j in spec.joints if j.parent != ""))
        for i in _link_order(tree, root):
            link = links[i]
            if link.name == fixed_root:
                self.frames[link.name] = (-1, np.eye(4))
                continue
            self._add(link, joint_of[link.name])

    def _add(self, link: LinkSpec, joint: JointSpec) -> None:
        body, T_parent = (-1, np.eye(4)) if joint.parent == "" else self.frames[joint.parent]
        T_joint = T_parent @ _pose(joint.R, joint.p)
        if joint.kind == "fixed":
            self.frames[link.name] = (body, T_joint)
            if body >= 0:
                self.pseudo[body] = self.pseudo[body] + _pseudo_inertia(link, T_joint)
            return
        chain = elementary_joints(joint)
        if len(chain) > 1:
            self.composites.append((joint.name, len(self.parents), len(chain)))
        for k, (part, elementary) in enumerate(chain):
            name = f"{joint.name}:{part}" if part else joint.name
            self.parents.append(body)
            body = len(self.parents) - 1
            self.joints.append(elementary)
            self.joint_names.append(name)
            self.body_names.append(link.name if k == len(chain) - 1 else name)
            self.placements.append(T_joint if k == 0 else np.eye(4))
            self.pseudo.append(np.zeros((4, 4)))
        self.pseudo[body] = _pseudo_inertia(link, np.eye(4))
        self.frames[link.name] = (body, np.eye(4))

    def _topology(self) -> Topology:
        mimics = tuple(
            (j.name, j.mimic.target, j.mimic.multiplier, j.mimic.offset)
            for j in self.spec.joints
            if j.mimic is not None and j.kind != "fixed"
        )
        return Topology(
            name=self.spec.name,
            parents=tuple(self.parents),
            kinds=tuple(j.kind for j in self.joints),
            body_names=tuple(self.body_names),
            joint_names=tuple(self.joint_names),
            frame_names=tuple(self.frames),
            frame_bodies=tuple(b for b, _ in self.frames.values()),
            composites=tuple(self.composites),
            mimics=mimics,
        )

    def model(self, dtype, gravity: np.ndarray) -> Model:
        def array(rows, *shape: int):
            x = np.array(rows, dtype=float).reshape(-1, *shape)
            return jnp.asarray(x, dtype=dtype or jnp.result_type(float))

        def repeat(value: str, sizes: dict[str, int], missing: float = 0.0):
            rows = []
            for j in self.joints:
                x = getattr(j, value)
                limited = NQ[j.kind] == 1 or value in ("damping", "friction", "armature")
                rows += [missing if x is None or not limited else x] * sizes[j.kind]
            return array(rows)

        frames = [T for _, T in self.frames.values()]
        screws = [j.axis if NV[j.kind] == 1 else np.zeros(3) for j in self.joints]
        return Model(
            placement_R=array([T[:3, :3] for T in self.placements], 3, 3),
            placement_p=array([T[:3, 3] for T in self.placements], 3),
            axis=array([a / (np.linalg.norm(a) or 1.0) for a in screws], 3),
            pitch=array([j.pitch if j.kind == "helical" else 0.0 for j in self.joints]),
            inertia=array([_ten_parameters(P) for P in self.pseudo], 10),
            gravity=array(gravity),
            armature=repeat("armature", NV),
            damping=repeat("damping", NV),
            friction=repeat("friction", NV),
            position_lower=repeat("lower", NQ, -np.inf),
            position_upper=repeat("upper", NQ, np.inf),
            velocity_limit=repeat("velocity", NV, np.inf),
            effort_limit=repeat("effort", NV, np.inf),
            frame_R=array([T[:3, :3] for T in frames], 3, 3),
            frame_p=array([T[:3, 3] for T in frames], 3),
            topology=self._topology(),
        )
