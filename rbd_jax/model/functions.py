"""Plain functions as modules, so that what holds them is a pytree of arrays."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


class Static(eqx.Module):
    """A plain Python function as a module: no leaf, and part of the compiled program."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the function."""
        return self.function(*args, **kwargs)


def as_module(function: Any) -> Any:
    """The function as a module; modules, other pytrees and None stay as they are.

    A plain function is a leaf that is no array, and ``jax.jit`` refuses arguments with such leaves.
    As a module it is compared like a static argument: another function compiles another program.
    """
    return Static(function) if jax.tree.leaves(function) == [function] else function
