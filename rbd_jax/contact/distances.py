"""Signed distances of the shapes of a scene, with derivatives."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..derivatives.custom_jvp.kinematics import world_quantities_custom_jvp
from ..lanes import lanes
from ..model.arguments import ArrayArgument, check_array
from .collision.detection import simple_pairs
from .collision.many import Pair, convex_pairs
from .collision.support import CONVEX, ROUND
from .scene import Scene
from .weights import with_world

ORDER = ("plane", *CONVEX)


class Distances(NamedTuple):
    """Signed distances of pairs of shapes (m), negative where they overlap."""

    distance: Float[Array, " n"]
    points: Float[Array, "n 2 3"]
    """The nearest points of both shapes in the world (m); the deepest ones if they overlap."""
    normal: Float[Array, "n 3"]
    """From the first shape to the second."""
    names: tuple[tuple[str, str], ...]


class _Chosen(eqx.Module):
    """Pairs of shapes by their numbers."""

    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)


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
            that may touch if None. Shapes are those of ``scene.contacts.shapes``; geoms that touch
            nothing are not among them.

    Raises:
        KeyError: for a name that no shape has.
        ValueError: for two planes, for a shape and itself, or for a q of another size.
    """
    q = check_array("distances", scene.model, "q", q, ArrayArgument(("nq",), "float", False, False))
    shapes = scene.contacts.shapes
    chosen = scene.contacts.pairs.shapes if pairs is None else _numbers(shapes, pairs)
    named = tuple((shapes.names[i], shapes.names[j]) for i, j in chosen)
    if not chosen:
        none = jnp.zeros((0,), scene.model.dtype)
        return Distances(none, none.reshape(0, 2, 3), none.reshape(0, 3), ())
    d, points, normal = _distances(scene, q, _Chosen(tuple(chosen)))
    return Distances(d, points, normal, named)


def _numbers(shapes, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    at = {name: k for k, name in enumerate(shapes.names)}
    for name in (x for pair in pairs for x in pair):
        if name not in at:
            raise KeyError(
                f"distances: no shape is named {name!r}; there are {', '.join(shapes.names)}"
            )
    found = [(at[a], at[b]) for a, b in pairs]
    for i, j in found:
        if i == j or {shapes.kinds[i], shapes.kinds[j]} == {"plane"}:
            raise ValueError(
                f"distances: {shapes.names[i]!r} and {shapes.names[j]!r} are one shape or two "
                f"planes, which have no distance"
            )
    return found


@lanes
def _distances(scene: Scene, q: Float[Array, " nq"], chosen: _Chosen):
    contacts = scene.contacts
    shapes = contacts.shapes
    poses, root = world_quantities_custom_jvp(scene.model, q)
    zero = jnp.zeros((3,), root.dtype)
    R_bodies = with_world(poses.R, jnp.eye(3, dtype=root.dtype))
    R, p = shapes.placed(R_bodies, with_world(poses.p + root, zero))
    groups: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for k, (i, j) in enumerate(chosen.pairs):
        kinds = shapes.kinds[i], shapes.kinds[j]
        swap = ORDER.index(kinds[0]) > ORDER.index(kinds[1])
        kinds = (kinds[1], kinds[0]) if swap else kinds
        groups.setdefault(kinds, []).append((k, swap))
    found, order = [], []
    convex: list[tuple[int, bool]] = []

    def add(d, x, n, members) -> None:
        sign = np.array([-1.0 if swap else 1.0 for _, swap in members]).astype(root.dtype)[:, None]
        n = sign * n
        half = 0.5 * d[:, None] * n
        found.append((d, jnp.stack([x - half, x + half], axis=1), n))
        order.extend(k for k, _ in members)

    for kinds, members in groups.items():
        if kinds[0] != "plane" and not all(k in ROUND for k in kinds):
            convex.extend(members)
            continue
        both = [chosen.pairs[k][::-1] if swap else chosen.pairs[k] for k, swap in members]
        i, j = np.array(both, dtype=np.int32).T
        t = simple_pairs(shapes, contacts.terrain, kinds, i, j, R, p)
        row = np.arange(t.distance.shape[1], dtype=np.int32)[None]
        least = jnp.argmin(t.distance, axis=1).astype(jnp.int32)[:, None] == row
        d = jnp.sum(jnp.where(least, t.distance, 0), axis=1)
        x, n = (jnp.sum(jnp.where(least[..., None], y, 0), axis=1) for y in t[1:3])
        add(d, x, n, members)
    ends = [chosen.pairs[k][::-1] if swap else chosen.pairs[k] for k, swap in convex]
    met = [Pair((shapes.kinds[i], shapes.kinds[j]), i, j) for i, j in ends]
    for own, t in convex_pairs(shapes, met, R, p, None, False).values():
        add(t.distance[:, 0], t.point[:, 0], t.normal[:, 0], [convex[k] for k in own])
    place = np.argsort(order)
    return jax.tree.map(lambda *x: jnp.concatenate(x)[place], *found)
