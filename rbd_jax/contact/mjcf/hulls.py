"""Convex hulls of the meshes of a compiled MuJoCo model: their corners and flat faces."""

from typing import Any, NamedTuple

import numpy as np

CORNERS = 4
"""The most corners of a face that touch the ground."""


def faces_of(m: Any, geom: int) -> list[list[int]]:
    """The corners of each face of a mesh geom's convex hull, as numbers of the mesh's vertices."""
    mesh = int(m.geom_dataid[geom])
    start, base = int(m.mesh_polyadr[mesh]), 0
    faces = []
    for k in range(start, start + int(m.mesh_polynum[mesh])):
        at = base + int(m.mesh_polyvertadr[k])
        faces.append([int(x) for x in m.mesh_polyvert[at : at + int(m.mesh_polyvertnum[k])]])
    return faces


def flaw(m: Any, geom: int) -> str:
    """The reason why a mesh geom is not supported; empty if it is supported."""
    return "" if faces_of(m, geom) else "mesh without a convex hull"


class Hulls(NamedTuple):
    """The convex hulls of some geoms."""

    corners: np.ndarray
    faces: tuple
    rows: tuple[int, ...]
    polygons: tuple
    bend: np.ndarray


def hulls(m: Any, geoms: list[int]) -> Hulls:
    """Corners, the faces at each corner, and the row of each geom, −1 for one that is no mesh.

    Geoms with the same mesh share a row.

    Corners are ``(meshes, corners, 3)`` in the frames of the geoms (m), and faces are
    ``(meshes, corners, faces, 4)``: the corners of :func:`widest`. Shorter lists end with copies
    of their first corner or face. ``polygons`` has the corners of each face of each mesh, and
    ``bend`` what MuJoCo's normals of them, ``(meshes, faces, 3)``, have more than those of the
    first three corners, which have fewer digits.
    """
    corners, faces, rows, polygons, bend = [], [], [], [], []
    known: dict[int, int] = {}
    for g in geoms:
        if m.geom_dataid[g] < 0 or int(m.geom_type[g]) != 7:
            rows.append(-1)
            continue
        mesh = int(m.geom_dataid[g])
        if mesh in known:
            rows.append(known[mesh])
            continue
        rows.append(len(corners))
        known[mesh] = len(corners)
        own = faces_of(m, g)
        used = sorted({x for face in own for x in face})
        at = {x: k for k, x in enumerate(used)}
        start = int(m.mesh_vertadr[int(m.geom_dataid[g])])
        corners.append(np.asarray(m.mesh_vert, float)[start + np.array(used)])
        table: list[list[list[int]]] = [[] for _ in used]
        for face in own:
            for k, x in enumerate(face):
                ring = [at[y] for y in (*face[k:], *face[:k])]
                table[at[x]].append(widest(corners[-1], ring))
        faces.append(table)
        polygons.append(tuple(tuple(at[x] for x in face) for face in own))
        bend.append(_more_digits(m, mesh, corners[-1], polygons[-1]))
    n = max(map(len, corners), default=0)
    k = max((len(x) for table in faces for x in table), default=0)
    corners = [np.concatenate([x, np.repeat(x[:1], n - len(x), axis=0)]) for x in corners]
    tables = [[*table, *[table[0]] * (n - len(table))] for table in faces]
    frozen = tuple(
        tuple(tuple(map(tuple, [*x, *[x[0]] * (k - len(x))])) for x in table) for table in tables
    )
    every = np.array(corners).reshape(len(corners), n, 3)
    most = max(map(len, bend), default=0)
    bend = [np.concatenate([x, np.zeros((most - len(x), 3))]) for x in bend]
    more = np.array(bend).reshape(len(bend), most, 3)
    return Hulls(every, frozen, tuple(rows), tuple(polygons), more)


def _more_digits(m: Any, mesh: int, corners: np.ndarray, polygons: tuple) -> np.ndarray:
    """MuJoCo's normals of the faces minus those of their first three corners, where they differ."""
    start = int(m.mesh_polyadr[mesh])
    normal = np.asarray(m.mesh_polynormal, float)[start : start + len(polygons)]
    a, b, c = np.moveaxis(corners[np.array([x[:3] for x in polygons])], 1, 0)
    own = np.cross(b - a, c - a)
    length = np.linalg.norm(own, axis=1, keepdims=True)
    return np.where(length > 0, normal - own / np.where(length > 0, length, 1), 0)


def widest(corners: np.ndarray, ring: list[int]) -> list[int]:
    """Four corners of a face, the first of them given; a triangle has its first corner twice.

    Source: MuJoCo 4's collider of planes and meshes. It prunes a face to a wide quadrilateral that
    has the lowest corner: the other three move on along the ring as long as the area grows.
    """
    n = len(ring)
    if n <= CORNERS:
        return [*ring, *ring[:1] * (CORNERS - n)]
    place = corners[np.array(ring)]

    def area(b: int, c: int, d: int) -> float:
        return float(np.linalg.norm(np.cross(place[c] - place[0], place[d] - place[b])))

    at = [1, 2, 3]
    largest = area(*at)

    def advanced(k: int) -> bool:
        nonlocal largest
        new = [(x + 1) % n if i == k else x for i, x in enumerate(at)]
        if area(*new) <= largest:
            return False
        at[k], largest = new[k], area(*new)
        return True

    while advanced(2):
        for k in (1, 0):
            while advanced(k):
                pass
    return [ring[k] for k in (0, *at)]
