"""Signed distances of the shapes of a scene, with derivatives."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.custom_jvp.kinematics import world_quantities_custom_jvp
from ..lanes import lanes
from ..model import Model
from ..model.arguments import ArrayArgument, check_array
from ..model.functions import as_module
from .collision.detection import simple_pairs
from .collision.many import Pair, convex_pairs
from .collision.shapes import Shapes
from .collision.support import CONVEX, ROUND
from .scene import Scene
from .weights import with_world

ORDER = ("plane", *CONVEX)
CLOSED = [(a, b) for a in ROUND for b in ROUND] + [("sphere", "box")]
"""Pairs of kinds whose contact points have closed forms that are distances also where they
overlap."""


class Distances(NamedTuple):
    """Signed distances of pairs of shapes (m), negative where they overlap."""

    distance: Float[Array, " n"]
    points: Float[Array, "n 2 3"]
    """The nearest points of both shapes in the world (m); the deepest ones if they overlap."""
    normal: Float[Array, "n 3"]
    """From the first shape to the second."""
    names: tuple[tuple[str, str], ...]


class PlacedShapes(eqx.Module):
    """Shapes on bodies, and the pairs of them whose distances are wanted."""

    shapes: Shapes
    terrain: Callable[[Array], Array] | None = eqx.field(converter=as_module)
    """A height function ``(x, y) -> z`` (m) that replaces the planes, or None."""
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """The numbers of two shapes each."""

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of both shapes of each pair."""
        named = self.shapes.names
        return tuple((named[i], named[j]) for i, j in self.pairs)

    @property
    def bodies(self) -> tuple[tuple[int, int], ...]:
        """The bodies of both shapes of each pair; the world is −1."""
        bodies = self.shapes.bodies
        return tuple((bodies[i], bodies[j]) for i, j in self.pairs)


def distances(
    scene: Scene, q: Float[Array, " nq"], pairs: Sequence[tuple[str, str]] | None = None
) -> Distances:
    """The signed distances of pairs of shapes at a configuration, such as MuJoCo's
    ``mj_geomDistance``.

    Derivatives are those of the optimality conditions of the nearest points. They are exact while
    the nearest features of both shapes stay the same, and finite everywhere.

    Args:
        scene: a scene with shapes.
        q: configuration.
        pairs: the names of two shapes each, which need not be a pair that may touch. All pairs
            that may touch if None, but for those with height fields, which have no distance here.
            Shapes are those of ``scene.contacts.shapes``; geoms that touch nothing are not among
            them.

    Raises:
        KeyError: for a name that no shape has.
        ValueError: for two planes, for a shape and itself, for a height field, or for a q of
            another size.
    """
    q = check_array("distances", scene.model, "q", q, ArrayArgument(("nq",), "float", False, False))
    placed = shapes_of(scene, pairs)
    return Distances(*distances_of(scene.model, q, placed), placed.names)


def shapes_of(scene: Scene, pairs: Sequence[tuple[str, str]] | None = None) -> PlacedShapes:
    """The shapes of a scene and pairs of them by names; those that may touch if None."""
    contacts = scene.contacts
    kinds = contacts.shapes.kinds
    every = [x for x in contacts.pairs.shapes if kinds[x[0]] != "hfield"]
    chosen = every if pairs is None else numbers(contacts.shapes, pairs)
    return PlacedShapes(contacts.shapes, contacts.terrain, tuple(chosen))


def numbers(shapes, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Pairs of shapes by their numbers. KeyError, ValueError as in :func:`distances`."""
    at = {name: k for k, name in enumerate(shapes.names)}
    for name in (x for pair in pairs for x in pair):
        if name not in at:
            raise KeyError(
                f"distances: no shape is named {name!r}; there are {', '.join(shapes.names)}"
            )
    found = [(at[a], at[b]) for a, b in pairs]
    for i, j in found:
        if "hfield" in (shapes.kinds[i], shapes.kinds[j]):
            raise ValueError(
                f"distances: {shapes.names[i]!r} or {shapes.names[j]!r} is a height field, which "
                f"has contacts with other shapes, but no distance"
            )
        if i == j or {shapes.kinds[i], shapes.kinds[j]} == {"plane"}:
            raise ValueError(
                f"distances: {shapes.names[i]!r} and {shapes.names[j]!r} are one shape or two "
                f"planes, which have no distance"
            )
    return found


@lanes
def distances_of(model: Model, q: Float[Array, " nq"], placed: PlacedShapes):
    """Distances, nearest points and normals of all pairs, of a robot with independent joints."""
    poses, root = world_quantities_custom_jvp(model, q)
    return between(placed, poses.R, poses.p + root)


def between(
    placed: PlacedShapes, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]
) -> tuple[Float[Array, " n"], Float[Array, "n 2 3"], Float[Array, "n 3"]]:
    """Distances, nearest points and normals of all pairs, for poses of the bodies in the world."""
    shapes, kind = placed.shapes, p.dtype
    if not placed.pairs:
        none = jnp.zeros((0,), kind)
        return none, none.reshape(0, 2, 3), none.reshape(0, 3)
    world = jnp.eye(3, dtype=kind), jnp.zeros((3,), kind)
    R, p = shapes.placed(with_world(R, world[0]), with_world(p, world[1]))
    groups: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for k, (i, j) in enumerate(placed.pairs):
        kinds = shapes.kinds[i], shapes.kinds[j]
        swap = ORDER.index(kinds[0]) > ORDER.index(kinds[1])
        kinds = (kinds[1], kinds[0]) if swap else kinds
        groups.setdefault(kinds, []).append((k, swap))
    found, order = [], []
    convex: list[tuple[int, bool]] = []

    def add(d, x, n, members) -> None:
        sign = np.array([-1.0 if swap else 1.0 for _, swap in members]).astype(kind)[:, None]
        n = sign * n
        half = 0.5 * d[:, None] * n
        found.append((d, jnp.stack([x - half, x + half], axis=1), n))
        order.extend(k for k, _ in members)

    for kinds, members in groups.items():
        if kinds[0] != "plane" and kinds not in CLOSED:
            convex.extend(members)
            continue
        both = [placed.pairs[k][::-1] if swap else placed.pairs[k] for k, swap in members]
        i, j = np.array(both, dtype=np.int32).T
        t = simple_pairs(shapes, placed.terrain, kinds, i, j, R, p)
        row = np.arange(t.distance.shape[1], dtype=np.int32)[None]
        least = jnp.argmin(t.distance, axis=1).astype(jnp.int32)[:, None] == row
        d = jnp.sum(jnp.where(least, t.distance, 0), axis=1)
        x, n = (jnp.sum(jnp.where(least[..., None], y, 0), axis=1) for y in t[1:3])
        add(d, x, n, members)
    ends = [placed.pairs[k][::-1] if swap else placed.pairs[k] for k, swap in convex]
    met = [Pair((shapes.kinds[i], shapes.kinds[j]), i, j) for i, j in ends]
    for own, t in convex_pairs(shapes, met, R, p, None, False).values():
        add(t.distance[:, 0], t.point[:, 0], t.normal[:, 0], [convex[k] for k in own])
    place = np.argsort(order)
    return jax.tree.map(lambda *x: jnp.concatenate(x)[place], *found)
