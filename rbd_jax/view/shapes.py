"""Triangles of a robot's bodies: its visual shapes, or a skeleton drawn from its kinematics."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..contact import Shapes
from ..io.visuals import Visual
from ..model import Model, RobotDescriptionWarning
from ..spatial import inertia
from .skeleton import sticks

GRAY, BLUE, INK = (178, 184, 196), (52, 98, 200), (70, 80, 100)
STONE = (196, 200, 208)
TREES = ((96, 134, 206), (236, 138, 72), (74, 166, 140), (168, 120, 196))
_REMEDY = 'view needs trimesh and viser; run: pip install "rbd-jax[view]"'


class Part(NamedTuple):
    """Triangles of one color that are fixed to a body (−1: the world)."""

    body: int
    vertices: Float[np.ndarray, "n 3"]
    """In the frame of the body (m)."""
    faces: Int[np.ndarray, "m 3"]
    color: tuple[int, int, int]
    opacity: float = 1.0


def _trimesh():
    try:
        import trimesh
    except ImportError as error:
        raise ImportError(_REMEDY) from error
    return trimesh


def parts_of_visuals(model: Model, visuals: Iterable[Visual]) -> list[Part]:
    """The visual shapes as triangles in the frames of the bodies, one part a body and color.

    Mesh files that cannot be read are left out, with one warning that names them.

    Raises:
        KeyError: for a visual on a frame that the robot does not have.
    """
    pieces: dict[tuple, list] = {}
    frame_R, frame_p = np.asarray(model.frame_R, float), np.asarray(model.frame_p, float)
    unread = {}
    for visual in visuals:
        k = model.topology.frame_index(visual.frame)
        R = frame_R[k] @ visual.R
        p = frame_R[k] @ visual.p + frame_p[k]
        try:
            meshes = _triangles(visual)
        except ImportError:
            raise
        except Exception as error:  # whatever a reader of some format raises for a broken file
            unread[visual.path] = f"{type(error).__name__}: {error}"
            continue
        for vertices, faces, color in meshes:
            key = model.topology.frame_bodies[k], *color
            pieces.setdefault(key, []).append((vertices @ R.T + p, faces))
    if unread:
        first, reason = next(iter(unread.items()))
        text = f"{len(unread)} mesh files cannot be read, the first is {first} ({reason})"
        warnings.warn(text, RobotDescriptionWarning, stacklevel=2)
    return [Part(b, *_join(some), (r, g, c), a) for (b, r, g, c, a), some in pieces.items()]


def parts_of_shapes(model: Model, shapes: Shapes) -> list[Part]:
    """The contact shapes of a scene as triangles in the frames of the bodies; planes are left out.

    What stands in the world is gray, and each tree of bodies has a color of its own.
    """
    trimesh, parts, topology = _trimesh(), [], model.topology
    R, p, sizes = (np.asarray(x, float) for x in (shapes.R, shapes.p, shapes.size))
    roots = [b for b in range(model.nb) if topology.parents[b] < 0]
    for k, (kind, body) in enumerate(zip(shapes.kinds, shapes.bodies, strict=True)):
        if kind == "plane":
            continue
        size = sizes[k]
        if kind == "box":
            mesh = trimesh.creation.box(extents=2 * size)
        elif kind == "capsule":
            mesh = trimesh.creation.capsule(height=2 * size[1], radius=size[0])
        elif kind == "cylinder":
            mesh = trimesh.creation.cylinder(size[0], 2 * size[1], sections=32)
        elif kind == "mesh":
            corners = np.asarray(shapes.corners[shapes.hulls[k]], float)
            mesh = trimesh.convex.convex_hull(corners)
        else:  # a sphere or an ellipsoid
            mesh = trimesh.creation.icosphere(subdivisions=3)
            mesh.vertices *= size if kind == "ellipsoid" else size[0]
        root = body
        while root >= 0 and topology.parents[root] >= 0:
            root = topology.parents[root]
        color = STONE if root < 0 else TREES[roots.index(root) % len(TREES)]
        parts.append(Part(body, mesh.vertices @ R[k].T + p[k], np.asarray(mesh.faces), color))
    return parts


def skeleton(model: Model) -> list[Part]:
    """Sticks between the joints, and for each heavy body the box that has the same inertia."""
    creation = _trimesh().creation
    lines, parts = sticks(model), []
    rows = np.asarray(model.inertia, float)
    central = np.asarray(inertia.inertia_com(model.inertia), float)
    reach = np.linalg.norm(lines.ends[:, 1], axis=1) if len(lines.body) else np.zeros(0)
    unit = float(np.median(reach[reach > 1e-6])) if (reach > 1e-6).any() else 0.2
    for body in range(model.nb):
        some = []
        for k in np.flatnonzero(lines.body == body):
            radius = unit * (0.02 + 0.05 * lines.weight[k])
            some.append(creation.icosphere(subdivisions=2, radius=1.4 * radius))
            if reach[k] > 1e-6:
                some.append(creation.cylinder(radius, segment=lines.ends[k], sections=16))
        parts.append(Part(body, *_join([(m.vertices, m.faces) for m in some]), INK))
        box = _equal_box(rows[body], central[body])
        if box is not None:
            parts.append(Part(body, *box, BLUE if model.topology.parents[body] < 0 else GRAY, 0.75))
    return parts


def _equal_box(row: np.ndarray, central: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The uniform box with the inertia of a body; None if there is none, as for a point mass."""
    mass = row[0]
    if mass <= 0:
        return None
    moments, axes = np.linalg.eigh(central)
    squares = 6 / mass * (moments.sum() - 2 * moments)  # Ixx = m (y² + z²) / 12 for a box
    if squares.max() < 1e-8 or squares.min() < -1e-3 * squares.max():
        return None
    size = np.sqrt(np.maximum(squares, 1e-4 * squares.max()))
    box = _trimesh().creation.box(extents=size)
    axes = axes * np.linalg.det(axes)
    return box.vertices @ axes.T + row[1:4] / mass, np.asarray(box.faces)


def _triangles(visual: Visual) -> list[tuple[np.ndarray, np.ndarray, tuple]]:
    """Vertices in the frame of the visual, faces, and (r, g, b, opacity) of each of its meshes."""
    trimesh, size = _trimesh(), visual.size
    if visual.shape == "mesh":
        loaded = trimesh.load_scene(visual.path)
        scale = np.array(size) * _meters(trimesh, loaded)
        meshes = loaded.dump()
    else:
        scale = np.ones(3)
        create = {
            "box": lambda: trimesh.creation.box(extents=size),
            "cylinder": lambda: trimesh.creation.cylinder(*size, sections=32),
            "capsule": lambda: trimesh.creation.capsule(height=size[1], radius=size[0]),
            "sphere": lambda: trimesh.creation.icosphere(subdivisions=3, radius=size[0]),
        }
        meshes = [create[visual.shape]()]
    found = []
    for mesh in meshes:
        if not isinstance(mesh, trimesh.Trimesh) or len(mesh.faces) == 0:
            continue  # lines and points
        faces = mesh.faces if np.prod(scale) > 0 else mesh.faces[:, ::-1]
        found.append((mesh.vertices * scale, np.asarray(faces), _color(visual, mesh)))
    return found


def _meters(trimesh, scene) -> float:
    """The length of a mesh file's unit; only COLLADA files say one."""
    units = {mesh.units for mesh in scene.geometry.values()} - {None}
    return trimesh.units.unit_conversion(units.pop(), "meters") if len(units) == 1 else 1.0


def _color(visual: Visual, mesh) -> tuple[int, int, int, float]:
    if visual.color is not None:
        r, g, b, a = (min(max(x, 0.0), 1.0) for x in visual.color)
        return round(255 * r), round(255 * g), round(255 * b), round(a, 2)
    if not mesh.visual.defined:
        return (*GRAY, 1.0)
    of_mesh = mesh.visual.material if mesh.visual.kind == "texture" else mesh.visual
    r, g, b, a = (int(x) for x in of_mesh.main_color)
    return r, g, b, round(a / 255, 2) or 1.0


def _join(pieces: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *(len(v) for v, _ in pieces)])[:-1]
    faces = [np.asarray(f) + k for (_, f), k in zip(pieces, starts, strict=True)]
    if not pieces:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    return np.concatenate([v for v, _ in pieces]), np.concatenate(faces)
