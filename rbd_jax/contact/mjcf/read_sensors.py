"""Sensors of a compiled MuJoCo model."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...io import convert
from ...io.mjcf import name_of
from ...spatial import so3
from ...spatial.host import rotation_of_quat
from ..sensing import KINDS, MEETS, chain_quaternion
from ..sensor_specs import Lumps, Sensor, Sensors
from .read_actuators import kept_actuators
from .read_contacts import touching_geoms
from .read_equalities import held_bodies
from .read_tendons import pulled_bodies
from .reader import Reader

FRAMES = {"framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel",
          "frameangvel", "framelinacc", "frameangacc"}  # fmt: skip
SITES = {"gyro", "velocimeter", "accelerometer", "magnetometer", "force", "torque", "touch"}
JOINTS = {"jointpos", "jointvel", "jointactuatorfrc", "ballquat", "ballangvel", "jointlimitpos",
          "jointlimitvel", "jointlimitfrc"}  # fmt: skip
SUBTREES = {"subtreecom", "subtreelinvel", "subtreeangmom", "force", "torque"}
LONG = {"jointactfrc": "jointactuatorfrc", "tendonactfrc": "tendonactuatorfrc"}


def kind_of(m: Any, mj: Any, i: int) -> str:
    """The kind of a sensor, by its name in MJCF."""
    short = str(mj.mjtSensor(int(m.sensor_type[i])).name).removeprefix("mjSENS_").lower()
    return LONG.get(short, short)


def left_out(m: Any, mj: Any) -> list[str]:
    """The sensors that are not supported, with their kinds."""
    found = []
    for i in range(m.nsensor):
        kind = kind_of(m, mj, i)
        why = kind
        if kind in KINDS:
            delayed = m.sensor_delay[i] > 0 or np.any(np.asarray(m.sensor_interval[i]) > 0)
            zone = kind == "touch" and _shape(m, mj, int(m.sensor_objid[i])) not in MEETS
            odd = kind == "contact" and _contact_data(m, mj, i) is None
            if not delayed and not zone and not odd:
                continue
            why = f"{kind} with a delay" if delayed else f"{kind} of this form"
        found.append(f"{name_of(m, 'sensor', i)} ({why})")
    return found


def sensors_of(r: Reader) -> Sensors | None:
    """The sensors that are supported, in the order of the file; None if there is none."""
    m, mj = r.m, r.mj
    said = {x.rsplit(" (", 1)[0] for x in left_out(m, mj)}
    kept = [i for i in range(m.nsensor) if name_of(m, "sensor", i) not in said]
    reader = _Sensors(r)
    read = [reader.sensor(i) for i in kept]
    kept = [i for i, s in zip(kept, read, strict=True) if s is not None]
    found = tuple(s for s in read if s is not None)
    if not found:
        return None
    n, frames = len(found), reader.frames
    r.sensed = [body for body, _ in reader.sources]
    cutoff = np.array(m.sensor_cutoff[kept], float)
    noise = np.array(getattr(m, "sensor_noise", np.zeros(m.nsensor))[kept], float)
    sizes = [m.site_size[m.sensor_objid[i]] if s.kind == "touch" else np.ones(3)
             for i, s in zip(kept, found, strict=True)]  # fmt: skip
    return Sensors(
        cutoff=r.array(np.where(cutoff > 0, cutoff, np.inf), n),
        noise=r.array(noise, n),
        R=r.array([x[1] for x in frames], len(frames), 3, 3),
        p=r.array([x[2] for x in frames], len(frames), 3),
        sizes=r.array(sizes, n, 3),
        magnetic=r.array(m.opt.magnetic, 3),
        lumps=reader.lumps(),
        bodies=tuple(x[0] for x in frames),
        centered=tuple(x[3] for x in frames),
        signs=reader.signs(),
        sensors=found,
    )


def _contact_data(m: Any, mj: Any, i: int) -> tuple[str, ...] | None:
    """What a contact sensor reads of the closest contact; None if it reads something else."""
    D, O = mj.mjtConDataField, mj.mjtObj
    bits, reduce = int(m.sensor_intprm[i][0]), int(m.sensor_intprm[i][1])
    names = "found", "force", "torque", "dist", "pos", "normal", "tangent"
    data = tuple(x for x in names if bits >> int(getattr(D, f"mjCONDATA_{x.upper()}")) & 1)
    kinds = [int(x) for x in (O.mjOBJ_GEOM, O.mjOBJ_BODY, O.mjOBJ_XBODY)]
    first = int(m.sensor_objtype[i]) in kinds
    second = int(m.sensor_reftype[i]) in (*kinds, int(O.mjOBJ_UNKNOWN))
    size = sum(1 if x in ("found", "dist") else 3 for x in data)
    plain = reduce == 1 and size == int(m.sensor_dim[i]) and not {"force", "torque"} & set(data)
    return data if first and second and plain else None


def _shape(m: Any, mj: Any, site: int) -> str:
    return str(mj.mjtGeom(int(m.site_type[site])).name).removeprefix("mjGEOM_").lower()


class _Sensors:
    """Reads sensors and collects the frames that they name."""

    def __init__(self, r: Reader):
        self.r, self.m = r, r.m
        self.frames: list[tuple[int, np.ndarray, np.ndarray, bool]] = []
        self.sources: list[tuple[int, np.ndarray]] = []
        self.oriented: set[int] = set()
        self.known: dict[tuple[str, int], int] = {}
        self.start = r.mj.MjData(r.m)
        r.mj.mj_kinematics(r.m, self.start)  # at qpos0
        self.kept = kept_actuators(r)

    def sensor(self, i: int) -> Sensor | None:
        """One sensor; None if it reads an actuator that is left out, or a limit that is none."""
        m, r = self.m, self.r
        kind, name = kind_of(m, r.mj, i), name_of(m, "sensor", i)
        target = int(m.sensor_objid[i])
        more: dict[str, Any] = {}
        if kind in JOINTS:
            more = {"dof": r.dof(target), "place": r.place(target)}
            if kind.startswith("jointlimit") and not m.jnt_limited[target]:
                return None
        elif kind.startswith("tendon"):
            more = {"target": target}
            if kind.startswith("tendonlimit") and not m.tendon_limited[target]:
                return None
        elif kind.startswith("actuator"):
            if target not in self.kept:
                return None
            more = {"target": self.kept.index(target)}
        elif kind in FRAMES:
            more = {"frame": self._frame(int(m.sensor_objtype[i]), target)}
            if m.sensor_refid[i] >= 0:
                of = int(m.sensor_reftype[i]), int(m.sensor_refid[i])
                more["reference"] = self._frame(*of)
            if kind == "framequat":
                self.oriented |= set(more.values())
        elif kind in SITES:
            more = {"frame": self._frame(int(r.mj.mjtObj.mjOBJ_SITE), target)}
            body = int(m.site_bodyid[target])
            if kind == "touch":
                more |= {"shapes": self._shapes({body}), "shape": _shape(m, r.mj, target)}
            elif kind in SUBTREES:
                more |= self._subtree(body)
        elif kind == "contact":
            other = int(m.sensor_reftype[i]), int(m.sensor_refid[i])
            more = {
                "shapes": self._touching(int(m.sensor_objtype[i]), target),
                "others": None if other[1] < 0 else self._touching(*other),
                "data": _contact_data(m, r.mj, i),
            }
        elif kind in SUBTREES:
            more = {"lumps": self._subtree(target)["lumps"]}
        elif kind == "e_potential":
            more = {"lumps": tuple(range(m.nbody))}
        positive = int(m.sensor_datatype[i]) == int(r.mj.mjtDataType.mjDATATYPE_POSITIVE)
        return Sensor(kind, name, int(m.sensor_dim[i]), positive=positive, **more)

    def _frame(self, kind: int, target: int) -> int:
        """The number of the frame of an element of MuJoCo; adds it if it is new."""
        m, r, O = self.m, self.r, self.r.mj.mjtObj
        name = str(O(kind).name).removeprefix("mjOBJ_").lower()
        if (name, target) in self.known:
            return self.known[name, target]
        self.known[name, target] = len(self.frames)
        if name in ("body", "xbody"):
            body = target
            at, quat = np.zeros(3), np.array([1.0, 0, 0, 0])
            if name == "body":
                at, quat = m.body_ipos[body], m.body_iquat[body]
        else:
            short = {"camera": "cam"}.get(name, name)
            body = int(getattr(m, f"{short}_bodyid")[target])
            at, quat = (getattr(m, f"{short}_{x}")[target] for x in ("pos", "quat"))
        own = np.array(quat, float)
        R, p = r.bodies.R[body] @ rotation_of_quat(own), r.point(body, at)
        index, centered = int(r.bodies.index[body]), False
        massive = self.m.body_mass[body] > 0 and index >= 0
        if name == "body" and massive and r.part_of_mass(body) == 1:
            mean = np.asarray(r.center(body))
            p, centered = p - mean, True
        self.frames.append((index, R, p, centered))
        self.sources.append((body, own))
        return self.known[name, target]

    def signs(self) -> tuple[float, ...]:
        """The sign of MuJoCo's quaternion of each frame against ours, at ``qpos0``.

        It is found for frames whose quaternions are read, and is 1 for others.
        """
        r, found = self.r, []
        layout = convert.mujoco(r.model, self.m, ref=False)
        q0 = layout.q_from(jnp.asarray(self.m.qpos0, r.dtype))
        for k, (body, own) in enumerate(self.sources):
            if k not in self.oriented:
                found.append(1.0)
                continue
            theirs = np.zeros(4)
            r.mj.mju_mulQuat(theirs, self.start.xquat[body], own)
            index, R = self.frames[k][:2]
            chain = chain_quaternion(r.model, q0, index)
            ours = so3.quat_multiply(chain, so3.quat_from_matrix(jnp.asarray(R, r.dtype)))
            found.append(1.0 if float(np.dot(np.asarray(ours), theirs)) >= 0 else -1.0)
        return tuple(found)

    def _subtree(self, body: int) -> dict[str, tuple]:
        """The bodies of MuJoCo below a body, their shapes, and the welds that hold them."""
        inside = {body}
        for b in range(body + 1, self.m.nbody):
            if int(self.m.body_parentid[b]) in inside:
                inside.add(b)
        held = enumerate(held_bodies(self.r))
        welds = [(k, side) for k, pair in held for side in (0, 1) if pair[side] in inside]
        return {
            "lumps": tuple(sorted(inside)),
            "shapes": self._shapes(inside),
            "welds": tuple(welds),
            "pulls": tuple(k for k, b in enumerate(pulled_bodies(self.r)) if b in inside),
        }

    def _touching(self, kind: int, target: int) -> tuple[int, ...]:
        """The numbers of the scene's shapes of a geom, a body or a subtree of MuJoCo."""
        O = self.r.mj.mjtObj
        if kind == int(O.mjOBJ_GEOM):
            return tuple(k for k, g in enumerate(touching_geoms(self.r)) if g == target)
        whole = kind == int(O.mjOBJ_XBODY)
        return self._subtree(target)["shapes"] if whole else self._shapes({target})

    def _shapes(self, bodies: set[int]) -> tuple[int, ...]:
        """The numbers of the scene's shapes on some bodies of MuJoCo."""
        used = touching_geoms(self.r)
        return tuple(k for k, g in enumerate(used) if int(self.m.geom_bodyid[g]) in bodies)

    def lumps(self) -> Lumps:
        """All bodies of MuJoCo as pieces of ours."""
        m, r = self.m, self.r
        rows, whole = [], []
        for b in range(m.nbody):
            R = r.bodies.R[b] @ rotation_of_quat(m.body_iquat[b])
            c, mass = r.center(b), float(m.body_mass[b])
            I = R @ np.diag(m.body_inertia[b]) @ R.T
            I = I + mass * (c @ c * np.eye(3) - np.outer(c, c))
            six = [I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]]
            rows.append([mass, *(mass * c), *six])
            index = int(r.bodies.index[b])
            whole.append(index >= 0 and mass > 0 and r.part_of_mass(b) == 1)
        bodies = tuple(int(x) for x in r.bodies.index)
        return Lumps(r.array(rows, m.nbody, 10), bodies, tuple(whole))
