"""Arithmetic in which None stands for a zero that costs nothing: the savings of Kim, §3.2."""

from collections.abc import Callable
from typing import Any


def unless_none(f: Callable, *args: Any) -> Any:
    """``f(*args)``, or None if an argument is None; f is zero if one of its arguments is zero."""
    return None if any(x is None for x in args) else f(*args)


def add(*terms: Any) -> Any:
    """The sum of the terms that are not None; None if there are none."""
    present = [x for x in terms if x is not None]
    return sum(present[1:], present[0]) if present else None
