"""Progress displays: any function of an iteration's numbers."""

from collections.abc import Callable
from typing import SupportsFloat

import jax
from jaxtyping import Array

Progress = Callable[..., None]
"""Called with iteration, cost, expected decrease, step and regularisation, NumPy scalars."""


def print_progress(
    iteration: SupportsFloat,
    cost: SupportsFloat,
    expected: SupportsFloat,
    step: SupportsFloat,
    regularisation: SupportsFloat,
) -> None:
    """One line an iteration on the standard output."""
    print(
        f"{float(iteration):5.0f}  cost {float(cost):14.8g}  expected {float(expected):9.2e}  "
        f"step {float(step):7.2g}  regularisation {float(regularisation):8.1e}",
        flush=True,
    )


def report(progress: Progress | None, *numbers: Array) -> None:
    """Call ``progress`` from a compiled program."""
    if progress is not None:
        jax.debug.callback(progress, *numbers)
