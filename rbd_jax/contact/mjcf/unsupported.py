"""The features of a compiled MuJoCo model that are not supported, with their elements."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...io.mjcf import name_of

SHAPES = "collision of these shapes"
FEATURES = {
    "flex": "soft bodies are missing",
    "plugin": "plugins do nothing",
    "polynomial stiffness": "springs are linear",
    "polynomial damping": "dampers are linear",
    "plastic spring": "springs stay elastic",
    "adhesion": "nothing sticks",
    "damping that differs within a joint": "the first number counts for the joint",
    "armature that differs within a joint": "the first number counts for the joint",
    "frictionloss that differs within a joint": "the first number counts for the joint",
    "actuator of another transmission": "the actuators and their controls are missing",
    "activation dynamics": "the actuators and their controls are missing",
    "gain or bias of another kind": "the actuators and their controls are missing",
    "actuator delay": "controls act at once",
    "actuator armature": "joints are lighter",
    "actuator damping": "joints are damped less",
    "actuator dampingpoly": "joints are damped less",
    "equality of another kind": "the equalities do not hold",
    "option flag": "the options are at their defaults",
    SHAPES: "the shapes pass through each other",
}
"""All features that may be unsupported, and what becomes of the motion without them; ``drop`` takes
their names."""


def unsupported(m: Any, mj: Any) -> dict[str, list[str]]:
    """``{feature: names of the elements}`` for everything that would change the motion.

    Args:
        m: a ``mujoco.MjModel``. mj: the package ``mujoco``.
    """
    found: dict[str, list[str]] = {}

    def note(feature: str, kind: str, indices) -> None:
        names = [name_of(m, kind, int(i)) for i in indices]
        if names:
            found.setdefault(feature, []).extend(names)

    def rows(field: str) -> np.ndarray:
        x = np.asarray(getattr(m, field, np.zeros(0)))
        return np.asarray(x.any(axis=tuple(range(1, x.ndim))))

    where: Callable = np.flatnonzero
    if m.nflex:
        found["flex"] = [f"{m.nflex} of them"]
    if m.nplugin:
        found["plugin"] = [f"{m.nplugin} of them"]
    note("polynomial stiffness", "joint", where(rows("jnt_stiffnesspoly")))
    note("polynomial stiffness", "tendon", where(rows("tendon_stiffnesspoly")))
    note("polynomial damping", "tendon", where(rows("tendon_dampingpoly")))
    if rows("dof_dampingpoly").any():
        note("polynomial damping", "joint", np.unique(m.dof_jntid[where(rows("dof_dampingpoly"))]))
    if getattr(m, "nplastic", 0):
        note("plastic spring", "joint", where(np.asarray(m.jnt_plasticadr) >= 0))
        note("plastic spring", "tendon", where(np.asarray(m.tendon_plasticadr) >= 0))
    note("adhesion", "geom", where(rows("geom_adhesion")))
    note("adhesion", "pair", where(rows("pair_adhesion")))
    _dofs(m, note)
    _actuators(m, mj, found, note, rows)
    E = mj.mjtEq
    known = [int(k) for k in (E.mjEQ_CONNECT, E.mjEQ_WELD, E.mjEQ_JOINT, E.mjEQ_TENDON)]
    for i in np.flatnonzero(~np.isin(m.eq_type, known)):
        kind = str(E(int(m.eq_type[i])).name).removeprefix("mjEQ_").lower()
        said = f"{name_of(m, 'equality', int(i))} ({kind})"
        found.setdefault("equality of another kind", []).append(said)
    _options(m, mj, found)
    assert set(found) <= set(FEATURES)
    return found


def _dofs(m: Any, note: Callable) -> None:
    """Numbers that differ within a joint, which only an edited ``MjModel`` can have."""
    joint = np.asarray(m.dof_jntid)
    for what in ("damping", "armature", "frictionloss"):
        x = np.asarray(getattr(m, f"dof_{what}"))
        apart = np.unique(joint[x != x[np.asarray(m.jnt_dofadr)[joint]]]) if m.nv else ()
        note(f"{what} that differs within a joint", "joint", apart)


def actuator_flaws(m: Any, mj: Any) -> dict[str, list[tuple[int, str]]]:
    """``{feature: numbers of the actuators and what they have}`` of those not supported."""
    T, G, B, D = mj.mjtTrn, mj.mjtGain, mj.mjtBias, mj.mjtDyn
    transmissions = "JOINT", "JOINTINPARENT", "SITE", "TENDON", "SLIDERCRANK"
    dynamics = "NONE", "INTEGRATOR", "FILTER", "FILTEREXACT", "MUSCLE"
    known = (
        ("actuator of another transmission", "trntype", T, "mjTRN_", transmissions),
        ("activation dynamics", "dyntype", D, "mjDYN_", dynamics),
        ("gain or bias of another kind", "gaintype", G, "mjGAIN_", ("FIXED", "AFFINE", "MUSCLE")),
        ("gain or bias of another kind", "biastype", B, "mjBIAS_", ("NONE", "AFFINE", "MUSCLE")),
    )
    found: dict[str, list[tuple[int, str]]] = {}
    for what, field, kinds, prefix, right in known:
        for i, kind in enumerate(getattr(m, f"actuator_{field}")):
            name = str(kinds(int(kind)).name).removeprefix(prefix)
            several = field == "dyntype" and m.actuator_actnum[i] > 1
            listed = [k for k, _ in found.get(what, ())]
            if (name not in right or several) and i not in listed:
                found.setdefault(what, []).append((i, name.lower()))
    return found


def _actuators(m: Any, mj: Any, found: dict[str, list[str]], note: Callable, rows: Callable):
    for what, members in actuator_flaws(m, mj).items():
        found[what] = [f"{name_of(m, 'actuator', i)} ({kind})" for i, kind in members]
    for what in ("delay", "armature", "damping", "dampingpoly"):
        note(f"actuator {what}", "actuator", np.flatnonzero(rows(f"actuator_{what}")))


def _options(m: Any, mj: Any, found: dict[str, list[str]]) -> None:
    o = m.opt
    for flag in ("OVERRIDE", "SLEEP", "DIAGEXACT", "IPC", "SPECULATIVE"):
        bit = getattr(mj.mjtEnableBit, f"mjENBL_{flag}", None)
        if bit is not None and o.enableflags & int(bit):
            found.setdefault("option flag", []).append(flag.lower())
