"""From a robot description by names to a model of stacked arrays: the border of NumPy and JAX."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ..model import (
    NQ,
    NV,
    JointSpec,
    LinkSpec,
    Model,
    RobotDescriptionError,
    RobotSpec,
    Topology,
)
from ..spatial import host
from ._validate import check_tree, link_order

ROOT_JOINT = "root_joint"
_EVERY_DOF = ("damping", "friction", "armature", "stiffness")


def build_model(
    spec: RobotSpec,
    *,
    floating_base: bool = False,
    dtype=None,
    gravity: Sequence[float | int] | np.ndarray = (0.0, 0.0, -9.81),
) -> Model:
    """Turn a description into a :class:`rbd_jax.Model`.

    Links behind fixed joints are merged into the body that carries them, and remain as frames.
    Cylindrical, universal and planar joints become chains of joints of one degree of freedom with
    massless bodies between them, named ``joint:part``; ``model.q_slice(joint)`` still finds all of
    them.

    Args:
        spec: links and joints by name.
        floating_base: put a free joint named ``root_joint`` between the world and the root link.
        dtype: of the leaves; JAX's default float if None.
        gravity: gravitational acceleration in the world frame (m/s²).

    Raises:
        RobotDescriptionError: if the description is not a tree of known joints with distinct names.
        ValueError: if gravity is not three finite numbers. TypeError: for a dtype of integers.
    """
    downwards = np.asarray(gravity, dtype=float)
    if downwards.shape != (3,) or not np.isfinite(downwards).all():
        raise ValueError(
            f"gravity must be three finite numbers, an acceleration in the world frame (m/s²) such "
            f"as (0, 0, -9.81); got {gravity!r}"
        )
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype must be a float such as jnp.float32 or None, got {dtype!r}")
    with jax.ensure_compile_time_eval():  # numbers within jax.jit too: such a model may be kept
        return collect_bodies(spec, floating_base).model(dtype, downwards)


def collect_bodies(spec: RobotSpec, floating_base: bool) -> "Bodies":
    """Check the description and merge its links into moving bodies (host side, float64)."""
    root = check_tree(spec)
    if floating_base:
        spec = _with_floating_base(spec, root)
    return Bodies(spec, None if floating_base else root)


def _with_floating_base(spec: RobotSpec, root: str) -> RobotSpec:
    if any(j.name == ROOT_JOINT for j in spec.joints):
        raise RobotDescriptionError(
            f"robot {spec.name!r} has a joint named {ROOT_JOINT!r} already, the name of the "
            "floating base's free joint; rename it or load without floating_base"
        )
    joint = JointSpec(ROOT_JOINT, "free", "", root)
    return replace(spec, joints=(joint, *spec.joints))


def _rest(joint: JointSpec) -> np.ndarray:
    """Where the spring of an elementary joint is at rest."""
    if joint.rest is not None:
        return np.asarray(joint.rest, dtype=float)
    q = np.zeros(NQ[joint.kind])
    if NQ[joint.kind] > NV[joint.kind]:
        q[-4] = 1.0
    return q


def _plane_axes(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors that make a right-handed frame with ``normal``; x and y for z.

    They are x and y under the shortest rotation of z to the normal, as in the URDF readers of
    MuJoCo and Drake, on which the converters rely. For −z this rotation is not unique; these
    readers and this one take x and −y.
    """
    x, y, z = normal / np.linalg.norm(normal)
    across = x * x + y * y
    if across < 1e-30:
        return np.array([1.0, 0.0, 0.0]), np.array([0.0, np.copysign(1.0, z), 0.0])
    a = 1 / (1 + z) if z > 0 else (1 - z) / across  # equal numbers, the second accurate near −z
    return np.array([1 - x * x * a, -x * y * a, -x]), np.array([-x * y * a, 1 - y * y * a, -y])


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
    whole = replace(joint, mimic=None, lower=None, upper=None)  # one pair of limits, two units
    chain = [(part, replace(whole, kind=kind, axis=a)) for part, kind, a in parts]
    identity = {"R": np.eye(3), "p": np.zeros(3)}
    return [chain[0], *((part, replace(j, **identity)) for part, j in chain[1:])]


class Bodies:
    """The moving bodies of a description, collected while walking its tree depth first."""

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
        for i in link_order(tree, root):
            link = links[i]
            if link.name == fixed_root:
                self.frames[link.name] = (-1, np.eye(4))
                continue
            self._add(link, joint_of[link.name])

    def _add(self, link: LinkSpec, joint: JointSpec) -> None:
        body, T_parent = (-1, np.eye(4)) if joint.parent == "" else self.frames[joint.parent]
        T_joint = T_parent @ host.pose(joint.R, joint.p)
        if joint.kind == "fixed":
            self.frames[link.name] = (body, T_joint)
            if body >= 0:
                P = host.pseudo_inertia(link.mass, link.com, link.inertia)
                self.pseudo[body] = self.pseudo[body] + T_joint @ P @ T_joint.T
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
        self.pseudo[body] = host.pseudo_inertia(link.mass, link.com, link.inertia)
        self.frames[link.name] = (body, np.eye(4))

    def _topology(self) -> Topology:
        for name, _, _ in self.composites:
            for joint in self.joint_names:
                if joint.startswith(f"{name}:") and self.joint_names.count(joint) > 1:
                    raise RobotDescriptionError(
                        f"robot {self.spec.name!r}: joint name {joint!r} is also the name of a "
                        f"part of joint {name!r}; rename one of them"
                    )
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
                limited = NQ[j.kind] == 1 or value in _EVERY_DOF
                rows += [missing if x is None or not limited else x] * sizes[j.kind]
            with np.errstate(over="ignore"):  # limits beyond the range of float32 are none
                return array(rows)

        frames = [T for _, T in self.frames.values()]
        screws = [j.axis if NV[j.kind] == 1 else np.zeros(3) for j in self.joints]
        stiffness, rest = repeat("stiffness", NV), None
        if any(j.stiffness for j in self.joints):
            rest = array(np.concatenate([_rest(j) for j in self.joints]))
        return Model(
            placement_R=array([T[:3, :3] for T in self.placements], 3, 3),
            placement_p=array([T[:3, 3] for T in self.placements], 3),
            axis=array([a / (np.linalg.norm(a) or 1.0) for a in screws], 3),
            pitch=array([j.pitch if j.kind == "helical" else 0.0 for j in self.joints]),
            inertia=array([host.ten_parameters(P) for P in self.pseudo], 10),
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
            stiffness=None if rest is None else stiffness,
            rest=rest,
        )
