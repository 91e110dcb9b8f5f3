"""Contact points of many pairs of convex shapes of two kinds.

The pairs are searched one after the other by one program. A pair whose bounding spheres are farther
apart than the margin is not searched.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...spatial import so3
from .convex import couple, find, nearest
from .faces import POINTS, Polygons, has_several, touching_faces
from .ground import FAR, ContactPoints
from .primitives import PAIRS
from .shapes import Shapes
from .support import CONVEX, ROUND, Body, bounding_radius

CONVEX_PAIRS = [
    (a, b)
    for k, a in enumerate(CONVEX)
    for b in CONVEX[k:]
    if (a, b) not in PAIRS and not (a in ROUND and b in ROUND)
]
"""The pairs of kinds that the general search takes."""


def convex_pairs(
    shapes: Shapes,
    kinds: tuple[str, str],
    first: np.ndarray,
    second: np.ndarray,
    R: Float[Array, "ng 3 3"],
    p: Float[Array, "ng 3"],
    margin: Float[Array, " n"],
    several: bool,
) -> ContactPoints:
    """The contact points of pairs of shapes of two kinds.

    Args:
        shapes: all shapes. kinds: those of the first and of the second shapes.
        first: the numbers of the first shapes. second: those of the second shapes.
        R: orientations of all shapes in the world. p: their places (m).
        margin: the distance at which a contact of each pair begins to act (m).
        several: whether flat faces touch in several points.
    """
    several = several and has_several(kinds)
    rows = np.array(shapes.hulls, dtype=np.int32)
    sides = []
    for kind, at in zip(kinds, (first, second), strict=True):
        of = rows[at] if kind == "mesh" else np.zeros(len(at), np.int32)
        sides.append((R[at], p[at], shapes.size[at], of))
    tables = _tables(shapes.polygons) if several and "mesh" in kinds else None

    def body(kind: str, R, p, size, row) -> tuple[Body, Polygons | None]:
        if kind != "mesh":
            return Body(R, p, size, jnp.zeros((0, 3), p.dtype)), None
        faces = None if tables is None else Polygons(*(jnp.asarray(x)[row] for x in tables))
        return Body(R, p, size, shapes.corners[row]), faces

    def touch(_, pair):
        *both, reach = pair
        (a, mesh_a), (b, mesh_b) = (body(k, *x) for k, x in zip(kinds, both, strict=True))
        gap = b.p - a.p
        far = bounding_radius(kinds[0], a) + bounding_radius(kinds[1], b) + reach
        near = jax.lax.stop_gradient(so3.dot(gap, gap) < far * far)
        search = functools.partial(_points, kinds, several)
        found = jax.lax.cond(
            near,
            lambda: search(a, b, reach, (mesh_a, mesh_b)),
            lambda: _nowhere(POINTS if several else 1, gap),
        )
        return _, found

    return jax.lax.scan(touch, None, (*sides, margin))[1]


def _nowhere(count: int, like: Float[Array, "3"]) -> ContactPoints:
    """Points that are no contacts."""
    none = jnp.zeros((count, 3), like.dtype)
    normal = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0], like.dtype), (count, 3))
    return ContactPoints(jnp.full((count,), FAR, like.dtype), none, normal, none)


def _points(kinds, several: bool, a: Body, b: Body, reach, meshes) -> ContactPoints:
    """The contact points of two shapes that are near each other."""
    x = couple(kinds, a, b)
    found = find(x)
    close = nearest(x, found, a.p)
    count = POINTS if several else 1
    every = lambda y: jnp.broadcast_to(y[None], (count, 3))  # noqa: E731
    distance = jnp.where(jnp.arange(count) == 0, close.distance, FAR)
    place, none = every(0.5 * (close.first + close.second)), jnp.zeros((count, 3), a.p.dtype)
    alone = ContactPoints(distance, place, every(close.normal), none)
    if not several:
        return alone
    return jax.lax.cond(
        close.distance < reach,
        lambda: touching_faces(x, found, close, a.p, reach, meshes),
        lambda: alone,
    )


@functools.lru_cache(maxsize=64)
def _tables(polygons: tuple) -> tuple[np.ndarray, ...]:
    """The tables of :class:`Polygons` for all hulls, one after the other."""
    at = [_faces_at(faces) for faces in polygons]
    side = max(len(x) for faces in polygons for x in faces)
    most = max(len(faces) for faces in polygons)
    corners = max(len(x) for x in at)
    degree = max(len(k) for x in at for k in x)
    n = len(polygons)
    ring, base = np.full((n, most, side), -1, np.int32), np.zeros((n, most, 3), np.int32)
    own, before = (np.full((n, corners, degree), -1, np.int32) for _ in range(2))
    for k, faces in enumerate(polygons):
        for f, face in enumerate(faces):
            ring[k, f, : len(face)] = face[::-1]
            base[k, f] = face[:3]
        for c, some in enumerate(at[k]):
            own[k, c, : len(some)] = some
            before[k, c, : len(some)] = [faces[f][faces[f].index(c) - 1] for f in some]
    return ring, base, own, before


def _faces_at(faces: tuple) -> list[list[int]]:
    """The faces at each corner of a hull."""
    found: list[list[int]] = [[] for _ in range(1 + max(max(x) for x in faces))]
    for f, face in enumerate(faces):
        for c in face:
            found[c].append(f)
    return found
