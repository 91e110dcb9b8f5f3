"""The facet of a convex body that is nearest to the origin, by a polytope that grows inside it.

Source: van den Bergen, "Proximity queries and penetration depth computation on 3D game objects"
(2001), the expanding polytope algorithm. It begins here with any four support points. So it also
finds the nearest point of a body that does not hold the origin, and needs no other search before
it. All arrays have a fixed size, and the number of rounds is bounded.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3

Vector = Float[Array, "3"]
Support = Callable[[Vector], tuple[Vector, Int[Array, "2"]]]
"""``support(n)`` is the point of the body farthest along n, and two numbers that name it."""
NEXT = np.array([1, 2, 0], dtype=np.int32)
FIRST = np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]], dtype=np.int32)
"""The faces of the first tetrahedron, outside on their right-hand side."""


class Facet(NamedTuple):
    """The facet of a body nearest to the origin."""

    normal: Vector
    """Its outer normal; if the origin is outside, the direction from the body to the origin."""
    names: Int[Array, "3 2"]
    """The names of its three corners."""
    apart: Bool[Array, ""]
    """Whether the search ended because the body is farther from the origin than was asked for."""
    exact: Bool[Array, ""]
    """Whether no point of the body lies beyond the facet. In single precision a search may end at
    a point beyond a facet that no facet sees."""


class _Faces(NamedTuple):
    """The planes of triangles, and their nearest points."""

    normal: Float[Array, "f 3"]
    offset: Float[Array, " f"]
    near: Float[Array, "f 3"]
    """The point of the triangle that is nearest to the origin."""
    key: Float[Array, " f"]
    """Its squared distance; infinite for a triangle without area."""
    within: Bool[Array, " f"]
    """Whether it lies inside the triangle and not on an edge."""


class _Polytope(NamedTuple):
    points: Float[Array, "v 3"]
    names: Int[Array, "v 2"]
    count: Int[Array, ""]
    triangles: Int[Array, "f 3"]
    alive: Bool[Array, " f"]
    owner: Int[Array, "v v"]
    """The face to which each directed edge belongs."""
    faces: _Faces
    nearest: Int[Array, ""]
    direction: Vector
    done: Bool[Array, ""]
    apart: Bool[Array, ""]
    exact: Bool[Array, ""]


def nearest_facet(
    support: Support, start: Vector, size: Float[Array, ""], rounds: int, tolerance, far
) -> Facet:
    """The facet of a body nearest to the origin.

    Args:
        support: the body, which must have a volume.
        start: the first direction, of length one.
        size: a length of the order of the body (m).
        rounds: the most support points that are added to the first four.
        tolerance: the search ends if a support point lies beyond the facet by less than this
            fraction of ``size``.
        far: the search ends as soon as a plane keeps the body farther than this from the origin
            (m).
    """
    most = rounds + 4
    kind = start.dtype
    eps = jnp.finfo(kind).eps
    noise = 16 * eps * size
    points, names = _tetrahedron(support, start)
    apart = -so3.dot(points[0], start) > far + noise
    points = jnp.concatenate([points, jnp.zeros((rounds, 3), kind)])
    names = jnp.concatenate([names, jnp.zeros((rounds, 2), jnp.int32)])
    n = 2 * most - 4
    triangles = jnp.asarray(np.concatenate([FIRST, np.zeros((n - 4, 3), np.int32)]))
    owner = np.zeros((most, most), np.int32)
    for k, (a, b, c) in enumerate(FIRST):
        owner[a, b] = owner[b, c] = owner[c, a] = k
    alive = jnp.asarray(np.arange(n) < 4)
    faces = _faces(points, triangles, noise)
    x = _Polytope(
        points, names, jnp.asarray(4, jnp.int32), triangles, alive, jnp.asarray(owner), faces,
        jnp.zeros((), jnp.int32), start, apart, apart, apart,
    )  # fmt: skip
    x = _aimed(x, noise)

    def grow(x: _Polytope) -> _Polytope:
        new, name = support(x.direction)
        beyond = so3.dot(x.direction, new - x.faces.near[x.nearest])
        height = jnp.sum(x.faces.normal * new[None], axis=1) - x.faces.offset
        seen = x.alive & (height > noise)
        apart = -so3.dot(x.direction, new) > far + noise
        exact = beyond <= jnp.maximum(tolerance * size, 2 * noise)
        done = exact | ~seen.any() | apart
        grown = _aimed(_joined(x, new, name, seen, noise), noise)
        grown = grown._replace(done=grown.done | (grown.count >= most))
        ended = x._replace(done=done, apart=apart, exact=exact)
        return jax.tree.map(lambda a, b: jnp.where(done, a, b), ended, grown)

    x = jax.lax.while_loop(lambda x: ~x.done, grow, x)
    return Facet(x.direction, x.names[x.triangles[x.nearest]], x.apart, x.exact)


def _tetrahedron(support: Support, start: Vector) -> tuple[Array, Array]:
    """Four support points, the last of which lies below the triangle of the others."""

    def farthest(along: Vector, base: Vector):
        along = along / jnp.sqrt(so3.dot(along, along))
        (x, i), (y, j) = support(along), support(-along)
        first = so3.dot(along, x - base) >= so3.dot(along, base - y)
        return jnp.where(first, x, y), jnp.where(first, i, j)

    (a, i), (b, j) = support(start), support(-start)
    line = b - a
    least = jnp.argmin(jnp.abs(line)).astype(jnp.int32) == np.arange(3, dtype=np.int32)
    c, k = farthest(so3.cross(line, jnp.where(least, 1, 0).astype(a.dtype)), a)
    d, m = farthest(so3.cross(line, c - a), a)
    below = so3.dot(so3.cross(line, c - a), d - a) < 0
    b, c, j, k = (jnp.where(below, x, y) for x, y in ((b, c), (c, b), (j, k), (k, j)))
    return jnp.stack([a, b, c, d]), jnp.stack([i, j, k, m])


def _faces(points: Float[Array, "v 3"], triangles: Int[Array, "f 3"], noise) -> _Faces:
    x = points[triangles]
    a, edges = x[:, 0], x[:, NEXT] - x
    n = so3.cross(edges[:, 0], -edges[:, 2])
    n2 = so3.dot(n, n)
    longest = jnp.max(so3.dot(edges, edges), axis=1)
    flat = n2 <= noise**2 * longest  # the height of a sliver is rounding
    n = jnp.where(flat[:, None], 0, n / jnp.sqrt(jnp.where(flat, 1, n2))[:, None])
    offset = so3.dot(n, a)
    outward = so3.cross(edges, n[:, None])
    within = (so3.dot(outward, x) >= 0).all(axis=1) & ~flat
    long2 = so3.dot(edges, edges)
    t = jnp.clip(-so3.dot(x, edges) / jnp.where(long2 > 0, long2, 1), 0, 1)
    on_edge = x + t[..., None] * edges
    d2 = so3.dot(on_edge, on_edge)
    best = jnp.where(d2[:, 1] < d2[:, 0], 1, 0).astype(jnp.int32)
    best = jnp.where(d2[:, 2] < jnp.min(d2[:, :2], axis=1), jnp.int32(2), best)
    chosen = best[:, None] == np.arange(3, dtype=np.int32)[None]
    edge_point = jnp.sum(jnp.where(chosen[..., None], on_edge, 0), axis=1)
    near = jnp.where(within[:, None], offset[:, None] * n, edge_point)
    key = jnp.where(flat, jnp.inf, so3.dot(near, near))
    return _Faces(n, offset, near, key, within)


def _aimed(x: _Polytope, noise) -> _Polytope:
    """The polytope with its nearest face and the direction in which it grows next."""
    key = jnp.where(x.alive, x.faces.key, jnp.inf)
    nearest = jnp.argmin(key).astype(jnp.int32)
    outside = (x.alive & (x.faces.offset < 0)).any()
    normal, near = x.faces.normal[nearest], x.faces.near[nearest]
    d2 = so3.dot(near, near)
    corner = outside & ~x.faces.within[nearest] & (d2 > noise**2)
    direction = jnp.where(corner, -near / jnp.sqrt(jnp.where(corner, d2, 1)), normal)
    return x._replace(nearest=nearest, direction=direction)


def _joined(x: _Polytope, new: Vector, name: Int[Array, "2"], seen, noise) -> _Polytope:
    """The polytope with one more point: faces that it sees give way to a cone on their border."""
    count = x.triangles.shape[0]
    tails, heads = x.triangles, x.triangles[:, NEXT]
    twin = x.owner[heads, tails]
    border = (seen[:, None] & ~seen[twin]).reshape(-1)
    rank = jnp.cumsum(border, dtype=jnp.int32) - 1
    edge_of = jnp.zeros((count,), jnp.int32)
    every = jnp.arange(3 * count, dtype=jnp.int32)
    edge_of = edge_of.at[jnp.where(border, rank, count)].set(every, mode="drop")
    free = ~x.alive | seen
    place = jnp.cumsum(free, dtype=jnp.int32) - 1
    fresh = free & (place < jnp.sum(border, dtype=jnp.int32))
    edge = edge_of[jnp.where(fresh, place, 0)]
    tail, head = tails.reshape(-1)[edge], heads.reshape(-1)[edge]
    last = jnp.full_like(tail, 1) * x.count
    triangles = jnp.where(fresh[:, None], jnp.stack([tail, head, last], axis=1), x.triangles)
    slot = jnp.arange(count, dtype=jnp.int32)
    most = x.points.shape[0]
    owner = x.owner
    for a, b in ((tail, head), (head, last), (last, tail)):
        owner = owner.at[jnp.where(fresh, a, most), b].set(slot, mode="drop")
    at = jnp.arange(most, dtype=jnp.int32) == x.count
    points = jnp.where(at[:, None], new[None], x.points)
    names = jnp.where(at[:, None], name[None], x.names)
    found = _faces(points, triangles, noise)
    behind = twin.reshape(-1)[edge]
    sliver = jnp.isinf(found.key)  # without area of its own it lies in its neighbour's plane
    found = found._replace(
        normal=jnp.where(sliver[:, None], x.faces.normal[behind], found.normal),
        offset=jnp.where(sliver, x.faces.offset[behind], found.offset),
    )
    faces = jax.tree.map(
        lambda a, b: jnp.where(fresh.reshape(-1, *[1] * (a.ndim - 1)), b, a), x.faces, found
    )
    alive = (x.alive & ~seen) | fresh
    return x._replace(
        points=points, names=names, count=x.count + 1, triangles=triangles, alive=alive,
        owner=owner, faces=faces,
    )  # fmt: skip
