"""Which form of an algorithm is taken where: one table, and nothing else decides by speed.

All forms give the same results but for rounding. The numbers behind each row are those of
``python -m benchmarks formulations`` and ``kernels``, in ``benchmarks/results``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

import jax

from ..lanes import enabled, forget


class Formulation(NamedTuple):
    """How passes over a tree are done, and how the mass matrix is inverted."""

    recursions: Literal["bodies", "levels"]
    """Passes from root to leaves and back: a body at a time, or all bodies of a depth at once."""
    products: Literal["bodies", "doubling"]
    """Associative products along each branch: a body at a time, or by pointer doubling."""
    sums: Literal["bodies", "doubling", "mask"]
    """Sums over ancestors or subtrees; ``"mask"``: a product with the 0/1 matrix of ancestors."""
    pairs: Literal["ancestors", "mask"]
    """Matrices that couple a node with its ancestors: only such pairs, or all pairs and a mask."""
    inverse: int
    """The largest number of degrees of freedom for which M⁻¹ gives forward dynamics."""
    depth: int
    """The same of degrees of freedom in a row; M⁻¹ of longer chains loses digits."""
    columns: int
    """Columns of a matrix that are solved for at once, at most: few stay in cache and registers."""


FORMULATIONS = {
    # compiled to lanes, a recursion is the least work and the most accurate form
    "lanes": Formulation("bodies", "bodies", "bodies", "ancestors", 0, 0, 16),
    # XLA on a CPU: a short loop is cheap, many small operations in it are not
    "xla": Formulation("bodies", "bodies", "mask", "mask", 24, 12, 1024),
    # a step of a loop is some ten kernels of an accelerator; counted, not measured
    "accelerator": Formulation("levels", "doubling", "mask", "mask", 64, 24, 1024),
}

_forced: ContextVar[str | None] = ContextVar("formulation", default=None)


def current() -> Formulation:
    """The formulation of the program that is being traced."""
    name = _forced.get()
    if name is None:
        backend = jax.default_backend()
        elsewhere = "xla" if backend == "cpu" else "accelerator"
        name = "lanes" if enabled(backend) else elsewhere
    return FORMULATIONS[name]


@contextmanager
def formulation(name: str) -> Iterator[None]:
    """Trace programs in the form of another backend, for tests and benchmarks."""
    token = _forced.set(name)
    forget()
    try:
        yield
    finally:
        _forced.reset(token)
        forget()
