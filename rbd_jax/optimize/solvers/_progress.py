"""Display of the progress of a solver."""

from collections.abc import Callable
from typing import SupportsFloat

import jax
from jaxtyping import Array

Progress = Callable[..., None]
"""A function of step number, cost, expected decrease, step length and regularization.

The arguments are NumPy scalars.
"""


def print_progress(
    number: SupportsFloat,
    cost: SupportsFloat,
    expected: SupportsFloat,
    length: SupportsFloat,
    regularization: SupportsFloat,
) -> None:
    """Print one line for each step to the standard output."""
    print(
        f"{float(number):5.0f}  cost {float(cost):14.8g}  expected {float(expected):9.2e}  "
        f"length {float(length):7.2g}  regularization {float(regularization):8.1e}",
        flush=True,
    )


def report(progress: Progress | None, *numbers: Array) -> None:
    """Call ``progress`` from a compiled program, unless it is None."""
    if progress is not None:
        jax.debug.callback(progress, *numbers)
