"""Arithmetic in which None is a zero that costs nothing: the savings of Kim, §3.2."""

from collections.abc import Callable
from typing import Any


def unless_none(f: Callable, *args: Any) -> Any:
    """``f(*args)`` of a function that is zero if an argument is; None if one is None."""
    return None if any(x is None for x in args) else f(*args)


def add(*terms: Any) -> Any:
    """The sum of the terms that are not None; None if none is left."""
    present = [x for x in terms if x is not None]
    return sum(present[1:], present[0]) if present else None
