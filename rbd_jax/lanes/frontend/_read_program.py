"""Reads a jaxpr into the intermediate representation, ``ir``.

A jaxpr was chosen over StableHLO because it keeps what a compiler wants to know and StableHLO
loses: which loops have a fixed length, which arrays are constants, and which functions are linear
solves. Calls are inlined and tables are folded with NumPy. Parameters that changed between
versions of JAX are looked up in both forms; only ``_jax_internals``, ``_reader`` and the files of
rules know them.
"""

from ..ir._blocks import Block, Value
from . import (
    _common_rounds,
    _control_flow,
    _decompositions,
    _elements_and_shapes,
    _gather_scatter,
    _sparse_cholesky,
)
from ._reader import RULES, Reader, dtype_of

__all__ = ["RULES", "read_program"]
FILES = (
    _elements_and_shapes,
    _gather_scatter,
    _control_flow,
    _common_rounds,
    _decompositions,
    _sparse_cholesky,
)
"""The files whose rules fill the table ``RULES`` when they are imported."""


def read_program(closed, uniform: list[bool]) -> Block:
    """The program of a closed jaxpr, whose inputs are uniform or not."""
    avals = [v.aval for v in closed.jaxpr.invars]
    return Reader().block(
        closed, [Value(a.shape, dtype_of(a), u) for a, u in zip(avals, uniform, strict=True)]
    )
