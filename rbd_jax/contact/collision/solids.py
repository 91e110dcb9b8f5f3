"""Contact shapes at frames of a robot, by hand or from the ``<collision>`` of a URDF."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...io.visuals import read_collisions
from ...model import Model
from ...spatial import so3
from .hulls import Hull, convex_hull, tables
from .shapes import Shapes

SIZES = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3, "mesh": 0}
"""How many numbers the size of a shape has, see :mod:`rbd_jax.contact.collision.ground`."""


class Solid(NamedTuple):
    """A shape at a frame of a robot. ``size`` is MuJoCo's (m), see :data:`SIZES`."""

    frame: str
    kind: str
    size: tuple[float | Array, ...]
    R: np.ndarray | Array = np.eye(3)
    p: np.ndarray | Array = np.zeros(3)
    name: str = ""
    """The name of the shape; if it is empty, the frame's name."""
    vertices: Float[np.ndarray, "n 3"] | None = None
    """Points whose convex hull is the shape, if its kind is ``mesh`` (m)."""


def points(frames: Sequence[str], radius: float = 0.0) -> list[Solid]:
    """Contact points at the origins of frames, as spheres of a radius (m), zero by default."""
    return [Solid(frame, "sphere", (radius,)) for frame in frames]


def corners(frame: str, vertices: Float[np.ndarray, "n 3"], name: str = "") -> list[Solid]:
    """A convex body by its corners in a frame (m), each of which is a contact point."""
    name, at = name or frame, np.asarray(vertices, float).reshape(-1, 3)
    return [Solid(frame, "sphere", (0.0,), p=x, name=f"{name}:{k}") for k, x in enumerate(at)]


def hull(frame: str, vertices: Float[np.ndarray, "n 3"], name: str = "") -> Solid:
    """A convex body by points in a frame (m), whose convex hull it is."""
    at = np.asarray(vertices, float).reshape(-1, 3)
    return Solid(frame, "mesh", (), name=name, vertices=at)


def solids_of(
    urdf, *, hulls: bool = False, package_dirs: Iterable[str | os.PathLike] = ()
) -> list[Solid]:
    """The shapes of the ``<collision>`` elements of a URDF: spheres, boxes, cylinders, capsules.

    Meshes are left out with a warning that names their links, unless ``hulls`` asks for their
    convex hulls. A mesh that is not convex needs a decomposition, such as that of ``coacd``, whose
    parts are given by :func:`hull`.

    Args:
        urdf: a path, an XML string, bytes or an open file.
        hulls: whether a mesh becomes its convex hull. Needs trimesh.
        package_dirs: folders that contain packages, see :func:`rbd_jax.io.read_visuals`.

    Raises:
        RobotDescriptionError: for XML that is not well formed, or numbers that are not numbers.
        ImportError: without trimesh, if there are meshes to read.
    """
    found, count = [], {}
    for x in read_collisions(urdf, package_dirs, meshes=hulls):
        k = count[x.frame] = count.get(x.frame, -1) + 1
        if x.path is not None:
            name = f"{x.frame}:{k}" if k else x.frame
            found.append(Solid(x.frame, "mesh", (), x.R, x.p, name, _vertices(x.path, x.size)))
            continue
        half = {"box": tuple(0.5 * s for s in x.size), "sphere": x.size}
        size = half.get(x.shape) or (x.size[0], 0.5 * x.size[1])
        found.append(Solid(x.frame, x.shape, size, x.R, x.p, f"{x.frame}:{k}" if k else x.frame))
    return found


def _vertices(path: Path, scale: tuple[float, ...]) -> np.ndarray:
    """The vertices of a mesh file, scaled (m)."""
    try:
        import trimesh
    except ImportError as error:
        raise ImportError(
            "solids_of: hulls of meshes need trimesh; install it with pip install trimesh"
        ) from error
    mesh: Any = trimesh.load(path, force="mesh")
    return np.asarray(mesh.vertices, float) * np.array(scale)


def shapes_at(
    who: str, model: Model, solids: Sequence[Solid], fixed: Sequence[Solid] = ()
) -> Shapes:
    """Solids as shapes: first those that stand in the world, which may be planes, then the others.

    Args:
        who: the name of the function for its messages.
        model: the robot. solids: shapes at its frames. Poses and sizes may be traced.
        fixed: shapes in the world, whose frame does not matter.

    Raises:
        ValueError: for two solids of one name, an unknown kind, or a size of another length.
        KeyError: for an unknown frame.
    """
    every = [*fixed, *solids]
    names = tuple(x.name or x.frame for x in every)
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{who}: two solids are named {twice!r}; give them a name each")
    for k, (name, x) in enumerate(zip(names, every, strict=True)):
        kinds = SIZES | ({"plane": 0} if k < len(fixed) else {})
        if x.kind not in kinds:
            raise ValueError(
                f"{who}: solid {name!r} has the kind {x.kind!r}, expected one of "
                f"{', '.join(kinds)}; a convex body is given by its corners()"
            )
        wrong = any(isinstance(s, int | float | np.number) and not s >= 0 for s in x.size)
        if len(x.size) != kinds[x.kind] or wrong:
            raise ValueError(
                f"{who}: solid {name!r} has the size {x.size}, but a {x.kind} has "
                f"{kinds[x.kind]} numbers, none negative (m)"
            )
    topology = model.topology
    R, p, bodies = [], [], []
    for k, x in enumerate(every):
        own_R, own_p = jnp.asarray(x.R, model.dtype), jnp.asarray(x.p, model.dtype)
        body = -1
        if k >= len(fixed):
            at = topology.frame_index(x.frame)
            body, of_frame = topology.frame_bodies[at], model.frame_R[at]
            own_p = so3.rotate(of_frame, own_p) + model.frame_p[at]
            own_R = so3.matmul(of_frame, own_R)
        R.append(own_R)
        p.append(own_p)
        bodies.append(body)
    size = [jnp.stack([jnp.asarray(s, model.dtype) for s in (*x.size, 0, 0, 0)[:3]]) for x in every]
    meshes = [k for k, x in enumerate(every) if x.kind == "mesh"]
    hulls = tables([_hull(who, every[k]) for k in meshes])
    rows = {k: row for row, k in enumerate(meshes)}
    return Shapes(
        R=jnp.stack(R),
        p=jnp.stack(p),
        size=jnp.stack(size),
        corners=jnp.array(hulls.corners, model.dtype),
        kinds=tuple(x.kind for x in every),
        bodies=tuple(bodies),
        parts=tuple(bodies),
        names=names,
        faces=hulls.faces,
        hulls=tuple(rows.get(k, -1) for k in range(len(every))),
        polygons=hulls.polygons,
    )


def _hull(who: str, x: Solid) -> Hull:
    """The convex hull of a solid that is a mesh."""
    if x.vertices is None:
        raise ValueError(
            f"{who}: solid {x.name or x.frame!r} is a mesh without vertices; make it with hull()"
        )
    try:
        return convex_hull(x.vertices)
    except ValueError as error:
        raise ValueError(
            f"{who}: solid {x.name or x.frame!r} has no convex hull: {error}"
        ) from error
