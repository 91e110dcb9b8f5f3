"""Which form of an algorithm runs where. This table alone decides by speed.

All forms give the same results up to rounding. The benchmarks ``python -m benchmarks
formulations``, ``kernels`` and ``gpu`` measure each row; their numbers are in
``benchmarks/results``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax

from ..lanes import clear_caches, enabled


class Formulation(NamedTuple):
    """How passes over a tree are done, and how the mass matrix is inverted."""

    recursions: Literal["bodies", "levels"]
    """Passes from the root to the leaves and back: one body at a time, or one depth at a time."""
    products: Literal["bodies", "doubling"]
    """Associative products along each branch: one body at a time, or by pointer doubling."""
    sums: Literal["bodies", "doubling", "mask"]
    """Sums over ancestors or subtrees; ``"mask"`` is a product with the 0/1 matrix of ancestors."""
    mask: int
    """The largest number of nodes for which sums use the mask; above it they use doubling."""
    pairs: Literal["ancestors", "mask"]
    """Matrices that couple a node with its ancestors: such pairs alone, or all pairs and a mask."""
    inverse: int
    """The largest number of degrees of freedom for which M⁻¹ gives forward dynamics."""
    depth: int
    """The same for degrees of freedom in a row: M⁻¹ of longer chains loses digits."""
    columns: int
    """The most columns of a matrix that are solved for at once: few stay in cache and registers."""
    written: int
    """The largest matrix that is factorized entry by entry: much code, but no loops."""


FORMULATIONS = {
    # compiled to lanes, recursions are the least work and the most accurate form
    "lanes": Formulation("bodies", "bodies", "bodies", 0, "ancestors", 0, 0, 16, 16),
    # XLA on a CPU: a short loop is cheap, many small operations in it are not
    "xla": Formulation("bodies", "bodies", "mask", 128, "mask", 24, 12, 1024, 0),
    # XLA on an accelerator: one step of a loop is about ten kernels (``kernels``, ``gpu``)
    "accelerator": Formulation("levels", "doubling", "mask", 128, "mask", 64, 24, 1024, 0),
}

_forced: ContextVar[Formulation | None] = ContextVar("formulation", default=None)


def current() -> Formulation:
    """The formulation of the program that is being traced."""
    forced = _forced.get()
    if forced is not None:
        return forced
    backend = jax.default_backend()
    elsewhere = "xla" if backend == "cpu" else "accelerator"
    return FORMULATIONS["lanes" if enabled(backend) else elsewhere]


@contextmanager
def formulation(name: str, **changes: Any) -> Iterator[None]:
    """Trace programs in the form of another backend, for tests and benchmarks.

    ``changes`` are fields of the table's row with other values.
    """
    token = _forced.set(FORMULATIONS[name]._replace(**changes))
    clear_caches()
    try:
        yield
    finally:
        _forced.reset(token)
        clear_caches()
