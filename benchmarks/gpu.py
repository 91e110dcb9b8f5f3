"""On a GPU: XLA and lanes, the bandwidth, MuJoCo Warp, frax, MJX, GRiD, policies, solvers."""

import importlib.util
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from . import _gpu_policy, _gpu_solvers, _grid, _warp
from ._ground import Ground, scenes
from ._peers import PEERS
from ._peers.contest import OURS, Contest
from ._report import Report, Table
from ._robots import available
from ._timing import program, race
from ._ways import STEP, Task, together
from .ptx import FUNCTIONS

ABOUT = (
    "Time of a call on a GPU (median, µs). Each program computes the whole batch. In the dynamics, "
    "the model is an argument. XLA: `RBD_JAX_LANES=cpu`. Lanes: kernels for all "
    "batches. Default: without settings, where the library chooses one of both. Floor: bytes of "
    "inputs and outputs over the bandwidth of copying a large array here, and its fraction of the "
    "fastest time. The error is the largest difference of 64 states from the CPU in float64, over "
    "the largest entry. If a row is wrong, its note says so. All functions compile at the same "
    "time in several processes, so that compile times are longer than alone; nothing else runs "
    "while times are measured."
)
ROBOTS = ["ur5", "hyq", "talos"]
RIVALS = ("frax", "mjx")
CASES = ("ID", "FD", "ID vjp", "FD vjp", "FD jvp", "FD Jacobian, jacfwd")
"""Of ``peers``."""
LABELS = tuple(label for label in FUNCTIONS if label != "aba")  # forward_dynamics by lanes
PARTS = "ways", "sizes", "ground", "warp", "policy", "rivals", "grid", "solvers"
SIZES = (1, 64, 1024, 16384, 65536)
SIZED = ("forward_dynamics", "inverse_dynamics vjp", "forward_dynamics vjp",
         "forward_dynamics_derivatives")  # fmt: skip
"""Batches, and functions, of the table by sizes."""
WAYS, BY_SIZE, ON_GROUND, WARP, AGAINST, AGAINST_GRID, SOLVERS, POLICY = TITLES = (
    "XLA and lanes",
    "By the size of the batch",
    "On the ground, against MJX",
    _warp.TITLE,
    "Against frax and MJX",
    "Against GRiD",
    _gpu_solvers.TITLE,
    _gpu_policy.TITLE,
)
ABOUT_TABLES = {
    ON_GROUND: "One step of robots that stand on the ground, as in `contact`, and its vjp. The "
    "scene is a constant, as it is in MJX's step.",
    WARP: _warp.ABOUT,
    AGAINST: "In turns, as in `peers`. Ahead: the faster rival's time over ours.",
    AGAINST_GRID: _grid.ABOUT,
    SOLVERS: _gpu_solvers.ABOUT,
    POLICY: _gpu_policy.ABOUT,
}


def bandwidth(megabytes: int = 1024) -> float:
    """Bytes a second that are read and written when an array is copied."""
    x = jnp.zeros(megabytes * 2**18, jnp.float32)
    copy = program("copy", lambda x: x + 1, x)
    race(copy, seconds=0.3)
    return 2 * x.nbytes / (copy.median * 1e-6)


def _rivals(options) -> dict[str, str]:
    """The Python of each rival that is installed here or in an environment of its own."""
    found = {}
    for name in RIVALS:
        own = Path(options.peer_envs).absolute() / name / "bin" / "python"
        module = {"mjx": "mujoco.mjx"}.get(name, name)
        if own.exists():
            found[name] = str(own)
        elif importlib.util.find_spec(module.split(".")[0]) and importlib.util.find_spec(module):
            found[name] = sys.executable
        else:
            print(f"  {name} skipped: pip install {PEERS[name].package}, here or in {own.parent}")
    return found


def _mjx_on_ground(table: Table, task: Task, python: str, seconds: float) -> None:
    """The time of MJX's step in the row of ours."""
    found = Ground(task.xml, task.batch).mjx(python, task.dtype, seconds)
    for row in table.rows:
        if "us" in found and (row["robot"], row["function"]) == (task.robot, "contact step"):
            row |= {"mjx": found["us"], "mjx_compile_s": found["compile_s"]}
            row["ahead"] = found["us"] / row["default"] if row.get("default") else None
            print(f"  {task.robot}: mjx {found['us']:.0f}", flush=True)


def _contest(table: Table, name: str, pythons: dict[str, str], batch: int, options,
             end: float) -> None:  # fmt: skip
    """This library in turns with the rivals."""
    with Contest(name, "float32", pythons, options.patience, "batches") as contest:
        devices = {n: x["device"] for n, x in contest.loaded.items()}
        for label in CASES:
            if time.monotonic() > end:
                print(f"    {label} skipped: out of time (--limit)")
                continue
            times = contest.race(label, batch, options.seconds)
            times = {n: t * batch for n, t in times.items()}
            others = [times[n] for n in RIVALS if n in times]
            ahead = min(others) / times[OURS] if others and OURS in times else None
            table.add(robot=name, function=label, batch=batch, rbd_jax=times.get(OURS),
                      **{n: times.get(n) for n in RIVALS}, ahead=ahead,
                      devices=", ".join(sorted(set(devices.values()))))  # fmt: skip


def _is_there(table: Table, task: Task) -> bool:
    """Whether an earlier run measured all functions of a task."""
    found = {r["function"] for r in table.rows
             if (r["robot"], r.get("dtype", "float32"), r["batch"]) == task[1:4]}  # fmt: skip
    return found >= set(task.labels)


def main(options) -> None:
    """All ways on all robots, then the rivals. Without a GPU it writes nothing and fails."""
    # A thread's local memory is the driver's, not XLA's, which must not take all there is.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    tried = options.tiny and options.results  # elsewhere, to see that all runs
    if jax.default_backend() != "gpu" and not tried:
        raise SystemExit(f"gpu: no GPU here: JAX runs on {jax.devices()[0].device_kind}. "
                         "Nothing was measured.")  # fmt: skip
    report = Report("gpu", options, ABOUT)
    end = time.monotonic() + (options.limit or 540)
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    batch = options.batch or (256 if options.tiny else 4096)
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(
            f"gpu has no parts {', '.join(sorted(unknown))}; it has {', '.join(PARTS)}"
        )
    pythons = _rivals(options) if {"ground", "rivals", "policy", "warp"} & set(parts) else {}
    by_title = {title: report.table(title, ABOUT_TABLES.get(title, "")) for title in TITLES}
    for title in (BY_SIZE, WARP, POLICY):
        by_title[title].subject = "robot", "dtype", "batch"
    for title in (AGAINST_GRID, SOLVERS):
        by_title[title].subject = "robot", "function", "batch"
    tasks = []
    for dtype in options.dtypes:
        if "ways" in parts:
            tasks += [Task(WAYS, name, dtype, batch, LABELS) for name in names]
        if "sizes" in parts:
            sizes = SIZES[:2] if options.tiny else SIZES
            tasks += [Task(BY_SIZE, names[-1], dtype, size, SIZED) for size in sizes]
        if "ground" in parts and importlib.util.find_spec("mujoco"):
            robots = scenes(options).items()
            tasks += [Task(ON_GROUND, n, dtype, batch, tuple(STEP), xml) for n, xml in robots]
    tasks = [t for t in tasks if options.again or not _is_there(by_title[t.title], t)]
    speed = bandwidth(16 if options.tiny else 1024) if tasks else 0.0
    if tasks:
        by_title[WAYS].notes = f"Copies reach {speed / 1e9:.0f} GB/s."
    for title, cells in together(tasks, min(options.seconds, 0.3), speed):
        by_title[title].add(**cells)
        report.write()
    for task in tasks:
        if task.title == ON_GROUND and "mjx" in pythons and time.monotonic() < end:
            _mjx_on_ground(by_title[ON_GROUND], task, pythons["mjx"], options.seconds)
            report.write()
    if "warp" in parts:
        _warp.compare(report, by_title[WARP], options, pythons.get("mjx"))
    if "policy" in parts and importlib.util.find_spec("mujoco"):
        _gpu_policy.compare(report, by_title[POLICY], options, pythons.get("mjx"), end)
    for name in names if pythons and "rivals" in parts else []:
        task = Task(AGAINST, name, "float32", batch, CASES)
        there = _is_there(by_title[AGAINST], task) and not options.again
        if time.monotonic() < end and not there:
            _contest(by_title[AGAINST], name, pythons, batch, options, end)
            report.write()
    if "grid" in parts:
        _grid.compare(report, by_title[AGAINST_GRID], options, end)
    if "solvers" in parts:
        _gpu_solvers.compare(report, by_title[SOLVERS], options, end)
