"""How long the phases of compiling take, and lines that tell users of a long one.

The phases are ``trace`` (JAX, from functions to jaxprs), ``read`` and ``write`` (from a jaxpr to
LLVM text) and ``compile`` (LLVM). The time of a phase is without the phases inside it.
"""

import gc
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

FIRST = 5.0
"""After so many seconds comes the first line, and then one after twice the time of the last."""
_PAUSE = 1.0
"""Without a phase for so long, one compilation has ended."""


class _Thread(threading.local):
    """What each thread notes."""

    def __init__(self):
        self.inside: list[float] = []
        """The seconds of phases inside each phase that goes on."""
        self.collectors: list[dict[str, float]] = []


class _Compilation:
    """What happened since it began."""

    def __init__(self):
        self.begin = self.seen = time.perf_counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.ended: Counter[str] = Counter()

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {s:.1f}" for name, s in self.seconds.items())
        kernels = self.ended["compile"]
        return (
            f"{self.seen - self.begin:.0f} s, {kernels} kernel{'s' * (kernels != 1)} compiled "
            f"(seconds on all threads: {parts or 'none yet'})"
        )


_mine = _Thread()
_lock = threading.Lock()
_active = 0
_now: _Compilation | None = None


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Note how long something takes."""
    begin = time.perf_counter()
    _mine.inside.append(0.0)
    _change(1)
    try:
        yield
    finally:
        took = time.perf_counter() - begin
        own = took - _mine.inside.pop()
        if _mine.inside:
            _mine.inside[-1] += took
        for collector in _mine.collectors:
            collector[name] += own
        _change(-1, name, own)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause Python's collector of cyclic garbage.

    Tracing a function and writing a kernel make many small objects that live until the end. The
    collector would look through all of them again and again, which takes two fifths of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def tracing() -> Iterator[None]:
    """The phase in which JAX makes a jaxpr."""
    with no_collection(), phase("trace"):
        yield


@contextmanager
def collected() -> Iterator[dict[str, float]]:
    """The seconds of each phase on this thread meanwhile."""
    found: dict[str, float] = defaultdict(float)
    _mine.collectors.append(found)
    try:
        yield found
    finally:
        _mine.collectors.pop()


def told() -> bool:
    """Whether lines of progress are wanted: ``RBD_JAX_PROGRESS`` is neither empty nor 0."""
    return os.environ.get("RBD_JAX_PROGRESS", "") not in ("", "0")


def _change(by: int, name: str = "", seconds: float = 0.0) -> None:
    global _active, _now
    with _lock:
        _active += by
        if _now is None and told():
            _now = _Compilation()
            threading.Thread(target=_watch, args=(_now,), daemon=True).start()
        if _now is not None:
            _now.seen = time.perf_counter()
            if name:
                _now.seconds[name] += seconds
                _now.ended[name] += 1


def _watch(compilation: _Compilation) -> None:
    """Tell of one compilation until it ends."""
    global _now
    due, said = FIRST, False
    while True:
        time.sleep(_PAUSE / 4)
        with _lock:
            now = time.perf_counter()
            busy = _active > 0
            over = not busy and now - compilation.seen > _PAUSE
            if busy:
                compilation.seen = now
            if over:
                _now = None
            text = str(compilation)
        if over:
            if said:
                _say(f"compiled in {text}")
            return
        if busy and now - compilation.begin >= due:
            due, said = 2 * due, True
            _say(f"is compiling: {text}")


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"rbd_jax {text}", file=sys.stderr, flush=True)
