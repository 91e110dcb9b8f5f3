"""The table by which a compiled kernel shows itself to the dispatcher.

The table says where the kernel's functions are, what memory they need, and which buffers they
take. XLA does not know the kernel: it calls the dispatcher, which is there once for all kernels,
see :mod:`._dispatcher`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..ir._blocks import Value
from . import _c_api

FIELDS = (
    "prologue", "run", "buffers", "operands", "results", "width", "batched", "shared_bytes",
    "scratch_bytes", "grain", "threads", "samples", "chip_bytes",
)  # fmt: skip
"""The table's entries, each of 8 bytes; the first two are functions, the third is a table."""

BUFFER = {"dtype": 0, "size": 8, "batched": 16}
"""Offsets in the table of buffers, which has an entry for each operand and then each result."""
BUFFER_BYTES = 24


class Buffer(NamedTuple):
    """An operand or result, as the code of a kernel reads or writes it.

    Attributes:
        dtype: of its elements.
        size: elements of one sample.
        batched: whether it has a leading axis of samples.
    """

    dtype: np.dtype
    size: int
    batched: bool


def buffers_of(values: Iterable[Value], batched: bool) -> list[Buffer]:
    """The buffers of operands or results; those that all samples share have no samples' axis."""
    return [Buffer(v.dtype, v.size, batched and not v.uniform) for v in values]


def numbers_of(buffers: Iterable[Buffer]) -> list[int]:
    """The table of buffers, as 64-bit integers."""
    return [
        n
        for b in buffers
        for n in (_c_api.constant(f"DataType_{_data_type(b.dtype)}"), b.size, int(b.batched))
    ]


def _data_type(dtype: np.dtype) -> str:
    """XLA's name of a dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return "PRED"
    return f"{dict(i='S', u='U', f='F')[dtype.kind]}{8 * dtype.itemsize}"


def field(name: str) -> int:
    """Where an entry lies in a kernel's table, in bytes."""
    return 8 * FIELDS.index(name)
