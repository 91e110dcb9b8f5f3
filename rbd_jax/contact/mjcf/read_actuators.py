"""Actuators of a compiled MuJoCo model, with their activations and muscles."""

import numpy as np

from ...io.mjcf import name_of
from ..activation import Activation, Muscles
from ..actuators import (
    BALL,
    BALL_IN_PARENT,
    BETWEEN,
    CRANK,
    FREE,
    FREE_IN_PARENT,
    SCALAR,
    SITE,
    TENDON,
    Actuators,
)
from .reader import Reader
from .unsupported import actuator_flaws


def kept_actuators(r: Reader) -> list[int]:
    """The numbers of the actuators that are supported."""
    if r.disabled("ACTUATION"):
        return []
    flawed = {i for members in actuator_flaws(r.m, r.mj).values() for i, _ in members}
    return [i for i in range(len(r.m.actuator_trntype)) if i not in flawed]


def first_of(r: Reader, kept: list[int], what: str) -> np.ndarray:
    """Where the controls (or outputs) of the kept actuators begin in MuJoCo's arrays."""
    return np.asarray(getattr(r.m, f"actuator_{what}adr", np.arange(r.m.nu)))[kept]


def activations_of(r: Reader, kept: list[int]) -> np.ndarray:
    """Where the activations of the kept actuators are in MuJoCo's ``act``."""
    return first_of(r, [i for i in kept if r.m.actuator_actnum[i]], "act")


def actuators_of(r: Reader) -> Actuators:
    """The supported actuators, in the order of the file."""
    m, far = r.m, np.inf
    fixed, affine = int(r.mj.mjtGain.mjGAIN_FIXED), int(r.mj.mjtBias.mjBIAS_AFFINE)
    muscle = int(r.mj.mjtGain.mjGAIN_MUSCLE)
    kept = kept_actuators(r)
    ends = [_transmission(r, i) for i in kept]
    n = len(kept)
    ratio = np.array([r.ratio(i) for i in kept])
    gain, bias = np.array(m.actuator_gainprm[kept, :3]), np.array(m.actuator_biasprm[kept, :3])
    gain[np.asarray(m.actuator_gaintype)[kept] == fixed, 1:] = 0
    gain[np.asarray(m.actuator_gaintype)[kept] == muscle] = 0
    bias[np.asarray(m.actuator_biastype)[kept] != affine] = 0
    bias[ratio > 0, 2] = 0  # MuJoCo's number for the robot of the file
    at, out = first_of(r, kept, "ctrl"), first_of(r, kept, "out")
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
    kinds = tuple(kind for kind, *_ in ends)
    second = tuple(k for *_, k in ends)
    return Actuators(
        gear=r.array(m.actuator_gear[out], n, 6),
        gainprm=r.array(gain, n, 3),
        biasprm=r.array(bias, n, 3),
        ctrlrange=r.array(ctrl, n, 2),
        forcerange=r.array(force, n, 2),
        actfrcrange=r.array(joint, r.model.nv, 2),
        names=tuple(name_of(m, "actuator", i) for i in kept),
        trntype=kinds,
        trnid=tuple(k for _, k, _ in ends),
        dampratio=r.array(ratio, n) if ratio.any() else None,
        rod=r.array(m.actuator_cranklength[out], n) if CRANK in kinds else None,
        activation=_activation(r, kept, off),
        muscles=_muscles(r, kept, off),
        refid=second if max(second, default=-1) >= 0 else (),
        turning=tuple(k for k, i in enumerate(kept) if _turns(r, i, kinds[k])),
    )


def _transmission(r: Reader, i: int) -> tuple[str, int, int]:
    """What an actuator acts on: the kind, its number, and the number of a second frame or −1."""
    m, T = r.m, r.mj.mjtTrn
    kind, (target, second) = int(m.actuator_trntype[i]), map(int, m.actuator_trnid[i])
    if kind == int(T.mjTRN_TENDON):
        return TENDON, target, -1
    if kind == int(T.mjTRN_SLIDERCRANK):
        return CRANK, r.site(target), r.site(second)
    if kind == int(T.mjTRN_SITE):
        own = r.site(target)
        return (SITE, own, -1) if second < 0 else (BETWEEN, own, r.site(second))
    outside = kind == int(T.mjTRN_JOINTINPARENT)
    of = {0: (FREE, FREE_IN_PARENT), 1: (BALL, BALL_IN_PARENT)}
    return of.get(int(m.jnt_type[target]), (SCALAR, SCALAR))[outside], r.dof(target), -1


def _turns(r: Reader, i: int, kind: str) -> bool:
    """Whether the setpoint of a servo is an angle, which is the same after a full turn."""
    m, D = r.m, r.mj.mjtDyn
    fixed, affine = int(r.mj.mjtGain.mjGAIN_FIXED), int(r.mj.mjtBias.mjBIAS_AFFINE)
    servo = m.actuator_gaintype[i] == fixed and m.actuator_biastype[i] == affine
    servo = servo and m.actuator_gainprm[i, 0] == -m.actuator_biasprm[i, 1]
    servo = servo and int(m.actuator_dyntype[i]) in (int(D.mjDYN_NONE), int(D.mjDYN_INTEGRATOR))
    gear = m.actuator_gear[first_of(r, [i], "out")[0]]
    ball = kind in (BALL, BALL_IN_PARENT)
    return bool(servo and (ball or (kind == BETWEEN and not gear[:3].any())))


def _activation(r: Reader, kept: list[int], off: np.ndarray) -> Activation | None:
    """The activations of the actuators; None if no actuator has one."""
    m, far = r.m, np.inf
    names = "integrator", "filter", "filterexact", "muscle"
    kinds = {int(getattr(r.mj.mjtDyn, f"mjDYN_{k.upper()}")): k for k in names}
    own = [k for k, i in enumerate(kept) if m.actuator_actnum[i]]
    if not own:
        return None
    at, n = [kept[k] for k in own], len(own)
    limits = np.array(m.actuator_actrange[at], float).reshape(n, 2)
    limits[np.asarray(m.actuator_actlimited)[at] == 0] = [-far, far]
    return Activation(
        parameters=r.array(m.actuator_dynprm[at, :3], n, 3),
        limits=r.array(limits, n, 2),
        actuators=tuple(own),
        kinds=tuple(
            "held" if off[k] else kinds[int(m.actuator_dyntype[i])]
            for k, i in zip(own, at, strict=True)
        ),
        early=tuple(bool(m.actuator_actearly[i]) for i in at),
    )


def _muscles(r: Reader, kept: list[int], off: np.ndarray) -> Muscles | None:
    """The gains and passive forces of muscles; None if no actuator is a muscle."""
    m = r.m
    muscle = int(r.mj.mjtGain.mjGAIN_MUSCLE), int(r.mj.mjtBias.mjBIAS_MUSCLE)
    types = m.actuator_gaintype, m.actuator_biastype
    gains, biases = (
        [k for k, i in enumerate(kept) if kinds[i] == kind and not off[k]]
        for kinds, kind in zip(types, muscle, strict=True)
    )
    if not gains and not biases:
        return None
    gain, bias = ([kept[k] for k in x] for x in (gains, biases))
    prm = m.actuator_gainprm[gain, :9], m.actuator_biasprm[bias, :9]
    return Muscles(
        gain=r.array(prm[0], len(gain), 9),
        bias=r.array(prm[1], len(bias), 9),
        lengths=r.array(m.actuator_lengthrange[first_of(r, kept, "out")], len(kept), 2),
        gains=tuple(gains),
        biases=tuple(biases),
        scaled=any((x[:, 2] < 0).any() for x in prm),
    )
