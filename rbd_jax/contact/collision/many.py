"""Contact points of many pairs of convex shapes.

The pairs are searched one after the other by one program. A pair whose bounding spheres or bounding
boxes are farther apart than the margin is not searched, and a search ends as soon as it has found a
plane that keeps the shapes so far apart.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...spatial import so3
from .convex import Feature, Nearest, couple, find, nearest
from .faces import POINTS, Polygons, has_several, touching_faces
from .ground import FAR, ContactPoints
from .primitives import PAIRS
from .shapes import Shapes
from .support import CONVEX, ROUND, Body, bodies

CONVEX_PAIRS = [
    (a, b)
    for k, a in enumerate(CONVEX)
    for b in CONVEX[k:]
    if (a, b) not in PAIRS and not (a in ROUND and b in ROUND)
]
"""The pairs of kinds that the general search takes."""


class Pair(NamedTuple):
    """Two shapes by their numbers, and their kinds."""

    kinds: tuple[str, str]
    first: int
    second: int

    def shape(self, side: int) -> int:
        """The number of the first (0) or of the second shape (1)."""
        return self.second if side else self.first


def convex_pairs(
    shapes: Shapes,
    pairs: list[Pair],
    R: Float[Array, "ng 3 3"],
    p: Float[Array, "ng 3"],
    margin: Float[Array, " n"] | None,
    several: bool,
) -> dict[tuple[str, str], tuple[np.ndarray, ContactPoints]]:
    """The contact points of pairs of convex shapes, by their kinds.

    Args:
        shapes: all shapes. pairs: the pairs of any convex kinds.
        R: orientations of all shapes in the world. p: their places (m).
        margin: the distance at which a contact of each pair begins to act (m); None for distances
            of all pairs, however far.
        several: whether flat faces touch in several points.

    Returns:
        For each pair of kinds the places of its pairs in the list, and the points of each pair.
    """
    found = {}
    for meshes in ((False, False), (False, True), (True, True)):
        own = [k for k, x in enumerate(pairs) if tuple(y == "mesh" for y in x.kinds) == meshes]
        if not own:
            continue
        sides = [_side(shapes, [pairs[k] for k in own], s, R, p, meshes[s]) for s in (0, 1)]
        reach = jnp.full((len(own),), jnp.inf, p.dtype) if margin is None else margin[np.array(own)]
        feature, close = _searched(sides[0], sides[1], reach)
        for kinds in dict.fromkeys(pairs[k].kinds for k in own):
            at = np.array([i for i, k in enumerate(own) if pairs[k].kinds == kinds])
            part = jax.tree.map(lambda x: x[at], (*sides, feature, close, reach))  # noqa: B023
            if several and has_several(kinds):
                mesh = [_rows(shapes, [pairs[own[i]] for i in at], s) for s in (0, 1)]
                points = _on_faces(shapes, kinds, *part, *mesh)
            else:
                d, x, n = close_points(part[3])
                points = ContactPoints(d[:, None], x[:, None], n[:, None], 0 * x[:, None])
            found[kinds] = np.array(own)[at], points
    return found


def close_points(x: Nearest) -> tuple[Array, Array, Array]:
    """Distance, place halfway between the surfaces, and normal."""
    return x.distance, 0.5 * (x.first + x.second), x.normal


def _rows(shapes: Shapes, pairs: list[Pair], side: int) -> np.ndarray:
    """The hulls of the first or of the second shapes."""
    return np.array([shapes.hulls[x.shape(side)] for x in pairs], dtype=np.int32)


def _side(shapes: Shapes, pairs: list[Pair], side: int, R, p, mesh: bool) -> Body:
    """The first or the second shapes of some pairs."""
    at = np.array([x.shape(side) for x in pairs])
    corners = shapes.corners[_rows(shapes, pairs, side)] if mesh else None
    return bodies([x.kinds[side] for x in pairs], R[at], p[at], shapes.size[at], corners)


def _searched(a: Body, b: Body, reach: Float[Array, " n"]) -> tuple[Feature, Nearest]:
    """What touches, and where, of pairs that are near each other; others are far apart."""
    return jax.lax.scan(lambda _, pair: (_, search(*pair)), None, (a, b, reach))[1]


def search(a: Body, b: Body, reach: Float[Array, ""]) -> tuple[Feature, Nearest]:
    """What touches, and where, of two shapes; they are far apart if they are not near."""
    near = is_near(*jax.lax.stop_gradient((a, b, reach)))

    def found():
        feature = find(couple(a, b), reach)
        close = jax.checkpoint(lambda a, b, x: nearest(couple(a, b), x, a.p))(a, b, feature)
        return feature, close._replace(distance=jnp.where(feature.apart, FAR, close.distance))

    def nothing():
        up = jnp.array([0.0, 0.0, 1.0], reach.dtype)
        zero = jnp.zeros((), jnp.int32)
        feature = Feature(up, jnp.zeros((3, 2), jnp.int32), zero + 1, zero, zero < 1)
        return feature, Nearest(jnp.full((), FAR, up.dtype), 0 * up, 0 * up, up)

    return jax.lax.cond(near, found, nothing)


def is_near(a: Body, b: Body, reach: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the bounding spheres of two shapes, and then their bounding boxes, are near."""
    gap = b.p - a.p
    size = a.bound + b.bound
    far = size + reach

    def boxes():
        (x, h), (y, k) = a.box, b.box
        d = gap + so3.rotate(b.R, y) - so3.rotate(a.R, x)
        R = so3.matmul(so3.transpose(a.R), b.R)
        one = jnp.abs(so3.rotate_inverse(a.R, d)) - h - so3.rotate(jnp.abs(R), k)
        two = jnp.abs(so3.rotate_inverse(b.R, d)) - k - so3.rotate_inverse(jnp.abs(R), h)
        noise = 64 * jnp.finfo(gap.dtype).eps * size
        return jnp.maximum(jnp.max(one), jnp.max(two)) < reach + noise

    return jax.lax.cond(so3.dot(gap, gap) < far * far, boxes, lambda: jnp.zeros((), bool))


def _on_faces(shapes, kinds, a, b, feature, close, reach, first, second) -> ContactPoints:
    """The points of pairs of two kinds with flat faces, of which those that act are clipped."""
    tables = _tables(shapes.polygons) if "mesh" in kinds else None

    def polygons(kind: str, row) -> Polygons | None:
        if kind != "mesh" or tables is None:
            return None
        bend = jnp.zeros(tables[1].shape, a.p.dtype) if shapes.bend is None else shapes.bend
        ring, base, at, before = (jnp.asarray(x)[row] for x in tables)
        return Polygons(ring, base, at, before, bend[row])

    @jax.checkpoint  # the way back computes near pairs again, and keeps nothing of any pair
    def touch(_, pair):
        a, b, feature, close, reach, *rows = pair
        meshes = polygons(kinds[0], rows[0]), polygons(kinds[1], rows[1])

        @jax.checkpoint
        def faces():
            return touching_faces(kinds, couple(a, b), feature, close, a.p, reach, meshes)

        def alone():
            d, x, n = close_points(close)
            every = lambda y: jnp.broadcast_to(y[None], (POINTS, 3))  # noqa: E731
            d = jnp.where(jnp.arange(POINTS, dtype=jnp.int32) == 0, d, FAR)
            return ContactPoints(d, every(x), every(n), jnp.zeros((POINTS, 3), x.dtype))

        return _, jax.lax.cond(close.distance < reach, faces, alone)

    return jax.lax.scan(touch, None, (a, b, feature, close, reach, first, second))[1]


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
