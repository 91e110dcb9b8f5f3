"""Progress displays: any function of an iteration's numbers."""

from collections.abc import Callable

import jax
from jaxtyping import Array

Progress = Callable[[int, float, float, float, float], None]


def print_progress(
    iteration: int, cost: float, expected: float, step: float, regularisation: float
) -> None:
    """One line an iteration on the standard output."""
    print(
        f"{int(iteration):5d}  cost {float(cost):14.8g}  expected {float(expected):9.2e}  "
        f"step {float(step):7.2g}  regularisation {float(regularisation):8.1e}",
        flush=True,
    )


def report(progress: Progress | None, *numbers: Array) -> None:
    """Call ``progress`` from a compiled program."""
    if progress is not None:
        jax.debug.callback(progress, *numbers)
