"""Contact points of convex shapes with height fields.

Source: MuJoCo's documentation, "XML reference", asset, hfield, and its collider of height fields. A
height field is a grid of cells, and each cell is two triangular prisms that reach down to the base.
Each prism that a shape touches is a pair of convex shapes with one contact point.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...spatial import so3
from .ground import FAR, ContactPoints, first_of
from .many import close_points, search
from .shapes import HeightField, Shapes
from .support import CORNERS, Body, bodies, turned

MOST = 50
"""The most contact points of a shape with a height field; the first in the order of the cells."""
ROWS = np.array([[1, 0, 1], [0, 1, 0]], dtype=np.int32)
COLUMNS = np.array([[0, 0, 1], [0, 1, 1]], dtype=np.int32)
"""The corners of a cell that are those of its two prisms, each with one row or column more or not.
"""


class _Window(NamedTuple):
    """The cells over which a shape lies."""

    first: Int[Array, "2"]
    """The row and the column of the first cell."""
    behind: Int[Array, "2"]
    """The row and the column behind the last cell."""
    low: Float[Array, ""]
    """The height of the lowest point of the shape (m)."""


def cells_of(field: HeightField, width: float) -> tuple[int, int]:
    """How many rows and columns of cells a shape may lie over.

    Args:
        field: the height field. width: the largest extent of the shape in any direction (m).
    """
    count = np.array(field.heights.shape) - 1
    step = 2 * np.asarray(field.half, float)[::-1] / count
    most = np.minimum(count, np.ceil(width / step).astype(int) + 1)
    return int(most[0]), int(most[1])


class FieldPair(NamedTuple):
    """A height field and another shape by their numbers."""

    first: int
    second: int
    cells: tuple[int, int]
    """How many rows and columns of cells the shape may lie over."""


def field_points(
    shapes: Shapes,
    pairs: list[FieldPair],
    R: Float[Array, "ng 3 3"],
    p: Float[Array, "ng 3"],
    margin: Float[Array, " n"],
) -> list[tuple[ContactPoints, Bool[Array, ""]]]:
    """The contact points of each pair, and whether there may be more of them.

    There may be more where the shape lies over more cells than the pair has room for.

    Args:
        shapes: all shapes. pairs: the pairs.
        R: orientations of all shapes in the world. p: their places (m).
        margin: the distance at which a contact of each pair acts (m).
    """
    found: dict[int, tuple[ContactPoints, Bool[Array, ""]]] = {}
    for mesh in (False, True):
        own = [k for k, x in enumerate(pairs) if (shapes.kinds[x.second] == "mesh") == mesh]
        if own:
            some = _points(shapes, [pairs[k] for k in own], R, p, margin[np.array(own)])
            found |= dict(zip(own, some, strict=True))
    return [found[k] for k in range(len(pairs))]


def _points(shapes: Shapes, pairs: list[FieldPair], R, p, margin):
    """The points of pairs in which the other shapes are meshes, or of pairs without meshes."""
    second = np.array([x.second for x in pairs])
    kinds = [shapes.kinds[k] for k in second]
    hulls = np.array([shapes.hulls[k] for k in second])
    corners = shapes.corners[hulls] if kinds[0] == "mesh" else None
    others = bodies(kinds, R[second], p[second], shapes.size[second], corners)
    prisms, counts, crowded = [], [], []
    for k, x in enumerate(pairs):
        field = shapes.fields[shapes.kinds[: x.first].count("hfield")]
        other = jax.tree.map(lambda y: y[k], others)  # noqa: B023
        window = _window(field, R[x.first], p[x.first], other, margin[k])
        own, real = _prisms(field, window, x.cells)
        prisms.append(_bodies(own, R[x.first], p[x.first]))
        counts.append(real)
        room = np.array(x.cells, dtype=np.int32)
        crowded.append((window.behind - window.first > room).any())
    sizes = [len(x) for x in counts]
    owner = np.repeat(np.arange(len(pairs), dtype=np.int32), sizes)
    every = jax.tree.map(lambda *x: jnp.concatenate(x), *prisms)
    reach = jnp.where(jnp.concatenate(counts), margin[owner], -FAR)

    def touch(_, one):
        prism, k, reach = one
        return _, search(prism, jax.tree.map(lambda x: x[k], others), reach)[1]

    close = jax.lax.scan(touch, None, (every, jnp.asarray(owner), reach))[1]
    distance, point, normal = close_points(close)
    distance = jnp.where(distance < reach, distance, FAR)
    points = ContactPoints(distance, point, normal, 0 * point)
    ends = np.cumsum(sizes)
    each = [
        jax.tree.map(lambda x: x[end - size : end], points)  # noqa: B023
        for end, size in zip(ends, sizes, strict=True)
    ]
    kept = [x if len(x.distance) <= MOST else first_of(x, x.distance < FAR, MOST)[0] for x in each]
    return list(zip(kept, crowded, strict=True))


def _bodies(corners: Float[Array, "n 6 3"], R, p) -> Body:
    """Prisms of a height field at a pose, each with its origin in its middle."""
    middle = jnp.mean(corners, axis=1)
    around = corners - middle[:, None]
    around = jnp.concatenate([around, around[:, : CORNERS - corners.shape[1]]], axis=1)
    size, zero = len(corners), jnp.zeros_like(corners[:, 0, 0])
    turn = jnp.broadcast_to(R[None], (size, 3, 3))
    return Body(turn, turned(R, middle) + p[None], around, zero, jnp.zeros_like(middle), zero)


def _window(field: HeightField, R, p, body: Body, margin) -> _Window:
    """The cells under and over a shape that is larger by the margin (m) than it is.

    Args:
        field: the height field. R: its orientation. p: its place (m). body: the shape.
        margin: the margin (m).
    """
    field, R, p, body, margin = jax.lax.stop_gradient((field, R, p, body, margin))
    turn = so3.matmul(so3.transpose(R), body.R)
    center = so3.rotate_inverse(R, body.p - p)
    corners = turned(turn, body.corners)
    disk = jnp.sqrt(jnp.maximum(0, 1 - turn[:, 2] * turn[:, 2])) * body.disk
    axes = turn * body.axes[None]
    around = disk + jnp.sqrt(so3.dot(axes, axes)) + body.ball + margin
    low = center + jnp.min(corners, axis=0) - around
    high = center + jnp.max(corners, axis=0) + around
    count = np.array(field.heights.shape, dtype=np.int32)[::-1] - 1
    scale = count.astype(np.float32).astype(low.dtype) / (2 * field.half)
    first = jnp.floor((low[:2] + field.half) * scale).astype(jnp.int32)
    behind = jnp.ceil((high[:2] + field.half) * scale).astype(jnp.int32)
    return _Window(jnp.maximum(first, 0)[::-1], jnp.minimum(behind, count)[::-1], low[2])


def _prisms(field: HeightField, window: _Window, cells: tuple[int, int]):
    """The corners of the prisms of all cells, those of the base first, and whether each counts.

    One counts if its cell is in the window, and if a corner is not below the shape.
    """
    (rows, columns), count = cells, np.array(field.heights.shape, dtype=np.int32) - 1
    r = np.repeat(np.arange(rows, dtype=np.int32), columns)
    c = np.tile(np.arange(columns, dtype=np.int32), rows)
    row, column = window.first[0] + r, window.first[1] + c
    inside = (row < window.behind[0]) & (column < window.behind[1])
    row, column = jnp.clip(row, 0, count[0] - 1), jnp.clip(column, 0, count[1] - 1)
    row = (row[:, None, None] + ROWS[None]).reshape(-1, 3)
    column = (column[:, None, None] + COLUMNS[None]).reshape(-1, 3)
    kind = field.half.dtype
    x = 2 * field.half[0] / count[1].astype(kind) * column.astype(kind) - field.half[0]
    y = 2 * field.half[1] / count[0].astype(kind) * row.astype(kind) - field.half[1]
    width = field.heights.shape[1]
    z = field.heights.reshape(-1)[row * width + column]
    bottom = jnp.broadcast_to(-field.base, z.shape)
    corners = jnp.concatenate([jnp.stack([x, y, bottom], -1), jnp.stack([x, y, z], -1)], axis=1)
    counts = jnp.repeat(inside, 2) & (z >= window.low).any(axis=1)
    return corners, counts
