"""Every loop over bodies: passes from root to leaves and back, and sums along the tree.

An algorithm says what happens at one node. How the nodes are visited is another matter: each pass
has several forms, which are plain functions here, and :mod:`rbd_jax.algorithms.formulations` says
which one runs.

- ``bodies``: ``lax.scan`` over the nodes, one after the other, which is the least work.
- ``levels`` (recursions): ``lax.scan`` over the depths, all nodes of a depth at once.
- ``doubling`` (products, sums): log₂(depth) rounds over all nodes at once, without a loop.
- ``mask`` (sums): one product with the 0/1 matrix of ancestors.

Values are pytrees with a leading axis of one row for each node. Inside they are packed into one
flat array, because XLA on CPUs is slow at loops that carry many small arrays. A loop over bodies
carries only the values of nodes that still wait for a child (``Slots``), so that a batch stays in
the cache.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import dynamic_update_index_in_dim as put
from jaxtyping import Array, Float, Shaped

from ..model import Topology, Tree
from ..model.rows import merge_rows, take_rows
from ..spatial import linear
from . import formulations


class _Flat:
    """Pack a pytree of arrays that share their leading axes into one array, and back."""

    def __init__(self, tree: Any, lead: int):
        leaves, self.treedef = jax.tree.flatten(tree)
        self.shapes = [x.shape[lead:] for x in leaves]
        self.sizes = [math.prod(s) for s in self.shapes]
        self.cuts = np.cumsum(self.sizes)[:-1].tolist()

    def pack(self, tree: Any, lead: int) -> Array:
        leaves = jax.tree.leaves(tree)
        flat = [x.reshape(*x.shape[:lead], n) for x, n in zip(leaves, self.sizes, strict=True)]
        return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=-1)

    def unpack(self, flat: Array) -> Any:
        parts = jnp.split(flat, self.cuts, axis=-1)
        lead = flat.shape[:-1]
        leaves = [x.reshape(*lead, *s) for x, s in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.treedef, leaves)


def root_to_leaf(tree: Tree, step: Callable, x: Any, world: Any) -> Any:
    """Values of all nodes, each from its parent's: ``value_i = step(value_parent, x_i)``.

    Args:
        tree: the nodes.
        step: ``(parent_value, x_i) -> value_i``, unbatched; the same pytree structure in and out.
        x: inputs, with a leading axis of one row for each node.
        world: the value above the roots.
    """
    value = _Flat(world, 0)
    top = value.pack(world, 0)
    if tree.n == 0:
        return value.unpack(jnp.zeros((0, top.shape[0]), top.dtype))
    inputs = _Flat(x, 1)
    xs = inputs.pack(x, 1)

    def flat_step(parent: Array, row: Array) -> Array:
        return value.pack(step(value.unpack(parent), inputs.unpack(row)), 0)

    down = formulations.for_recursions(bodies=_down_by_bodies, levels=_down_by_levels)
    return value.unpack(down(tree, flat_step, xs, top))


def _down_by_bodies(tree: Tree, step: Callable, xs: Array, top: Array) -> Array:
    slots = tree.slots

    def body(values, own_parent_row):
        own, parent, row = own_parent_row
        new = step(values[parent], row)
        return put(values, new, own, 0), new

    start = jnp.zeros((slots.count, top.shape[0]), top.dtype).at[slots.world].set(top)
    rows = jnp.asarray(slots.own), jnp.asarray(slots.parent), xs
    return jax.lax.scan(body, start, rows)[1]


def _down_by_levels(tree: Tree, step: Callable, xs: Array, top: Array) -> Array:
    levels = tree.levels
    _, width = levels.shape

    def level(above, slots_rows):
        slots, rows = slots_rows
        new = jax.vmap(step)(above[slots], rows)
        return new, new

    start = jnp.broadcast_to(top, (width, top.shape[0]))
    _, out = jax.lax.scan(level, start, (jnp.asarray(levels.parent_slots), xs[levels.nodes]))
    return out.reshape(-1, top.shape[0])[levels.position]


def leaf_to_root(tree: Tree, step: Callable, x: Any, zero: Any) -> Any:
    """Outputs of all nodes, each from what its children send up.

    Args:
        tree: the nodes.
        step: ``(x_i, sum_over_children) -> (message_i, out_i)``, unbatched.
        x: inputs, with a leading axis of one row for each node.
        zero: the sum at a leaf; the structure of a message.

    Returns:
        The ``out_i``, stacked.
    """
    message, inputs = _Flat(zero, 0), _Flat(x, 1)
    empty, xs = message.pack(zero, 0), inputs.pack(x, 1)
    if tree.n == 0:
        row = jnp.zeros(xs.shape[1:], xs.dtype)
        out = jax.eval_shape(lambda r: step(inputs.unpack(r), zero)[1], row)
        return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), xs.dtype), out)

    def flat_step(row: Array, below: Array):
        up, out = step(inputs.unpack(row), message.unpack(below))
        return message.pack(up, 0), out

    up = formulations.for_recursions(bodies=_up_by_bodies, levels=_up_by_levels)
    return up(tree, flat_step, xs, empty)


def _up_by_bodies(tree: Tree, step: Callable, xs: Array, empty: Array) -> Any:
    slots = tree.slots

    def body(sums, x):
        own, parent, leaf, last, row = x
        up, out = step(row, jnp.where(leaf, empty, sums[own]))
        return put(sums, jnp.where(last, up, sums[parent] + up), parent, 0), out

    start = jnp.zeros((slots.count, empty.shape[0]), empty.dtype)
    places = map(jnp.asarray, (slots.own, slots.parent, slots.leaf, slots.last))
    return jax.lax.scan(body, start, (*places, xs), reverse=True)[1]


def _up_by_levels(tree: Tree, step: Callable, xs: Array, empty: Array) -> Any:
    levels = tree.levels
    _, width = levels.shape

    def level(below, gather_rows):
        gather, rows = gather_rows
        return jax.vmap(step)(rows, linear.matmul(gather, below))

    start = jnp.zeros((width, empty.shape[0]), empty.dtype)
    gather = jnp.asarray(levels.gather, empty.dtype)
    _, out = jax.lax.scan(level, start, (gather, xs[levels.nodes]), reverse=True)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[levels.position], out)


def ancestor_product(tree: Tree, operation: Callable, x: Any, one: Any) -> Any:
    """``x_root ∘ … ∘ x_parent ∘ x_i`` for every node, for an associative ``operation`` on rows.

    ``one`` is the neutral value of a row.
    """
    product = formulations.for_products(bodies=root_to_leaf, doubling=_product_by_doubling)
    return product(tree, operation, x, one)


def _product_by_doubling(tree: Tree, operation: Callable, x: Any, _one: Any = None) -> Any:
    """After round k each node holds the product over its 2ᵏ nearest ancestors."""
    for up in tree.jumps:
        has = up >= 0
        above = jax.tree.map(lambda y, up=up: y[np.maximum(up, 0)], x)
        product = operation(above, x)
        x = jax.tree.map(
            lambda new, old, has=has: jnp.where(has.reshape(-1, *[1] * (old.ndim - 1)), new, old),
            product,
            x,
        )
    return x


def ancestor_sum(tree: Tree, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Sum over each node and its ancestors."""
    total = formulations.for_sums(
        tree.n,
        bodies=_ancestor_sum_by_bodies,
        doubling=_ancestor_sum_by_doubling,
        mask=_ancestor_sum_by_mask,
    )
    return total(tree, x)


def _ancestor_sum_by_bodies(tree: Tree, x: Array) -> Array:
    return root_to_leaf(tree, jnp.add, x, jnp.zeros(x.shape[1:], x.dtype))


def _ancestor_sum_by_doubling(tree: Tree, x: Array) -> Array:
    return _product_by_doubling(tree, jnp.add, x)


def _ancestor_sum_by_mask(tree: Tree, x: Array) -> Array:
    return linear.matmul(jnp.asarray(tree.ancestor_mask, x.dtype), x)


def subtree_sum(tree: Tree, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Sum over each node and its descendants; the transpose of :func:`ancestor_sum`."""
    total = formulations.for_sums(
        tree.n,
        bodies=_subtree_sum_by_bodies,
        doubling=_subtree_sum_by_doubling,
        mask=_subtree_sum_by_mask,
    )
    return total(tree, x)


def _subtree_sum_by_bodies(tree: Tree, x: Array) -> Array:
    def add(row, below):
        total = row + below
        return total, total

    return leaf_to_root(tree, add, x, jnp.zeros(x.shape[1:], x.dtype))


def _subtree_sum_by_doubling(tree: Tree, x: Array) -> Array:
    for up in tree.jumps:
        has = np.flatnonzero(up >= 0)
        x = x.at[up[has]].add(x[has])
    return x


def _subtree_sum_by_mask(tree: Tree, x: Array) -> Array:
    return linear.matmul(jnp.asarray(tree.ancestor_mask.T, x.dtype), x)


def subtree_sum_about(
    tree: Tree, translate: Callable, p: Float[Array, "n 3"], x: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """Sum over each node and its descendants of moments, each about a point ``p`` of its node.

    ``translate(r, x)`` takes the moment x about one point to another point, from which the first
    one lies at r. Sums about one common point would be small differences of large numbers; these
    are not.
    """
    total = formulations.for_products(bodies=_moments_by_bodies, doubling=_moments_by_doubling)
    return total(tree, translate, p, x)


def _moments_by_bodies(tree: Tree, translate: Callable, p: Array, x: Array) -> Array:
    def add(row, below):
        r, own = row
        total = own + below
        return translate(r, total), total

    r = p - p[np.maximum(np.array(tree.parents, dtype=int), 0)]  # unused at roots
    return leaf_to_root(tree, add, (r, x), jnp.zeros(x.shape[1:], x.dtype))


def _moments_by_doubling(tree: Tree, translate: Callable, p: Array, x: Array) -> Array:
    for up in tree.jumps:
        has = np.flatnonzero(up >= 0)
        x = x.at[up[has]].add(translate(p[has] - p[up[has]], x[has]))
    return x


# --- pairs of a node and one of its ancestors ---------------------------------------------------


def ancestor_matrices(above: np.ndarray, entries: Callable, x: Any) -> tuple[Array, ...]:
    """Square matrices whose entries couple nodes of one branch; all others are zero.

    Args:
        above: ``above[i, j]``: node j is node i, an ancestor of it, or moves the same body; bool
            (n, n).
        entries: ``(x_i, x_j) -> ((A_ij, A_ji), (B_ij, B_ji), …)`` for such a pair. Where ``above``
            holds both ways, ``A_ij`` counts.
        x: rows of the nodes.
    """
    matrices = formulations.for_pairs(ancestors=_matrices_by_ancestors, mask=_matrices_by_mask)
    return matrices(above, entries, x)


def _matrices_by_ancestors(above: np.ndarray, entries: Callable, x: Any) -> tuple[Array, ...]:
    i, j = np.nonzero(above)
    rows = jax.vmap(entries)(*(jax.tree.map(lambda y, k=k: y[k], x) for k in (i, j)))
    zeros = jnp.zeros((len(above), len(above)), jax.tree.leaves(x)[0].dtype)
    return tuple(zeros.at[j, i].set(high).at[i, j].set(low) for low, high in rows)


def _matrices_by_mask(above: np.ndarray, entries: Callable, x: Any) -> tuple[Array, ...]:
    rows = jax.vmap(lambda a: jax.vmap(lambda b: entries(a, b))(x))(x)
    zero = jax.tree.leaves(x)[0].dtype.type(0)
    return tuple(
        jnp.where(above, low, jnp.where(above.T, jnp.swapaxes(high, 0, 1), zero))
        for low, high in rows
    )


def ancestor_entries(above: np.ndarray, entries: Callable, x: Any) -> tuple[Array, ...]:
    """The entries of :func:`ancestor_matrices` that may differ from zero, without the zeros.

    First come the ``A_ij`` where ``above`` holds, row by row, then the ``A_ji`` where it does not
    hold the other way round.
    """
    i, j = np.nonzero(above)
    two = np.flatnonzero(~above[j, i])
    rows = jax.vmap(entries)(*(jax.tree.map(lambda y, k=k: y[k], x) for k in (i, j)))
    return tuple(jnp.concatenate([low, high[two]]) for low, high in rows)


def ancestor_rows(tree: Tree, entry: Callable, x: Any) -> Float[Array, " pairs"]:
    """``entry(x_i, x_j)`` of every node i and every ancestor j of it, in the order of the pairs."""
    i, j = tree.pairs
    return jax.vmap(entry)(*(jax.tree.map(lambda y, k=k: y[k], x) for k in (i, j)))


def factor_along_branches(
    tree: Tree, M: Float[Array, "n d"]
) -> tuple[Float[Array, " pairs"], Float[Array, " n"]]:
    """``(L, Ψ)`` with ``Lᵀ Ψ⁻¹ L`` the matrix M, as :func:`solve_along_branches` takes them.

    ``M[i, k]`` is of node i and its ancestor at depth k. Source: Featherstone, Table 6.3, by rows.
    """
    (n, d), (i, j) = M.shape, tree.pairs

    def eliminate(M, row):
        i, depth, above = row
        l = M[i] / M[i, depth]
        return M.at[above].add(-l[:, None] * M[i][None]), (l, 1 / M[i, depth])

    start = jnp.concatenate([M, jnp.zeros((1, d), M.dtype)])
    rows = jnp.arange(n), jnp.asarray(tree.depths), jnp.asarray(_ancestors_by_depth(tree, d))
    _, (L, psi) = jax.lax.scan(eliminate, start, rows, reverse=True)
    return L.reshape(-1)[i * d + tree.depths[j]], psi


class BranchLU(NamedTuple):
    """``Hᵀ Ψ⁻¹ L``: row i of L and H belongs to node i, column k to its ancestor at depth k."""

    L: Float[Array, "n d"]
    H: Float[Array, "n d"]
    psi: Float[Array, " n"]


def lu_along_branches(tree: Tree, low: Float[Array, "n d"], high: Float[Array, "n d"]) -> BranchLU:
    """The factors of a matrix that is not symmetric and couples nodes with their ancestors.

    ``low[i, k]`` is the entry in row i and in the column of the ancestor of i at depth k, and
    ``high[i, k]`` the entry in the row of that ancestor and in column i. The leaves are eliminated
    first, which fills in no zero, and without pivots. Source: Featherstone, Table 6.3, for two
    triangles.
    """
    n, d = low.shape

    def eliminate(matrix, row):
        low, high = matrix
        i, depth, above = row
        psi = 1 / low[i, depth]
        l, h = (jnp.where(above < n, psi * x[i], 0) for x in (low, high))
        change = h[:, None] * low[i][None], l[:, None] * high[i][None]
        return (low.at[above].add(-change[0]), high.at[above].add(-change[1])), (l, h, psi)

    start = tuple(jnp.concatenate([x, jnp.zeros((1, d), x.dtype)]) for x in (low, high))
    rows = jnp.arange(n), jnp.asarray(tree.depths), jnp.asarray(_ancestors_by_depth(tree, d))
    return BranchLU(*jax.lax.scan(eliminate, start, rows, reverse=True)[1])


def lu_solve(tree: Tree, factor: BranchLU, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """``(Hᵀ Ψ⁻¹ L)⁻¹ b``."""
    n, d = factor.L.shape
    rows = jnp.arange(n), jnp.asarray(_ancestors_by_depth(tree, d))

    def up(b, row):
        i, above, h = row
        return b.at[above].add(-h * b[i]), None

    def down(x, row):
        i, above, l, y = row
        new = y - jnp.sum(l * x[above])
        return x.at[i].set(new), new

    b = jnp.concatenate([b, jnp.zeros((1,), b.dtype)])
    y = factor.psi * jax.lax.scan(up, b, (*rows, factor.H), reverse=True)[0][:-1]
    return jax.lax.scan(down, jnp.zeros_like(b), (*rows, factor.L, y))[1]


def _ancestors_by_depth(tree: Tree, d: int) -> np.ndarray:
    """The ancestor of each node at each depth; the row n, beyond the last one, for no ancestor."""
    i, j = tree.pairs
    above = np.full((tree.n, d), tree.n, dtype=np.int32)
    above[i, tree.depths[j]] = j
    return above


def solve_along_branches(
    tree: Tree, L: Float[Array, " pairs"], psi: Float[Array, " n"], B: Float[Array, "n m"]
) -> Float[Array, "n m"]:
    """``(Lᵀ Ψ⁻¹ L)⁻¹ B`` for a unit matrix L whose other entries couple nodes with ancestors.

    Source: Featherstone, Rigid Body Dynamics Algorithms, §6.5. No zero of L is filled in.
    """
    if len(tree.pairs[0]) == 0 or B.size == 0:
        return psi[:, None] * B

    def up(B, pair):
        l, i, j = pair
        return B.at[j].add(-l * B[i]), None

    def solve(B):
        B = jax.lax.scan(up, B, (L, *map(jnp.asarray, tree.pairs)), reverse=True)[0]
        return down_along_branches(tree, L, psi[:, None] * B)

    return some_columns_at_once(solve, B)


def some_columns_at_once(
    solve: Callable, B: Float[Array, "n m"], numbers: int = 1
) -> Float[Array, "n m"]:
    """``solve(B)``, a function of each column, for as many columns at once as stay in the cache.

    ``numbers`` says how many numbers a step carries for each column.
    """
    n, m = B.shape
    width = formulations.columns_at_once(m, numbers)
    if width == m:
        return solve(B)
    parts = jnp.swapaxes(B.reshape(n, m // width, width), 0, 1)
    return jnp.swapaxes(jax.lax.map(solve, parts), 0, 1).reshape(n, m)


def down_along_branches(tree: Tree, L: Float[Array, " pairs"], B: Float[Array, "n m"]) -> Array:
    """``L⁻¹ B``, the second half of :func:`solve_along_branches`."""

    def down(B, pair):
        l, i, j = pair
        return B.at[i].add(-l * B[j]), None

    return jax.lax.scan(down, B, (L, *map(jnp.asarray, tree.pairs)))[0]


# --- between degrees of freedom and bodies -------------------------------------------------------


def sum_dofs(topology: Topology, x: Float[Array, "nv k"]) -> Float[Array, "nb k"]:
    """Sum the rows of each body's degrees of freedom."""
    widths = np.diff(topology.v_starts)
    parts = []
    for w in np.unique(widths):
        bodies = np.flatnonzero(widths == w)
        rows = take_rows(x, topology.v_starts[bodies][:, None] + np.arange(w))
        parts.append((bodies, rows[:, 0] if w == 1 else rows.sum(axis=1)))
    return merge_rows(parts, x)


def per_dof(topology: Topology, x: Shaped[Array, "nb *k"]) -> Shaped[Array, "nv *k"]:
    """The row of its body for each degree of freedom: rows of bodies are repeated."""
    return take_rows(x, topology.dof_bodies)


def at_first_dof(topology: Topology, x: Array, otherwise: Any = 0) -> Shaped[Array, "nv *k"]:
    """The rows of the bodies at the first degree of freedom of each joint, a value at others."""
    return _at(topology.first_dofs, per_dof(topology, x), otherwise)


def at_last_dof(topology: Topology, x: Array, otherwise: Any = 0) -> Shaped[Array, "nv *k"]:
    """The rows of the bodies at the last degree of freedom of each joint, a value at others."""
    return _at(topology.last_dofs, per_dof(topology, x), otherwise)


def _at(where: np.ndarray, rows: Array, otherwise: Any) -> Array:
    return jnp.where(where.reshape(-1, *[1] * (rows.ndim - 1)), rows, otherwise)
