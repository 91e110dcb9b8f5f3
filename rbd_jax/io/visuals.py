"""The shapes of a robot: ``<visual>`` and ``<collision>`` of a URDF. No mesh file is opened."""

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
from jaxtyping import Float

from ..model import RobotDescriptionWarning
from ..spatial.host import rotation_of_rpy
from ._urdf import children, shorten
from ._xml import Source, fail, parse_xml

Shape = Literal["box", "cylinder", "capsule", "sphere", "mesh"]
_SIZES = {"box": ("size",), "cylinder": ("radius", "length"), "sphere": ("radius",)}
_SIZES["capsule"] = _SIZES["cylinder"]


class Visual(NamedTuple):
    """One shape that is fixed to a frame of the robot (every link is a frame)."""

    frame: str
    R: Float[np.ndarray, "3 3"]
    """Rotation of the shape in the frame."""
    p: Float[np.ndarray, "3"]
    """Center of the shape in the frame (m)."""
    shape: Shape
    size: tuple[float, ...]
    """Box: lengths x, y, z. Cylinder, capsule: radius, length along z. Sphere: radius. All in m.
    Mesh: scale along x, y, z."""
    path: Path | None = None
    """The file of a mesh."""
    color: tuple[float, ...] | None = None
    """Red, green, blue and opacity in [0, 1]; None if the mesh decides."""


def read_visuals(source: Source, package_dirs: Iterable[str | os.PathLike] = ()) -> list[Visual]:
    """The visual shapes of a URDF, in the order of the file.

    A mesh is found by its path (relative to the URDF), or by ``package://NAME/...`` in
    ``package_dirs``, in the folders of ``ROS_PACKAGE_PATH`` and ``AMENT_PREFIX_PATH``, and in the
    folders above the URDF. Meshes that are not found are left out, with one warning that names
    them.

    Source: the URDF specification, http://wiki.ros.org/urdf/XML/link.

    Args:
        source: a path, an XML string, bytes or an open file.
        package_dirs: folders that contain packages.

    Raises:
        RobotDescriptionError: for XML that is not well formed, or numbers that are not numbers.
    """
    root, where = parse_xml(source)
    folder = Path(where).resolve().parent if not where.startswith("<") else None
    places = list(_places(package_dirs, folder))
    palette = {}
    for material in children(root, "material"):
        palette[material.get("name")] = _color(material, where)
    visuals, missing = [], []
    for link in children(root, "link"):
        for element in children(link, "visual"):
            found = _visual(element, link.get("name"), where, palette, folder, places)
            if isinstance(found, Visual):
                visuals.append(found)
            elif found is not None:
                missing.append(found)
    if missing:
        text = f"{where}: mesh files not found: {shorten(missing)}; give their package_dirs"
        warnings.warn(text, RobotDescriptionWarning, stacklevel=2)
    return visuals


def read_collisions(
    source: Source, package_dirs: Iterable[str | os.PathLike] = (), *, meshes: bool = False
) -> list[Visual]:
    """The shapes of the ``<collision>`` elements of a URDF, in the order of the file.

    Meshes are left out, with one warning that names their links, unless ``meshes`` asks for them.
    Arguments and errors as :func:`read_visuals`.
    """
    root, where = parse_xml(source)
    folder = Path(where).resolve().parent if meshes and not where.startswith("<") else None
    places = list(_places(package_dirs, folder)) if meshes else []
    shapes, missing = [], []
    for link in children(root, "link"):
        for element in children(link, "collision"):
            found = _visual(element, link.get("name"), where, {}, folder, places)
            if isinstance(found, Visual) and (meshes or found.shape != "mesh"):
                shapes.append(found)
            elif found is not None:
                missing.append(link.get("name"))
    if missing:
        text = f"{where}: collision meshes are left out, of the links {shorten(missing)}"
        warnings.warn(text, RobotDescriptionWarning, stacklevel=3)
    return shapes


def _visual(element, link: str, where: str, palette: dict, folder, places) -> Visual | str | None:
    """The visual; the name of its mesh if that is missing; None for a shape unknown to URDF."""
    geometry = next(iter(children(element, "geometry")), None)
    shapes = [] if geometry is None else [x for x in geometry.iterchildren("*") if not x.prefix]
    if not shapes:
        return None
    shape, kind = shapes[0], shapes[0].tag.split("}")[-1]
    origin = next(iter(children(element, "origin")), None)
    p = _numbers(origin, "xyz", where, (0.0, 0.0, 0.0))
    R = rotation_of_rpy(np.array(_numbers(origin, "rpy", where, (0.0, 0.0, 0.0))))
    color = None
    for material in children(element, "material"):
        color = _color(material, where) or palette.get(material.get("name"))
    pose = link, R, np.array(p)
    if kind in _SIZES:
        size = sum((_numbers(shape, name, where) for name in _SIZES[kind]), ())
        return Visual(*pose, kind, size, None, color)  # pyright: ignore[reportArgumentType]
    if kind != "mesh":
        return None
    name = shape.get("filename") or ""
    path = _find(name, folder, places)
    if path is None:
        return name
    return Visual(*pose, "mesh", _numbers(shape, "scale", where, (1.0, 1.0, 1.0)), path, color)


def _numbers(element: Any, attribute: str, where: str, default=None) -> tuple[float, ...]:
    text = getattr(element, "attrib", {}).get(attribute)  # there may be no element
    if text is None and default is not None:
        return default
    at, tag = f"{where}:{element.sourceline}", element.tag
    if text is None:
        fail(at, f"<{tag}> has no {attribute}; add it")
    wanted = 1 if attribute in ("radius", "length") else 4 if attribute == "rgba" else 3
    try:
        numbers = tuple(float(word) for word in text.split())
    except ValueError:
        numbers = ()
    if len(numbers) != wanted or not np.isfinite(numbers).all():
        many = "s" if wanted > 1 else ""
        fail(at, f"<{tag}> {attribute}={text!r} must be {wanted} finite number{many}")
    return numbers


def _color(material, where: str) -> tuple[float, ...] | None:
    element = next(iter(children(material, "color")), None)
    return None if element is None else _numbers(element, "rgba", where)


def _places(package_dirs: Iterable[str | os.PathLike], folder: Path | None) -> Iterator[Path]:
    """Folders that may hold a package, or be one."""
    yield from (Path(p).expanduser() for p in package_dirs)
    yield from map(Path, filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)))
    for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        yield Path(prefix, "share")
    if folder is not None:
        yield from (folder, *folder.parents)


def _find(name: str, folder: Path | None, places: list[Path]) -> Path | None:
    scheme, _, rest = name.rpartition("://")
    rest = unquote(rest) if scheme else rest
    candidates: list[Path] = []
    if scheme in ("package", "model"):
        package, _, inside = rest.partition("/")
        for place in places:
            candidates.append(place / package / inside)
            if place.name == package:
                candidates.append(place / inside)
    elif scheme == "file" or Path(rest).is_absolute():
        candidates.append(Path(rest))
    elif not scheme and folder is not None:
        candidates.append(folder / rest)
    return next((p for p in candidates if p.is_file()), None)
