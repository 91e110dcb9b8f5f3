"""The parts of a robot around a joint that changes: itself, what is below it and above it.

If all quantities change, every node is a node of the joint, and the other parts are empty.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algorithms.tree import leaf_to_root, root_to_leaf, sum_dofs
from ...model import Model, Topology, Tree
from ...model.rows import merge_rows, take_rows
from .perturbation import JointPerturbation, Perturbation, fitting


class Part(NamedTuple):
    """Some nodes of a tree, and how they hang on one another."""

    nodes: np.ndarray
    tree: Tree

    def rows(self, x: Any) -> Any:
        """The rows of these nodes."""
        return jax.tree.map(lambda y: take_rows(y, self.nodes), x)


class Parts(NamedTuple):
    """A tree around the nodes whose own quantities change.

    Values go down from ``outside`` to ``own`` and on to ``below``. Messages go up from ``below`` to
    ``own`` and on to ``above``.
    """

    own: Part
    """The nodes of the joint; or all nodes."""
    below: Part
    """Their descendants."""
    above: Part
    """Their ancestors, one after the other."""
    outside: Part
    """All nodes that are neither of the joint nor below it: ancestors and other branches."""

    @classmethod
    def around(cls, tree: Tree, own: np.ndarray | None) -> "Parts":
        """The parts around the nodes of one joint; None stands for all nodes."""
        n = np.arange(tree.n)
        if own is None:
            nothing = Part(n[:0], tree.part(n[:0]))
            return cls(Part(n, tree), nothing, nothing, nothing)
        inside, above = tree.ancestor_mask[:, own[0]].copy(), tree.ancestor_mask[own[0]].copy()
        below = inside.copy()
        above[own] = below[own] = False
        groups = n[own], n[below], n[above], n[~inside]
        return cls(*(Part(nodes, tree.part(nodes)) for nodes in groups))

    def down(self, step: Callable, x: dict[str, Any], world: tuple) -> dict[str, Any]:
        """Values of the parts that have rows: ``value_i = step(value_parent, x_i)``.

        A value is a tuple of arrays; what is None in ``world`` stays None. Without any array there
        is nothing to compute, and the values are ``world``.
        """
        values = {}
        ends = self.above.nodes[-1:], self.own.nodes[-1:], self.below.nodes[:0]
        for part, last in zip(("outside", "own", "below"), ends, strict=True):
            nodes, tree = getattr(self, part)
            if part not in x or len(nodes) == 0:
                continue
            if not jax.tree.leaves(world):
                values[part] = world
                continue
            values[part] = root_to_leaf(tree, step, x[part], world)
            if len(last):
                at = int(np.searchsorted(nodes, last[0]))
                world = jax.tree.map(lambda y, at=at: y[at], values[part])
        return values

    def up(self, step: Callable, x: dict[str, Any], zeros: dict[str, tuple]) -> dict[str, Any]:
        """Outputs of the parts: ``(message_i, out_i) = step(x_i, sum_over_children)``.

        A message is a tuple; what is None in the zeros of a part does not arise in it. A part
        without any message is left out.
        """
        outs, message = {}, None
        for part in ("below", "own", "above"):
            nodes, tree = getattr(self, part)
            zero = zeros[part]
            if message is not None:
                zero = tuple(z if m is None else m for z, m in zip(zero, message, strict=True))
            if len(nodes) == 0 or not jax.tree.leaves(zero):
                continue

            def keeping(x, below):
                up, out = step(x, below)
                return up, (up, out)

            messages, outs[part] = leaf_to_root(tree, keeping, x[part], zero)
            roots = np.flatnonzero(np.array(tree.parents) < 0)
            message = jax.tree.map(lambda y, k=roots: jnp.sum(take_rows(y, k), axis=0), messages)
        return outs

    def put(self, like: Array, values: dict[str, Any]) -> Array:
        """Rows of parts in their places, and zeros in all others; None stands for zeros."""
        known = [(getattr(self, k).nodes, x) for k, x in values.items() if x is not None]
        taken = np.concatenate([np.zeros(0, int), *(nodes for nodes, _ in known)])
        rest = np.setdiff1d(np.arange(len(like)), taken)
        zeros = jnp.zeros((len(rest), *like.shape[1:]), like.dtype)
        parts = [(nodes, x) for nodes, x in [*known, (rest, zeros)] if len(nodes)]
        return merge_rows(parts, like)

    def widened(self, x: Any) -> Any:
        """Rows of ``above`` among those of ``outside``; other branches have zeros."""
        place = np.searchsorted(self.outside.nodes, self.above.nodes)
        rest = np.setdiff1d(np.arange(len(self.outside.nodes)), place)
        zeros = lambda y: jnp.zeros((len(rest), *y.shape[1:]), y.dtype)  # noqa: E731
        return jax.tree.map(lambda y: merge_rows([(place, y), (rest, zeros(y))], y), x)


class Surroundings:
    """The parts of a robot around one joint that changes; around all joints if it is None."""

    def __init__(self, topology: Topology, joint: int | None):
        starts = topology.v_starts
        own = None if joint is None else np.arange(starts[joint], starts[joint + 1])
        self.topology = topology
        self.joint = joint
        self.bodies = Parts.around(topology.tree, None if joint is None else np.array([joint]))
        """Parts of the tree of bodies."""
        self.dofs = Parts.around(topology.dof_tree, own)
        """Parts of the tree of degrees of freedom."""

    def twists(self, S: Float[Array, "w 6"], x: Float[Array, " w"]) -> Float[Array, "b 6"]:
        """``S x`` of the bodies of ``own``, from the rows of their degrees of freedom."""
        if self.joint is None:
            return sum_dofs(self.topology, S * x[:, None])
        return jnp.sum(S * x[:, None], axis=0, keepdims=True)

    def per_dof(self, part: str, x: Array) -> Array:
        """Rows of the bodies of a part, repeated for each of its degrees of freedom."""
        bodies, dofs = getattr(self.bodies, part).nodes, getattr(self.dofs, part).nodes
        return take_rows(x, np.searchsorted(bodies, self.topology.dof_bodies[dofs]))

    def at_first_dof(self, part: str, x: Array) -> Array:
        """Rows of the bodies of a part at the first degree of freedom of each, zeros at others."""
        return self._at(self.topology.first_dofs, part, x)

    def at_last_dof(self, part: str, x: Array) -> Array:
        """Rows of the bodies of a part at the last degree of freedom of each, zeros at others."""
        return self._at(self.topology.last_dofs, part, x)

    def _at(self, where: np.ndarray, part: str, x: Array) -> Array:
        chosen = where[getattr(self.dofs, part).nodes]
        rows = self.per_dof(part, x)
        return rows if chosen.all() else jnp.where(chosen[:, None], rows, 0)


def rows_and_parts(
    model: Model, d: Perturbation | JointPerturbation
) -> tuple[Perturbation, Surroundings]:
    """The quantities that change, and the parts of the robot around them.

    Raises ValueError for a shape that does not fit the robot.
    """
    if isinstance(d, JointPerturbation):
        joint = model.topology.joint_index(d.joint)
        return fitting(model, d).rows, Surroundings(model.topology, joint)
    return fitting(model, d), Surroundings(model.topology, None)
