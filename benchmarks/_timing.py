"""Fair timing: compile apart, warm, wait for the outputs, let the competitors take turns."""

import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
chosen = "wall"
"""The clock of races that name none, from the command line."""
PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "pin", "rbd-jax")


@dataclass
class Program:
    """Something to time: ``run()`` does ``per`` evaluations and waits until they are done."""

    name: str
    run: Callable[[], Any]
    per: int = 1
    compile_s: float | None = None
    """Of tracing, of lowering, which compiles lanes, and of XLA."""
    cpu_s: float | None = None
    temp_bytes: int | None = None
    times: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Shortest time per evaluation (µs)."""
        return min(self.times) / self.per * 1e6

    @property
    def median(self) -> float:
        """Median time per evaluation (µs)."""
        return float(np.median(self.times)) / self.per * 1e6


def program(name: str, function: Callable, *args: Any, per: int = 1) -> Program:
    """Compile ``function`` for ``args`` (pytrees of arrays) ahead of time."""
    start, cpu = time.perf_counter(), time.process_time()
    compiled = jax.jit(function).lower(*args).compile()
    end = time.perf_counter()
    memory = compiled.memory_analysis()
    return Program(
        name,
        lambda: jax.block_until_ready(compiled(*args)),
        per,
        compile_s=end - start,
        cpu_s=time.process_time() - cpu,
        temp_bytes=getattr(memory, "temp_size_in_bytes", None),
    )


def race(
    *programs: Program,
    seconds: float = 1.0,
    rounds: int = 3,
    clock: Callable[[], float] | None = None,
) -> None:
    """Time the programs in turns, so that a disturbance of the machine hits all of them.

    In each turn a fast program runs a few times in a row (about 20 ms), a slow one once. A program
    is warmed first, gets about ``seconds`` in all, and never fewer than ``rounds`` runs unless one
    run takes longer than ``seconds``: then two. ``clock`` is ``time.process_time`` for the time of
    the processor, which other work on the machine hardly changes. By default it is that of the
    option ``--clock``.
    """
    clock = clock or CLOCKS[chosen]
    in_a_row = []
    for p in programs:
        p.run()
        start = clock()
        p.run()
        once = clock() - start
        if once > seconds:
            p.times.append(once)
        in_a_row.append(max(1, min(20, round(0.02 / once))))
    while True:
        waiting = False
        for p, n in zip(programs, in_a_row, strict=True):
            if len(p.times) >= rounds * n and sum(p.times) >= seconds:
                continue
            if len(p.times) >= 2 and sum(p.times) >= 2 * seconds:
                continue
            waiting = True
            for _ in range(n):
                start = clock()
                p.run()
                p.times.append(clock() - start)
        if not waiting:
            return


def ratio(slow: Program, fast: Program) -> float:
    """Time of ``slow`` per evaluation over that of ``fast``: of the medians."""
    return slow.median / fast.median


def load_average() -> list[float]:
    """Load of the machine over 1, 5 and 15 minutes; a benchmark alone shows at most its cores."""
    return [round(x, 2) for x in os.getloadavg()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    try:
        found = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True)
    except OSError:
        return ""
    return found.stdout.strip()


def environment() -> dict:
    """Machine, versions and commit, for the head of every result."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    changed = bool(_git("status", "--porcelain", "--untracked-files=no", "--", "../rbd_jax"))
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "device": str(jax.devices()[0].device_kind),
        "versions": versions,
        "commit": _git("rev-parse", "--short", "HEAD") + (" + changes" if changed else ""),
        "load average at start": load_average(),
    }
