"""MuJoCo's noslip pass: the friction of the solved problem once more, without its softness.

The regularization of friction rows lets contacts creep under a load. The pass starts at the
minimum of the soft problem. It goes through all friction rows several times, one block after the
other, and minimizes the cost without regularization over the friction forces of the block. Normal
forces, limits and equalities keep their forces.

Source: MuJoCo's documentation, "Computation", solvers, noslip; thresholds and the order of rows are
those of MuJoCo's ``mj_solNoSlip``. Departures: the first sweep never ends the pass, and trees
that are coupled by equalities or tendons count as one island even while these are switched off. The
sweeps do not end at the minimum, so that their result depends on the order of contacts. It is
MuJoCo's, except among the points of one pair where a face is clipped or a mesh lies on a plane.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ...derivatives.custom_jvp.matrix_inverse import inverse_custom_jvp
from ...model import Topology
from ...spatial.clamp import clamp
from .rows import Friction, Jacobian, Rows

SINGULAR, WORSE, CLOSE, TINY = 1e-10, 1e-10, 1e-10, 1e-15
"""Determinants and pivots that count as zero; the least growth of the cost that is undone; where
the search for a point on the cone ends; forces that count as zero."""
ROUNDS = 19
"""The most steps of the search for a point on the cone. They are too few where the friction
coefficients of a contact differ by orders of magnitude, in MuJoCo too."""


class NoSlip(eqx.Module):
    """The options of the pass."""

    tolerance: Float[Array, ""]
    """The pass ends when a sweep lowers the cost by less than this times an inertia: that of all
    degrees of freedom of an island, or ``inertia · nv`` without islands."""
    inertia: Float[Array, ""] | None
    """The mean inertia that the file states; None for that of the robot at ``scene.q0``."""
    iterations: int = eqx.field(static=True)
    """The most sweeps."""
    order: tuple[int, ...] = eqx.field(static=True)
    """The place of each pair of shapes in the order in which contacts are visited."""
    islands: bool = eqx.field(static=True)
    """Whether trees that do not touch each other end their sweeps independently."""


class _Blocks(NamedTuple):
    """Blocks of k rows in the order in which they are visited."""

    J: Float[Array, "n k nv"]
    W: Float[Array, "n k nv"]
    """``J M⁻¹``."""
    a_ref: Float[Array, "n k"]
    scale: Float[Array, "n k"]
    limit: Float[Array, " n"]
    padded: Bool[Array, "n k"]
    """Rows that do nothing and fill the blocks up to k rows."""
    island: Int[Array, " n"]


class Soft(NamedTuple):
    """The minimum of the soft problem, from which the pass starts."""

    topology: Topology
    inertia: Float[Array, "nv nv"]
    """The mass matrix, with the armature of tendons."""
    mean: Float[Array, ""]
    """The mean inertia of the robot, see :attr:`NoSlip.inertia`."""
    rows: list[Rows]
    jacobians: list[Jacobian]
    residuals: list[PyTree]
    forces: list[PyTree]
    """The residuals and the forces of all rows at the minimum."""
    a: Float[Array, " nv"]
    """The accelerations at the minimum."""


def without_slip(noslip: NoSlip, soft: Soft) -> tuple[Float[Array, " nv"], list[PyTree]]:
    """The accelerations and the forces of all rows after the pass."""
    nv, a, forces = soft.topology.nv, soft.a, list(soft.forces)
    every = zip(soft.rows, soft.jacobians, soft.residuals, forces, strict=True)
    bounded = [x.friction(J, z, f, soft.topology) for x, J, z, f in every]
    found = {k: x for k, x in enumerate(bounded) if x is not None}
    dry = [k for k, x in found.items() if x.pair is None]
    touching = [k for k in found if k not in dry]
    stages = [some for some in (dry, touching) if some]
    if not stages:
        return a, forces
    trees = _trees(soft.topology)
    island = _islands(noslip, soft.rows, soft.topology, trees)
    inverse = inverse_custom_jvp(soft.inertia)
    orders = [_order(noslip, [found[k] for k in some]) for some in stages]
    blocks, start = [], []
    for some, order in zip(stages, orders, strict=True):
        own = [found[k] for k in some]
        blocks.append(_blocks(own, order, inverse, trees, island))
        start.append(_wide([x.f for x in own])[order])
    numbers = np.arange(len(island), dtype=np.int32)
    if noslip.islands:
        own = island[trees[soft.topology.dof_bodies]][:, None] == numbers[None]
        size = jnp.sum(jnp.where(own, jnp.diag(soft.inertia)[:, None], 0), axis=0)
    else:
        size = jnp.full((len(island),), max(1, nv)) * soft.mean
    least = noslip.tolerance * size

    def sweep(carry, first):
        a, f, done = carry
        gained, new = jnp.zeros_like(least), []
        for x, own in zip(blocks, f, strict=True):
            (a, _), (moved, gain) = jax.lax.scan(_visit, (a, done), (x, own))
            here = x.island[:, None] == numbers[None]
            gained = gained + jnp.sum(jnp.where(here, gain[:, None], 0), axis=0)
            new.append(moved)
        return (a, new, done | (~first & (gained < least))), None

    first = np.arange(noslip.iterations) == 0
    none = jnp.zeros((len(island),), bool)
    (a, after, _), _ = jax.lax.scan(sweep, (a, start, none), jnp.asarray(first))
    for some, order, f in zip(stages, orders, after, strict=True):
        back, begin = jnp.zeros_like(f).at[order].set(f), 0
        for k in some:
            n, size = found[k].f.shape
            forces[k] = soft.rows[k].with_friction(forces[k], back[begin : begin + n, :size])
            begin += n
    return a, forces


def _visit(carry, block):
    """One block: its friction forces, and by how much they lower the cost."""
    (a, done), (x, f) = carry, block
    z = jnp.sum(x.J * a[None], axis=1) - x.a_ref
    A = jnp.sum(x.J[:, None] * x.W[None], axis=2)
    new = _box(A, z, f, x) if len(f) == 1 else _ellipsoid(A, z, f, x)
    moved = new - f
    change = 0.5 * jnp.sum(moved * jnp.sum(A * moved[None], axis=1)) + jnp.sum(moved * z)
    keep = done[x.island] | (change > WORSE)
    moved, change = jnp.where(keep, 0, moved), jnp.where(keep, 0, change)
    return (a + jnp.sum(moved[:, None] * x.W, axis=0), done), (f + moved, -change)


def _box(A: Float[Array, "1 1"], z, f, x: _Blocks) -> Float[Array, "1"]:
    """The best force of one row within its bounds."""
    some = A[0, 0] > TINY
    best = jnp.where(some, f - z / jnp.where(some, A[0, 0], 1), 0)
    bound = x.scale * x.limit
    return clamp(best, -bound, bound)


def _ellipsoid(A: Float[Array, "k k"], z, f, x: _Blocks) -> Float[Array, " k"]:
    """The best forces within the ellipse ``|f / scale| ≤ limit``.

    The multiplier of the bound is found by Newton's method. Derivatives go through its steps.
    """
    k, mu = len(f), x.scale
    b = mu * (z - jnp.sum(A * f[None], axis=1))
    scaled = A * mu[:, None] * mu[None] + jnp.diag(jnp.where(x.padded, 1, 0).astype(f.dtype))
    some = x.limit >= TINY
    r = jnp.where(some, x.limit, 1)
    real = ~x.padded
    few = jnp.sum(real) < 5

    def solved(A, b, extra):
        y, pivots = _solve(A + extra * jnp.eye(k, dtype=A.dtype), b)
        product = jnp.prod(jnp.where(real, pivots, 1))
        least = jnp.where(few, product, jnp.min(jnp.where(real, pivots, jnp.inf)))
        return y, ~(least < SINGULAR)

    def at(A, b, r, extra):
        v, regular = solved(A, -b, extra)
        over = jnp.sum(v * v) - r * r
        return v, over, regular

    def search(state, _):
        extra, ended = state
        v, over, regular = at(scaled, b, r, extra)
        slope = -2 * jnp.sum(v * solved(scaled, v, extra)[0])
        step = -over / jnp.where(slope == 0, -1, slope)
        ended = ended | (over < CLOSE) | ~(step >= CLOSE) | ~regular
        return (jnp.where(ended, extra, extra + step), ended), None

    start = jnp.zeros_like(r), jnp.zeros((), bool)
    (extra, _), _ = jax.lax.scan(search, start, None, length=ROUNDS)
    outside = extra > 0
    v, _, regular = at(scaled, b, r, extra)
    size2 = jnp.sum(v * v)
    scale = jnp.where(outside, r / jnp.sqrt(jnp.where(outside, size2, 1)), 1)
    return jnp.where(some & regular, mu * scale * v, 0)


def _solve(A: Float[Array, "k k"], b: Float[Array, " k"]) -> tuple[Array, Array]:
    """``A⁻¹ b`` and the pivots of a small symmetric A; the solution is zero if A is singular."""
    k = len(b)
    rows = [[A[i, j] for j in range(k)] for i in range(k)]
    y, pivots = [b[i] for i in range(k)], []
    for i in range(k):
        pivot = rows[i][i]
        pivots.append(pivot)
        safe = jnp.where(jnp.abs(pivot) > TINY, pivot, 1)
        rows[i] = [x / safe for x in rows[i]]
        y[i] = y[i] / safe
        for j in range(i + 1, k):
            by = rows[j][i]
            rows[j] = [p - by * q for p, q in zip(rows[j], rows[i], strict=True)]
            y[j] = y[j] - by * y[i]
    for i in reversed(range(k)):
        for j in range(i + 1, k):
            y[i] = y[i] - rows[i][j] * y[j]
    return jnp.stack(y), jnp.stack(pivots)


def _order(noslip: NoSlip, some: list[Friction]) -> np.ndarray | Int[Array, " n"]:
    """The blocks in the order in which they are visited."""
    place = np.array(noslip.order, dtype=np.int32)
    keys = [x.pair if x.place is None else x.place for x in some]
    keys = [x for x in keys if x is not None]
    if all(isinstance(x, np.ndarray) for x in keys):
        own = [
            place[k] if x.place is None else np.asarray(k) for x, k in zip(some, keys, strict=True)
        ]
        return np.argsort(np.concatenate(own), kind="stable").astype(np.int32)
    key = jnp.concatenate([jnp.asarray(place)[k] for k in keys])
    every = np.arange(len(key), dtype=np.int32)
    tie = (key[None] == key[:, None]) & (every[None] < every[:, None])
    at = jnp.sum((key[None] < key[:, None]) | tie, axis=1, dtype=jnp.int32)
    return jnp.zeros((len(key),), jnp.int32).at[at].set(every)


def _wide(parts: list[Array], fill: Any = 0) -> Array:
    """The rows of all parts, filled up to one width."""
    k = max(x.shape[1] for x in parts)
    more = [((0, 0), (0, k - x.shape[1]), *[(0, 0)] * (x.ndim - 2)) for x in parts]
    wide = [jnp.pad(x, m, constant_values=fill) for x, m in zip(parts, more, strict=True)]
    return jnp.concatenate(wide)


def _blocks(some: list[Friction], order, inverse: Array, trees: np.ndarray, island) -> _Blocks:
    J = _wide([x.J for x in some])[order]
    n, k, nv = J.shape
    W = jnp.matmul(J.reshape(n * k, nv), inverse, precision="highest").reshape(J.shape)
    one, two = jnp.concatenate([_ends(x.bodies, trees) for x in some])[order].T
    return _Blocks(
        J,
        W,
        _wide([x.a_ref for x in some])[order],
        _wide([x.scale for x in some], 1)[order],
        jnp.concatenate([x.limit for x in some])[order],
        _wide([jnp.zeros(x.f.shape, bool) for x in some], True)[order],
        island[jnp.maximum(one, two)],
    )


def _trees(topology: Topology) -> np.ndarray:
    """The number of the tree of each body; that of the world is −1."""
    number = np.unique(topology.tree.roots, return_inverse=True)[1].reshape(-1)
    return np.append(number, -1).astype(np.int32)


def _ends(bodies: np.ndarray | Array, trees: np.ndarray) -> Int[Array, "n 2"]:
    """The trees of both bodies of each row; the world is the last body, or −1."""
    return jnp.asarray(trees)[bodies]


def _islands(
    noslip: NoSlip, rows: list[Rows], topology: Topology, trees: np.ndarray
) -> Int[Array, " trees"]:
    """The island of each tree: the first of all trees that rows join with it."""
    n = int(trees.max(initial=-1)) + 1
    meet = np.eye(n, dtype=bool) if noslip.islands else np.ones((n, n), bool)
    for x in rows:
        if x.acting() is None:
            for dofs in x.coupled(topology):
                own = np.unique(trees[topology.dof_bodies[dofs]])
                meet[np.ix_(own, own)] = True
    joined = jnp.asarray(meet.astype(np.int32))
    if n > 1 and not meet.all():
        for x in rows:
            acting = x.acting()
            if acting is not None:
                one, two = _ends(acting[0], trees).T
                acts = (acting[1] & (one >= 0) & (two >= 0)).astype(jnp.int32)
                joined = joined.at[one, two].max(acts).at[two, one].max(acts)
        for _ in range(max(1, (n - 1).bit_length())):
            joined = jnp.minimum(jnp.sum(joined[:, :, None] * joined[None], axis=1), 1)
    return jnp.argmax(joined, axis=1).astype(jnp.int32)
