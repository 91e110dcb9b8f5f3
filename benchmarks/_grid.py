"""Against GRiD, whose kernels were built before for each robot (``_peers/grid_build.py``)."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import jax
import numpy as np

import rbd_jax as rbd

from ._peers.contest import OURS, SAMPLES, describe
from ._peers.side import Failed, Side
from ._report import Report, Table
from ._robots import over_batch, states

ABOUT = (
    "GRiD (`grid-rbd`) computes one robot with one block of threads. Its kernels were built for "
    "each robot before. For every function and batch, the fastest of three builds (resource "
    "tiers), six numbers of threads and, for FD, two methods is chosen here; the row names it. "
    "FD derivatives: with respect to q and v. Both libraries run in processes of their own, with "
    "the robot as a constant, and take turns on the same states. Times are medians (µs) of a "
    "batch. Call: one call from JAX, until its results are there. In a row: a call in a program "
    "of ten, less the time of a program of one. Kernel: by NVIDIA's profiler, all kernels of "
    "rbd_jax, and only the longest one of GRiD. Ahead: the time of GRiD over that of rbd_jax. "
    "The error is the largest difference of 64 states from rbd_jax on the CPU in float64, over the "
    "largest entry, of joints only."
)
GRID = "grid"
FUNCTIONS = {"ID": "ID", "FD": "FD", "FD derivatives": "FD explicit, q and v"}
"""Label -> the name that ``serve`` uses."""
BATCHES = (256, 4096)
CALLS, TURNS = 10, 3
PATIENCE_S = 90
"""For one answer."""
WRONG = 5e-2
"""No rounding in float32 explains larger errors."""


def python_of(options) -> Path | None:
    """The Python of GRiD's environment, or None."""
    found = Path(options.peer_envs).absolute() / GRID / "bin" / "python"
    if (found.parents[1] / "kernels" / "manifest.json").exists():
        return found
    print(f"  grid skipped: no kernels in {found.parents[1]} (benchmarks/_peers/grid_build.py)")
    return None


def compare(report: Report, table: Table, options, end: float) -> None:
    """All rows of robots that have not all of them yet.

    Each is stored at once, and a robot that fails does not stop the others.
    """
    python = python_of(options)
    there = {
        (r["robot"], r.get("function"), r.get("batch")) for r in table.rows if not r.get("note")
    }
    for urdf in sorted((python.parents[1] / "kernels").glob("*.urdf")) if python else []:
        if not options.again and there >= set(product([urdf.stem], FUNCTIONS, BATCHES)):
            continue
        try:
            _robot(report, table, python, urdf, min(options.seconds, 0.5), end)
        except Exception as problem:
            said = (str(problem).splitlines() or [""])[0]
            table.add(robot=urdf.stem, note=f"{type(problem).__name__}: {said}")
            report.write()


def truths(model: rbd.Model, joints: list[str]) -> dict[str, list[np.ndarray]]:
    """The joints' part of all results, from this library on the CPU in float64."""
    s = states(model, SAMPLES)
    tau = s.tau.at[:, :6].set(0)  # no wrench acts on the base
    functions = {
        "ID": (rbd.inverse_dynamics, s.a),
        "FD": (rbd.forward_dynamics, tau),
        "FD derivatives": (lambda *x: rbd.forward_dynamics_derivatives(*x)[:2], tau),
    }
    rows = np.array([int(model.v_slice(n).start) for n in joints])
    found = {}
    for label, (f, last) in functions.items():
        results = jax.jit(over_batch(f, 3))(model, s.q, s.v, last)
        blocks = [np.asarray(x)[:, rows] for x in jax.tree.leaves(results)]
        if label == "FD derivatives":
            blocks = [x[:, :, x.shape[2] - model.nv + rows] for x in blocks]
        found[label] = blocks
    return found


def error(blocks: list, wanted: list[np.ndarray]) -> float:
    """The largest difference, over the largest entry of each block."""
    pairs = [(np.array(x), y) for x, y in zip(blocks, wanted, strict=True)]
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


def _robot(report: Report, table: Table, python: Path, urdf: Path, seconds: float,
           end: float) -> None:  # fmt: skip
    """The rows of one robot. After a failure both processes are started again."""
    with jax.default_device(jax.devices("cpu")[0]):
        model = rbd.load_urdf(urdf, floating_base=True, dtype="float64", mimic="independent")
        what = describe(model)
        sides = _started(python, what)
        wanted = truths(model, what["joints"])
    try:
        _loaded(sides)
        for label in FUNCTIONS:
            for batch in BATCHES:
                if time.monotonic() > end:
                    print(f"    {label}, batch {batch} skipped: out of time (--limit)")
                    continue
                cells = {"robot": urdf.stem, "nv": model.nv, "function": label, "batch": batch}
                try:
                    if not all(side.alive for side in sides.values()):
                        _close(sides)
                        sides = _started(python, what)
                        _loaded(sides)
                    for more in _measured(sides, label, batch, seconds, wanted[label]):
                        cells |= more
                except Failed as problem:
                    cells["note"] = str(problem)
                    _close(sides)
                table.add(**cells)
                report.write()
    finally:
        _close(sides)


def _started(python: Path, what: dict) -> dict[str, Side]:
    """Both processes, which begin to load the robot."""
    sides = {OURS: Side("ours", sys.executable, "float32")}
    sides[GRID] = Side(GRID, str(python), "float32")
    for side in sides.values():
        side.send("load", **what, dtype="float32")
    return sides


def _loaded(sides: dict[str, Side]) -> None:
    for name, side in sides.items():
        answer = _asked(name, partial(side.receive, PATIENCE_S))
        print(f"    {name}: {answer['device']}, {answer['versions']}", flush=True)


def _close(sides: dict[str, Side]) -> None:
    for side in sides.values():
        side.close()


def _asked(name: str, ask):
    """The answer; an error says whose it is."""
    try:
        return ask()
    except Failed as problem:
        raise Failed(f"{name}: {problem}") from problem


def _each(sides: dict[str, Side], do: str, **request) -> dict[str, dict]:
    """The answers of both, one after the other."""
    return {n: _asked(n, partial(x.ask, do, PATIENCE_S, **request)) for n, x in sides.items()}


def _measured(sides: dict[str, Side], label: str, batch: int, seconds: float,
              wanted: list[np.ndarray]) -> Iterator[dict]:  # fmt: skip
    """Cells of a row, as soon as they are known; GRiD chooses its launch in the program of ten."""
    what = {"function": FUNCTIONS[label], "batch": batch}
    compiled = _each(sides, "compile", **what, calls=CALLS)
    yield {"GRiD's choice": compiled[GRID]["choice"]}
    ten = _turns(sides, compiled, seconds)
    compiled = _each(sides, "compile", **what)
    one = _turns(sides, compiled, seconds)
    yield _compared("call", one)
    yield _compared("in a row", {n: (ten[n] - one[n]) / (CALLS - 1) for n in sides})
    results = _each(sides, "result", function=what["function"], samples=SAMPLES)
    errors = {n: error(x["blocks"], wanted) for n, x in results.items()}
    yield {f"{n}_error": x for n, x in errors.items()}
    wrong = [n for n, x in errors.items() if not x < WRONG]
    with suppress(Failed):  # the profiler need not be there; after it, calls may be slower
        found = _each(sides, "kernels", runs=20)
        yield _compared("kernel", {OURS: found[OURS]["all"], GRID: found[GRID]["longest"]})
    yield {"note": f"WRONG: {', '.join(wrong)}" if wrong else None}


def _turns(sides: dict[str, Side], compiled: dict[str, dict], seconds: float) -> dict[str, float]:
    """The medians (µs) of turns of both."""
    times: dict[str, list[float]] = {n: [] for n in sides}
    for _ in range(TURNS):
        for n, side in sides.items():
            runs = int(max(5, min(200, seconds / TURNS / compiled[n]["once"])))
            times[n] += _asked(n, partial(side.ask, "time", PATIENCE_S, runs=runs))["times"]
    return {n: 1e6 * float(np.median(x)) for n, x in times.items()}


def _compared(kind: str, times: dict[str, float]) -> dict:
    ahead = times[GRID] / times[OURS] if times.get(OURS) else None
    cells = {f"{n}, {kind}": times.get(n) for n in (OURS, GRID)}
    return cells | {f"ahead, {kind}": ahead}
