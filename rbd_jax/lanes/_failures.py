"""What becomes of a program that cannot be compiled: which operation is to blame, and who is told.

Something that lanes do not support is left to XLA without a word. Everything else that goes wrong
in the compiler is a fault of lanes. XLA computes such a program too, and a warning says so.
"""

import warnings
from typing import Any

from ._jax_internals import source_of


class Unsupported(Exception):
    """An operation that lanes cannot compile; the message names it."""


class Mismatch(Exception):
    """The code that lanes would write is not what JAX asks for: a fault of lanes."""


class LanesWarning(UserWarning):
    """A fault of lanes: XLA computes a program that lanes should have compiled."""


class blamed:
    """Note on any error inside which operation is to blame, unless an inner one is.

    It is entered for each operation, which a generator would make a few times slower.
    """

    __slots__ = ("eqn",)

    def __init__(self, eqn: Any):
        self.eqn = eqn

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> None:
        told = not isinstance(error, Exception) or getattr(error, "__notes__", None)
        if self.eqn is not None and not told:
            error.add_note(source_of(self.eqn))


def explained(e: Exception) -> str:
    """The text of an error, behind the operation that is to blame."""
    kind = "" if isinstance(e, Unsupported) else f"{type(e).__name__}: "
    return ": ".join([*getattr(e, "__notes__", ()), f"{kind}{e}".strip().replace("\n", " ")])


_told: set[tuple[str, str]] = set()


def leave_to_xla(e: Exception, name: str, strict: bool) -> None:
    """Accept that XLA computes a program, with one warning if this is a fault of lanes.

    Raises:
        ValueError: the program is strict.
    """
    if strict:
        raise ValueError(f"lanes cannot compile {name}: {explained(e)}") from e
    expected = isinstance(e, Unsupported | RecursionError)  # the latter of very long chains
    if expected or (name, explained(e)) in _told:
        return
    _told.add((name, explained(e)))
    warnings.warn(
        f"lanes could not compile {name}, so that XLA computes it, with the same result: "
        f"{explained(e)}. Please report this fault. RBD_JAX_LANES=0 turns lanes off.",
        LanesWarning,
        stacklevel=2,
    )
