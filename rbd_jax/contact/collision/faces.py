"""Contact points of two flat faces, or of an edge on a face.

Source: MuJoCo 4's documentation, "Computation", convex collision and ``multiccd``, and its
collider. If faces of two shapes touch and are parallel within five degrees, the face of the second
is clipped by the borders of the first, and at most four of the corners of the rest are contact
points. An edge on a face is clipped in the same way and has two. A flat end of a cylinder counts as
a polygon with 16 corners, and the line on a cylinder's or a capsule's side as an edge.

The choice of faces, and which borders cross at which point, have no derivative. The points follow
from them in closed form.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3
from .convex import Couple, Feature, Nearest
from .ground import FAR, ContactPoints
from .support import Body, Vector, placed, smooth, turned

FLAT = ("cylinder", "box", "mesh")
"""Shapes with flat faces."""
TILT = 0.0889
"""The largest angle of two faces, or of an edge and a face, that lie flat on each other (rad)."""
COS_TILT, SIN_TILT = math.cos(TILT), math.sin(TILT)
POINTS = 4
"""The most points of one pair."""
BORDER = 1e-15
"""How far outside of a border a corner is still inside for MuJoCo (m)."""
SIDES = 16
"""The corners of the polygon that stands for an end of a cylinder."""
TURNS = 2 * np.pi * np.arange(SIDES) / SIDES
BOX_FACES = np.array(
    [[7, 3, 1, 5], [2, 6, 4, 0], [2, 3, 7, 6], [4, 5, 1, 0], [6, 7, 5, 4], [3, 2, 0, 1]],
    dtype=np.int32,
)
"""The corners of each face of a box, below +x, −x, +y, −y, +z, −z, in MuJoCo's order."""
BOX_NORMALS = np.array(
    [[s if a == k else 0.0 for a in range(3)] for k in range(3) for s in (1, -1)]
)
BOX_NEIGHBOURS = np.array([[k ^ 1, k ^ 2, k ^ 4] for k in range(8)], dtype=np.int32)


class Polygons(NamedTuple):
    """The faces of a mesh as tables of numbers; −1 stands for none."""

    corners: Int[Array, "f s"]
    """The corners of each face, in MuJoCo's order."""
    base: Int[Array, "f 3"]
    """Three corners of each face, counterclockwise if seen from outside."""
    at: Int[Array, "c k"]
    """The faces at each corner."""
    before: Int[Array, "c k"]
    """The corner before it in each of these faces."""
    bend: Float[Array, "f 3"]
    """What is added to the normals of the faces."""


class _Faces(NamedTuple):
    """Faces of a shape that may touch."""

    number: Int[Array, " n"]
    normal: Float[Array, "n 3"]
    counts: Bool[Array, " n"]


class _Edges(NamedTuple):
    """Edges of a shape that may touch, which begin at one point."""

    start: Vector
    end: Float[Array, "n 3"]
    counts: Bool[Array, " n"]


class _Side(NamedTuple):
    """One of the two shapes with what of it touches."""

    body: Body
    mesh: Polygons | None
    corners: Int[Array, "3"]
    """The corners that touch; the first two differ if there are two."""
    dim: Int[Array, ""]
    """How many of them differ."""
    outward: Vector
    """The direction to the other shape."""
    point: Vector
    """The nearest point of the polytope and the smooth part, relative to the first shape."""


def has_several(kinds: tuple[str, str]) -> bool:
    """Whether shapes of these kinds may touch in several points."""
    return all(k in (*FLAT, "capsule") for k in kinds) and any(k in FLAT for k in kinds)


def _several(corners: Int[Array, "3"]) -> tuple[Array, Array]:
    a, b, c = corners
    second = jnp.where(b == a, c, b)
    third = (b != a) & (c != a) & (c != b)
    dim = 1 + (second != a).astype(jnp.int32) + third.astype(jnp.int32)
    return jnp.stack([a, second, c]), dim


def touching_faces(
    kinds: tuple[str, str],
    x: Couple,
    f: Feature,
    found: Nearest,
    origin: Vector,
    margin: Float[Array, ""],
    meshes: tuple[Polygons | None, Polygons | None],
) -> ContactPoints:
    """At most four contact points of two shapes that touch; one if no faces lie on each other.

    Args:
        kinds: those of the shapes.
        x: the shapes. f: what of them touches. found: their nearest points.
        origin: the place of the first shape (m).
        margin: the distance at which the contact acts (m).
        meshes: the faces of both shapes, if they are meshes.
    """
    n = found.normal
    sides = []
    for k, (body, out) in enumerate(((x.a, n), (x.b, -n))):
        corners, dim = _several(f.corners[:, k])
        if kinds[k] == "capsule":
            dim = jnp.ones_like(dim)
        point = (found.first if k == 0 else found.second) - origin
        sides.append(_Side(body, meshes[k], corners, dim, out, point))
    one, two = sides
    faces = [_faces(kind, side) for kind, side in zip(kinds, sides, strict=True)]
    aligned, i, j = _aligned(faces, n)
    none = [~x.counts.any() for x in faces]
    flat = [jnp.where(f.cap == k, 3, x.dim) for k, x in ((1, one), (2, two))]
    first = ~aligned & (flat[0] < 3) & ~none[1] & ((flat[0] <= flat[1]) | none[0])
    second = ~aligned & (flat[1] < 3)
    single = jax.tree.map(
        lambda y: jnp.broadcast_to(y[None], (POINTS, *y.shape)),
        (found.distance, 0.5 * (found.first + found.second), n),
    )
    alone = jnp.arange(POINTS, dtype=jnp.int32) == 0
    single = jnp.where(alone, single[0], FAR), *single[1:]

    def face_on_face():
        if not all(k in FLAT for k in kinds):
            return single
        d, p, normal = _clipped(
            _polygon(kinds[0], one, faces[0].number[i]),
            _polygon(kinds[1], two, faces[1].number[j]),
            faces[0].normal[i], faces[1].normal[j], margin, x.size,
        )  # fmt: skip
        return d, p + origin[None], normal

    def edge_on_face(k: int):
        """The edges of shape k on a face of the other."""
        own, other = sides[k], sides[1 - k]
        if kinds[1 - k] not in FLAT:
            return jnp.asarray(False), single
        edges = _edges(kinds[k], own, margin)
        ok, e, c = _flat_edge(edges, faces[1 - k], -own.outward)
        normal = faces[1 - k].normal[c]
        swollen = 0.5 * margin if kinds[k] == "capsule" else 0.0 * margin
        face = _polygon(kinds[1 - k], other, faces[1 - k].number[c])
        d, p = _edge_points(edges.start, edges.end[e], face, normal, margin, swollen)
        sign = -1.0 if k == 0 else 1.0
        normals = jnp.broadcast_to((sign * normal)[None], (POINTS, 3))
        return ok, (d, p + origin[None], normals)

    def chosen(condition, points, otherwise):
        some = condition & (points[0] < 0.5 * FAR).any()
        return jax.tree.map(lambda a, b: jnp.where(some, a, b), points, otherwise)

    result = chosen(aligned, face_on_face(), single)
    for k, mine in ((1, second), (0, first)):  # the edges of the first shape have precedence
        ok, points = edge_on_face(k)
        result = jax.tree.map(lambda a, b: jnp.where(mine & ok, a, b), single, result)  # noqa: B023
        result = chosen(mine & ok, points, result)
    d, p, normals = result
    return ContactPoints(d, p, normals, jnp.zeros((POINTS, 3), n.dtype))


# --- the faces and edges at the corners that touch ------------------------------------------------


def _faces(kind: str, x: _Side) -> _Faces:
    a, b, c = x.corners
    if kind == "box":
        has = lambda k: (jnp.asarray(BOX_FACES) == k).any(axis=1)  # noqa: E731
        normals = turned(x.body.R, jnp.asarray(BOX_NORMALS, x.outward.dtype))
        counts = has(a) & ((x.dim < 2) | has(b)) & ((x.dim < 3) | has(c))
        near = jnp.sum(normals * x.outward[None], axis=1) > COS_TILT
        return _Faces(
            jnp.arange(6, dtype=jnp.int32), normals, jnp.where(counts.any(), counts, near)
        )
    if kind == "mesh":
        mesh = _mesh_of(x)
        at, table = mesh.at, mesh.corners
        own = at[a]
        rings = table[own]
        has = lambda k: (rings == k).any(axis=1)  # noqa: E731
        counts = (own >= 0) & ((x.dim < 2) | has(b)) & ((x.dim < 3) | has(c))
        p = x.body.corners[mesh.base[own]]
        n = so3.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])
        n2 = so3.dot(n, n)
        some = n2 > 0
        n = n / jnp.sqrt(jnp.where(some, n2, 1))[:, None] + mesh.bend[own]
        return _Faces(own, turned(x.body.R, n), counts & some)
    if kind == "cylinder":
        axis = x.body.R[:, 2]
        number = jnp.arange(2, dtype=jnp.int32)
        return _Faces(number, jnp.stack([axis, -axis]), (number == a) & (x.dim == 1))
    none = jnp.zeros((1,), jnp.int32)
    return _Faces(none, jnp.zeros((1, 3), x.outward.dtype), none > 0)


def _mesh_of(x: _Side) -> Polygons:
    assert x.mesh is not None
    return x.mesh


def _edges(kind: str, x: _Side, margin) -> _Edges:
    a, b, _ = x.corners
    axis = x.body.R[:, 2]
    yes = jnp.ones((1,), bool)
    if kind == "capsule":
        grown = x.body.ball + 0.5 * margin
        beside = x.body.p + grown * (x.outward - so3.dot(x.outward, axis) * axis)
        half = x.body.corners[0, 2] * axis
        return _Edges(beside - half, (beside + half)[None], yes)
    if kind == "cylinder":
        rim = smooth(x.body, so3.rotate_inverse(x.body.R, x.outward))
        start = placed(x.body, x.body.corners[a] + rim)
        along = jnp.where(a == 0, -2.0, 2.0).astype(axis.dtype) * x.body.corners[0, 2] * axis
        return _Edges(start, (start + along)[None], yes & (x.dim < 3))
    if kind == "box":
        ends, counts = jnp.asarray(BOX_NEIGHBOURS)[a], jnp.ones((3,), bool)
    else:
        mesh = _mesh_of(x)
        ends, counts = mesh.before[a], mesh.at[a] >= 0
    alone = x.dim == 2
    ends = jnp.where(alone, b, ends)
    counts = jnp.where(
        alone, jnp.arange(ends.shape[0], dtype=jnp.int32) == 0, counts & (x.dim == 1)
    )
    places = x.body.corners
    return _Edges(placed(x.body, places[a]), placed(x.body, places[jnp.maximum(ends, 0)]), counts)


def _polygon(kind: str, x: _Side, number) -> tuple[Float[Array, "s 3"], Int[Array, ""]]:
    """The corners of a face, and how many they are."""
    if kind == "cylinder":
        sign = jnp.where(number == 0, 1.0, -1.0).astype(x.outward.dtype)
        c, s = (jnp.asarray(f(TURNS), x.outward.dtype) for f in (np.cos, np.sin))
        r, h = x.body.disk, x.body.corners[0, 2]
        local = jnp.stack([r * c, -sign * r * s, jnp.full_like(c, 1.0) * sign * h], axis=1)
        count = jnp.asarray(SIDES, jnp.int32)
    elif kind == "box":
        local = x.body.corners[jnp.asarray(BOX_FACES)[number]]
        count = jnp.asarray(4, jnp.int32)
    else:
        ring = _mesh_of(x).corners[number]
        local = x.body.corners[jnp.maximum(ring, 0)]
        count = jnp.sum(ring >= 0, dtype=jnp.int32)
    return placed(x.body, local), count


def _aligned(faces: list[_Faces], n: Vector):
    """The pair of faces that face each other best, and whether it is within the tolerance."""
    one, two = faces
    towards = one.counts & (jnp.sum(one.normal * n[None], axis=1) > SIN_TILT)
    back = two.counts & (jnp.sum(two.normal * n[None], axis=1) < -SIN_TILT)
    like = jnp.sum(one.normal[:, None] * two.normal[None], axis=2)
    like = jnp.where(towards[:, None] & back[None], like, 1).reshape(-1)
    best = jnp.argmin(like).astype(jnp.int32)
    width = two.number.shape[0]
    return like[best] < -COS_TILT, best // width, best % width


def _flat_edge(edges: _Edges, faces: _Faces, n: Vector):
    """The first face, and its first edge, that are parallel; n is the way out of the face."""
    line = edges.end - edges.start[None]
    length = jnp.sqrt(jnp.where(edges.counts, so3.dot(line, line), 1))
    slope = jnp.abs(jnp.sum(faces.normal[:, None] * line[None], axis=2)) / length[None]
    beside = 4 * jnp.finfo(n.dtype).eps  # MuJoCo's 1e-15, in units of the rounding
    seen = faces.counts & (jnp.sum(faces.normal * n[None], axis=1) > beside)
    fits = (slope < SIN_TILT) & seen[:, None] & edges.counts[None]
    first = jnp.argmax(fits.reshape(-1)).astype(jnp.int32)
    width = line.shape[0]
    return fits.any(), first % width, first // width


# --- clipping -------------------------------------------------------------------------------------


def _borders(polygon, count, n: Vector):
    """The planes through the sides of a polygon and along n, positive inside."""
    size = polygon.shape[0]
    at = jnp.arange(size, dtype=jnp.int32)
    ahead = jnp.where(at + 1 < count, at + 1, 0)
    side = polygon[ahead] - polygon
    m = so3.cross(side, n[None])
    real = at < count
    n2 = so3.dot(m, m)
    ok = real & (n2 > 0)
    m = m / jnp.sqrt(jnp.where(ok, n2, 1))[:, None]
    c = so3.dot(m, polygon)
    middle = jnp.sum(jnp.where(real[:, None], polygon, 0), axis=0) / count.astype(m.dtype)
    inside = jnp.sum(m * middle[None], axis=1) - c
    sign = jnp.where(inside < 0, -1.0, 1.0).astype(m.dtype)
    return sign[:, None] * m, sign * c, ok


def _edge_points(start, end, face, n: Vector, margin, swollen):
    """The two ends of an edge over a face: distances and places; far away if they do not count."""
    m, c, ok = _borders(face[0], face[1], n)
    along = end - start
    rate = jnp.sum(m * along[None], axis=1)
    room = jnp.sum(m * start[None], axis=1) - c
    moves = ok & (rate != 0)
    t = -room / jnp.where(moves, rate, 1)
    enter = jnp.max(jnp.where(moves & (rate > 0), t, 0), initial=0)
    leave = jnp.min(jnp.where(moves & (rate < 0), t, 1), initial=1)
    apart = (ok & ~moves & (room < -1e-10)).any() | (enter > leave)
    t = jnp.stack([enter, leave])
    v = start[None] + t[:, None] * along[None]
    d = jnp.sum((v - face[0][0][None]) * n[None], axis=1)
    low = ~apart & (d <= margin - swollen)
    ends, counts = _order_of_ends(*jax.lax.stop_gradient((rate, room, ok, t)), low)
    place = v - 0.5 * (d - swollen)[:, None] * n[None]
    distance = jnp.where(counts, (d + swollen)[ends], FAR)
    return jnp.pad(distance, (0, 2), constant_values=FAR), jnp.tile(place[ends], (2, 1))


def _order_of_ends(rate, room, ok, t: Float[Array, "2"], low: Bool[Array, "2"]):
    """Which two ends of a clipped edge are contacts, in MuJoCo's order, and whether they count.

    For MuJoCo the edge is a polygon with two sides. Each border turns the order of its corners, and
    one that cuts it leaves two corners at one place. So one end is two contacts if the other one
    lies too high.
    """
    at = jnp.arange(POINTS, dtype=jnp.int32)

    def clip(k, state):
        x, count = state
        ahead = jnp.where(at + 1 < count, at + 1, 0)
        inside = room[k] + rate[k] * x > -BORDER
        real = at < count
        crosses, stays = real & (inside != inside[ahead]), real & inside[ahead]
        per = crosses.astype(jnp.int32) + stays.astype(jnp.int32)
        place = jnp.cumsum(per, dtype=jnp.int32) - per
        cut = -room[k] / jnp.where(rate[k] == 0, 1, rate[k])
        y = jnp.zeros_like(x).at[jnp.where(crosses, place, POINTS)].set(cut, mode="drop")
        behind = jnp.where(stays, place + crosses.astype(jnp.int32), POINTS)
        y = y.at[behind].set(x[ahead], mode="drop")
        clipped = y, jnp.minimum(jnp.sum(per, dtype=jnp.int32), POINTS)
        return jax.tree.map(lambda a, b: jnp.where(ok[k], a, b), clipped, state)

    x = jnp.where(at == 1, jnp.ones((), t.dtype), 0)
    x, count = jax.lax.fori_loop(0, rate.shape[0], clip, (x, jnp.asarray(2, jnp.int32)))
    end = (jnp.abs(x - t[1]) < jnp.abs(x - t[0])).astype(jnp.int32)
    kept = (at < count) & low[end]
    place = jnp.where(kept, jnp.cumsum(kept, dtype=jnp.int32) - 1, POINTS)
    ends = jnp.zeros((POINTS,), jnp.int32).at[place].set(end, mode="drop")
    number = jnp.sum(kept, dtype=jnp.int32)
    second = jnp.where(number > 2, 1 - ends[0], ends[1])  # the two that are farthest apart
    return jnp.stack([ends[0], second]), jnp.arange(2, dtype=jnp.int32) < number


def _clipped(face1, face2, n1: Vector, n2: Vector, margin, size):
    """The points of the second face over the first: distances, places, normals."""
    m1, c1, ok1 = _borders(face1[0], face1[1], n1)
    m2, c2, _ = _borders(face2[0], face2[1], n2)
    p1, p2 = face1[0][0], face2[0][0]
    fixed = jax.lax.stop_gradient
    lines, counts = _corners_of_rest(
        *jax.tree.map(fixed, (face2, m1, c1, ok1, p1, n1, margin, size))
    )
    m, c = jnp.concatenate([m2, m1]), jnp.concatenate([c2, c1])
    a, b = (m[lines[:, k]] for k in range(2))
    ca, cb = (c[lines[:, k]] for k in range(2))
    n = n2[None]
    det = so3.dot(so3.cross(a, b), jnp.broadcast_to(n, a.shape))
    apart = jnp.abs(det) > 1e-6
    total = ca[:, None] * so3.cross(b, n) + cb[:, None] * so3.cross(n, a)
    total = total + so3.dot(n2, p2) * so3.cross(a, b)
    v = _on_sides(face2, m1, c1, lines, total / jnp.where(apart, det, 1)[:, None])
    on1 = v - jnp.sum((v - p1[None]) * n1[None], axis=1)[:, None] * n1[None]
    distance = jnp.sum((on1 - v) * n2[None], axis=1)
    place = on1 - 0.5 * distance[:, None] * n2[None]
    counts = counts & apart
    return jnp.where(counts, distance, FAR), place, jnp.broadcast_to(-n2[None], (POINTS, 3))


def _on_sides(face, m, c, lines, otherwise) -> Float[Array, "4 3"]:
    """The corners of the rest of a face that lie on its own sides: its corners, and crossings.

    The corners of a mesh's face need not lie in one plane to the last digit.
    """
    polygon, count = face
    sides = polygon.shape[0]
    own = lines < sides
    side = jnp.where(own[:, 1], lines[:, 1], jnp.where(own[:, 0], lines[:, 0], 0))
    border = jnp.where(own[:, 1], lines[:, 0], lines[:, 1]) - sides
    border = jnp.maximum(border, 0)
    start, end = polygon[side], polygon[jnp.where(side + 1 < count, side + 1, 0)]
    along = end - start
    rate = so3.dot(m[border], along)
    t = (c[border] - so3.dot(m[border], start)) / jnp.where(rate == 0, 1, rate)
    crossing = start + t[:, None] * along
    v = jnp.where((own[:, 0] & own[:, 1])[:, None], start, crossing)
    return jnp.where((own[:, 0] | own[:, 1])[:, None], v, otherwise)


def _corners_of_rest(face2, m, c, ok, p1, n1, margin, size):
    """Which two borders cross at each of at most four corners of the clipped second face."""
    polygon, count = face2
    s, e = polygon.shape[0], m.shape[0]
    most = s + e
    kind = polygon.dtype
    points = jnp.concatenate([polygon, jnp.zeros((e, 3), kind)])
    labels = jnp.arange(most, dtype=jnp.int32)
    at = jnp.arange(most, dtype=jnp.int32)
    noise = 16 * jnp.finfo(kind).eps * size

    def clip(k, state):
        points, labels, count = state
        ahead = jnp.where(at + 1 < count, at + 1, 0)
        height = jnp.sum(points * m[k][None], axis=1) - c[k]
        inside = height > -noise
        real = at < count
        crosses, stays = real & (inside != inside[ahead]), real & inside[ahead]
        fall = height - height[ahead]
        t = jnp.clip(height / jnp.where(fall == 0, 1, fall), 0, 1)
        new = points + t[:, None] * (points[ahead] - points)
        per = crosses.astype(jnp.int32) + stays.astype(jnp.int32)
        place = jnp.cumsum(per, dtype=jnp.int32) - per
        first, second = (
            jnp.where(crosses, place, most),
            jnp.where(stays, place + crosses.astype(jnp.int32), most),
        )
        own = jnp.where(inside, s + k, labels)
        p = jnp.zeros_like(points).at[first].set(new, mode="drop")
        p = p.at[second].set(points[ahead], mode="drop")
        q = jnp.zeros_like(labels).at[first].set(own.astype(jnp.int32), mode="drop")
        q = q.at[second].set(labels[ahead], mode="drop")
        clipped = p, q, jnp.minimum(jnp.sum(per, dtype=jnp.int32), most)
        return jax.tree.map(lambda a, b: jnp.where(ok[k], a, b), clipped, state)

    points, labels, count = jax.lax.fori_loop(0, e, clip, (points, labels, count))
    behind = labels[jnp.where(at > 0, at - 1, jnp.maximum(count - 1, 0))]
    low = (at < count) & (jnp.sum((points - p1[None]) * n1[None], axis=1) <= margin)
    place = jnp.where(low, jnp.cumsum(low, dtype=jnp.int32) - 1, most)
    points = jnp.zeros_like(points).at[place].set(points, mode="drop")
    lines = jnp.stack([behind, labels], axis=1)
    lines = jnp.zeros_like(lines).at[place].set(lines, mode="drop")
    count = jnp.sum(low, dtype=jnp.int32)
    four = jnp.arange(POINTS, dtype=jnp.int32)
    chosen = jnp.where(count > POINTS, _widest(points, count), four)
    return lines[chosen], four < count


def _widest(points: Float[Array, "n 3"], count) -> Int[Array, "4"]:
    """Four corners of a convex polygon that span a large area.

    Source: MuJoCo's collider: the last three corners move on along the polygon as long as the area
    grows, for each first corner.
    """

    def area(a, b, c, d):
        across = so3.cross(points[a] - points[c], points[b] - points[d])
        return so3.dot(across, across)

    def on(k):
        return jnp.where(k + 1 < count, k + 1, 0)

    def turn(state):
        """One move: the last corner, or the third or second after it, or the next first corner."""
        a, b, c, d, phase, best, chosen, rounds = state
        tried = (
            (a, b, c, on(d)), (a, b, on(c), d), (a, on(b), c, d),
        )  # fmt: skip
        new = [
            jnp.where(phase == 0, x, jnp.where(phase == 1, y, z))
            for x, y, z in zip(*tried, strict=True)
        ]
        larger = area(*new) > best
        best = jnp.where(larger, area(*new), best)
        b, c, d = (jnp.where(larger, x, y) for x, y in zip(new[1:], (b, c, d), strict=True))
        chosen = jnp.where(larger, jnp.stack([a, b, c, d]), chosen)
        ended = (phase == 0) & ~larger
        after = jnp.where(phase == 0, 1, jnp.where(phase == 1, 2, 0))
        phase = jnp.where(larger, jnp.where(phase == 0, 1, phase), jnp.where(ended, 0, after))
        behind = b == a
        b1 = jnp.where(behind, on(b), b)
        c1 = jnp.where(behind & (c == b1), on(c), c)
        d1 = jnp.where(behind & (c == b1) & (d == c1), on(d), d)
        b, c, d = (jnp.where(ended, x, y) for x, y in ((b1, b), (c1, c), (d1, d)))
        return a + ended.astype(jnp.int32), b, c, d, phase, best, chosen, rounds + 1

    i = [jnp.asarray(k, jnp.int32) for k in range(4)]
    start = (*i, jnp.asarray(0, jnp.int32), area(*i), jnp.stack(i), jnp.asarray(0, jnp.int32))
    going = lambda s: (s[0] < count) & (s[7] < 8 * points.shape[0])  # noqa: E731
    state = jax.lax.while_loop(going, turn, start)
    return state[6]
