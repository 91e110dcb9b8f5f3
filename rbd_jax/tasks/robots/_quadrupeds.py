"""The quadrupeds that learn to walk: one of this package, and the Go1 of the package mjlab."""

import importlib
import importlib.resources
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...model import RobotDescriptionError

LEGS = ("FR", "FL", "RR", "RL")
GO1_JOINTS = tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf"))


def quadruped_mjcf() -> str:
    """The MJCF of a quadruped of 14 kg that comes with this package."""
    return importlib.resources.files("rbd_jax.tasks.robots").joinpath("quadruped.xml").read_text()


def go1_file() -> Path:
    """The file ``go1.xml`` of the installed package ``mjlab``.

    Raises:
        ImportError: without mjlab.
    """
    found = importlib.util.find_spec("mjlab")  # found, not imported: it would import torch
    if found is None or found.origin is None:
        raise ImportError(
            "Go1 comes with mjlab: pip install --no-deps mjlab, or give the path of its go1.xml"
        )
    folder = Path(found.origin).parent / "asset_zoo" / "robots" / "unitree_go1" / "xmls"
    return folder / "go1.xml"


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
    mj = importlib.import_module("mujoco")

    file = go1_file() if path is None else Path(path)
    if not file.is_file():
        raise RobotDescriptionError(f"go1: there is no file {str(file)!r}")
    spec = mj.MjSpec.from_file(str(file))
    names = {joint.name for joint in spec.joints}
    if missing := [n for n in GO1_JOINTS if n not in names]:
        raise RobotDescriptionError(f"go1: {str(file)!r} is not mjlab's Go1: no joint {missing[0]}")
    for part in (*spec.geoms, *spec.meshes, *spec.sensors):
        kind = getattr(part, "type", None)
        if part in spec.geoms and kind != mj.mjtGeom.mjGEOM_MESH:
            part.contype, part.conaffinity = int(part.name.endswith("foot_collision")), 0
        else:
            spec.delete(part)
    soft: dict[str, Any] = {"solref": [0.02, 1], "solimp": [0.5, 0.95, 0.01, 0.5, 2], "condim": 3}
    for geom in spec.geoms:
        if geom.contype:
            for name, value in soft.items():
                setattr(geom, name, value)
            geom.friction = [0.8, 0.02, 0.01]
    ground = {"type": mj.mjtGeom.mjGEOM_PLANE, "size": [0, 0, 1], "contype": 0, "conaffinity": 1}
    spec.worldbody.add_geom(name="ground", friction=[0.8, 0.02, 0.01], **ground, **soft)
    spec.option.timestep = 0.005
    pose = [0.0, 0.0, 0.29, 1.0, 0.0, 0.0, 0.0]
    for leg in LEGS:
        for part, angle, rotor in (("hip", 0.0, 36), ("thigh", 0.9, 36), ("calf", -1.8, 81)):
            joint = spec.joint(f"{leg}_{part}_joint")
            joint.damping = np.array([1.0, 0, 0]) if np.ndim(joint.damping) else 1.0
            joint.armature = 0.000111842 * rotor
            servo = spec.add_actuator(name=f"{leg}_{part}", target=joint.name)
            servo.trntype = mj.mjtTrn.mjTRN_JOINT
            servo.set_to_position(kp=60)
            limit = 23.7 if rotor == 36 else 35.55
            servo.forcelimited, servo.forcerange = True, [-limit, limit]
            pose.append(angle)
    spec.add_key(name="stand", qpos=pose, ctrl=pose[7:])
    spec.compile()
    return spec.to_xml()
