"""Convex hulls of the meshes of a compiled MuJoCo model: their corners and flat faces."""

from typing import Any, NamedTuple

import numpy as np

from ..collision.hulls import Hull, Tables, tables


def faces_of(m: Any, geom: int) -> list[list[int]]:
    """The corners of each face of a mesh geom's convex hull, as numbers of the mesh's vertices."""
    mesh = int(m.geom_dataid[geom])
    start, base = int(m.mesh_polyadr[mesh]), 0
    faces = []
    for k in range(start, start + int(m.mesh_polynum[mesh])):
        at = base + int(m.mesh_polyvertadr[k])
        faces.append([int(x) for x in m.mesh_polyvert[at : at + int(m.mesh_polyvertnum[k])]])
    return faces


def vertices_of(m: Any, geom: int) -> list[int]:
    """The corners of a mesh geom's convex hull, as numbers of the mesh's vertices.

    MuJoCo joins triangles that are nearly in a plane to one face. A corner in the middle of such a
    face is a corner of no face, and still touches first.
    """
    mesh = int(m.geom_dataid[geom])
    at = int(m.mesh_graphadr[mesh])
    of_faces = {x for face in faces_of(m, geom) for x in face}
    if at < 0:
        return sorted(of_faces)
    count = int(m.mesh_graph[at])
    first = at + 2 + count  # behind the two counts and the addresses of edges
    return sorted(of_faces | {int(x) for x in m.mesh_graph[first : first + count]})


def flaw(m: Any, geom: int) -> str:
    """The reason why a mesh geom is not supported; empty if it is supported."""
    return "" if faces_of(m, geom) else "mesh without a convex hull"


class Hulls(NamedTuple):
    """The convex hulls of some geoms."""

    tables: Tables
    rows: tuple[int, ...]
    """The hull of each geom, −1 for one that is no mesh."""
    bend: np.ndarray
    """What MuJoCo's normals of the faces have more than those of the first three corners, which
    have fewer digits, ``(hulls, faces, 3)``."""


def hulls(m: Any, geoms: list[int]) -> Hulls:
    """The convex hulls of mesh geoms, in the frames of the geoms (m); one for each mesh."""
    found, rows, bend = [], [], []
    known: dict[int, int] = {}
    for g in geoms:
        mesh = int(m.geom_dataid[g])
        if mesh < 0 or int(m.geom_type[g]) != 7:
            rows.append(-1)
            continue
        if mesh not in known:
            known[mesh] = len(found)
            own, used = faces_of(m, g), vertices_of(m, g)
            at = {x: k for k, x in enumerate(used)}
            corners = np.asarray(m.mesh_vert, float)[int(m.mesh_vertadr[mesh]) + np.array(used)]
            found.append(Hull(corners, [[at[x] for x in face] for face in own]))
            bend.append(_more_digits(m, mesh, found[-1]))
        rows.append(known[mesh])
    most = max(map(len, bend), default=0)
    bend = [np.concatenate([x, np.zeros((most - len(x), 3))]) for x in bend]
    return Hulls(tables(found), tuple(rows), np.array(bend).reshape(len(bend), most, 3))


def _more_digits(m: Any, mesh: int, hull: Hull) -> np.ndarray:
    """MuJoCo's normals of the faces minus those of their first three corners, where they differ."""
    start = int(m.mesh_polyadr[mesh])
    normal = np.asarray(m.mesh_polynormal, float)[start : start + len(hull.faces)]
    a, b, c = np.moveaxis(hull.corners[np.array([x[:3] for x in hull.faces])], 1, 0)
    own = np.cross(b - a, c - a)
    length = np.linalg.norm(own, axis=1, keepdims=True)
    return np.where(length > 0, normal - own / np.where(length > 0, length, 1), 0)
