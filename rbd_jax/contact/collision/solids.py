"""Contact shapes at frames of a robot, by hand or from the ``<collision>`` of a URDF."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...io.visuals import read_collisions

SIZES = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3, "mesh": 0}
"""How many numbers the size of a shape has, see :mod:`rbd_jax.contact.collision.ground`."""


class Solid(NamedTuple):
    """A shape at a frame of a robot. ``size`` is MuJoCo's (m), see :data:`SIZES`."""

    frame: str
    kind: str
    size: tuple[float, ...]
    R: np.ndarray = np.eye(3)
    p: np.ndarray = np.zeros(3)
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
