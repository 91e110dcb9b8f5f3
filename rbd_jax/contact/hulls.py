"""Convex hulls of the meshes of a compiled MuJoCo model: their corners and flat faces."""

from typing import Any

import numpy as np

CORNERS = 4
"""Most corners of a face that contact takes; MuJoCo itself chooses four of more."""


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
    """Why a mesh geom is not supported, or nothing."""
    faces = faces_of(m, geom)
    if not faces:
        return "mesh without a convex hull"
    most = max(map(len, faces))
    return f"mesh with a face of {most} corners, at most {CORNERS}" if most > CORNERS else ""


def hulls(m: Any, geoms: list[int]) -> tuple[np.ndarray, tuple, tuple[int, ...]]:
    """Corners, faces, and the row of each geom, −1 for one that is no mesh.

    Corners are ``(meshes, corners, 3)`` in the frames of the geoms (m); shorter lists end with
    copies of their first corner or face, and a triangle is a face with its first corner twice.
    """
    corners, faces, rows = [], [], []
    for g in geoms:
        if m.geom_dataid[g] < 0 or int(m.geom_type[g]) != 7:
            rows.append(-1)
            continue
        rows.append(len(corners))
        own = faces_of(m, g)
        used = sorted({x for face in own for x in face})
        at = {x: k for k, x in enumerate(used)}
        start = int(m.mesh_vertadr[int(m.geom_dataid[g])])
        corners.append(np.asarray(m.mesh_vert, float)[start + np.array(used)])
        faces.append(
            [[at[x] for x in face] + [at[face[0]]] * (CORNERS - len(face)) for face in own]
        )
    n = max(map(len, corners), default=0)
    k = max(map(len, faces), default=0)
    corners = [np.concatenate([x, np.repeat(x[:1], n - len(x), axis=0)]) for x in corners]
    tables = [[*x, *[x[0]] * (k - len(x))] for x in faces]
    frozen = tuple(tuple(tuple(f) for f in x) for x in tables)
    return np.array(corners).reshape(len(corners), n, 3), frozen, tuple(rows)
