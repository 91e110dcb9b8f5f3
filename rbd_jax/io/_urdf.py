"""URDF to :class:`rbd_jax.RobotSpec`. Host side: NumPy and lxml, no JAX."""

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..model import JointSpec, LinkSpec, MimicSpec, RobotDescriptionWarning, RobotSpec
from ..spatial.host import rotation_of_rpy
from ._validate import check_tree
from ._xml import Source, fail, parse_xml

# URDF's joint types and Bullet's "spherical" -> the kinds of JointSpec
KIND_OF_TYPE = {
    "fixed": "fixed",
    "revolute": "revolute",
    "continuous": "continuous",
    "prismatic": "prismatic",
    "planar": "planar",
    "floating": "free",
    "spherical": "spherical",
}
_WITH_AXIS = ("revolute", "continuous", "prismatic", "planar")
_WITH_LIMITS = ("revolute", "continuous", "prismatic")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_EXPRESSION = re.compile(r"\$[({]")
_XACRO = "holds xacro that was not expanded; run `xacro file.urdf.xacro > robot.urdf` first"


def read_urdf(source: Source) -> RobotSpec:
    """Read a URDF into links and joints by name.

    What is read where readers differ:

    - Limits: a missing ``<limit>``, or one with neither ``lower`` nor ``upper``, means that there
      is no limit (as in MuJoCo; Pinocchio refuses or locks the joint). If one of the two is missing
      it is 0, as the URDF specification says. ``lower >= upper`` means no limit (as in Bullet and
      MuJoCo), and so does an ``effort`` or ``velocity`` that is not positive; a warning names the
      joints.
    - ``continuous`` is one angle without position limits; effort and velocity limits are kept.
      On planar, floating and ball joints ``<limit>`` is not read at all.
    - ``planar`` moves in the plane normal to its axis (as in MuJoCo; Pinocchio ignores the axis).
    - ``floating`` is a free joint, also inside the tree; Bullet's ``spherical`` is a ball.
    - ``<axis>`` is normalized. It is 1 0 0 where it is missing, and it is not read on joints that
      have no axis.
    - ``<inertial>``: if it is missing, the link has no mass. If ``<inertia>`` or components of it
      are missing, they are 0 and a warning names the links (as in Pinocchio; MuJoCo refuses).
      ``rpy`` is applied. An inertia without a mass is kept, as in Pinocchio and not in MuJoCo.
    - ``<dynamics>``: damping and friction are read, also on planar, floating and ball joints.
      Damping then counts in ``rnea``, ``aba`` and ``bias_torque``, unlike in Pinocchio's RNEA and
      ABA and in MuJoCo's ``qfrc_bias``. Friction does not count.
    - ``mimic`` on a fixed joint is ignored; on others kept in the joint, see ``load_urdf``.
    - The first of repeated elements counts, with a warning. ``xmlns=`` on the robot is fine.
    - Ignored: meshes (never opened), visual, collision, material, transmission, gazebo, sensor,
      safety_controller, calibration, non-standard attributes, elements with a prefix.

    Source: the URDF specification, http://wiki.ros.org/urdf/XML.

    Args:
        source: a path, an XML string, bytes or an open file. Units are SI, as URDF's.

    Raises:
        RobotDescriptionError: with file, line, element, what is wrong and what to do.
    """
    root, where = parse_xml(source)
    return _Reader(where).robot(root)


class _Reader:
    """Reads the elements of one file, and collects oddities to warn once of each kind."""

    def __init__(self, where: str):
        self.where = where
        self.odd: dict[str, list[str]] = {}
        self.lines: dict[tuple[str, str], list[int]] = {}

    def fail(self, element, text: str):
        name = element.get("name")
        label = f"<{element.tag.split('}')[-1]}" + (f" name={name!r}>" if name else ">")
        owner = element.getparent()
        if not name and owner is not None and owner.get("name"):
            label += f" of {owner.tag.split('}')[-1]} {owner.get('name')!r}"
        fail(f"{self.where}:{element.sourceline}", f"{label} {text}")

    def note(self, category: str, name: str) -> None:
        self.odd.setdefault(category, []).append(name)

    def robot(self, root) -> RobotSpec:
        tag = root.tag.split("}")[-1]
        if tag != "robot":
            self.fail(root, "is not a URDF: its root element must be <robot>")
        for element in root.iter("{*}*"):
            if element.prefix == "xacro" or "xacro" in (element.tag.split("}")[0].rsplit("/")[-1]):
                self.fail(element, _XACRO)
        links = tuple(self.link(x) for x in children(root, "link"))
        joints = tuple(self.joint(x) for x in children(root, "joint"))
        stem = Path(self.where).stem if not self.where.startswith("<") else "robot"
        spec = RobotSpec(root.get("name") or stem, links, joints)
        at = {k: f"{self.where}:{', '.join(map(str, v))}" for k, v in self.lines.items()}
        check_tree(spec, {("robot", ""): self.where} | at)
        for category, names in self.odd.items():
            warn(self.where, f"{category}: {shorten(names)}", stacklevel=5)
        return spec

    def name(self, element, attribute: str = "name") -> str:
        value = element.get(attribute)
        if not value or not value.strip():
            self.fail(element, f"has no {attribute} attribute; give it one")
        if _EXPRESSION.search(value):
            self.fail(element, f"{attribute}={value!r} {_XACRO}")
        return value

    def child(self, element, tag: str) -> Any:
        """The first child of this tag, or None."""
        found = children(element, tag)
        if len(found) > 1:
            around = [element, *element.iterancestors()]  # an inertial has no name, its link has
            name = next((e.get("name") for e in around if e.get("name")), "the robot")
            self.note(f"<{tag}> is repeated and its first occurrence used", name)
        return found[0] if found else None

    def vector(self, element, attribute: str, count: int) -> np.ndarray:
        words = element.get(attribute).split()
        if _EXPRESSION.search(element.get(attribute)):
            self.fail(element, f"{attribute}={element.get(attribute)!r} {_XACRO}")
        for word in words:
            if not _NUMBER.fullmatch(word) or not math.isfinite(float(word)):
                remedy = "write a finite decimal number, or leave a limit out for none"
                self.fail(element, f"{attribute}: {word!r} is not a number; {remedy}")
        if len(words) != count:
            plural = f"{count} numbers with blanks between" if count > 1 else "one number"
            self.fail(element, f"{attribute}={element.get(attribute)!r} must be {plural}")
        return np.array([float(w) for w in words])

    def number(self, element, attribute: str) -> float | None:
        if element is None or element.get(attribute) is None:
            return None
        return float(self.vector(element, attribute, 1)[0])

    def pose(self, element) -> tuple[np.ndarray, np.ndarray]:
        origin = self.child(element, "origin")
        xyz, rpy = np.zeros(3), np.zeros(3)
        if origin is not None and origin.get("xyz") is not None:
            xyz = self.vector(origin, "xyz", 3)
        if origin is not None and origin.get("rpy") is not None:
            rpy = self.vector(origin, "rpy", 3)
        return rotation_of_rpy(rpy), xyz

    def link(self, element) -> LinkSpec:
        name = self.name(element)
        self.lines.setdefault(("link", name), []).append(element.sourceline)
        inertial = self.child(element, "inertial")
        if inertial is None:
            return LinkSpec(name)
        R, com = self.pose(inertial)
        mass = self.number(self.child(inertial, "mass"), "value")
        if mass is None:
            self.fail(inertial, "has no <mass value='...'>; add it (kg)")
        if mass < 0:
            self.fail(inertial, f"has the negative mass {mass:g} kg; correct it")
        I = self.child(inertial, "inertia")
        found = {k: self.number(I, k) for k in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")}
        if None in found.values():
            self.note("links with components of <inertia> missing, read as 0", name)
        xx, xy, xz, yy, yz, zz = (x or 0.0 for x in found.values())
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        return LinkSpec(name, mass, com, R @ inertia @ R.T)

    def joint(self, element) -> JointSpec:
        name = self.name(element)
        self.lines.setdefault(("joint", name), []).append(element.sourceline)
        kind = KIND_OF_TYPE.get(self.name(element, "type"))
        if kind is None:
            known = ", ".join(KIND_OF_TYPE)
            self.fail(element, f"has the unknown type {element.get('type')!r}; known: {known}")
        ends = []
        for role in ("parent", "child"):
            end = self.child(element, role)
            if end is None:
                self.fail(element, f"has no <{role} link='...'>; name its {role} link")
            ends.append(self.name(end, "link"))
        R, p = self.pose(element)
        if kind == "fixed":
            return JointSpec(name, kind, *ends, R=R, p=p)
        return JointSpec(
            name, kind, *ends, R=R, p=p, axis=self.axis(element, kind), mimic=self.mimic(element),
            **self.limits(element, name, kind), **self.dynamics(element, name),
        )  # fmt: skip

    def axis(self, element, kind: str) -> np.ndarray:
        axis = self.child(element, "axis")
        if kind not in _WITH_AXIS or axis is None or axis.get("xyz") is None:
            return np.array([1.0, 0.0, 0.0])
        a = self.vector(axis, "xyz", 3)
        length = np.linalg.norm(a)
        return a / length if length > 1e-9 else np.zeros(3)

    def limits(self, element, name: str, kind: str) -> dict[str, float | None]:
        limit = self.child(element, "limit")
        if limit is None or kind not in _WITH_LIMITS:
            return {}
        keys = ("lower", "upper", "velocity", "effort")
        lower, upper, velocity, effort = (self.number(limit, k) for k in keys)
        if kind == "continuous":
            lower = upper = None
        if lower is not None or upper is not None:
            lower, upper = lower or 0.0, upper or 0.0
            if lower >= upper:
                self.note("joints with lower >= upper, read as no position limit", name)
                lower = upper = None
        if (velocity is not None and velocity <= 0) or (effort is not None and effort <= 0):
            self.note("joints whose velocity or effort limit is <= 0, read as none", name)
        velocity, effort = (None if x is not None and x <= 0 else x for x in (velocity, effort))
        return {"lower": lower, "upper": upper, "velocity": velocity, "effort": effort}

    def dynamics(self, element, name: str) -> dict[str, float]:
        dynamics = self.child(element, "dynamics")
        values = {k: self.number(dynamics, k) or 0.0 for k in ("damping", "friction")}
        if min(values.values()) < 0:
            self.note("joints with negative damping or friction, kept", name)
        return values

    def mimic(self, element) -> MimicSpec | None:
        mimic = self.child(element, "mimic")
        if mimic is None:
            return None
        multiplier, offset = self.number(mimic, "multiplier"), self.number(mimic, "offset")
        target = self.name(mimic, "joint")
        return MimicSpec(target, 1.0 if multiplier is None else multiplier, offset or 0.0)


def children(element, tag: str) -> list[Any]:
    """Children with this tag, in the default namespace or none: ``drake:tag`` is another tag."""
    return [x for x in element.iterchildren("{*}" + tag) if x.prefix is None]


def shorten(names: list[str], count: int = 8) -> str:
    """The first few of the names, and how many more there are."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(repr(n) for n in names[:count]) + more


def warn(where: str, text: str, stacklevel: int = 3) -> None:
    """Warn about a description that was read."""
    warnings.warn(f"{where}: {text}", RobotDescriptionWarning, stacklevel=stacklevel)
