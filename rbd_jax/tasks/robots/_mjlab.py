"""Robots of the package mjlab that learn to walk: Unitree's Go1 and G1, on flat ground."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...model import RobotDescriptionError
from ._packages import package_folder

GO1_LEGS = ("FR", "FL", "RR", "RL")
_SOFT: dict[str, Any] = {
    "solref": [0.02, 1],
    "solimp": [0.5, 0.95, 0.01, 0.5, 2],
    "condim": 3,
    "friction": [0.8, 0.02, 0.01],
}
"""Contacts that are softer than MuJoCo's default, so that forces change smoothly with the state."""


class Servo(NamedTuple):
    """A position servo at a joint, and the joint's angle in the standing posture."""

    joint: str
    stiffness: float
    """N m/rad."""
    damping: float
    """N m s/rad."""
    armature: float
    """Inertia of the rotor as the joint feels it (kg m²)."""
    limit: float
    """Greatest torque (N m)."""
    stance: float
    """rad."""


def mjlab_file(robot: str) -> Path:
    """The file of a robot (``go1`` or ``g1``) in the installed package ``mjlab``.

    Raises:
        ImportError: without mjlab.
    """
    folder = package_folder(
        "mjlab",
        f"{robot.capitalize()} comes with mjlab: pip install --no-deps mjlab, or give the path "
        f"of its {robot}.xml",
    )
    return folder / "asset_zoo" / "robots" / f"unitree_{robot}" / "xmls" / f"{robot}.xml"


def on_flat_ground(
    robot: str,
    path: str | os.PathLike | None,
    servos: Sequence[Servo],
    soles: Sequence[str],
    height: float,
    motors: bool = False,
) -> str:
    """The MJCF of a robot of mjlab with servos, on flat ground that only its feet touch.

    Args:
        robot: ``go1`` or ``g1``.
        path: of mjlab's file, whose meshes may be absent; that of the installed package if None.
        servos: one for each joint, in the order of the joints.
        soles: names of the shapes that touch the ground.
        height: of the trunk in the keyframe ``stand`` (m).
        motors: whether controls are the torques of the joints instead of the servos' angles.

    Raises:
        ImportError: without mujoco, or without mjlab if there is no path.
        RobotDescriptionError: if there is no such file, or it is not that robot.
    """
    mj = importlib.import_module("mujoco")

    file, title = mjlab_file(robot) if path is None else Path(path), robot.capitalize()
    if not file.is_file():
        raise RobotDescriptionError(f"{robot}: there is no file {str(file)!r}")
    spec = mj.MjSpec.from_file(str(file))
    names = {part.name for part in (*spec.joints, *spec.geoms)}
    for kind, wanted in (("joint", [s.joint for s in servos]), ("shape", soles)):
        if missing := [n for n in wanted if n not in names]:
            raise RobotDescriptionError(
                f"{robot}: {str(file)!r} is not mjlab's {title}: no {kind} {missing[0]}"
            )
    for part in (*spec.geoms, *spec.meshes, *spec.sensors):
        kind = getattr(part, "type", None)
        if part in spec.geoms and kind != mj.mjtGeom.mjGEOM_MESH:
            part.contype, part.conaffinity = int(part.name in soles), 0
        else:
            spec.delete(part)
    for geom in spec.geoms:
        if geom.contype:
            for name, value in _SOFT.items():
                setattr(geom, name, value)
    ground = {"type": mj.mjtGeom.mjGEOM_PLANE, "size": [0, 0, 1], "contype": 0, "conaffinity": 1}
    spec.worldbody.add_geom(name="ground", **ground, **_SOFT)
    spec.option.timestep = 0.005
    for servo in servos:
        joint = spec.joint(servo.joint)
        damping = servo.damping
        joint.damping = np.array([damping, 0, 0]) if np.ndim(joint.damping) else damping
        joint.armature = servo.armature
        added = spec.add_actuator(name=servo.joint.removesuffix("_joint"), target=joint.name)
        added.trntype = mj.mjtTrn.mjTRN_JOINT
        if motors:
            added.set_to_motor()
            added.ctrllimited, added.ctrlrange = True, [-servo.limit, servo.limit]
        else:
            added.set_to_position(kp=servo.stiffness)
            added.forcelimited, added.forcerange = True, [-servo.limit, servo.limit]
    stance = [servo.stance for servo in servos]
    held = [0.0] * len(servos) if motors else stance
    spec.add_key(name="stand", qpos=[0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0, *stance], ctrl=held)
    compiled = spec.compile()
    order = [compiled.joint(k).name for k in range(compiled.njnt)]
    if order[1:] != [servo.joint for servo in servos]:
        raise RobotDescriptionError(
            f"{robot}: {str(file)!r} is not mjlab's {title}: its joints are {order}"
        )
    return spec.to_xml()


def go1_mjcf(path: str | os.PathLike | None = None) -> str:
    """The MJCF of Unitree's Go1 as the package ``mjlab`` ships it, on flat ground.

    What is changed: meshes are left out, only the feet touch the ground, with softer contacts, the
    joints have rotor inertia, damping and servos, and a keyframe holds mjlab's standing posture.

    Args:
        path: of mjlab's ``go1.xml``, whose meshes may be absent; that of the installed package if
            None.

    Raises:
        ImportError: without mujoco, or without mjlab if there is no path.
        RobotDescriptionError: if there is no such file, or it is not mjlab's Go1.
    """
    parts = ("hip", 36, 23.7, 0.0), ("thigh", 36, 23.7, 0.9), ("calf", 81, 35.55, -1.8)
    servos = [
        Servo(f"{leg}_{part}_joint", 60.0, 1.0, 0.000111842 * rotor, limit, angle)
        for leg in GO1_LEGS
        for part, rotor, limit, angle in parts
    ]
    soles = [f"{leg}_foot_collision" for leg in GO1_LEGS]
    return on_flat_ground("go1", path, servos, soles, 0.29)


_MOTORS = {
    "5020": (0.003609725, 25.0),
    "7520-14": (0.010177520, 88.0),
    "7520-22": (0.025101925, 139.0),
    "4010": (0.00425, 5.0),
    "two 5020": (0.00721945, 50.0),
}
"""Motors of G1: inertia at the joint (kg m²) and greatest torque (N m)."""

_LEG = (
    ("hip_pitch", "7520-14", -0.312),
    ("hip_roll", "7520-22", 0.0),
    ("hip_yaw", "7520-14", 0.0),
    ("knee", "7520-22", 0.669),
    ("ankle_pitch", "two 5020", -0.363),
    ("ankle_roll", "two 5020", 0.0),
)
_WAIST = (
    ("waist_yaw", "7520-14", 0.0),
    ("waist_roll", "two 5020", 0.0),
    ("waist_pitch", "two 5020", 0.0),
)
_ARM = (
    ("shoulder_pitch", "5020", 0.2),
    ("shoulder_roll", "5020", 0.2),
    ("shoulder_yaw", "5020", 0.0),
    ("elbow", "5020", 0.6),
    ("wrist_roll", "5020", 0.0),
    ("wrist_pitch", "4010", 0.0),
    ("wrist_yaw", "4010", 0.0),
)


def _g1_servo(joint: str, motor: str, stance: float) -> Servo:
    """A servo whose rotor alone has 10 Hz and twice the critical damping, as in mjlab."""
    armature, limit = _MOTORS[motor]
    frequency = 20 * np.pi
    stiffness, damping = armature * frequency**2, 4 * armature * frequency
    return Servo(f"{joint}_joint", stiffness, damping, armature, limit, stance)


def g1_mjcf(
    path: str | os.PathLike | None = None, *, whole_soles: bool = False, motors: bool = False
) -> str:
    """The MJCF of Unitree's humanoid G1 as the package ``mjlab`` ships it, on flat ground.

    Motors, gains and the posture with bent knees are those of mjlab. What is changed: meshes are
    left out, only the feet touch the ground, with softer contacts, and the damping of the servos is
    that of the joints.

    Args:
        path: of mjlab's ``g1.xml``, whose meshes may be absent; that of the installed package if
            None.
        whole_soles: whether all seven capsules of a foot touch the ground, or the two long ones at
            the sides alone.
        motors: whether the controls are torques (N m) instead of the angles of servos. The damping
            of the servos stays in the joints.

    Raises:
        ImportError: without mujoco, or without mjlab if there is no path.
        RobotDescriptionError: if there is no such file, or it is not mjlab's G1.
    """

    def limb(side: str, parts) -> list[Servo]:
        sign = -1 if side == "right" else 1
        return [_g1_servo(f"{side}_{part}", motor, sign * angle if part.endswith("roll") else angle)
                for part, motor, angle in parts]  # fmt: skip

    servos = [*limb("left", _LEG), *limb("right", _LEG), *(_g1_servo(*part) for part in _WAIST),
              *limb("left", _ARM), *limb("right", _ARM)]  # fmt: skip
    capsules = range(1, 8) if whole_soles else (2, 6)
    soles = [f"{side}_foot{k}_collision" for side in ("left", "right") for k in capsules]
    return on_flat_ground("g1", path, servos, soles, 0.76, motors)
