"""Collision detection: the shapes of a scene, the pairs that may touch, and where they do.

The list of candidates is fixed when the scene is made. A contact acts where its distance is below
its margin.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .ground import (
    FAR,
    ContactPoints,
    Ground,
    acting_first,
    contact_frame,
    first_of,
    on_ground,
    tangent_plane,
)
from .height_fields import FieldPair, field_points
from .many import CONVEX_PAIRS, Pair, convex_pairs, is_near
from .primitives import PAIRS
from .shapes import Shapes
from .support import bodies as bodies_of

SLOW = (("capsule", "box"), ("box", "box"))
"""Pairs with a long closed form, which is computed only for shapes that are near each other."""


class Pairs(eqx.Module):
    """Pairs of shapes that may touch, and the parameters of their contacts.

    In a pair of a plane and another shape the plane is the first. Pairs are sorted by ``condim``
    and by the kinds of their shapes.
    """

    friction: Float[Array, "np 5"]
    """Coefficients of sliding along both tangents (1), spinning (m), rolling about both (m)."""
    solref: Float[Array, "np 2"]
    """As in :class:`SolverParams`."""
    solref_friction: Float[Array, "np 2"]
    """``solref`` of the tangents of elliptic cones; zeros stand for ``solref`` itself."""
    solimp: Float[Array, "np 5"]
    """As in :class:`SolverParams`."""
    margin: Float[Array, " np"]
    """Distance at which a contact begins to act (m)."""
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    condim: tuple[int, ...] = eqx.field(static=True)
    several: bool = eqx.field(static=True, default=True)
    """Whether flat faces touch in several points, MuJoCo's flag ``multiccd``. Boxes always do."""
    cells: tuple[tuple[int, int], ...] = eqx.field(static=True, default=())
    """How many rows and columns of a height field's cells the other shape of each pair may lie
    over, for the pairs with a height field in their order."""


class ContactGroup(NamedTuple):
    """The candidate contact points of all pairs of one ``condim``, in the world."""

    distance: Float[Array, " n"]
    point: Float[Array, "n 3"]
    frame: Float[Array, "n 3 3"]
    """Rows: normal, first tangent, second tangent."""
    pair: np.ndarray | Int[Array, " n"]
    """The pair of each point."""
    bodies: np.ndarray | Int[Array, "n 2"]
    """Both bodies of each point; the world is −1, or the last row if these are no constants."""
    dim: int
    """The pairs' ``condim``, the number of rows of each contact."""
    every: np.ndarray
    """Both bodies of each candidate, also of those that were left out; the world is −1."""
    crowded: Bool[Array, ""]
    """Whether points that act had to be left out."""
    dims: Int[Array, " n"] | None = None
    """The ``condim`` of each point; rows beyond it do nothing. None if all have ``dim``."""


Terrain = Callable[[Array], Array]
"""A height function ``(x, y) -> z`` (m)."""


class Candidates(eqx.Module):
    """All candidate contact points of pairs of one ``condim``, in the world."""

    points: ContactPoints
    crowded: Bool[Array, ""]
    """Whether there may be more, of pairs with height fields."""
    pair: tuple[int, ...] = eqx.field(static=True)
    """The pair of each point."""
    dim: int = eqx.field(static=True)


def candidates(
    shapes: Shapes,
    pairs: Pairs,
    terrain: Terrain | None,
    R: Float[Array, "frames 3 3"],
    p: Float[Array, "frames 3"],
) -> list[Candidates]:
    """The candidate contact points by ``condim``, for given poses of the bodies in the world.

    Args:
        shapes: the shapes. pairs: the pairs that may touch.
        terrain: a height function that replaces the planes, or None.
        R: orientations of the bodies. p: their origins (m). The last row is the world's.
    """
    R_shape, p_shape = shapes.placed(R, p)

    kinds_of = [(shapes.kinds[i], shapes.kinds[j]) for i, j in pairs.shapes]
    convex = np.array([k for k, x in enumerate(kinds_of) if x in CONVEX_PAIRS], dtype=np.int32)
    met = [Pair(kinds_of[k], *pairs.shapes[k]) for k in convex]
    margin = pairs.margin[convex]
    searched = convex_pairs(shapes, met, R_shape, p_shape, margin, pairs.several)
    fields = _on_fields(shapes, pairs, R_shape, p_shape)

    def touch(kinds, members) -> ContactPoints:
        """The points of pairs of two kinds, in one row for each pair."""
        i, j = np.array([pairs.shapes[m] for m in members], dtype=np.int32).T
        if kinds in searched:
            own, points = searched[kinds]
            rows = np.flatnonzero(np.isin(convex[own], members))
            return jax.tree.map(lambda x: x[rows], points)
        reach = pairs.margin[np.array(members, dtype=np.int32)]
        return simple_pairs(shapes, terrain, kinds, i, j, R_shape, p_shape, reach)

    found = []
    for dim, kinds in _grouped(shapes, pairs):
        touches, owners, crowded = [], [], jnp.zeros((), bool)
        for names, members in kinds.items():
            if names[0] == "hfield":
                for m in members:
                    touches.append(fields[m][0])
                    owners.append(np.repeat(m, fields[m][0].distance.shape[0]))
                    crowded = crowded | fields[m][1]
                continue
            t = touch(names, members)
            owners.append(np.repeat(members, t.distance.shape[1]))
            touches.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), t))
        owner = tuple(np.concatenate(owners).tolist())
        found.append(Candidates(_joined(touches), crowded, owner, dim))
    return found


def _joined(touches: list[ContactPoints]) -> ContactPoints:
    """The points of several lists in one."""
    if len(touches) == 1:
        return touches[0]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *touches)


def room_for(found: list[Candidates], most: int | None) -> int:
    """How many points there is room for, if there is room for so many of each ``condim``."""
    return sum(len(x.pair) if most is None else min(most, len(x.pair)) for x in found)


def grouped(
    shapes: Shapes, pairs: Pairs, found: list[Candidates], world: int, most: int | None = None
) -> list[ContactGroup]:
    """The candidates with the frames of their contacts.

    Args:
        shapes: the shapes. pairs: the pairs that may touch.
        found: the candidates of these pairs.
        world: the row of the world among the bodies.
        most: how many points of each ``condim`` to keep; the first of those that act. None keeps
            all candidates.
    """
    body = np.array(shapes.bodies, dtype=np.int32)
    groups = []
    for x in found:
        t, owner, crowded = x.points, np.array(x.pair), x.crowded
        ij = np.array([pairs.shapes[m] for m in owner], dtype=np.int32)
        own, every = owner, body[ij]
        both: np.ndarray | Array = every
        if most is not None and most < len(owner):
            t, place, more = first_of(t, t.distance < pairs.margin[owner], most)
            crowded = crowded | more
            own, both = (jnp.asarray(x)[place] for x in (owner, np.where(every < 0, world, every)))
        frame = contact_frame(t.normal, t.tangent)
        groups.append(ContactGroup(t.distance, t.point, frame, own, both, x.dim, every, crowded))
    return groups


CHUNK = 4
"""So many points of a :class:`Touching` are handled at a time."""


class Touching(NamedTuple):
    """The contact points that act, first among all candidates, in chunks of a few points.

    A loop over the chunks ends with the last that has a point which acts.
    """

    points: ContactPoints
    """All candidates of all pairs."""
    place: Int[Array, "chunks k"]
    """The numbers of the candidates that act, in their order; then anything."""
    count: Int[Array, ""]
    """How many act."""
    pair: np.ndarray
    """The pair of each candidate."""
    dims: np.ndarray
    """The ``condim`` of each candidate."""
    every: np.ndarray
    """Both bodies of each candidate; the world is −1."""
    world: int
    """The row of the world among the bodies."""
    crowded: Bool[Array, ""]
    """Whether points that act had to be left out."""

    @property
    def chunks(self) -> Int[Array, ""]:
        """How many chunks have points that act."""
        return (self.count + CHUNK - 1) // CHUNK

    def chunk(self, k: Int[Array, ""]) -> ContactGroup:
        """The k-th chunk; points that do not act are far away."""
        at = self.place[k]
        return self.group(k * CHUNK, at, jax.tree.map(lambda x: x[at], self.points))

    def blocks(self, size: int):
        """The first, the numbers and the points of blocks of so many points, in rows."""
        place = self.place.reshape(-1)
        place = jnp.pad(place, (0, -len(place) % size)).reshape(-1, size)
        first = jnp.arange(0, place.size, size, dtype=jnp.int32)
        at = place.reshape(-1)  # looked up in one row, which makes one loop of the way back
        points = jax.tree.map(lambda x: x[at].reshape(*place.shape, *x.shape[1:]), self.points)
        return first, place, points

    def group(self, first: Int[Array, ""], at: Int[Array, " k"], t: ContactPoints) -> ContactGroup:
        """Some points that follow each other, from their numbers; those that do not act are far."""
        real = first + np.arange(len(at), dtype=np.int32) < self.count
        distance = jnp.where(real, t.distance, FAR)
        both = np.where(self.every < 0, self.world, self.every).astype(np.int32)
        own, both, dims = (jnp.asarray(x)[at] for x in (self.pair, both, self.dims))
        frame = contact_frame(t.normal, t.tangent)
        dim = int(max(self.dims))
        mixed = None if (self.dims == dim).all() else dims
        return ContactGroup(
            distance, t.point, frame, own, both, dim, self.every, self.crowded, mixed
        )


def touching(
    shapes: Shapes,
    pairs: Pairs,
    found: list[Candidates],
    world: int,
    most: int | None,
) -> Touching:
    """The points that act.

    Args:
        shapes: the shapes. pairs: the pairs that may touch.
        found: the candidates of these pairs.
        world: the row of the world among the bodies.
        most: how many points of each ``condim`` there is room for; None for all candidates.
    """
    points = _joined([x.points for x in found])
    pair = np.concatenate([x.pair for x in found]).astype(np.int32)
    dims = np.concatenate([np.full(len(x.pair), x.dim) for x in found]).astype(np.int32)
    room = -(-room_for(found, most) // CHUNK) * CHUNK
    place, count = acting_first(points.distance < pairs.margin[pair], room)
    crowded = jnp.stack([count > room, *(x.crowded for x in found)]).any()
    every = np.array(shapes.bodies, dtype=np.int32)[np.array(pairs.shapes, dtype=np.int32)[pair]]
    count = jnp.minimum(count, room)
    return Touching(points, place.reshape(-1, CHUNK), count, pair, dims, every, world, crowded)


def _on_fields(shapes: Shapes, pairs: Pairs, R, p) -> dict[int, tuple[ContactPoints, Array]]:
    """The points of pairs with height fields by their numbers, and whether there may be more."""
    own = [k for k, (i, _) in enumerate(pairs.shapes) if shapes.kinds[i] == "hfield"]
    if not own:
        return {}
    met = [FieldPair(*pairs.shapes[k], x) for k, x in zip(own, pairs.cells, strict=True)]
    found = field_points(shapes, met, R, p, pairs.margin[np.array(own, dtype=np.int32)])
    return dict(zip(own, found, strict=True))


def simple_pairs(
    shapes: Shapes,
    terrain: Terrain | None,
    kinds: tuple[str, str],
    first: np.ndarray,
    second: np.ndarray,
    R: Float[Array, "ng 3 3"],
    p: Float[Array, "ng 3"],
    reach: Float[Array, " n"] | None = None,
) -> ContactPoints:
    """The contact points of pairs that have closed forms, for shapes placed in the world.

    The points of pairs that are farther apart than ``reach`` are far away (m).
    """

    def one(Ri, pi, si, Rj, pj, sj):
        if kinds[0] != "plane":
            return PAIRS[kinds](Ri, pi, si, Rj, pj, sj)
        if terrain is None:
            plane = Ground(pi, Ri[:, 2])
            return on_ground(kinds[1], lambda _: plane, Rj, pj, sj)
        height = terrain
        return on_ground(kinds[1], lambda x: tangent_plane(height, x), Rj, pj, sj)

    both: list = [x[k] for k in (first, second) for x in (R, p, shapes.size)]
    if kinds[1] == "mesh":
        hull = np.array(shapes.hulls, dtype=np.int32)[second]
        faces = np.array(shapes.faces, dtype=np.int32)[hull]
        both[-1] = (shapes.corners[hull], jnp.asarray(faces))
    if kinds not in SLOW or reach is None:
        return jax.vmap(one)(*both)
    sides = [
        bodies_of([kind] * len(at), R[at], p[at], shapes.size[at], None)
        for kind, at in zip(kinds, (first, second), strict=True)
    ]
    like = jax.eval_shape(one, *(x[0] for x in both))

    # the way back computes near pairs again, and keeps nothing of any pair

    @jax.checkpoint
    def touch(_, pair):
        inputs, a, b, reach = pair

        def none() -> ContactPoints:
            up = jnp.zeros_like(like.normal).at[:, 2].set(1)
            return ContactPoints(jnp.full_like(like.distance, FAR), 0 * up, up, 0 * up)

        near = is_near(*jax.lax.stop_gradient((a, b, reach)))
        return _, jax.lax.cond(near, lambda: jax.checkpoint(one)(*inputs), none)

    return jax.lax.scan(touch, None, (tuple(both), *sides, reach))[1]


def _grouped(shapes: Shapes, pairs: Pairs) -> list[tuple[int, dict[tuple[str, str], list[int]]]]:
    """The numbers of the pairs by ``condim``, and by the kinds of both shapes within."""
    found: dict[int, dict[tuple[str, str], list[int]]] = {}
    for i, (a, b) in enumerate(pairs.shapes):
        kinds = shapes.kinds[a], shapes.kinds[b]
        found.setdefault(pairs.condim[i], {}).setdefault(kinds, []).append(i)
    return sorted(found.items())
