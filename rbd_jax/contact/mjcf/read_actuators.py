"""Actuators of a compiled MuJoCo model."""

import numpy as np

from ...io.mjcf import name_of
from ..actuators import BALL, FREE, SCALAR, SITE, Actuators
from .reader import Reader
from .unsupported import actuator_flaws


def kept_actuators(r: Reader) -> list[int]:
    """The numbers of the actuators that are supported."""
    if r.disabled("ACTUATION"):
        return []
    flawed = {i for members in actuator_flaws(r.m, r.mj).values() for i in members}
    return [i for i in range(len(r.m.actuator_trntype)) if i not in flawed]


def first_of(r: Reader, kept: list[int], what: str) -> np.ndarray:
    """Where the controls (or outputs) of the kept actuators begin in MuJoCo's arrays."""
    return np.asarray(getattr(r.m, f"actuator_{what}adr", np.arange(r.m.nu)))[kept]


def actuators_of(r: Reader) -> Actuators:
    """The supported actuators, in the order of the file."""
    m, far = r.m, np.inf
    fixed = int(r.mj.mjtGain.mjGAIN_FIXED)
    affine = int(r.mj.mjtBias.mjBIAS_AFFINE)
    kept, kinds, targets = kept_actuators(r), [], []
    for i in kept:
        target = int(m.actuator_trnid[i, 0])
        if int(m.actuator_trntype[i]) == int(r.mj.mjtTrn.mjTRN_SITE):
            kinds.append(SITE)
            name = name_of(m, "site", target)
            known = r.model.frame_names
            name = f"site:{name}" if f"site:{name}" in known else name
            targets.append(known.index(name))
        else:
            kinds.append({0: FREE, 1: BALL}.get(int(m.jnt_type[target]), SCALAR))
            targets.append(r.dof(target))
    n = len(kept)
    ratio = np.array([r.ratio(i) for i in kept])
    gain, bias = np.array(m.actuator_gainprm[kept, :3]), np.array(m.actuator_biasprm[kept, :3])
    gain[np.asarray(m.actuator_gaintype)[kept] == fixed, 1:] = 0
    bias[np.asarray(m.actuator_biastype)[kept] != affine] = 0
    bias[ratio > 0, 2] = 0  # MuJoCo's number for the robot of the file
    at = first_of(r, kept, "ctrl")
    ctrl = np.array(m.actuator_ctrlrange[at], float)
    free = (np.asarray(m.actuator_ctrllimited)[at] == 0) | r.disabled("CLAMPCTRL")
    ctrl[free] = [-far, far]
    force = np.array(m.actuator_forcerange[kept], float)
    force[np.asarray(m.actuator_forcelimited)[kept] == 0] = [-far, far]
    groups = [k for k in range(31) if m.opt.disableactuator >> k & 1]
    off = np.isin(np.asarray(m.actuator_group)[kept], groups)
    gain[off] = bias[off] = ratio[off] = 0
    joint = np.tile([-far, far], (r.model.nv, 1))
    for j in np.flatnonzero(m.jnt_actfrclimited):
        joint[r.model.v_slice(name_of(m, "joint", int(j)))] = m.jnt_actfrcrange[j]
    return Actuators(
        gear=r.array(m.actuator_gear[first_of(r, kept, "out")], n, 6),
        gainprm=r.array(gain, n, 3),
        biasprm=r.array(bias, n, 3),
        ctrlrange=r.array(ctrl, n, 2),
        forcerange=r.array(force, n, 2),
        actfrcrange=r.array(joint, r.model.nv, 2),
        names=tuple(name_of(m, "actuator", i) for i in kept),
        trntype=tuple(kinds),
        trnid=tuple(targets),
        dampratio=r.array(ratio, n) if ratio.any() else None,
    )
