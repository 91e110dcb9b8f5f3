"""The robot of a stander as MJCF, for MuJoCo."""

import jax.numpy as jnp
import numpy as np

from ...algorithms.kinematics import forward_kinematics
from ...spatial import inertia, so3
from ..environments._stander import Stander


def _text(x) -> str:
    return " ".join(repr(float(v)) for v in np.ravel(np.asarray(x, float)))


def stander_mjcf(stander: Stander) -> str:
    """The MJCF of a stander's scene: the same bodies, spheres, servos, softness and time step.

    MuJoCo scales the softness of contacts at the configuration of the file, so that is the standing
    one; ``ref`` makes its ``qpos`` the q of this library.
    """
    scene, model = stander.scene, stander.scene.model
    topology, a, shapes = model.topology, scene.actuators, scene.contacts.shapes
    pairs, q0 = scene.contacts.pairs, np.asarray(stander.start, float)
    R, p = (np.asarray(x, float) for x in forward_kinematics(model, stander.start))
    limits = np.asarray(model.position_lower), np.asarray(model.position_upper)

    def inertial(i: int) -> str:
        J = np.asarray(inertia.inertia_com(model.inertia[i]))
        full = J[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        center, mass = _text(inertia.com(model.inertia[i])), _text(model.inertia[i, 0])
        return f'<inertial pos="{center}" mass="{mass}" fullinertia="{_text(full)}"/>'

    def joint(i: int) -> str:
        name, at, d = topology.joint_names[i], topology.q_starts[i], topology.v_starts[i]
        if topology.kinds[i] == "free":
            return f'<freejoint name="{name}"/>'
        numbers = {
            "axis": model.axis[i],
            "ref": q0[at],
            "range": [x[at] for x in limits],
            "damping": model.damping[d],
            "armature": model.armature[d],
            "frictionloss": model.friction[d],
        }
        told = " ".join(f'{k}="{_text(x)}"' for k, x in numbers.items())
        return f'<joint name="{name}" type="hinge" limited="true" {told}/>'

    def body(i: int) -> str:
        up = topology.parents[i]
        place, turn = (p[i], R[i]) if up < 0 else (R[up].T @ (p[i] - p[up]), R[up].T @ R[i])
        quat = so3.quat_from_matrix(jnp.asarray(turn))
        geoms = [
            f'<geom name="{n}" pos="{_text(x)}" size="{_text(s[0])}" conaffinity="0"/>'
            for n, b, x, s in zip(shapes.names, shapes.bodies, shapes.p, shapes.size, strict=True)
            if b == i
        ]
        inside = [body(j) for j in range(model.nb) if topology.parents[j] == i]
        parts = joint(i), inertial(i), *geoms, *inside
        name = topology.body_names[i]
        at = f'pos="{_text(place)}" quat="{_text(quat)}"'
        return f'<body name="{name}" {at}>{"".join(parts)}</body>'

    servos = [
        f'<general joint="{a.names[k]}" gainprm="{_text(a.gainprm[k])}" biastype="affine" '
        f'biasprm="{_text(a.biasprm[k])}" forcelimited="true" '
        f'forcerange="{_text(a.forcerange[k])}"/>'
        for k in range(scene.nu)
    ]
    soft = f'solref="{_text(pairs.solref[0])}" solimp="{_text(pairs.solimp[0])}"'
    friction = f'friction="{_text(pairs.friction[0, np.array([0, 2, 3])])}"'
    cone = "elliptic" if scene.contacts.elliptic else "pyramidal"
    return (
        f'<mujoco model="{topology.name}"><compiler angle="radian"/>'
        f'<option timestep="{_text(scene.dt)}" cone="{cone}" integrator="{scene.integrator}" '
        f'gravity="{_text(model.gravity)}" impratio="{_text(scene.contacts.impratio)}"/>'
        f'<default><geom type="sphere" condim="{pairs.condim[0]}" {friction} {soft}/></default>'
        '<worldbody><geom name="ground" type="plane" size="0 0 1" contype="0"/>'
        f"{body(0)}</worldbody><actuator>{''.join(servos)}</actuator></mujoco>"
    )
