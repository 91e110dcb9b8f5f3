"""Every loop over bodies: passes from root to leaves and back, and sums along the tree.

An algorithm says what happens at one node, an executor here decides how the nodes are visited:

- ``"bodies"``: ``lax.scan`` over the nodes, one after the other: the least work.
- ``"levels"`` (recursions): ``lax.scan`` over the depths, all nodes of a depth at once.
- ``"doubling"`` (products, sums): log₂(depth) rounds over all nodes at once, without a loop.
- ``"mask"`` (sums): one product with the 0/1 matrix of ancestors.

Which one is the default was measured (``python -m benchmarks formulations``);
:func:`with_executors` overrides it for a robot.

Values are pytrees with a leading axis of one row a node; inside, they travel as one flat array,
since XLA:CPU is slow at loops that carry many small ones. A loop over bodies carries the values
of those few nodes alone that still wait for a child (``Slots``): a batch of them stays in cache.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from ..model._model import Model, _merge, _rows
from ..model._topology import Topology, Tree

_MASK_LIMIT = 128  # above this many nodes a dense ancestor mask costs more than it saves


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


EXECUTORS = ("bodies", "levels", "doubling", "mask")


def with_executors(model: Model, *names: str) -> Model:
    """The same robot, whose passes over the tree are done by the executors named.

    Args:
        model: the robot.
        names: of ``"bodies"`` (recursions, products and sums along the tree), ``"levels"``
            (recursions), ``"mask"`` (sums) and ``"doubling"`` (sums, products), those to be used,
            the preferred one first; where none of the names applies, and with no name at all,
            what was measured to be fastest.

    Returns:
        A robot with the same leaves. The choice is part of its static structure, so that compiled
        functions are compiled again for it; results agree but for rounding.

    Raises:
        ValueError: for a name that is none of these.
    """
    unknown = [n for n in names if n not in EXECUTORS]
    if unknown:
        raise ValueError(f"with_executors: no executor {unknown}; there are {list(EXECUTORS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, executors=names))


def _choice(tree: Tree, executor: str | None, *options: str) -> str:
    """The executor asked for, or the first option; options are sorted by what was measured."""
    return next((n for n in (executor, *tree.executors) if n in options), options[0])


def loops_are_cheap() -> bool:
    """Whether short steps of a loop cost little: on a CPU, while on an accelerator each is kernels.

    Where they do, a recursion over the bodies is faster than the same by dense products.
    """
    return jax.default_backend() == "cpu"


def _passes() -> tuple[str, str]:
    """Executors of recursions, the faster one first.

    On CPUs one node after the other is 2 to 5 times faster in a batch and little slower on one
    sample; on an accelerator levels have the fewest kernels (counted, not run: ``kernels.md``).
    """
    return ("bodies", "levels") if loops_are_cheap() else ("levels", "bodies")


def _sums(tree: Tree) -> tuple[str, ...]:
    """Executors of sums, the fastest one first."""
    return ("mask", *_products()) if tree.n <= _MASK_LIMIT else (*_products(), "mask")


def _products() -> tuple[str, str]:
    """Executors of associative products, the faster one first.

    On CPUs the loop also wins since its result is stored: XLA computes the rounds of doubling
    anew in every expression that uses them.
    """
    return ("bodies", "doubling") if loops_are_cheap() else ("doubling", "bodies")


def root_to_leaf(
    tree: Tree, step: Callable, x: Any, world: Any, executor: str | None = None
) -> Any:
    """Values of all nodes, each from its parent's: ``value_i = step(value_parent, x_i)``.

    Args:
        tree: the nodes.
        step: ``(parent_value, x_i) -> value_i``, unbatched; the same pytree structure in and out.
        x: inputs, leading axis of one row a node.
        world: the value above the roots.
        executor: ``"bodies"`` or ``"levels"``; by default what was measured to be faster.
    """
    value = _Flat(world, 0)
    top = value.pack(world, 0)
    if tree.n == 0:
        return value.unpack(jnp.zeros((0, top.shape[0]), top.dtype))
    inputs = _Flat(x, 1)
    xs = inputs.pack(x, 1)

    def flat_step(parent: Array, row: Array) -> Array:
        return value.pack(step(value.unpack(parent), inputs.unpack(row)), 0)

    if _choice(tree, executor, *_passes()) == "bodies":
        slots = tree.slots

        def body(values, own_parent_row):
            own, parent, row = own_parent_row
            new = flat_step(values[parent], row)
            return values.at[own].set(new), new

        start = jnp.zeros((slots.count, top.shape[0]), top.dtype).at[slots.world].set(top)
        rows = jnp.asarray(slots.own), jnp.asarray(slots.parent), xs
        return value.unpack(jax.lax.scan(body, start, rows)[1])

    levels = tree.levels
    _, width = levels.shape

    def level(above, slots_rows):
        slots, rows = slots_rows
        new = jax.vmap(flat_step)(above[slots], rows)
        return new, new

    start = jnp.broadcast_to(top, (width, top.shape[0]))
    _, out = jax.lax.scan(level, start, (jnp.asarray(levels.parent_slots), xs[levels.nodes]))
    return value.unpack(out.reshape(-1, top.shape[0])[levels.position])


def leaf_to_root(tree: Tree, step: Callable, x: Any, zero: Any, executor: str | None = None) -> Any:
    """Outputs of all nodes, each from what its children send up.

    Args:
        tree: the nodes.
        step: ``(x_i, sum_over_children) -> (message_i, out_i)``, unbatched.
        x: inputs, leading axis of one row a node.
        zero: the sum at a leaf; the structure of a message.
        executor: ``"bodies"`` or ``"levels"``; by default what was measured to be faster.

    Returns:
        The ``out_i``, stacked.
    """
    message = _Flat(zero, 0)
    empty = message.pack(zero, 0)
    inputs = _Flat(x, 1)
    xs = inputs.pack(x, 1)
    if tree.n == 0:
        row = jnp.zeros(xs.shape[1:], xs.dtype)
        out = jax.eval_shape(lambda r: step(inputs.unpack(r), zero)[1], row)
        return jax.tree.map(lambda s: jnp.zeros((0, *s.shape), xs.dtype), out)

    def flat_step(row: Array, below: Array):
        up, out = step(inputs.unpack(row), message.unpack(below))
        return message.pack(up, 0), out

    if _choice(tree, executor, *_passes()) == "bodies":
        slots = tree.slots

        def body(sums, x):
            own, parent, leaf, last, row = x
            up, out = flat_step(row, jnp.where(leaf, empty, sums[own]))
            return sums.at[parent].set(jnp.where(last, up, sums[parent] + up)), out

        start = jnp.zeros((slots.count, empty.shape[0]), empty.dtype)
        static = slots.own, slots.parent, slots.leaf, slots.last
        rows = (*(jnp.asarray(x) for x in static), xs)
        return jax.lax.scan(body, start, rows, reverse=True)[1]

    levels = tree.levels
    _, width = levels.shape

    def level(below, gather_rows):
        gather, rows = gather_rows
        sums = jnp.matmul(gather, below, precision="highest")
        return jax.vmap(flat_step)(rows, sums)

    start = jnp.zeros((width, empty.shape[0]), empty.dtype)
    gather = jnp.asarray(levels.gather, empty.dtype)
    _, out = jax.lax.scan(level, start, (gather, xs[levels.nodes]), reverse=True)
    return jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:])[levels.position], out)


def ancestor_product(tree: Tree, operation: Callable, x: Any, one: Any) -> Any:
    """``x_root ∘ … ∘ x_parent ∘ x_i`` for every node, for an associative ``operation`` on rows.

    One body after the other, or by pointer doubling: after round k each node holds the product
    over its 2ᵏ nearest ancestors. ``one`` is the neutral value of a row.
    """
    if _choice(tree, None, *_products()) == "bodies":
        return root_to_leaf(tree, operation, x, one, "bodies")
    return _double(tree, operation, x)


def _double(tree: Tree, operation: Callable, x: Any) -> Any:
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
    executor = _choice(tree, None, *_sums(tree))
    if executor == "mask":
        mask = jnp.asarray(tree.ancestor_mask, x.dtype)
        return jnp.matmul(mask, x, precision="highest")
    if executor == "doubling":
        return _double(tree, jnp.add, x)
    return root_to_leaf(tree, jnp.add, x, jnp.zeros(x.shape[1:], x.dtype), executor)


def subtree_sum(tree: Tree, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Sum over each node and its descendants; the transpose of :func:`ancestor_sum`."""
    executor = _choice(tree, None, *_sums(tree))
    if executor == "mask":
        mask = jnp.asarray(tree.ancestor_mask.T, x.dtype)
        return jnp.matmul(mask, x, precision="highest")
    if executor == "doubling":
        for up in tree.jumps:
            has = np.flatnonzero(up >= 0)
            x = x.at[up[has]].add(x[has])
        return x

    def add(row, below):
        total = row + below
        return total, total

    return leaf_to_root(tree, add, x, jnp.zeros(x.shape[1:], x.dtype), executor)


def subtree_sum_about(
    tree: Tree, translate: Callable, p: Float[Array, "n 3"], x: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """Sum over each node and its descendants of what is taken about a point ``p`` of each.

    ``translate(r, x)``: what is taken about one point, about another from which that lies at r.
    Unlike sums about one point for all, these are small differences of large numbers nowhere.
    """
    passes = _passes()
    options = (*passes, "doubling") if loops_are_cheap() else ("doubling", *passes)
    executor = _choice(tree, None, *options)
    if executor == "doubling":
        for up in tree.jumps:
            has = np.flatnonzero(up >= 0)
            x = x.at[up[has]].add(translate(p[has] - p[up[has]], x[has]))
        return x

    def add(row, below):
        r, own = row
        total = own + below
        return translate(r, total), total

    r = p - p[np.maximum(np.array(tree.parents, dtype=int), 0)]  # unused at roots
    return leaf_to_root(tree, add, (r, x), jnp.zeros(x.shape[1:], x.dtype), executor)


# --- between degrees of freedom and bodies -------------------------------------------------------


def sum_dofs(topology: Topology, x: Float[Array, "nv k"]) -> Float[Array, "nb k"]:
    """Sum the rows of each body's degrees of freedom."""
    widths = np.diff(topology.v_starts)
    parts = []
    for w in np.unique(widths):
        bodies = np.flatnonzero(widths == w)
        rows = _rows(x, topology.v_starts[bodies][:, None] + np.arange(w))
        parts.append((bodies, rows[:, 0] if w == 1 else rows.sum(axis=1)))
    return _merge(parts, x)


def of_bodies(topology: Topology, x: Shaped[Array, "nb *k"]) -> Shaped[Array, "nv *k"]:
    """The row of the body that each degree of freedom moves."""
    return _rows(x, topology.dof_bodies)
