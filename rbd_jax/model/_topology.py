"""The shape of a robot: which body hangs on which, by what kind of joint. Static and hashable.

Bodies are numbered depth first, so a parent comes before its children; −1 is the world.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

NQ = {"revolute": 1, "prismatic": 1, "helical": 1, "spherical": 4, "translation": 3, "free": 7}
NV = {"revolute": 1, "prismatic": 1, "helical": 1, "spherical": 3, "translation": 3, "free": 6}


@dataclass(frozen=True, eq=False)
class Topology:
    """Static part of a :class:`rbd_jax.Model`.

    ``composites`` lists the joints that stand for several bodies, as ``(name, first, count)``;
    ``mimics`` the joints that follow another one, as ``(joint, target, multiplier, offset)``.
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
        return tuple(getattr(self, f) for f in self.__dataclass_fields__)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._key == other._key)

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
    def parent_array(self) -> np.ndarray:
        """Parents with the world as ``nb``, so that it can index a buffer of nb+1 rows, (nb,)."""
        p = np.array(self.parents, dtype=np.int32).reshape(-1)
        return np.where(p < 0, self.nb, p).astype(np.int32)

    @cached_property
    def depths(self) -> np.ndarray:
        """Number of joints between each body and the world, less one, (nb,)."""
        depth = np.zeros(self.nb, dtype=np.int32)
        for i, p in enumerate(self.parents):
            depth[i] = 0 if p < 0 else depth[p] + 1
        return depth

    @cached_property
    def roots(self) -> np.ndarray:
        """The body of depth 0 that carries each body, (nb,)."""
        root = np.arange(self.nb)
        for i, p in enumerate(self.parents):
            root[i] = i if p < 0 else root[p]
        return root

    @cached_property
    def ancestor_mask(self) -> np.ndarray:
        """``mask[i, j]``: body j is body i or one of its ancestors, bool (nb, nb)."""
        mask = np.eye(self.nb, dtype=bool)
        for i, p in enumerate(self.parents):
            if p >= 0:
                mask[i] |= mask[p]
        return mask

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
        raise KeyError(unknown("joint", joint, self.joint_names, self.name))

    def q_slice(self, joint: str) -> slice:
        """Where the named joint lives in q."""
        i, j = self._joint_range(joint)
        return slice(int(self.q_starts[i]), int(self.q_starts[j]))

    def v_slice(self, joint: str) -> slice:
        """Where the named joint lives in v, a and tau."""
        i, j = self._joint_range(joint)
        return slice(int(self.v_starts[i]), int(self.v_starts[j]))

    def frame_index(self, frame: str) -> int:
        """Number of the named frame."""
        if frame not in self.frame_names:
            raise KeyError(unknown("frame", frame, self.frame_names, self.name))
        return self.frame_names.index(frame)


def unknown(what: str, name: str, known: tuple[str, ...], robot: str) -> str:
    """The message for a name that a robot does not have, with the nearest names it has."""
    import difflib

    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or list(known[:5])
    return f"robot {robot!r} has no {what} {name!r}; nearest or first of its {what}s: {close}"


def depth_first(children: Callable[[int], list[int]], root: int) -> list[int]:
    """Nodes below and with ``root``, parents first, without recursion."""
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children(node)))
    return order
