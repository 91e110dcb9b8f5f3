"""A robot as a URDF that every library reads alike: one link a body, one joint of one dof each."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from rbd_jax import Model
from rbd_jax.spatial import inertia


def _numbers(x) -> str:
    return " ".join(repr(float(v)) for v in np.ravel(x))


def _rpy(R: np.ndarray) -> tuple[float, float, float]:
    """Roll, pitch, yaw of ``R = Rz(y) Ry(p) Rx(r)``."""
    pitch = np.arctan2(-R[2, 0], np.hypot(R[0, 0], R[1, 0]))
    if np.hypot(R[0, 0], R[1, 0]) < 1e-12:
        return np.arctan2(-R[1, 2], R[1, 1]), pitch, 0.0
    return np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])


def _link(name: str, I10: Array) -> str:
    J = np.asarray(inertia.inertia_com(I10))
    entries = {
        f"i{a}{b}": J[i, j] for i, a in enumerate("xyz") for j, b in enumerate("xyz") if j >= i
    }
    numbers = " ".join(f'{k}="{float(x)!r}"' for k, x in entries.items())
    return (
        f'<link name="{name}"><inertial><origin xyz="{_numbers(inertia.com(I10))}" rpy="0 0 0"/>'
        f'<mass value="{float(I10[0])!r}"/><inertia {numbers}/></inertial></link>'
    )


def to_urdf(model: Model) -> tuple[str, list[str]]:
    """The URDF and the names of its joints. Fixed links are merged, limits and friction left out.

    Raises:
        ValueError: for joints other than revolute and prismatic, a free root apart.
    """
    topology = model.topology
    floating = topology.kinds[0] == "free"
    root = topology.body_names[0] if floating else "the_base"
    links = [] if floating else [_link(root, jnp.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]))]
    joints, names = [], []
    for i, (body, kind) in enumerate(zip(topology.body_names, topology.kinds, strict=True)):
        links.append(_link(body, model.inertia[i]))
        if i == 0 and floating:
            continue
        if kind not in ("revolute", "prismatic"):
            raise ValueError(f"to_urdf: joint {topology.joint_names[i]!r} is {kind}")
        up = topology.parents[i]
        R, p = np.asarray(model.placement_R[i], float), model.placement_p[i]
        joints.append(
            f'<joint name="{topology.joint_names[i]}" type="{kind}">'
            f'<origin xyz="{_numbers(p)}" rpy="{_numbers(_rpy(R))}"/>'
            f'<parent link="{root if up < 0 else topology.body_names[up]}"/><child link="{body}"/>'
            f'<axis xyz="{_numbers(model.axis[i])}"/>'
            '<limit lower="-100" upper="100" effort="1e6" velocity="1e6"/></joint>'
        )
        names.append(topology.joint_names[i])
    return f'<robot name="robot">{"".join(links + joints)}</robot>', names
