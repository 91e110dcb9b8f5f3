"""A pass over the tree as one kernel of a GPU, every lane with one robot: an experiment.

The step of a recursion is taken apart into single numbers (:mod:`benchmarks._scalars`); a number is
a vector over the robots of a block, and the kernel, in Pallas for Mosaic GPU, is a loop over the
bodies that keeps the inside of a step in registers. What a body leaves to others goes through
memory, which of few robots at a time is the cache. Algorithms do not change:

    with lanes.used():
        jax.vmap(rbd.rnea, (None, 0, 0, 0))(model, q, v, a)

It was compiled for a GPU and checked in Pallas' interpreter, and never run on a GPU; that is why
it is not an executor of ``rbd_jax``. It cannot be differentiated in reverse.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jaxtyping import Array

from rbd_jax.algorithms import _tree
from rbd_jax.derivatives import _rules

from ._scalars import array, evaluate, operations

LANES = 128  # robots in a block: the threads of a warp group


class Kernel(NamedTuple):
    """What a kernel does for a robot: times its loop runs; numbers moved, operations, each time."""

    trips: int
    moved: int
    computed: int


@contextmanager
def used(interpret: bool = False) -> Iterator[list[Kernel]]:
    """Within, passes over the tree that are under a ``vmap`` are kernels (``interpret``: on a CPU).

    All dynamics go through recursions then. Functions have to be traced and lowered within: what
    was compiled before does not change.

    Yields:
        The kernels, as they are traced.
    """
    kernels = []
    down, up = (partial(f, kernels, interpret) for f in (_root_to_leaf, _leaf_to_root))
    passes = {
        "root_to_leaf": down,
        "leaf_to_root": up,
        "ancestor_product": down,
        "ancestor_sum": lambda tree, x: down(tree, jnp.add, x, jnp.zeros_like(x[0])),
        "subtree_sum": lambda tree, x: up(tree, _sum, x, jnp.zeros_like(x[0])),
        "loops_are_cheap": lambda: True,
    }
    with mock.patch.object(_rules, "DENSE_LIMITS", (0, 0, 0)), ExitStack() as stack:
        for name, replacement in passes.items():
            original = getattr(_tree, name)
            for module in [m for k, m in sys.modules.items() if k.startswith("rbd_jax.")]:
                if module is not _tree and getattr(module, name, None) is original:
                    stack.enter_context(mock.patch.object(module, name, replacement))
        yield kernels


def _sum(row, below):
    return row + below, row + below


# --- the passes, as those of ``rbd_jax.algorithms._tree``; without a vmap, the same ---------------


def _root_to_leaf(kernels, interpret, tree, step: Callable, x: Any, world: Any) -> Any:
    program = jax.make_jaxpr(step)(world, jax.tree.map(lambda y: y[0], x))
    rows, treedef = jax.tree.flatten(x)
    tops, structure = jax.tree.flatten(world)

    def kernel(parents, rows, values):
        rows, start = rows[: -len(tops)], rows[-len(tops) :]
        for v, y in zip(values, start, strict=True):
            v.write(tree.n, y.read(0))  # the world is the last row

        def body(i, _):
            above = [v.read(parents[i]) for v in values]
            own = [y.read(i) for y in rows]
            for v, new in zip(values, evaluate(program, [*above, *own]), strict=True):
                v.write(i, new)

        jax.lax.fori_loop(0, tree.n, body, None)

    @custom_vmap
    def run(*arguments):
        x = jax.tree.unflatten(treedef, arguments[: len(rows)])
        world = jax.tree.unflatten(structure, [y[0] for y in arguments[len(rows) :]])
        return jax.tree.leaves(_tree.root_to_leaf(tree, step, x, world))

    @run.def_vmap
    def _(robots, mapped, *arguments):
        out = [_rows(tree.n + 1, y) for y in tops]
        kernels.append(_kernel(tree, program))
        found = _run(kernel, robots, mapped, tree.parent_rows, arguments, out, interpret)
        return [y[:, : tree.n] for y in found], [True] * len(found)

    return jax.tree.unflatten(structure, run(*rows, *(y[None] for y in tops)))


def _leaf_to_root(kernels, interpret, tree, step: Callable, x: Any, zero: Any) -> Any:
    slots = tree.slots
    example = jax.tree.map(lambda y: y[0], x)
    program, (_, out) = jax.make_jaxpr(step, return_shape=True)(example, zero)
    rows, treedef = jax.tree.flatten(x)
    messages = jax.tree.leaves(zero)
    outs, structure = jax.tree.flatten(out)

    def kernel(table, rows, results):
        results, sums = results[: len(outs)], results[len(outs) :]

        def body(k, _):
            i = tree.n - 1 - k
            own, parent, leaf, last = (table[i, j] for j in range(4))
            below = [s.read(own, unless=leaf) for s in sums]
            new = evaluate(program, [*(y.read(i) for y in rows), *below])
            for s, message in zip(sums, new, strict=False):
                s.write(parent, s.read(parent, unless=last) + message)
            for y, value in zip(results, new[len(sums) :], strict=True):
                y.write(i, value)

        jax.lax.fori_loop(0, tree.n, body, None)

    @custom_vmap
    def run(*rows):
        x = jax.tree.unflatten(treedef, rows)
        return jax.tree.leaves(_tree.leaf_to_root(tree, step, x, zero))

    @run.def_vmap
    def _(robots, mapped, *rows):
        shapes = [_rows(tree.n, y) for y in outs] + [_rows(slots.count, y) for y in messages]
        kernels.append(_kernel(tree, program))
        table = np.stack([slots.own, slots.parent, slots.leaf, slots.last], axis=1)
        found = _run(kernel, robots, mapped, table, rows, shapes, interpret)[: len(outs)]
        return found, [True] * len(found)

    return jax.tree.unflatten(structure, run(*rows))


# --- the kernel ----------------------------------------------------------------------------------


def _kernel(tree, program) -> Kernel:
    moved = sum(x.size for x in (*program.in_avals, *program.out_avals))
    return Kernel(tree.n, moved, operations(program))


def _rows(n: int, row) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((n, *row.shape), row.dtype)


class _Rows:
    """An array (n, …) of every robot, or one for all, inside the kernel: rows of numbers."""

    def __init__(self, ref, shape: tuple[int, ...], here):
        self.ref, self.shape, self.lead = ref, shape, (here,) if ref.ndim == 3 else ()

    def read(self, row, unless=None) -> np.ndarray:
        """A row as an array of numbers; zeros if ``unless``."""
        numbers = (self.ref[(row, k, *self.lead)] for k in range(math.prod(self.shape)))
        if unless is not None:
            numbers = (jnp.where(unless > 0, jnp.zeros_like(x), x) for x in numbers)
        return array(numbers, self.shape)

    def write(self, row, numbers: np.ndarray) -> None:
        """Store a row of numbers."""
        for k, x in enumerate(numbers.flat):
            self.ref[(row, k, *self.lead)] = jnp.full((LANES,), x, self.ref.dtype)


def _run(kernel, robots, mapped, table, arguments, outputs, interpret) -> list[Array]:
    """Call ``kernel(table, rows of arguments, rows of outputs)`` with every robot in a lane."""
    blocks = -(-robots // LANES)

    def lay_out(x, m):  # ([robots,] n, …) to (n, k[, lanes])
        x = x.reshape(*x.shape[: m + 1], math.prod(x.shape[m + 1 :]))
        more = (0, 0), (0, 0), (0, blocks * LANES - robots)
        return jnp.pad(jnp.moveaxis(x, 0, -1), more, mode="edge") if m else x

    shapes = [x.shape[m + 1 :] for x, m in zip(arguments, mapped, strict=True)]
    shapes += [y.shape[1:] for y in outputs]

    def body(table, *refs):
        here = pl.ds(pl.program_id(0) * LANES, LANES)
        rows = [_Rows(ref, s, here) for ref, s in zip(refs, shapes, strict=True)]
        kernel(table, rows[: len(arguments)], rows[len(arguments) :])

    memory = pl.BlockSpec(memory_space=mosaic_gpu.GMEM)
    flat = [(y.shape[0], math.prod(y.shape[1:]), blocks * LANES) for y in outputs]
    found = pl.pallas_call(
        body,
        grid=(blocks,),
        in_specs=[memory] * (1 + len(arguments)),
        out_specs=[memory] * len(outputs),
        out_shape=[jax.ShapeDtypeStruct(s, y.dtype) for s, y in zip(flat, outputs, strict=True)],
        compiler_params=mosaic_gpu.CompilerParams(),
        interpret=interpret,
    )(jnp.asarray(table, jnp.int32), *map(lay_out, arguments, mapped))
    return [
        jnp.moveaxis(y[..., :robots], -1, 0).reshape(robots, *of.shape)
        for y, of in zip(found, outputs, strict=True)
    ]
