"""Equality constraints of a compiled MuJoCo model."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...spatial import so3
from ...spatial.host import rotation_of_quat
from ..kinds.joint_equalities import JointEqualities
from ..kinds.welds import Welds
from .reader import Reader


def equalities_of(r: Reader) -> tuple[Welds, JointEqualities]:
    """The connects and welds, and the joint equalities."""
    return _welds(r, _of_kinds(r, "CONNECT", "WELD")), _joint_equalities(r, _of_kinds(r, "JOINT"))


def held_bodies(r: Reader) -> list[tuple[int, int]]:
    """Both bodies of MuJoCo of each connect and weld."""
    return [_weld(r, i)[0] for i in _of_kinds(r, "CONNECT", "WELD")]


def _of_kinds(r: Reader, *kinds: str) -> list[int]:
    """The equalities of some kinds; none if they are switched off."""
    wanted = [int(getattr(r.mj.mjtEq, f"mjEQ_{k}")) for k in kinds]
    off = r.disabled("CONSTRAINT") or r.disabled("EQUALITY")
    return [] if off else [i for i in range(r.m.neq) if int(r.m.eq_type[i]) in wanted]


def _welds(r: Reader, tied: list[int]) -> Welds:
    m, n = r.m, len(tied)
    ends = [_weld(r, i) for i in tied]
    start = r.mj.MjData(m)
    r.mj.mj_kinematics(m, start)  # at qpos0
    bodies = [e[0] for e in ends]
    return Welds(
        p1=r.array([e[1] for e in ends], n, 3),
        p2=r.array([e[2] for e in ends], n, 3),
        quat1=r.array([e[3] for e in ends], n, 4),
        quat2=r.array([e[4] for e in ends], n, 4),
        torque_scale=r.array(m.eq_data[tied, 10], n),
        params=r.params(m.eq_solref[tied], m.eq_solimp[tied], n),
        active=r.array(m.eq_active0[tied], n),
        bodies=tuple(tuple(int(r.bodies.index[b]) for b in pair) for pair in bodies),  # type: ignore
        parts=tuple((r.part(a), r.part(b)) for a, b in bodies),
        rigid=tuple(_rigid(r, i) for i in tied),
        refers=tuple(_refers(r, start, i) for i in tied),
    )


def _rigid(r: Reader, i: int) -> bool:
    return int(r.m.eq_type[i]) == int(r.mj.mjtEq.mjEQ_WELD)


def _of_sites(r: Reader, i: int) -> bool:
    return int(r.m.eq_objtype[i]) == int(r.mj.mjtObj.mjOBJ_SITE)


def _refers(r: Reader, start: Any, i: int) -> bool:
    """Whether a connect or weld of bodies holds them as they are to each other at ``qpos0``.

    MuJoCo computes the second anchor of a connect there, and the pose of a weld without
    ``relpose``. Of a model that comes without its file, a pose that is the one there counts. The
    anchors on a mocap body are those that MuJoCo found, because the body may have moved since.
    """
    carried = any(b in r.mocap for b in _weld(r, i)[0])
    if _of_sites(r, i) or carried or (_rigid(r, i) and r.posed(i)):
        return False
    data, one, two = r.m.eq_data[i], int(r.m.eq_obj1id[i]), int(r.m.eq_obj2id[i])
    first, second = (data[3:6], data[:3]) if _rigid(r, i) else (data[:3], data[3:6])
    R = start.xmat.reshape(-1, 3, 3)
    ends = start.xpos[one] + R[one] @ first, start.xpos[two] + R[two] @ second
    turned = R[one] @ rotation_of_quat(data[6:10]) if _rigid(r, i) else R[two]
    return bool(np.allclose(*ends, rtol=0, atol=1e-9) and np.allclose(turned, R[two], atol=1e-9))


def _weld(r: Reader, i: int):
    """The bodies of one connect or weld, with its anchors and orientations in our bodies."""
    m, data = r.m, r.m.eq_data[i]
    one, two = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
    rigid = _rigid(r, i)
    quat1, quat2 = np.array([1.0, 0, 0, 0]), np.array([1.0, 0, 0, 0])
    if _of_sites(r, i):
        b1, b2 = int(m.site_bodyid[one]), int(m.site_bodyid[two])
        at1, at2 = m.site_pos[one], m.site_pos[two]
        quat1, quat2 = m.site_quat[one], m.site_quat[two]
    else:
        b1, b2 = one, two
        at1, at2 = (data[3:6], data[:3]) if rigid else (data[:3], data[3:6])
        quat1 = data[6:10] if rigid else quat1
    p1 = r.bodies.p[b1] + r.bodies.R[b1] @ at1
    p2 = r.bodies.p[b2] + r.bodies.R[b2] @ at2
    quat1 = _product(_quat(r.bodies.R[b1]), quat1)
    quat2 = _product(_quat(r.bodies.R[b2]), quat2)
    return (b1, b2), p1, p2, quat1, quat2


def _joint_equalities(r: Reader, coupled: list[int]) -> JointEqualities:
    m, n = r.m, len(coupled)
    ids = [(int(m.eq_obj1id[i]), int(m.eq_obj2id[i])) for i in coupled]
    place = [m.jnt_qposadr[list(j)] for j in ids]
    return JointEqualities(
        polynomial=r.array(m.eq_data[coupled, :5], n, 5),
        start=r.array([m.qpos0[x] for x in place], n, 2),
        params=r.params(m.eq_solref[coupled], m.eq_solimp[coupled], n),
        active=r.array(m.eq_active0[coupled], n),
        dofs=tuple((r.dof(a), r.dof(b) if b >= 0 else -1) for a, b in ids),
        places=tuple((r.place(a), r.place(b) if b >= 0 else -1) for a, b in ids),
    )


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.append(w, a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))


def _quat(R: np.ndarray) -> np.ndarray:
    """The quaternion ``wxyz`` of a rotation matrix."""
    return np.asarray(so3.quat_from_matrix(jnp.asarray(R)))
