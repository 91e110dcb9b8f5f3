"""The shape of a robot: which body hangs on which, by which kind of joint. Static and hashable.

Bodies are numbered depth first, so that a parent comes before its children. −1 is the world.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ._joints import GROUPS

NQ = {kind: group.nq for group in GROUPS for kind in group.kinds}
NV = {kind: group.nv for group in GROUPS for kind in group.kinds}
"""How many numbers a joint of each kind has in q and in v."""


class Tree:
    """A tree by the parents of its nodes (−1 is the world). Parents come before their children."""

    def __init__(self, parents: tuple[int, ...]):
        self.parents = parents
        self.n = len(parents)

    @cached_property
    def parent_rows(self) -> np.ndarray:
        """Parents, with n for the world, to index an array of n+1 rows, (n,)."""
        p = np.array(self.parents, dtype=np.int32).reshape(-1)
        return np.where(p < 0, self.n, p).astype(np.int32)

    @cached_property
    def slots(self) -> "Slots":
        """Where a recursion keeps the values of the nodes while it goes through the tree."""
        return Slots(self)

    @cached_property
    def depths(self) -> np.ndarray:
        """Number of nodes between each node and the world, (n,)."""
        depth = np.zeros(self.n, dtype=np.int32)
        for i, p in enumerate(self.parents):
            depth[i] = 0 if p < 0 else depth[p] + 1
        return depth

    @cached_property
    def roots(self) -> np.ndarray:
        """The node of depth 0 above each node, (n,)."""
        root = np.arange(self.n)
        for i, p in enumerate(self.parents):
            root[i] = i if p < 0 else root[p]
        return root

    @cached_property
    def ancestor_mask(self) -> np.ndarray:
        """``mask[i, j]``: node j is node i or one of its ancestors, bool (n, n)."""
        mask = np.eye(self.n, dtype=bool)
        for i, p in enumerate(self.parents):
            if p >= 0:
                mask[i] |= mask[p]
        return mask

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of a node and an ancestor: nodes in order, nearest ancestors first."""
        i, j = [], []
        for node, up in enumerate(self.parents):
            while up >= 0:
                i.append(node)
                j.append(up)
                up = self.parents[up]
        return np.array(i, dtype=np.int32), np.array(j, dtype=np.int32)

    @cached_property
    def jumps(self) -> list[np.ndarray]:
        """For pointer doubling: the 1st, 2nd, 4th, 8th … ancestor of each node, −1 if none."""
        rounds, up = [], np.array(self.parents, dtype=np.int32).reshape(-1)
        while (up >= 0).any():
            rounds.append(up)
            up = np.where(up >= 0, up[up], -1)
        return rounds

    @cached_property
    def levels(self) -> "Levels":
        """The nodes sorted by depth."""
        return Levels(self)

    def part(self, nodes: np.ndarray) -> "Tree":
        """These nodes alone, in this order. A node whose parent is left out hangs on the world."""
        place = {int(node): k for k, node in enumerate(nodes)}
        return Tree(tuple(place.get(self.parents[node], -1) for node in place))


class Slots:
    """Few places for the values of many nodes: a place is free again after the last child.

    A chain needs one slot, a humanoid five. ``own[i]`` and ``parent[i]`` are the slots of node i
    and of its parent, ``world`` is the slot above the roots, and ``count`` is the number of slots.
    ``leaf[i]`` says that node i has no child. ``last[i]`` says that it is the last child of its
    parent, whose slot it then takes over.
    """

    def __init__(self, tree: Tree):
        n, parents = tree.n, tree.parent_rows
        self.leaf = ~np.isin(np.arange(n), parents)
        last_child = np.full(n + 1, -1)
        last_child[parents] = np.arange(n)  # of equal indices numpy keeps the last
        self.last = last_child[parents] == np.arange(n)
        slots, free, self.count = np.zeros(n + 1, dtype=np.int32), [], 1
        for i, p in enumerate(parents):
            if self.last[i]:
                slots[i] = slots[p]
            elif free:
                slots[i] = free.pop()
            else:
                slots[i], self.count = self.count, self.count + 1
            if self.leaf[i]:
                free.append(slots[i])
        self.own, self.parent, self.world = slots[:n], slots[parents], int(slots[n])


class Levels:
    """Nodes by depth, as tables (L, W); short levels repeat their first node.

    ``nodes[l, w]`` is the node in slot w of level l. ``parent_slots[l, w]`` is its parent's slot in
    level l−1. ``gather[l, w, s]`` is one if the node in slot s of level l+1 is a child of the node
    in slot w. Node i is found at ``position[i] = l W + w``.
    """

    def __init__(self, tree: Tree):
        depth = tree.depths
        height = int(depth.max()) + 1 if tree.n else 0
        rows = [np.flatnonzero(depth == level) for level in range(height)]
        width = max((len(r) for r in rows), default=0)
        slot = np.zeros(tree.n + 1, dtype=np.int32)
        for r in rows:
            slot[r] = np.arange(len(r))
        self.shape = height, width
        self.nodes = np.array([[*r, *[r[0]] * (width - len(r))] for r in rows], dtype=np.int32)
        self.nodes = self.nodes.reshape(self.shape)
        self.parent_slots = slot[tree.parent_rows[self.nodes]] if tree.n else self.nodes
        self.position = (depth * width + slot[: tree.n]).astype(np.int32)
        self.gather = np.zeros((height, width, width))
        for level in range(1, height):
            for s, child in enumerate(rows[level]):
                mine = self.nodes[level - 1] == tree.parents[child]
                self.gather[level - 1, mine, s] = 1.0


@dataclass(frozen=True, eq=False)
class Topology:
    """Static part of a :class:`rbd_jax.Model`.

    Robots that differ only in their name have equal topologies. They can be stacked into a fleet,
    and they share compiled functions.

    ``composites`` lists the joints that stand for several bodies, as ``(name, first, count)``.
    ``mimics`` lists the joints that follow another one, as ``(joint, target, multiplier, offset)``.
    """

    name: str
    parents: tuple[int, ...]
    kinds: tuple[str, ...]
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    frame_names: tuple[str, ...]
    frame_bodies: tuple[int, ...]
    composites: tuple[tuple[str, int, int], ...] = ()
    mimics: tuple[tuple[str, str, float, float], ...] = ()

    @cached_property
    def _key(self) -> tuple:
        return tuple(getattr(self, f) for f in self.__dataclass_fields__ if f != "name")

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._key == other._key)

    def __getstate__(self) -> dict:
        """Only the fields: hashes differ in another process, and tables are made again."""
        return {f: getattr(self, f) for f in self.__dataclass_fields__}

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, nb={self.nb}, nq={self.nq}, nv={self.nv})"

    @property
    def nb(self) -> int:
        """Number of moving bodies."""
        return len(self.parents)

    @cached_property
    def q_starts(self) -> np.ndarray:
        """Where each joint's coordinates start in q, (nb+1,)."""
        return np.cumsum([0, *(NQ[k] for k in self.kinds)])

    @cached_property
    def v_starts(self) -> np.ndarray:
        """Where each joint's velocity starts in v, (nb+1,)."""
        return np.cumsum([0, *(NV[k] for k in self.kinds)])

    @cached_property
    def nq(self) -> int:
        """Number of configuration coordinates."""
        return int(self.q_starts[-1])

    @cached_property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return int(self.v_starts[-1])

    @cached_property
    def dof_bodies(self) -> np.ndarray:
        """The body that each degree of freedom moves, (nv,)."""
        return np.repeat(np.arange(self.nb), np.diff(self.v_starts))

    @cached_property
    def first_dofs(self) -> np.ndarray:
        """Whether a degree of freedom is the first of its joint, bool (nv,)."""
        return np.isin(np.arange(self.nv), self.v_starts[:-1])

    @cached_property
    def last_dofs(self) -> np.ndarray:
        """Whether a degree of freedom is the last of its joint, bool (nv,)."""
        return np.isin(np.arange(self.nv), self.v_starts[1:] - 1)

    @cached_property
    def tree(self) -> Tree:
        """The tree of bodies."""
        return Tree(self.parents)

    @cached_property
    def dofs_above(self) -> np.ndarray:
        """``[i, j]``: degree of freedom j moves the body of i or one above it, bool (nv, nv)."""
        b = self.dof_bodies
        return self.tree.ancestor_mask[np.ix_(b, b)]

    @cached_property
    def coupled(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of all pairs of degrees of freedom on one branch.

        Only such entries of the mass matrix and of the derivatives of torques may differ from zero.
        First come the pairs whose column moves the body of the row or one above it, then the
        transposed ones of two bodies.
        """
        i, j = np.nonzero(self.dofs_above)
        two = ~self.dofs_above[j, i]
        return np.concatenate([i, j[two]]), np.concatenate([j, i[two]])

    @cached_property
    def dof_tree(self) -> Tree:
        """The tree of degrees of freedom; the degrees of freedom of a joint follow one another."""
        parents = []
        for i, p in enumerate(self.parents):
            above = int(self.v_starts[p + 1]) - 1 if p >= 0 else -1
            parents += [above, *range(self.v_starts[i], self.v_starts[i + 1] - 1)]
        return Tree(tuple(int(p) for p in parents))

    def joints_alone(self, joints: tuple[int, ...], new: tuple[str, ...] = ()) -> "Topology":
        """The joints with these numbers, each on the world, and new numbers after them by name."""
        at = {joint: k for k, joint in enumerate(joints)}
        names = (*(self.joint_names[i] for i in joints), *new)
        return Topology(
            name=self.name,
            parents=(-1,) * len(names),
            kinds=(*(self.kinds[i] for i in joints), *("revolute" for _ in new)),
            body_names=(*(self.body_names[i] for i in joints), *new),
            joint_names=names,
            frame_names=(),
            frame_bodies=(),
            composites=tuple(
                (name, at[first], count)
                for name, first, count in self.composites
                if all(first + k in at for k in range(count))
            ),
        )

    def bodies_of(self, *kinds: str) -> np.ndarray:
        """Indices of the bodies moved by a joint of one of ``kinds``."""
        return np.array([i for i, k in enumerate(self.kinds) if k in kinds], dtype=np.int32)

    def _joint_range(self, joint: str) -> tuple[int, int]:
        if joint in self.joint_names:
            i = self.joint_names.index(joint)
            return i, i + 1
        for name, first, count in self.composites:
            if name == joint:
                return first, first + count
        names = (*(name for name, _, _ in self.composites), *self.joint_names)
        raise KeyError(unknown("joint", joint, names, self.name))

    def q_slice(self, joint: str) -> slice:
        """Where the named joint lives in q."""
        i, j = self._joint_range(joint)
        return slice(int(self.q_starts[i]), int(self.q_starts[j]))

    def v_slice(self, joint: str) -> slice:
        """Where the named joint lives in v, a and tau."""
        i, j = self._joint_range(joint)
        return slice(int(self.v_starts[i]), int(self.v_starts[j]))

    def frame_index(self, frame: str | int) -> int:
        """Number of a frame given by its name or number. KeyError, IndexError if it is unknown."""
        return self._index("frame", frame, self.frame_names)

    def body_index(self, body: str | int) -> int:
        """Number of a body given by its name or number. KeyError, IndexError if it is unknown."""
        return self._index("body", body, self.body_names)

    def joint_index(self, joint: str | int) -> int:
        """Number of a joint given by its name or number. KeyError, IndexError if it is unknown."""
        return self._index("joint", joint, self.joint_names)

    def _index(self, what: str, item: str | int, names: tuple[str, ...]) -> int:
        if isinstance(item, str):
            if item not in names:
                raise KeyError(unknown(what, item, names, self.name))
            return names.index(item)
        number = operator.index(item)
        if not 0 <= number < len(names):
            raise IndexError(
                f"robot {self.name!r} has no {what} number {number}: its {len(names)} {what}s are "
                f"numbered from 0; negative numbers do not count from the end"
            )
        return number


def unknown(what: str, name: str, known: tuple[str, ...], robot: str) -> str:
    """The message for a name that a robot does not have, with the nearest names that it has."""
    import difflib

    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or list(known[:5])
    return f"robot {robot!r} has no {what} {name!r}; nearest or first of its {what}s: {close}"


def depth_first(children: Callable[[int], list[int]], root: int) -> list[int]:
    """The root and all nodes below it, parents first, without recursion."""
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children(node)))
    return order
