"""Back to URDF: the parameters of a model written into the description it was loaded from."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from ..model import CoordinateModel, Model, with_mimics
from ..spatial import host
from ._build import ROOT_JOINT, build_model
from ._urdf import children, read_urdf, shorten, warn
from ._xml import Source, parse_xml, read_source

_TINY = 1e-12  # relative change below which a number of the file is left as it is written
_DECLARATION = re.compile(r"^\s*<\?xml.*?\?>", re.DOTALL)


def export_urdf(model: Model, source: Source, path: str | Path | None = None) -> str:
    """The URDF ``source`` with the inertias, origins, axes, damping and friction of ``model``.

    Everything else in the file stays as it is, and so do numbers that have not changed. A body may
    consist of several links on fixed joints. Where its inertia has changed, its main link takes all
    of it and the other links lose their ``<inertial>``. The inertias then add up as the model says,
    and the inertia of the main link is physically consistent if that of the body is. Frames of
    links behind fixed joints are written as the origins of those joints.

    Args:
        model: the robot, with float64 leaves if the file is to be exact.
        source: the URDF that it was loaded from.
        path: where to write it; nowhere if None.

    Returns:
        The text of the URDF.

    Raises:
        ValueError: if the file describes another robot (names of robots are not compared), or if a
            change cannot be written as URDF. Changes of limits, and of armature, pitch and gravity,
            for which URDF has no place, are not written; a warning says so.
    """
    text, where = read_source(source)
    spec = read_urdf(text)
    own_root = any(j.name == ROOT_JOINT for j in spec.joints)
    floating = model.joint_names[:1] == (ROOT_JOINT,) and not own_root
    nominal = build_model(spec, floating_base=floating, dtype=model.dtype)
    ours, theirs = (replace(m.topology, name="") for m in (model, nominal))
    differ = [f.name for f in fields(ours) if getattr(ours, f.name) != getattr(theirs, f.name)]
    if differ:
        raise ValueError(
            f"export_urdf: {where} describes {nominal.topology}, the model is {model.topology}, "
            f"with other {', '.join(differ)}; give the file that the model was loaded from"
        )
    if isinstance(model, CoordinateModel):
        nominal = with_mimics(nominal)
        laws = eqx.tree_equal(getattr(nominal, "laws", ()), model.laws, typematch=True, rtol=1e-6)
        if nominal.space != model.space or not laws:
            warn(where, "the laws of driven joints are not written; edit <mimic> in the file")
            nominal, model = getattr(nominal, "robot", nominal), model.robot
    try:
        root = etree.fromstring(_DECLARATION.sub("", text).encode())
    except etree.XMLSyntaxError:
        root, _ = parse_xml(text)  # forgives more, but drops comments
    writer = _Writer(root, nominal, model)
    for name in ("armature", "pitch", "gravity"):
        if writer.changed(*(np.asarray(getattr(m, name)) for m in (nominal, model))):
            warn(where, f"URDF has no place for {name}; its change is not written")
    for name in ("position_lower", "position_upper", "velocity_limit", "effort_limit"):
        limits = (np.asarray(getattr(m, name)) for m in (nominal, model))
        if not np.allclose(*limits, rtol=writer.rounding, atol=0):
            warn(where, f"the change of {name} is not written; edit <limit> in the file")
    writer.check_frames()
    writer.links()
    writer.joints()
    out = '<?xml version="1.0"?>\n' + etree.tostring(root.getroottree(), encoding="unicode") + "\n"
    if path is not None:
        Path(path).write_text(out, encoding="utf-8")
    return out


class _Writer:
    """The XML, and the model before and after."""

    def __init__(self, root, nominal: Model, model: Model):
        self.root, self.nominal, self.model = root, nominal, model
        self.topology = model.topology
        self.rounding = _TINY if model.dtype == jnp.float64 else 1e-6

    def changed(self, old: np.ndarray, new: np.ndarray) -> bool:
        scale = max(float(np.abs(old).max(initial=0)), 1e-9)
        return bool(np.abs(new - old).max(initial=0) > self.rounding * scale)

    def check_frames(self) -> None:
        """Refuse moved frames that URDF ties to their link: all but those behind fixed joints."""
        fixed = [x for x in children(self.root, "joint") if x.get("type") == "fixed"]
        behind = {children(x, "child")[0].get("link") for x in fixed}
        for row, link in enumerate(self.topology.frame_names):
            poses = (self._pose(m, "frame", row) for m in (self.nominal, self.model))
            if link not in behind and self.changed(*poses):
                raise ValueError(
                    f"export_urdf: the frame of link {link!r} has moved. In URDF it is the frame "
                    "of its body, and only frames behind fixed joints can move; change "
                    "model.placement_p and placement_R of its joint, or add a link on a fixed joint"
                )

    def links(self) -> None:
        elements = {x.get("name"): x for x in children(self.root, "link")}
        frames = list(zip(self.topology.frame_names, self.topology.frame_bodies, strict=True))
        for i, body in enumerate(self.topology.body_names):
            old, new = (np.asarray(m.inertia[i], dtype=float) for m in (self.nominal, self.model))
            own = [name for name, of in frames if of == i]
            if not self.changed(old, new) and not any(self._mass_moved(elements, f) for f in own):
                continue
            if body not in elements:
                raise ValueError(
                    f"export_urdf: body {body!r} is a massless part of a joint; URDF has no link "
                    "that could take its inertia"
                )
            for link in own:
                for inertial in children(elements[link], "inertial"):
                    elements[link].remove(inertial)
            if new[0] <= 0 and new[1:4].any():
                raise ValueError(
                    f"export_urdf: body {body!r} has the mass {new[0]} and the first moment "
                    f"{new[1:4]}; without a mass there is no center of mass: change model.inertia"
                )
            _write_inertial(elements[body], new)

    def _mass_moved(self, elements: dict, link: str) -> bool:
        """Whether a link that has an inertia stands elsewhere on its body than in the file."""
        if link not in elements or not children(elements[link], "inertial"):
            return False
        row = self.topology.frame_index(link)
        poses = (self._pose(m, "frame", row) for m in (self.nominal, self.model))
        return self.changed(*poses)

    def joints(self) -> None:
        uneven = []
        for element in children(self.root, "joint"):
            name = element.get("name")
            old, new = (self._origin(m, element) for m in (self.nominal, self.model))
            if self.changed(old, new):
                origin = _child(element, "origin")
                origin.set("xyz", _numbers(new[:3, 3]))
                origin.set("rpy", _numbers(host.rpy_of_rotation(new[:3, :3])))
            if element.get("type") == "fixed":
                continue
            first, last = self.topology._joint_range(name)
            axes = [np.asarray(m.axis[first:last], dtype=float) for m in (self.nominal, self.model)]
            if self.changed(*axes):
                if last - first > 1:
                    raise ValueError(f"export_urdf: the axes of joint {name!r} have changed; its "
                                     "kind has no axis of its own in URDF")  # fmt: skip
                axis = axes[1][0] / np.linalg.norm(axes[1][0])
                _child(element, "axis").set("xyz", _numbers(axis))
            dofs = self.topology.v_slice(name)
            for what in ("damping", "friction"):
                old, new = (np.asarray(getattr(m, what)[dofs], dtype=float)
                            for m in (self.nominal, self.model))  # fmt: skip
                if self.changed(old, new):
                    _child(element, "dynamics").set(what, repr(float(new.mean())))
                    if self.changed(new, np.full_like(new, new.mean())):
                        uneven.append(name)
        if uneven:
            warn("export_urdf", f"joints that have one damping and friction in URDF, for which the "
                 f"mean of their several is written: {shorten(uneven)}")  # fmt: skip

    def _origin(self, model: Model, element) -> np.ndarray:
        """Pose of a joint in its parent link's frame."""
        ends = [children(element, role)[0].get("link") for role in ("parent", "child")]
        parent = self._pose(model, "frame", self.topology.frame_index(ends[0]))
        if element.get("type") == "fixed":
            child = self._pose(model, "frame", self.topology.frame_index(ends[1]))
        else:
            first, _ = self.topology._joint_range(element.get("name"))
            child = self._pose(model, "placement", first)
        return np.linalg.solve(parent, child)

    @staticmethod
    def _pose(model: Model, leaf: str, row: int) -> np.ndarray:
        R, p = (np.asarray(getattr(model, f"{leaf}_{x}")[row], dtype=float) for x in "Rp")
        return host.pose(R, p)


def _child(element, tag: str) -> Any:
    """The first child of this tag, made at the end if there is none."""
    found = children(element, tag)
    if found:
        return found[0]
    space = re.match(r"\{.*\}", element.tag)
    new = etree.SubElement(element, (space.group() if space else "") + tag)
    new.tail = "\n"
    return new


def _write_inertial(link, I10: np.ndarray) -> None:
    m = I10[0]
    com = I10[1:4] / m if m > 0 else np.zeros(3)
    J = host.central_inertia(host.pseudo_of_ten(I10))
    inertial = _child(link, "inertial")
    origin = _child(inertial, "origin")
    origin.set("xyz", _numbers(com))
    origin.set("rpy", "0 0 0")
    _child(inertial, "mass").set("value", repr(float(m)))
    element = _child(inertial, "inertia")
    for name, (i, j) in {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1),
                         "iyz": (1, 2), "izz": (2, 2)}.items():  # fmt: skip
        element.set(name, repr(float(J[i, j])))


def _numbers(x: np.ndarray) -> str:
    return " ".join(repr(float(v)) for v in x)
