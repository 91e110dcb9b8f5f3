"""From MJCF to a scene: compiled by MuJoCo, converted here. Extra ``mjcf``."""

import os
import warnings
from collections.abc import Collection
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..algorithms.springs import unsprung
from ..io import convert
from ..io.mjcf import compile_mjcf, mujoco, name_of, robot_of
from ..model import RobotDescriptionError, RobotDescriptionWarning
from ..spatial import so3
from ..spatial.host import rotation_of_quat
from .actuators import BALL, FREE, SCALAR, SITE, Actuators
from .contacts import Contacts, Pairs, Shapes
from .equalities import Couplings, Equalities, Welds
from .hulls import hulls
from .joints import BallLimits, Dry, Joints, Limits, Soft
from .pairs import Meeting, meetings
from .rows import Constraints
from .scene import Keyframe, Scene
from .scene_features import unsupported

Drop = Collection[str] | Literal["all"]


def load_mjcf(
    source: str | os.PathLike, dtype=None, *, drop: Drop = (), drop_meshes: bool = False
) -> Scene:
    """Load a scene from MJCF: robot, actuators, contacts, keyframes, time step and options.

    Source: MuJoCo compiles the file, so that defaults, includes and inferred inertias are its own.
    All robots of the file are one model; its q is MuJoCo's ``qpos``. Sites are frames.

    Args:
        source: path of an MJCF file, or a string that holds the XML.
        dtype: of the arrays; JAX's default float if None.
        drop: features that may be left out although the motion then differs, with a warning that
            names them; ``"all"`` for any. The error says which ones a file needs.
        drop_meshes: leave out mesh geoms before compiling, for files whose meshes are absent.

    Raises:
        RobotDescriptionError: if MuJoCo refuses the file, or for what is not supported.
        ImportError: without mujoco.
    """
    return scene_of(compile_mjcf(source, drop_meshes), dtype, drop=drop)


def scene_of(mj_model: Any, dtype=None, *, drop: Drop = ()) -> Scene:
    """The scene of a loaded ``mujoco.MjModel``. Arguments and errors as :func:`load_mjcf`."""
    mj = mujoco()
    found = unsupported(mj_model, mj)
    met, strangers = meetings(mj_model, mj)
    if strangers:
        found["collision of these shapes"] = strangers
    refused = {k: v for k, v in found.items() if drop != "all" and k not in drop}
    if refused:
        text = "; ".join(f"{k}: {_short(v)}" for k, v in refused.items())
        raise RobotDescriptionError(
            f"load_mjcf: not supported: {text}. Change the file, or leave them out with "
            f"drop={tuple(refused)!r}"
        )
    if found:
        text = "; ".join(f"{k}: {_short(v)}" for k, v in found.items())
        warnings.warn(f"load_mjcf: left out: {text}", RobotDescriptionWarning, stacklevel=3)
    return _Converter(mj_model, mj, dtype, met).scene()


def _short(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class _Converter:
    def __init__(self, m: Any, mj: Any, dtype, met: list[Meeting]):
        self.m, self.mj, self.met = m, mj, met
        model, self.bodies = robot_of(m, dtype)
        self.dtype = model.dtype
        self.model = self._switched(model)

    def _array(self, x, *shape: int):
        return jnp.asarray(np.array(x, dtype=float).reshape(shape), self.dtype)

    def _disabled(self, flag: str) -> bool:
        bit = getattr(self.mj.mjtDisableBit, f"mjDSBL_{flag}")
        return bool(self.m.opt.disableflags & int(bit))

    def _switched(self, model):
        """What the option flags switch off."""
        if self._disabled("SPRING"):
            model = unsprung(model)
        for flag, leaf in (("DAMPER", "damping"), ("GRAVITY", "gravity")):
            if self._disabled(flag):
                zero = jnp.zeros_like(getattr(model, leaf))
                model = eqx.tree_at(lambda m, leaf=leaf: getattr(m, leaf), model, zero)
        return model

    def scene(self) -> Scene:
        m, o = self.m, self.m.opt
        names = {"EULER": "euler", "RK4": "rk4", "IMPLICITFAST": "implicitfast"}
        kinds = {int(getattr(self.mj.mjtIntegrator, f"mjINT_{k}")): v for k, v in names.items()}
        damped = bool((np.asarray(m.dof_damping) > 0).any())
        return Scene(
            model=self.model,
            actuators=self._actuators(),
            constraints=Constraints(self._contacts(), self._joints(), self._equalities()),
            keyframes=self._keyframes(),
            dt=self._array(o.timestep),
            integrator=kinds.get(int(o.integrator), "euler"),
            implicit_damping=damped and not any(map(self._disabled, ("EULERDAMP", "DAMPER"))),
            layout=convert.mujoco(self.model, m, ref=False),
        )

    # --- joints -----------------------------------------------------------------------------------

    def _dof(self, joint: int) -> int:
        return self.model.v_slice(name_of(self.m, "joint", joint)).start

    def _place(self, joint: int) -> int:
        return self.model.q_slice(name_of(self.m, "joint", joint)).start

    def _soft(self, solref, solimp, weight) -> Soft:
        n = len(weight)
        return Soft(self._array(solref, n, 2), self._array(solimp, n, 5), self._array(weight, n))

    def _joints(self) -> Joints:
        m = self.m
        off = self._disabled("CONSTRAINT")
        limited = [] if off or self._disabled("LIMIT") else np.flatnonzero(m.jnt_limited).tolist()
        straight = [j for j in limited if m.jnt_type[j] >= 2]
        balls = [j for j in limited if m.jnt_type[j] == 1]
        dry = (
            []
            if off or self._disabled("FRICTIONLOSS")
            else np.flatnonzero(m.dof_frictionloss > 0).tolist()
        )
        dry = [d for d in dry if m.jnt_type[m.dof_jntid[d]] != 0]

        def soft(joints):
            weight = m.dof_invweight0[m.jnt_dofadr[joints]]
            return self._soft(m.jnt_solref[joints], m.jnt_solimp[joints], weight)

        def where(joints):
            return tuple(map(self._dof, joints)), tuple(map(self._place, joints))

        def dof(d: int) -> int:
            j = int(m.dof_jntid[d])
            return self._dof(j) + d - int(m.jnt_dofadr[j])

        return Joints(
            Limits(
                soft(straight), self._array(m.jnt_margin[straight], len(straight)), *where(straight)
            ),
            BallLimits(
                soft(balls),
                self._array(m.jnt_margin[balls], len(balls)),
                self._array(m.jnt_range[balls].max(axis=-1, initial=0), len(balls)),
                *where(balls),
            ),
            Dry(
                self._soft(m.dof_solref[dry], m.dof_solimp[dry], m.dof_invweight0[dry]),
                tuple(dof(int(d)) for d in dry),
            ),
        )

    # --- contacts ---------------------------------------------------------------------------------

    def _contacts(self) -> Contacts:
        m = self.m
        off = self._disabled("CONSTRAINT") or self._disabled("CONTACT")
        met = [] if off else self.met
        used = sorted({g for x in met for g in x.geoms})
        at = {g: k for k, g in enumerate(used)}
        R, p = [], []
        for g in used:
            b = int(m.geom_bodyid[g])
            R.append(self.bodies.R[b] @ rotation_of_quat(m.geom_quat[g]))
            p.append(self.bodies.p[b] + self.bodies.R[b] @ m.geom_pos[g])
        n, k = len(used), len(met)
        kinds = tuple(self._kind(g) for g in used)
        corners, faces, rows = hulls(m, used)
        shapes = Shapes(
            self._array(R, n, 3, 3),
            self._array(p, n, 3),
            self._array([m.geom_size[g] for g in used], n, 3),
            self._array(corners, *corners.shape),
            kinds,
            tuple(int(self.bodies.index[m.geom_bodyid[g]]) for g in used),
            tuple(name_of(m, "geom", g) for g in used),
            faces,
            rows,
        )
        weight = [sum(m.body_invweight0[m.geom_bodyid[g]] for g in x.geoms) for x in met]
        pairs = Pairs(
            friction=self._array([x.friction for x in met], k, 5),
            solref=self._array([x.solref for x in met], k, 2),
            solref_friction=self._array([x.solref_friction for x in met], k, 2),
            solimp=self._array([x.solimp for x in met], k, 5),
            margin=self._array([x.margin for x in met], k),
            weight=self._array(weight, k, 2),
            shapes=tuple((at[x.geoms[0]], at[x.geoms[1]]) for x in met),
            condim=tuple(x.condim for x in met),
        )
        elliptic = int(m.opt.cone) == int(self.mj.mjtCone.mjCONE_ELLIPTIC)
        least = 0.0 if self._disabled("REFSAFE") else 2.0
        return Contacts(
            shapes, pairs, self._array(m.opt.impratio), self._array(least), None, elliptic
        )

    def _kind(self, g: int) -> str:
        return str(self.mj.mjtGeom(self.m.geom_type[g]).name).removeprefix("mjGEOM_").lower()

    # --- equalities -------------------------------------------------------------------------------

    def _equalities(self) -> Equalities:
        m, E = self.m, self.mj.mjtEq
        off = self._disabled("CONSTRAINT") or self._disabled("EQUALITY")
        every = [] if off else range(m.neq)
        tied = [i for i in every if int(m.eq_type[i]) in (int(E.mjEQ_CONNECT), int(E.mjEQ_WELD))]
        coupled = [i for i in every if int(m.eq_type[i]) == int(E.mjEQ_JOINT)]
        return Equalities(self._welds(tied), self._couplings(coupled))

    def _welds(self, tied: list[int]) -> Welds:
        m, n = self.m, len(tied)
        ends = [self._weld(i) for i in tied]
        bodies = [e[0] for e in ends]
        return Welds(
            p1=self._array([e[1] for e in ends], n, 3),
            p2=self._array([e[2] for e in ends], n, 3),
            quat1=self._array([e[3] for e in ends], n, 4),
            quat2=self._array([e[4] for e in ends], n, 4),
            torque_scale=self._array(m.eq_data[tied, 10], n),
            solref=self._array(m.eq_solref[tied], n, 2),
            solimp=self._array(m.eq_solimp[tied], n, 5),
            weight=self._array([m.body_invweight0[list(b)].sum(axis=0) for b in bodies], n, 2),
            active=self._array(m.eq_active0[tied], n),
            bodies=tuple(tuple(int(self.bodies.index[b]) for b in pair) for pair in bodies),  # type: ignore
            rigid=tuple(int(m.eq_type[i]) == int(self.mj.mjtEq.mjEQ_WELD) for i in tied),
        )

    def _weld(self, i: int):
        """Bodies of MuJoCo, anchors and orientations of one connect or weld, in our bodies."""
        m, data = self.m, self.m.eq_data[i]
        one, two = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
        rigid = int(m.eq_type[i]) == int(self.mj.mjtEq.mjEQ_WELD)
        quat1, quat2 = np.array([1.0, 0, 0, 0]), np.array([1.0, 0, 0, 0])
        if int(m.eq_objtype[i]) == int(self.mj.mjtObj.mjOBJ_SITE):
            b1, b2 = int(m.site_bodyid[one]), int(m.site_bodyid[two])
            at1, at2 = m.site_pos[one], m.site_pos[two]
            quat1, quat2 = m.site_quat[one], m.site_quat[two]
        else:
            b1, b2 = one, two
            at1, at2 = (data[3:6], data[:3]) if rigid else (data[:3], data[3:6])
            quat1 = data[6:10] if rigid else quat1
        p1 = self.bodies.p[b1] + self.bodies.R[b1] @ at1
        p2 = self.bodies.p[b2] + self.bodies.R[b2] @ at2
        quat1 = _product(_quat(self.bodies.R[b1]), quat1)
        quat2 = _product(_quat(self.bodies.R[b2]), quat2)
        return (b1, b2), p1, p2, quat1, quat2

    def _couplings(self, coupled: list[int]) -> Couplings:
        m, n = self.m, len(coupled)
        ids = [(int(m.eq_obj1id[i]), int(m.eq_obj2id[i])) for i in coupled]
        place = [m.jnt_qposadr[list(j)] for j in ids]
        weight = [sum(m.dof_invweight0[m.jnt_dofadr[j]] for j in pair if j >= 0) for pair in ids]
        return Couplings(
            polynomial=self._array(m.eq_data[coupled, :5], n, 5),
            start=self._array([m.qpos0[x] for x in place], n, 2),
            solref=self._array(m.eq_solref[coupled], n, 2),
            solimp=self._array(m.eq_solimp[coupled], n, 5),
            weight=self._array(weight, n),
            active=self._array(m.eq_active0[coupled], n),
            dofs=tuple((self._dof(a), self._dof(b) if b >= 0 else -1) for a, b in ids),
            places=tuple((self._place(a), self._place(b) if b >= 0 else -1) for a, b in ids),
        )

    # --- actuators, keyframes ---------------------------------------------------------------------

    def _actuators(self) -> Actuators:
        m, T = self.m, self.mj.mjtTrn
        off = self._disabled("ACTUATION")
        fixed = int(self.mj.mjtGain.mjGAIN_FIXED)
        affine = int(self.mj.mjtBias.mjBIAS_AFFINE)
        kept, kinds, targets = [], [], []
        for i in range(0 if off else len(m.actuator_trntype)):
            kind, target = int(m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
            plain = m.actuator_dyntype[i] == 0 and int(m.actuator_gaintype[i]) in (fixed, fixed + 1)
            known = map(int, (T.mjTRN_JOINT, T.mjTRN_SITE, T.mjTRN_JOINTINPARENT))
            if not plain or kind not in known:
                continue
            kept.append(i)
            if kind == int(T.mjTRN_SITE):
                kinds.append(SITE)
                name = name_of(m, "site", target)
                known = self.model.frame_names
                name = f"site:{name}" if f"site:{name}" in known else name
                targets.append(known.index(name))
            else:
                kinds.append({0: FREE, 1: BALL}.get(int(m.jnt_type[target]), SCALAR))
                targets.append(self._dof(target))
        n, far = len(kept), np.inf
        gain, bias = np.array(m.actuator_gainprm[kept, :3]), np.array(m.actuator_biasprm[kept, :3])
        gain[np.asarray(m.actuator_gaintype)[kept] == fixed, 1:] = 0
        bias[np.asarray(m.actuator_biastype)[kept] != affine] = 0
        ctrl = np.array(m.actuator_ctrlrange[kept], float)
        free = (np.asarray(m.actuator_ctrllimited)[kept] == 0) | self._disabled("CLAMPCTRL")
        ctrl[free] = [-far, far]
        force = np.array(m.actuator_forcerange[kept], float)
        force[np.asarray(m.actuator_forcelimited)[kept] == 0] = [-far, far]
        joint = np.tile([-far, far], (self.model.nv, 1))
        for j in np.flatnonzero(m.jnt_actfrclimited):
            joint[self.model.v_slice(name_of(m, "joint", int(j)))] = m.jnt_actfrcrange[j]
        return Actuators(
            gear=self._array(m.actuator_gear[kept], n, 6),
            gain=self._array(gain, n, 3),
            bias=self._array(bias, n, 3),
            control_lower=self._array(ctrl[:, 0], n),
            control_upper=self._array(ctrl[:, 1], n),
            force_lower=self._array(force[:, 0], n),
            force_upper=self._array(force[:, 1], n),
            joint_force_lower=self._array(joint[:, 0], self.model.nv),
            joint_force_upper=self._array(joint[:, 1], self.model.nv),
            names=tuple(name_of(m, "actuator", i) for i in kept),
            kinds=tuple(kinds),
            targets=tuple(targets),
        )

    def _keyframes(self) -> dict[str, Keyframe]:
        m, layout = self.m, convert.mujoco(self.model, self.m, ref=False)
        frames = {}
        for k in range(m.nkey):
            q = layout.q_from(self._array(m.key_qpos[k], m.nq))
            v = layout.v_from(q, self._array(m.key_qvel[k], m.nv))
            controls = self._array(m.key_ctrl[k], m.nu)
            frames[name_of(m, "key", k)] = Keyframe(q, v, controls)
        return frames


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.append(w, a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))


def _quat(R: np.ndarray) -> np.ndarray:
    """The quaternion ``wxyz`` of a rotation matrix."""
    return np.asarray(so3.quat_from_matrix(jnp.asarray(R)))
