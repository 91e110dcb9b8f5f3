"""Convex hulls: corners and flat faces, as the tables that collisions use."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

CORNERS = 4
"""The most corners of a face that touch the ground."""
FLAT = 1e-9
"""Triangles whose normals differ by less are one face."""


class Hull(NamedTuple):
    """A convex polytope."""

    corners: Float[np.ndarray, "n 3"]
    faces: list[list[int]]
    """The corners of each face, counterclockwise if seen from outside."""


class Tables(NamedTuple):
    """The corners and faces of some hulls, see :class:`rbd_jax.contact.Shapes`."""

    corners: Float[np.ndarray, "nm k 3"]
    faces: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    polygons: tuple[tuple[tuple[int, ...], ...], ...]


def convex_hull(points: Float[np.ndarray, "n 3"]) -> Hull:
    """The convex hull of points, with triangles of one plane joined to one face.

    Source: SciPy's interface to Qhull.

    Raises:
        ValueError: if the points lie in a plane, or are not finite.
    """
    from scipy.spatial import ConvexHull, QhullError

    points = np.asarray(points, float).reshape(-1, 3)
    if not np.isfinite(points).all():
        raise ValueError("convex_hull: the points are not finite")
    try:
        found = ConvexHull(points)
    except (QhullError, ValueError) as error:
        raise ValueError("convex_hull: the points span no volume") from error
    planes, label = found.equations, -np.ones(len(found.simplices), int)
    spread = np.ptp(points, axis=0).max()
    for k in range(len(label)):
        if label[k] >= 0:
            continue
        label[k], heap = k, [k]
        while heap:
            for j in found.neighbors[heap.pop()]:
                turned = np.abs(planes[j, :3] - planes[k, :3]).max() < np.sqrt(FLAT)
                shifted = abs(planes[j, 3] - planes[k, 3]) < np.sqrt(FLAT) * spread
                if label[j] < 0 and turned and shifted:
                    label[j] = k
                    heap.append(int(j))
    used = np.unique(found.simplices)
    at = {int(x): k for k, x in enumerate(used)}
    corners, faces = points[used], []
    for k in np.unique(label):
        own = np.unique(found.simplices[label == k])
        middle, normal = points[own].mean(axis=0), planes[k, :3]
        first = points[own[0]] - middle
        second = np.cross(normal, first)
        angle = np.arctan2((points[own] - middle) @ second, (points[own] - middle) @ first)
        faces.append([at[int(x)] for x in own[np.argsort(angle)]])
    return Hull(corners, faces)


def tables(hulls: Sequence[Hull]) -> Tables:
    """Corners, the faces at each corner, and the polygons of some hulls.

    Corners are ``(hulls, corners, 3)``, and faces are ``(hulls, corners, faces, 4)``: the corners
    of :func:`widest`. Shorter lists end with copies of their first corner or face. A corner of no
    face has one that is this corner alone.
    """
    faces = []
    for hull in hulls:
        table: list[list[list[int]]] = [[] for _ in hull.corners]
        for face in hull.faces:
            for k, x in enumerate(face):
                table[x].append(widest(hull.corners, [*face[k:], *face[:k]]))
        faces.append([own or [[k] * CORNERS] for k, own in enumerate(table)])
    n = max((len(x.corners) for x in hulls), default=0)
    k = max((len(x) for table in faces for x in table), default=0)
    corners = [
        np.concatenate([x, np.repeat(x[:1], n - len(x), axis=0)])
        for x in (h.corners for h in hulls)
    ]
    padded = [[*table, *[table[0]] * (n - len(table))] for table in faces]
    frozen = tuple(
        tuple(tuple(map(tuple, [*x, *[x[0]] * (k - len(x))])) for x in table) for table in padded
    )
    polygons = tuple(tuple(tuple(face) for face in x.faces) for x in hulls)
    return Tables(np.array(corners).reshape(len(hulls), n, 3), frozen, polygons)


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
