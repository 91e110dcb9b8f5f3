"""On a GPU: XLA and lanes against each other, the bandwidth of the memory, frax and MJX."""

import importlib.util
import os
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.lanes import forget

from ._peers import PEERS
from ._peers.contest import OURS, Contest
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race
from .ptx import FUNCTIONS

ABOUT = (
    "Time per evaluation on a GPU (median, µs), one program over the batch, the model an argument. "
    "XLA: the library as it comes. Lanes: `RBD_JAX_LANES=gpu`, one robot a thread. Floor: inputs "
    "and outputs over the bandwidth that a copy of a large array reaches here; its fraction of the "
    "faster time. Error: the largest difference from the CPU in float64, over the largest entry, "
    "of 64 states. A row that is wrong says so. frax and MJX: as in `peers`, ours by lanes. "
    "GRiD, generated C++ without a Python package, is not measured."
)
WAYS = {"XLA": "1", "lanes": "gpu"}
ROBOTS = ["ur5", "hyq", "talos"]
RIVALS = ("frax", "mjx")
CASES = {"ID": 4096, "FD": 4096, "FD vjp": 4096, "FD jvp": 4096, "FD Jacobian, jacfwd": 128}
WRONG = {"float32": 5e-2, "float64": 1e-7}
"""No rounding explains larger errors."""


@contextmanager
def way(value: str):
    """Compile with this value of RBD_JAX_LANES."""
    before = os.environ.get("RBD_JAX_LANES")
    os.environ["RBD_JAX_LANES"] = value
    forget()
    try:
        yield
    finally:
        os.environ.pop("RBD_JAX_LANES")
        if before is not None:
            os.environ["RBD_JAX_LANES"] = before
        forget()


def bandwidth(megabytes: int = 1024) -> float:
    """Bytes a second that are read and written when an array is copied."""
    x = jnp.zeros(megabytes * 2**18, jnp.float32)
    copy = program("copy", lambda x: x + 1, x)
    race(copy, seconds=0.3)
    return 2 * x.nbytes / (copy.median * 1e-6)


def _bytes(*trees) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(trees))


def _error(found, function, name: str, dtype: str, arguments: list[str], count: int) -> float:
    """The largest difference from the CPU's float64, relative to each result's largest entry."""
    with jax.default_device(jax.devices("cpu")[0]):
        m = load(name, "float64")
        s = jax.tree.map(lambda x: x.astype(jnp.float64)[:count], states(load(name, dtype), count))
        wanted = jax.jit(over_batch(function, len(arguments)))(
            m, *(getattr(s, n) for n in arguments)
        )
    worst = 0.0
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(x, np.float64)[:count], np.asarray(y)
        worst = max(worst, float(np.abs(x - y).max() / np.abs(y).max()) if y.size else 0.0)
    return worst if np.isfinite(worst) else float("inf")


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float, speed: float,
            labels=tuple(FUNCTIONS)) -> None:  # fmt: skip
    """One row a function: both ways in turns, their errors, and the floor."""
    m = load(name, dtype)
    s = states(m, batch)
    for label in labels:
        function, names = FUNCTIONS[label]
        arguments = names.split()
        inputs = [getattr(s, n) for n in arguments]
        made, cells = {}, {}
        for key, value in WAYS.items():
            with way(value):
                run = over_batch(partial(function), len(arguments))
                made[key] = program(key, run, m, *inputs, per=batch)
        race(*made.values(), seconds=seconds)
        results = {key: p.run() for key, p in made.items()}
        for key, p in made.items():
            error = _error(results[key], function, name, dtype, arguments, min(batch, 64))
            cells |= {key: p.median, f"{key}_error": error, f"{key}_compile_s": p.compile_s}
        floor = _bytes(m, inputs, results["XLA"]) / speed / batch * 1e6
        wrong = [key for key in WAYS if not cells[f"{key}_error"] < WRONG[dtype]]
        table.add(robot=name, dtype=dtype, batch=batch, function=label, **cells,
                  speed_up=made["XLA"].median / made["lanes"].median, floor=floor,
                  fraction=floor / min(p.median for p in made.values()),
                  note=f"WRONG: {', '.join(wrong)}" if wrong else None)  # fmt: skip


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


def _contest(table: Table, name: str, pythons: dict[str, str], options, end: float) -> None:
    with way("gpu"), Contest(name, "float32", pythons, options.patience, "batches") as contest:
        devices = {n: x["device"] for n, x in contest.loaded.items()}
        for label, batch in CASES.items():
            if time.monotonic() > end:
                print(f"    {label} skipped: out of time (--limit)")
                continue
            times = contest.race(label, batch, options.seconds)
            others = [x for n, x in times.items() if n != OURS]
            ahead = min(others) / times[OURS] if others and OURS in times else None
            table.add(robot=name, function=label, batch=batch, lanes=times.get(OURS),
                      **{n: times.get(n) for n in RIVALS}, speed_up=ahead,
                      devices=", ".join(sorted(set(devices.values()))))  # fmt: skip


def main(options) -> None:
    """Both ways on all robots, then the rivals. Without a GPU it writes nothing and fails."""
    if jax.default_backend() != "gpu":
        raise SystemExit(f"gpu: no GPU here: JAX runs on {jax.devices()[0].device_kind}. "
                         "Nothing was measured.")  # fmt: skip
    report = Report("gpu", options, ABOUT)
    end = time.monotonic() + (options.limit or 540)
    speed = bandwidth()
    table = report.table("XLA and lanes", f"Copies reach {speed / 1e9:.0f} GB/s.")
    against = report.table("Against other libraries, float32")
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    batch = options.batch or (256 if options.tiny else 4096)
    for name, dtype in product(names, options.dtypes):
        if time.monotonic() > end:
            print(f"{name}, {dtype} skipped: out of time (--limit)")
            continue
        compare(table, name, dtype, batch, min(options.seconds, 0.3), speed)
        report.write()
    pythons = _rivals(options)
    for name in names if pythons else []:
        if time.monotonic() < end:
            _contest(against, name, pythons, options, end)
            report.write()
