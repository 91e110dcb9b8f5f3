"""A set of bilateral constraints: numbers as leaves, what ties which bodies as static data."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model import Model


class Pair(NamedTuple):
    """What a constraint between two frames is, apart from its numbers; body −1 is the world."""

    name: str
    body_1: int
    body_2: int
    rows: tuple[int, ...]
    """Which of the six components (ω, v) of the relative twist are held at zero."""
    point: bool
    """Whether the two frames' origins are tied, each moving with its own body."""
    local: bool
    """Whether the rows have the axes of frame 1; those of the world otherwise."""


class Constraints(eqx.Module):
    """Bilateral constraints of one robot: pairs of frames, and linear couplings of joints.

    The rows of forces and Jacobians are those of the pairs in their order, then one row for each
    coupling; :meth:`row_slice` finds them by name. Sets are added with ``+``. Every float leaf can
    be differentiated, every leaf can be mapped over with ``jax.vmap``; ``active`` is data.

    A frame of pair k is fixed in body 1 at ``(R_1[k], p_1[k])``, the other one in body 2, or in the
    world, at ``(R_2[k], p_2[k])``. A coupling holds ``coupling[k] · x = offset[k]`` for the
    positions x of the joints of one degree of freedom.
    """

    R_1: Float[Array, "*b n 3 3"]
    p_1: Float[Array, "*b n 3"]
    R_2: Float[Array, "*b n 3 3"]
    p_2: Float[Array, "*b n 3"]
    coupling: Float[Array, "*b k nv"]
    offset: Float[Array, "*b k"]
    position_gain: Float[Array, "*b c"]
    """Baumgarte gain of the position error (1/s²), one for each constraint, c = n + k."""
    velocity_gain: Float[Array, "*b c"]
    """Baumgarte gain of the velocity error (1/s)."""
    restitution: Float[Array, "*b c"]
    """Velocity after an impact over velocity before it, with the opposite sign."""
    active: Bool[Array, "*b c"]
    """Which constraints hold. The forces of the others are zero."""
    pairs: tuple[Pair, ...] = eqx.field(static=True)
    couplings: tuple[str, ...] = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the constraints: pairs first, then couplings."""
        return (*(p.name for p in self.pairs), *self.couplings)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of rows of each constraint."""
        return (*(len(p.rows) for p in self.pairs), *(1 for _ in self.couplings))

    @property
    def size(self) -> int:
        """Number of rows of all constraints, active or not."""
        return sum(self.sizes)

    def row_slice(self, name: str) -> slice:
        """Where the rows of the named constraint are. Raises KeyError for an unknown name."""
        if name not in self.names:
            raise KeyError(f"there is no constraint {name!r}; there are {list(self.names)}")
        k = self.names.index(name)
        start = sum(self.sizes[:k])
        return slice(start, start + self.sizes[k])

    def per_row(self, x: Array) -> Array:
        """The entry of its constraint for each row."""
        return x[np.repeat(np.arange(len(self.sizes)), self.sizes)]

    def with_active(self, active: Bool[Array, "*b c"]) -> "Constraints":
        """The same set with other constraints active."""
        return eqx.tree_at(lambda c: c.active, self, active)

    def __add__(self, other: "Constraints") -> "Constraints":
        """Both sets as one."""
        return join(self, other)


_OF_PAIRS = ("R_1", "p_1", "R_2", "p_2")
_OF_COUPLINGS = ("coupling", "offset")
_OF_ALL = ("position_gain", "velocity_gain", "restitution", "active")


def join(*sets: Constraints) -> Constraints:
    """One set of all constraints of several sets of the same robot, in their order.

    Raises:
        ValueError: if there is no set, or if a name occurs twice.
    """
    if not sets:
        raise ValueError("join: give at least one set; constraints.none(model) is an empty one")
    names = [name for s in sets for name in s.names]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"join: constraints need distinct names, got {twice} more than once")
    found = {}
    for name in (*_OF_PAIRS, *_OF_COUPLINGS):
        found[name] = jnp.concatenate([getattr(s, name) for s in sets])
    for name in _OF_ALL:
        first = [getattr(s, name)[: len(s.pairs)] for s in sets]
        rest = [getattr(s, name)[len(s.pairs) :] for s in sets]
        found[name] = jnp.concatenate([*first, *rest])
    pairs = tuple(p for s in sets for p in s.pairs)
    couplings = tuple(name for s in sets for name in s.couplings)
    return Constraints(**found, pairs=pairs, couplings=couplings)


def check(function: str, model: Model, constraints: Constraints) -> None:
    """Raise an error that says what is wrong if the set does not fit the robot."""
    if not isinstance(constraints, Constraints):
        raise TypeError(
            f"{function}: constraints must be a set of rbd_jax.constraints, got "
            f"{type(constraints).__name__}; make one with rbd_jax.constraints.point and its like"
        )
    n, k, c = len(constraints.pairs), len(constraints.couplings), len(constraints.names)
    shapes = {"R_1": (n, 3, 3), "p_1": (n, 3), "R_2": (n, 3, 3), "p_2": (n, 3)}
    shapes |= {"coupling": (k, model.topology.nv), "offset": (k,)} | dict.fromkeys(_OF_ALL, (c,))
    for name, shape in shapes.items():
        found = jnp.shape(getattr(constraints, name))
        if found != shape and found != ():  # transformations put placeholders without a shape
            hint = ", use jax.vmap for many sets" if len(found) > len(shape) else ""
            raise ValueError(
                f"{function}: constraints.{name} has shape {found}, expected {shape} for robot "
                f"{model.topology.name!r}{hint}"
            )
    bodies = [b for p in constraints.pairs for b in (p.body_1, p.body_2)]
    if any(b >= model.nb for b in bodies):
        raise ValueError(
            f"{function}: the constraints name body {max(bodies)}, but robot "
            f"{model.topology.name!r} has {model.nb} bodies; build them for this robot"
        )
    if constraints.p_1.dtype != model.dtype:
        raise TypeError(
            f"{function}: the constraints are {constraints.p_1.dtype}, the robot is {model.dtype}; "
            f"build them for this robot"
        )
