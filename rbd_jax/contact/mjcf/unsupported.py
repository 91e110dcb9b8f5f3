"""The features of a compiled MuJoCo model that are not supported, with their elements."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...io.mjcf import name_of

SHAPES = "collision of these shapes"
FEATURES = (
    "tendon",
    "flex",
    "plugin",
    "gravity compensation by actuators",
    "polynomial stiffness",
    "polynomial damping",
    "plastic spring",
    "frictionloss of a free joint",
    "surface velocity",
    "adhesion",
    "fluid around an ellipsoid",
    "damping that differs within a joint",
    "armature that differs within a joint",
    "frictionloss that differs within a joint",
    "actuator of a tendon",
    "actuator of another transmission",
    "activation dynamics",
    "gain or bias of another kind",
    "position servo of a ball joint",
    "actuator delay",
    "actuator armature",
    "actuator damping",
    "actuator dampingpoly",
    "equality of another kind",
    "noslip solver",
    "option flag",
    "integrator",
    SHAPES,
)
"""The names of all features that may be unsupported; ``drop`` takes these names."""


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
    note("tendon", "tendon", range(m.ntendon))
    if m.nflex:
        found["flex"] = [f"{m.nflex} of them"]
    if m.nplugin:
        found["plugin"] = [f"{m.nplugin} of them"]
    note("gravity compensation by actuators", "joint", where(rows("jnt_actgravcomp")))
    note("polynomial stiffness", "joint", where(rows("jnt_stiffnesspoly")))
    if rows("dof_dampingpoly").any():
        note("polynomial damping", "joint", np.unique(m.dof_jntid[where(rows("dof_dampingpoly"))]))
    if getattr(m, "nplastic", 0):
        note("plastic spring", "joint", where(np.asarray(m.jnt_plasticadr) >= 0))
    free = np.asarray(m.jnt_type)[np.asarray(m.dof_jntid)] == 0 if m.nv else np.zeros(0, bool)
    dry = free & (np.asarray(m.dof_frictionloss) > 0)
    note("frictionloss of a free joint", "joint", np.unique(m.dof_jntid[where(dry)]))
    note("surface velocity", "geom", where(rows("geom_surfacevel")))
    note("adhesion", "geom", where(rows("geom_adhesion")))
    note("adhesion", "pair", where(rows("pair_adhesion")))
    if m.opt.density > 0 or m.opt.viscosity > 0:
        note("fluid around an ellipsoid", "geom", where(np.asarray(m.geom_fluid)[:, 0] > 0))
    _dofs(m, note)
    _actuators(m, mj, note, rows)
    E = mj.mjtEq
    known = tuple(int(k) for k in (E.mjEQ_CONNECT, E.mjEQ_WELD, E.mjEQ_JOINT))
    note(
        "equality of another kind",
        "equality",
        [i for i in range(m.neq) if int(m.eq_type[i]) not in known],
    )
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


def actuator_flaws(m: Any, mj: Any) -> dict[str, list[int]]:
    """``{feature: numbers of the actuators}`` that are not supported because of it."""
    n = len(m.actuator_trntype)
    T = mj.mjtTrn
    SCALAR, SITE, PARENT = int(T.mjTRN_JOINT), int(T.mjTRN_SITE), int(T.mjTRN_JOINTINPARENT)
    FIXED, AFFINE = int(mj.mjtGain.mjGAIN_FIXED), int(mj.mjtGain.mjGAIN_AFFINE)
    biases = int(mj.mjtBias.mjBIAS_NONE), int(mj.mjtBias.mjBIAS_AFFINE)
    found: dict[str, list[int]] = {}
    for i in range(n):
        kind, (target, second) = int(m.actuator_trntype[i]), m.actuator_trnid[i]
        ball = kind in (SCALAR, PARENT) and m.jnt_type[target] == 1
        servo = m.actuator_gainprm[i, 0] == -m.actuator_biasprm[i, 1] != 0
        flaws = {
            "actuator of a tendon": kind == int(T.mjTRN_TENDON),
            "actuator of another transmission": kind
            not in (SCALAR, SITE, PARENT, int(T.mjTRN_TENDON))
            or (kind == SITE and second >= 0)
            or (kind == PARENT and m.jnt_type[target] < 2),
            "activation dynamics": m.actuator_dyntype[i] != int(mj.mjtDyn.mjDYN_NONE),
            "gain or bias of another kind": int(m.actuator_gaintype[i]) not in (FIXED, AFFINE)
            or int(m.actuator_biastype[i]) not in biases,
            "position servo of a ball joint": ball and servo,
        }
        for what, bad in flaws.items():
            if bad:
                found.setdefault(what, []).append(i)
    return found


def _actuators(m: Any, mj: Any, note: Callable, rows: Callable) -> None:
    for what, members in actuator_flaws(m, mj).items():
        note(what, "actuator", members)
    for what in ("delay", "armature", "damping", "dampingpoly"):
        note(f"actuator {what}", "actuator", np.flatnonzero(rows(f"actuator_{what}")))


def _options(m: Any, mj: Any, found: dict[str, list[str]]) -> None:
    o = m.opt
    if o.noslip_iterations:
        found["noslip solver"] = [f"{o.noslip_iterations} iterations"]
    for flag in ("OVERRIDE", "SLEEP", "DIAGEXACT", "IPC", "SPECULATIVE"):
        bit = getattr(mj.mjtEnableBit, f"mjENBL_{flag}", None)
        if bit is not None and o.enableflags & int(bit):
            found.setdefault("option flag", []).append(flag.lower())
    kinds = ("EULER", "RK4", "IMPLICITFAST")
    if o.integrator not in [int(getattr(mj.mjtIntegrator, f"mjINT_{k}")) for k in kinds]:
        found["integrator"] = [str(mj.mjtIntegrator(o.integrator))]
