"""Tasks on threads of their own: LLVM compiles while Python writes the next kernel.

A thread lives as long as there are tasks, so that none is idle.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

MOST = 8
"""So many threads at most: each compiles a module, which takes up to a few hundred MiB."""

_lock = threading.Lock()
_waiting: deque["Task"] = deque()
_begun: set["Task"] = set()
_running = 0


class Task:
    """A function that a thread calls. Its value, or what it raised, waits to be asked for."""

    def __init__(self, function: Callable[[], Any]):
        self._function: Callable[[], Any] | None = function
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def result(self) -> Any:
        """What the function gave, as soon as it is there.

        Raises:
            Exception: what the function raised.
        """
        _more()  # a forked process has none of the threads
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def finished(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def run(self) -> None:
        """Call the function, unless Python ends and nobody waits for it."""
        function, self._function = self._function, None
        try:
            if function is None or not threading.main_thread().is_alive():
                raise RuntimeError("Python ends")
            self._value = function()
        except BaseException as e:
            self._error = e
        finally:
            self._done.set()

    def fail(self, error: Exception) -> None:
        """Let it be over."""
        self._error = error
        self._done.set()


def threads() -> int:
    """How many tasks run at a time: as many as there are cores, and none on a single core.

    The environment variable ``RBD_JAX_COMPILE_THREADS`` says another number; 0 turns threads off.

    Raises:
        ValueError: the variable is no number.
    """
    asked = os.environ.get("RBD_JAX_COMPILE_THREADS")
    if asked:
        if not asked.isdecimal():
            raise ValueError(
                f"RBD_JAX_COMPILE_THREADS is {asked!r}, but it is a number of threads; 0 is none"
            )
        return int(asked)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MOST) if (cores or 1) > 1 else 0


def start(function: Callable[[], Any]) -> Task:
    """Call a function on another thread, as soon as one is free."""
    task = Task(function)
    with _lock:
        _waiting.append(task)
    _more()
    return task


def _more() -> None:
    """Start a thread if there is work for it."""
    global _running
    most = max(threads(), 1)
    with _lock:
        if not _waiting or _running >= most:
            return
        _running += 1
    threading.Thread(target=_work, name="rbd_jax compiler").start()


def _work() -> None:
    global _running
    while True:
        with _lock:
            if not _waiting:
                _running -= 1
                return
            task = _waiting.popleft()
            _begun.add(task)
        task.run()
        with _lock:
            _begun.discard(task)


def _forked() -> None:
    """A forked process has none of the threads, and what they had begun is lost to it."""
    global _running, _lock
    _lock, _running = threading.Lock(), 0
    for task in _begun:
        task.fail(RuntimeError("the process was forked while it compiled this"))
    _begun.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
