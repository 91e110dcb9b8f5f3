"""Converters to and from the layouts of Pinocchio, MuJoCo and Drake, keyed by joint names.

The layouts (the p of a free joint is the body's origin in the parent frame):

=========== ======================= ======================= ==================== ==================
\\           rbd_jax                 Pinocchio               MuJoCo               Drake
=========== ======================= ======================= ==================== ==================
6-vectors   angular, linear         linear, angular         angular, linear      angular, linear
free q      p, quat wxyz            p, quat xyzw            p, quat wxyz         quat wxyz, p
free v      ω, v, both in the body  v, ω, both in the body  v parent, ω body     ω, v, both parent
ball q; v   wxyz; ω body            xyzw; ω body            wxyz; ω body         –
continuous  angle                   cos, sin                angle                angle
planar q    x, y, angle             x, y, cos, sin          x, y, angle          x, y, angle
planar v    ẋ, ẏ (joint frame), ω   vx, vy (body frame), ω  as rbd_jax           as rbd_jax
=========== ======================= ======================= ==================== ==================

The three functions use no other part of the other library than the object that is passed in.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..model import Model
from ..model.topology import NQ, NV, Topology
from ._layout import Form, Layout, Turn


def _same(n: int) -> Form:
    return Form(tuple(range(n)), tuple(range(n)))


_SCREWS = {("revolute", 1): _same(1), ("prismatic", 1): _same(1), ("helical", 1): _same(1)}
_FORMS: dict[str, dict[tuple[str, int], Form]] = {
    "Pinocchio": _SCREWS
    | {
        ("revolute", 2): Form((0, 0), (0,), trig="cs"),
        ("spherical", 4): Form((1, 2, 3, 0), (0, 1, 2), quat=0),
        ("translation", 3): _same(3),
        ("universal", 2): _same(2),
        ("planar", 4): Form((0, 1, 2, 2), (0, 1, 2), trig="  cs", turned=(0,)),
        ("free", 7): Form((0, 1, 2, 4, 5, 6, 3), (3, 4, 5, 0, 1, 2), quat=3),
    },
    "MuJoCo": _SCREWS
    | {
        ("spherical", 4): Form((0, 1, 2, 3), (0, 1, 2), quat=0),
        ("free", 7): Form((0, 1, 2, 3, 4, 5, 6), (3, 4, 5, 0, 1, 2), quat=3, turned=(3,)),
    },
    "Drake": _SCREWS
    | {
        ("planar", 3): _same(3),
        ("free", 7): Form((3, 4, 5, 6, 0, 1, 2), (0, 1, 2, 3, 4, 5), quat=0, turned=(0, 3)),
    },
}
_MUJOCO_PARTS = {"x": "_TX", "y": "_TY", "angle": "_RZ"}  # its names for a URDF's planar joint


class _Joint(NamedTuple):
    """A joint of theirs: its name, its places and sizes in q and v, their q minus ours."""

    name: str
    q: int
    nq: int
    v: int
    nv: int
    offset: float = 0.0


class _Ours(NamedTuple):
    """A joint of ours, and the names that it may have in the other library."""

    names: tuple[str, ...]
    kind: str
    first: int


def pinocchio(model: Model, pin_model: Any) -> Layout:
    """The layout of a ``pinocchio.Model`` of the same robot.

    Build it with ``mimic=True`` for a robot whose mimic joints follow the others, and with
    ``mimic=False`` for ``mimic="independent"``.

    Pinocchio's RNEA and ABA leave joint damping out; our ``rnea`` and ``aba`` contain
    ``damping · v``. To compare them, set ``model.damping`` to zero.

    Raises:
        ValueError: if their joints differ, or if the normal of a planar joint is not the z axis,
            which Pinocchio assumes.
    """
    joints = [
        _Joint(pin_model.names[i], j.idx_q, j.nq, j.idx_v, j.nv)
        for i, j in enumerate(pin_model.joints)
        if i > 0 and j.nv > 0  # mimic joints have no coordinates of their own
    ]
    for name, first, count in model.topology.composites:
        normal = np.asarray(model.axis)[first + count - 1]
        if count == 3 and normal[2] < 1 - 1e-6:
            raise ValueError(
                f"planar joint {name!r} has the normal {normal}; Pinocchio ignores it and moves in "
                "the xy plane of the joint frame, which is another robot; turn the joint frame"
            )
    return _layout("Pinocchio", model, joints, linear_first=True)


def mujoco(model: Model, mj_model: Any, *, ref: bool = True) -> Layout:
    """The layout of a ``mujoco.MjModel`` of the same robot: ``qpos`` and ``qvel``.

    ``ref`` (``qpos0``) of hinges and slides is taken into account, unless ``ref=False``: the q of a
    model of :func:`rbd_jax.load_mjcf` is MuJoCo's ``qpos``. MuJoCo's ``qfrc_bias`` leaves
    joint damping out (it is in ``qfrc_passive``); our ``bias_torque`` contains ``damping · v``.
    """
    joints = []
    for i in range(mj_model.njnt):
        kind, q = int(mj_model.jnt_type[i]), int(mj_model.jnt_qposadr[i])
        nq, nv = ((7, 6), (4, 3), (1, 1), (1, 1))[kind]
        offset = float(mj_model.qpos0[q]) if ref and nq == 1 else 0.0
        name = mj_model.joint(i).name or f"joint#{i}"
        joints.append(_Joint(name, q, nq, int(mj_model.jnt_dofadr[i]), nv, offset))
    return _layout("MuJoCo", model, joints)


def drake(model: Model, plant: Any = None, *, joint_order: Sequence[str] | None = None) -> Layout:
    """The layout of a finalized Drake ``MultibodyPlant`` of the same robot alone.

    Args:
        model: the robot.
        plant: the plant; its joints are read from it.
        joint_order: without a plant, the order of the joints in their q and v (ours if None).
    """
    if plant is not None:
        indices = plant.GetJointIndices()
        found = [plant.get_joint(i) for i in indices]
        joints = [
            _Joint(j.name(), j.position_start(), j.num_positions(), j.velocity_start(),
                   j.num_velocities())
            for j in found
            if j.num_velocities() > 0
        ]  # fmt: skip
        return _layout("Drake", model, joints)
    ours = {x.names[0]: x for x in _our_joints(model.space, "Drake")}
    order = list(ours) if joint_order is None else list(joint_order)
    if sorted(order) != sorted(ours):
        raise ValueError(f"joint_order {order} must hold each of {list(ours)} once")
    joints, q, v = [], 0, 0
    for name in order:
        nq, nv = _size(ours[name].kind)
        joints.append(_Joint(name, q, nq, v, nv))
        q, v = q + nq, v + nv
    return _layout("Drake", model, joints)


def _size(kind: str) -> tuple[int, int]:
    return (3, 3) if kind == "planar" else (2, 2) if kind not in NQ else (NQ[kind], NV[kind])


def _our_joints(topo: Topology, library: str) -> list[_Ours]:
    """Our joints; composite ones whole where the library has the kind, else as their parts."""
    known = {kind for kind, _ in _FORMS[library]}
    whole = {first: (name, count) for name, first, count in topo.composites}
    found, i = [], 0
    while i < topo.nb:
        name, count = whole.get(i, (topo.joint_names[i], 1))
        parts = [x.rpartition(":")[2] for x in topo.joint_names[i : i + count]]
        kind = {"x": "planar", "1": "universal"}.get(parts[0], "") if count > 1 else topo.kinds[i]
        if kind in known:
            found.append(_Ours((name, topo.body_names[i]), kind, i))
        else:
            for k, part in enumerate(parts):
                names = (topo.joint_names[i + k], name + _MUJOCO_PARTS.get(part, ":" + part))
                found.append(_Ours(names, topo.kinds[i + k], i + k))
        i += count
    return found


def _pairs(library: str, model: Model, theirs: list[_Joint]) -> list[tuple[_Ours, _Joint]]:
    ours = _our_joints(model.space, library)
    by_name = {j.name: j for j in theirs}
    pairs = [(x, by_name[x.names[0]]) for x in ours if x.names[0] in by_name]
    for x in ours:  # second names: of free joints the body's, of parts MuJoCo's
        taken = {j.name for _, j in pairs}
        if all(x is not y for y, _ in pairs) and (x.kind == "free" or x.names[1][-3:-2] == "_"):
            if x.names[1] in by_name and x.names[1] not in taken:
                pairs.append((x, by_name[x.names[1]]))
    left = [x for x in ours if all(x is not y for y, _ in pairs)]
    left_theirs = [j for j in theirs if all(j is not k for _, k in pairs)]
    if len(left) == len(left_theirs) == 1 and left[0].kind == "free" and left_theirs[0].nq == 7:
        pairs.append((left[0], left_theirs[0]))  # the root, whatever they call it
    elif left or left_theirs:
        raise ValueError(
            f"the joints differ: {library} lacks {[x.names[0] for x in left]}, robot "
            f"{model.topology.name!r} lacks {[j.name for j in left_theirs]}; load the same file "
            "with the same floating base in both"
        )
    return pairs


def _check_free(library: str, model: Model, x: _Ours) -> None:
    """Their free bodies are placed in the world: refuse a free joint that hangs elsewhere."""
    body = model.joint_names.index(x.names[0])
    placement = np.asarray(model.placement_R)[body], np.asarray(model.placement_p)[body]
    at_origin = np.allclose(placement[0], np.eye(3)) and np.allclose(placement[1], 0.0)
    if model.topology.parents[body] >= 0 or not at_origin:
        raise ValueError(
            f"free joint {x.names[0]!r} is not at the world's origin, from where {library} counts "
            "the position of every free body; remove its <origin>, or load with floating_base=True"
        )


def _layout(library: str, model: Model, theirs: list[_Joint], linear_first=False) -> Layout:
    topo = model.space
    q_places = np.zeros(sum(j.nq for j in theirs), dtype=np.int32)
    q_back, offset = np.zeros(topo.nq, dtype=np.int32), np.zeros(topo.nq)
    trig, v_places = np.zeros(len(q_places), dtype=np.int8), np.zeros(topo.nv, dtype=np.int32)
    quats, turns = [], []
    for x, j in _pairs(library, model, theirs):
        form = _FORMS[library].get((x.kind, j.nq))
        if form is None or len(form.v) != j.nv:
            raise ValueError(
                f"{library} has joint {j.name!r} with nq={j.nq}, nv={j.nv}; for the {x.kind} joint "
                "of this model no such layout is known"
            )
        if x.kind == "free" and library != "Pinocchio":
            _check_free(library, model, x)
        q, v = int(topo.q_starts[x.first]), int(topo.v_starts[x.first])
        q_places[j.q : j.q + j.nq] = q + np.array(form.q)
        v_places[j.v : j.v + j.nv] = v + np.array(form.v)
        trig[j.q : j.q + j.nq] = [" cs".index(c) for c in form.trig or " " * j.nq]
        for place in reversed(range(j.nq)):  # of cos and sin, the first
            q_back[q + form.q[place]] = j.q + place
        offset[q] = j.offset
        if form.quat is not None:
            quats.append((q + (3 if x.kind == "free" else 0), j.q + form.quat))
        planar = x.kind == "planar"
        for part in form.turned:
            turns.append(Turn(q + (2 if planar else 3), v + part, v + 2 * planar, planar))
    return Layout(
        library, topo.nq, topo.nv, q_places, q_back, trig, offset, tuple(quats), v_places,
        tuple(turns), linear_first,
    )  # fmt: skip
