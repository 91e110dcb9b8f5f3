"""Plain functions as modules, so that what holds them is a pytree of arrays."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import equinox as eqx
import jax


class Static(eqx.Module):
    """A plain Python function as a module: no leaf, and part of the compiled program.

    A ``functools.partial`` is kept as its parts if they can be compared, because two of them are
    equal only if they are the same object, so that a copy would be another program.
    """

    function: Callable = eqx.field(static=True)
    args: tuple = eqx.field(static=True)
    keywords: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, function: Callable):
        self.function, self.args, self.keywords = function, (), ()
        if isinstance(function, partial):
            keywords = tuple(sorted(function.keywords.items()))
            with suppress(TypeError):  # of arrays
                hash((function.args, keywords))
                self.function, self.args, self.keywords = function.func, function.args, keywords

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the function."""
        return self.function(*self.args, *args, **(dict(self.keywords) | kwargs))


def check_arity(who: str, function: Any, arguments: str, hint: str = "") -> None:
    """Raise TypeError if a function does not take the arguments that it will be called with.

    Args:
        who: what the message begins with, as in ``"Problem: stage"``.
        function: a function or a module. What is not callable, or does not tell its arguments, is
            left alone.
        arguments: their names, as in ``"model, q, v"``.
        hint: what the message ends with.
    """
    if isinstance(function, Static):
        function = partial(function.function, *function.args, **dict(function.keywords))
    if not callable(function):
        return
    count = len(arguments.split(","))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        raise TypeError(
            f"{who} is called with {count} arguments, ({arguments}), but the function takes "
            f"{signature}; change its arguments{hint}"
        ) from None


def as_module(function: Any) -> Any:
    """The function as a module; modules, other pytrees and None stay as they are.

    A plain function is a leaf that is no array, and ``jax.jit`` refuses arguments with such leaves.
    As a module it is compared like a static argument: another function compiles another program.
    """
    return Static(function) if jax.tree.leaves(function) == [function] else function
