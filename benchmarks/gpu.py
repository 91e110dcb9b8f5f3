"""On a GPU: XLA and lanes against each other, the bandwidth of the memory, frax and MJX."""

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.lanes import _gpu, forget

from ._peers import PEERS
from ._peers.contest import OURS, Contest
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race
from .ptx import FUNCTIONS

ABOUT = (
    "Time of a call on a GPU (median, µs). Each program computes the whole batch, and the "
    "model is an argument. XLA: `RBD_JAX_LANES=cpu`. Lanes: one robot a thread, also where the "
    "library leaves so few samples to XLA. Floor: bytes of inputs and outputs over the bandwidth "
    "of copying a large array here, and its fraction of the faster time. The error is the "
    "largest difference of 64 states from the CPU in float64, over the largest entry. If a row "
    "is wrong, its note says so. Compile times are those of all functions of a robot compiled "
    "side by side. frax and MJX are measured as in `peers`, on the same GPU and in turns with "
    "rbd_jax without settings. GRiD, which generates C++ and has no Python package, is not "
    "measured."
)
WAYS = {"XLA": "cpu", "lanes": "1"}
ROBOTS = ["ur5", "hyq", "talos"]
RIVALS = ("frax", "mjx")
CASES = {  # of the rivals -> the function of ours in the first table
    "ID": "inverse_dynamics",
    "FD": "forward_dynamics",
    "ID vjp": "inverse_dynamics vjp",
    "FD vjp": "forward_dynamics vjp",
    "FD jvp": "forward_dynamics jvp",
    "FD Jacobian, jacfwd": "forward_dynamics_derivatives",
}
LABELS = tuple(label for label in FUNCTIONS if label != "aba")  # forward_dynamics by lanes
SIZES = (1, 64, 1024, 16384, 65536)
SIZED = ("forward_dynamics", "inverse_dynamics vjp", "forward_dynamics vjp",
         "forward_dynamics_derivatives")  # fmt: skip
"""Batches, and functions, of the table by sizes."""
WRONG = {"float32": 5e-2, "float64": 1e-7}
"""No rounding explains larger errors."""


@contextmanager
def way(value: str):
    """Compile with this value of RBD_JAX_LANES, and to lanes however few the samples are."""
    before, pays = os.environ.get("RBD_JAX_LANES"), _gpu.BYTES_BY_ROOT
    os.environ["RBD_JAX_LANES"], _gpu.BYTES_BY_ROOT = value, float("inf")
    forget()
    try:
        yield
    finally:
        _gpu.BYTES_BY_ROOT = pays
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


def _wanted(function, name: str, dtype: str, arguments: list[str], count: int) -> list[np.ndarray]:
    """Results of the CPU in float64 for the states that this dtype is given."""
    with jax.default_device(jax.devices("cpu")[0]):
        m = load(name, "float64")
        s = jax.tree.map(lambda x: x.astype(jnp.float64), states(load(name, dtype), count))
        given = [getattr(s, n) for n in arguments]
        found = jax.jit(over_batch(partial(function), len(arguments)))(m, *given)
    return [np.asarray(x) for x in jax.tree.leaves(found)]


def _error(found, wanted: list[np.ndarray]) -> float:
    """The largest difference, relative to each result's largest entry."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(found), wanted, strict=True):
        x = np.asarray(x[: len(y)], np.float64)
        worst = max(worst, float(np.abs(x - y).max() / np.abs(y).max()) if y.size else 0.0)
    return worst if np.isfinite(worst) else float("inf")


def _side_by_side(make, items) -> list:
    """``make`` of each item in threads; an exception stands in place of a result."""

    def attempt(item):
        try:
            return make(item)
        except Exception as problem:  # one function alone is left out
            return problem

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(attempt, items))


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float, speed: float,
            labels=LABELS) -> None:  # fmt: skip
    """One row a function: both ways in turns, their errors, and the floor."""
    prepared(name, dtype, batch, labels)(table, seconds, speed)


def prepared(name: str, dtype: str, batch: int, labels) -> Callable[[Table, float, float], None]:
    """Compile everything for :func:`compare`; what is returned measures and adds the rows."""
    m = load(name, dtype)
    s = states(m, batch)
    arguments = {label: FUNCTIONS[label][1].split() for label in labels}
    inputs = {label: [getattr(s, n) for n in arguments[label]] for label in labels}

    def compiled(label):
        function = over_batch(partial(FUNCTIONS[label][0]), len(arguments[label]))
        return program(label, function, m, *inputs[label])

    def wanted(label):
        return _wanted(FUNCTIONS[label][0], name, dtype, arguments[label], min(batch, 64))

    made = {}
    for key, value in WAYS.items():
        with way(value):
            made[key] = _side_by_side(compiled, labels)
    truths = _side_by_side(wanted, labels)

    def measure(table: Table, seconds: float, speed: float) -> None:
        for label, truth, *programs in zip(labels, truths, *made.values(), strict=True):
            cells = {"robot": name, "dtype": dtype, "batch": batch, "function": label}
            try:
                for x in (truth, *programs):
                    if isinstance(x, Exception):
                        raise x
                found = _measured(dict(zip(WAYS, programs, strict=True)), truth, dtype, seconds)
                moved = _bytes(m, inputs[label], programs[0].run())
            except Exception as problem:  # a kernel that fails says so in its row
                text = f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
                table.add(**cells, note=text)
                continue
            floor, note = moved / speed * 1e6, found.pop("note")
            table.add(**cells, **found, floor=floor,
                      fraction=floor / min(found[k] for k in WAYS), note=note)  # fmt: skip

    return measure


def _measured(made: dict, truth: list[np.ndarray], dtype: str, seconds: float) -> dict:
    """Times, compile times and errors of both ways, and what is wrong."""
    race(*made.values(), seconds=seconds)
    found = {key: p.median for key, p in made.items()}
    found["speed_up"] = found["XLA"] / found["lanes"]
    wrong = []
    for key, p in made.items():
        error = _error(p.run(), truth)
        found |= {f"{key}_error": error, f"{key}_compile_s": p.compile_s}
        if not error < WRONG[dtype]:
            wrong.append(key)
    return found | {"note": f"WRONG: {', '.join(wrong)}" if wrong else None}


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


def _contest(table: Table, name: str, pythons: dict[str, str], batch: int, options,
             ours: dict[str, float], end: float) -> None:  # fmt: skip
    """This library in turns with the rivals; the time of its XLA programs beside them."""
    with Contest(name, "float32", pythons, options.patience, "batches") as contest:
        devices = {n: x["device"] for n, x in contest.loaded.items()}
        for label, function in CASES.items():
            if time.monotonic() > end:
                print(f"    {label} skipped: out of time (--limit)")
                continue
            times = contest.race(label, batch, options.seconds)
            times = {n: t * batch for n, t in times.items()}
            others = [times[n] for n in RIVALS if n in times]
            ahead = min(others) / times[OURS] if others and OURS in times else None
            table.add(robot=name, function=label, batch=batch, rbd_jax=times.get(OURS),
                      by_XLA=ours.get(function), **{n: times.get(n) for n in RIVALS}, ahead=ahead,
                      devices=", ".join(sorted(set(devices.values()))))  # fmt: skip


def main(options) -> None:
    """Both ways on all robots, then the rivals. Without a GPU it writes nothing and fails."""
    # A thread's local memory is the driver's, not XLA's, which must not take all there is.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if jax.default_backend() != "gpu":
        raise SystemExit(f"gpu: no GPU here: JAX runs on {jax.devices()[0].device_kind}. "
                         "Nothing was measured.")  # fmt: skip
    report = Report("gpu", options, ABOUT)
    end = time.monotonic() + (options.limit or 540)
    speed = bandwidth()
    table = report.table("XLA and lanes", f"Copies reach {speed / 1e9:.0f} GB/s.")
    about = "By XLA: the time of the first table. Ahead: the faster rival's time over ours."
    against = report.table("Against other libraries, float32", about)
    sizes = report.table("By the size of the batch")
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    batch = options.batch or (256 if options.tiny else 4096)
    parts = options.parts or ["ways", "rivals", "sizes"]
    seconds = min(options.seconds, 0.3)
    for name, dtype in product(names, options.dtypes if "ways" in parts else ()):
        if time.monotonic() > end:
            print(f"{name}, {dtype} skipped: out of time (--limit)")
            continue
        compare(table, name, dtype, batch, seconds, speed)
        report.write()
    pythons = _rivals(options) if "rivals" in parts else {}
    for name in names if pythons else []:
        if time.monotonic() < end:
            same = {"robot": name, "dtype": "float32", "batch": batch}.items()
            ours = {r["function"]: r.get("XLA") for r in table.rows if same <= r.items()}
            _contest(against, name, pythons, batch, options, ours, end)
            report.write()
    for size in SIZES if "sizes" in parts else ():
        if time.monotonic() < end:
            compare(sizes, names[-1], options.dtypes[0], size, seconds, speed, SIZED)
            report.write()
