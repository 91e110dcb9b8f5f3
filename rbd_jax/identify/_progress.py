"""Progress of a fit or a training, reported from a compiled program."""

from collections.abc import Callable

import jax
from jaxtyping import Array

Progress = Callable[..., None]
"""Called with the step and the cost as NumPy scalars. Steps are counted from the start of each
round of a fit; a new round begins when the weights or the estimated noise have changed."""


def report(progress: Progress | None, step: Array, cost: Array) -> None:
    """Call ``progress``, if there is one, from a compiled program."""
    if progress is not None:
        jax.debug.callback(progress, step, cost)
