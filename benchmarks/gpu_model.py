"""A model of the time on a GPU beside the stored times, and what it predicts; no GPU is needed."""

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import rbd_jax as rbd
from rbd_jax.lanes import clear_caches
from rbd_jax.lanes._jax_internals import dead_code_eliminated
from rbd_jax.lanes._report import calls
from rbd_jax.lanes.gpu import _gpu_kernels, _ptx
from rbd_jax.lanes.gpu._time_model import FITTED, Constants, Counts, Work, seconds
from rbd_jax.lanes.xla._operands import shared

from . import (
    _gpu_policy as _policy,
    _gpu_solvers as _solvers,
    _gpu_targets as _targets,
    _grid,
    _warp,
)
from ._ground import Ground, scenes
from ._report import RESULTS, Report, Table
from ._robots import available, load, over_batch, states
from .gpu import BY_SIZE, LABELS, WAYS
from .ptx import FUNCTIONS

ABOUT = (
    "Times of kernels by the model of `rbd_jax/lanes/gpu/_time_model.py`, which counts the "
    "instructions of a program and knows how many robots an H200 holds at a time. No GPU was used: "
    "the measured times are those of the table `gpu`. µs of a batch, float32. The model assumes "
    "that a loop with an unknown end has two rounds, and five in the slowest robot."
)
TEAMS = 8, 16, 32
BATCH = 4096
LARGE = 65536
"""Robots of the second prediction for the robots of ``LARGE_ROBOTS``."""
LARGE_ROBOTS = ("ur5", "talos")
COUNTS = RESULTS / "gpu_counts.json"
"""What the programs did that were measured."""
CALLED = {"kernel": 0.0, "in a row": 30.0, "waited for": 90.0}
"""What was timed -> where the fit of its constant begins: µs of a call beside its kernels."""
START = Constants(6.0, 2.0, 50.0)
ROBOTS = ["ur5", "hyq", "talos", "arm"]
GRID_ROBOTS = ["g1", "go2"]
ON_GROUND = {"step": Ground.step, "vjp": Ground.vjp}
"""Column of the table against MuJoCo Warp -> the function."""
CONSTANTS, TEAM_ROWS, THREAD_ROWS, PREDICTED, SOLVERS, POLICY, TARGETS = (
    "Constants and errors",
    "A team a robot: measured and predicted",
    "One thread a robot: measured and predicted",
    "Predictions",
    "Predictions for optimal control and identification",
    "Predictions for rollouts with a policy",
    "Targets and predictions",
)
NOTES = {
    CONSTANTS: "Waiting, sharing: an instruction takes so many cycles, and so many more for each "
    "warp of its scheduler. Far: cycles that an element of a thread's own memory adds where the "
    "second cache has no room for it. Call: µs of a call beside its kernels. Errors: the larger of "
    "both times over the other, median and worst; also where the constants were fitted without "
    "the robot, or the function, of the row. The rows of one thread take waiting and sharing from "
    "the teams.",
    TEAM_ROWS: "The counts are those of the programs that were measured (`gpu_counts.json`), which "
    "are older than those of the predictions. "
    "Time: measured. Timed: the kernel alone, by NVIDIA's profiler, or calls in a row, "
    "for which the model adds the constant of a call. Threads: of a team; instructions and "
    "meetings: of a thread; scratch: bytes of a robot; resident: robots that a multiprocessor "
    "holds; all are of the kernel with the most instructions. The URDFs of G1 and Go2 are those of "
    "example-robot-data, which have the same joints as the ones that were measured. Without: "
    "predicted by constants that were fitted without the robot. Gain: how many times as fast "
    "another of 8, 16 and 32 threads should be, of the kernel where it is the most.",
    THREAD_ROWS: "Calls that were waited for, in the form of the algorithms for one thread, with "
    "the counts of then.",
    PREDICTED: "Nobody has measured these times; they are predictions of the kernels of now, "
    "without a call. A number heads a column of teams of so many threads; alone: one thread, in "
    "its own form. Scratch, resident: bytes of a robot and robots that a multiprocessor holds, of "
    "the kernel that is chosen and needs most. Chosen: the way that the library takes "
    "(`_gpu_kernels.chosen`), threads of each kernel. Ours, measured: the time in the table `gpu` "
    "of older programs, of what the library took then. XLA: measured as well. Calls that were "
    "waited for take about 100 µs more than their kernels, calls in a row 30.",
    SOLVERS: "Kernels of batches of problems, one kernel a row; predictions without a call, of a "
    "single run of each kernel. A problem takes some of them once for each of its steps. Each: "
    "samples of a problem. Threads, scratch and resident as above.",
    POLICY: f"{_policy.STEPS} steps of {1e3 * _policy.DT:.0f} ms with a small policy, as in the "
    "table `gpu`: the rollout, and its gradient with respect to the weights, where reverse mode "
    "stores the states. Predicted: ms a batch, without a call. Nobody has measured it. "
    "Instructions, scratch and resident are those of the kernel with the most memory.",
    TARGETS: "Each target beside what was measured on an H200 with older programs, and what the "
    "model predicts for those of now. Before: what was measured. A prediction is nothing that ran. "
    "Unit: µs of a batch, ns for each robot, or times as fast. Reached: whether the prediction "
    "does what is asked for.",
}


@contextmanager
def as_on_a_gpu():
    """Trace programs in the forms that they have on a GPU."""
    with (mock.patch("jax.default_backend", lambda: "gpu"),
          mock.patch.object(_gpu_kernels, "available", lambda: True)):  # fmt: skip
        clear_caches()
        yield
    clear_caches()


class Kernel(NamedTuple):
    """One kernel of a function: its work for each size of a team, and the size that is chosen."""

    work: dict[int, Work]
    chosen: int
    """By the rule of thumb."""
    batched: bool
    name: str = ""
    sizes: tuple[int, ...] = ()
    ways: _gpu_kernels.Writings | None = None

    def taken(self, batch: int) -> _gpu_kernels.Written:
        """What the library runs for so many samples."""
        assert self.ways is not None
        return _gpu_kernels.chosen(self.ways, batch if self.batched else 1)

    def alone(self) -> Work:
        """One thread a sample, in its own form."""
        assert self.ways is not None
        found = self.ways.written(1, "thread")
        assert found is not None
        return found.work

    def seconds(self, batch: int, team: int, fitted: Constants) -> float:
        """Of this kernel; NaN where its memory is too large for the chip."""
        samples = batch if self.batched else 1
        return seconds(self.work[team], samples, fitted) if team in self.work else float("nan")

    def gain(self, batch: int, fitted: Constants) -> float:
        """How many times as fast as the chosen team the best one should be."""
        best = min(self.seconds(batch, team, fitted) for team in self.work)
        return self.seconds(batch, self.chosen, fitted) / best


class Row(NamedTuple):
    """A measured time (µs), and the kernels that were timed."""

    robot: str
    function: str
    batch: int
    timed: str
    measured: float
    kernels: list[Kernel]
    team: int | None = None
    """The same for all kernels, or that of each."""


def kernels_of(function: Callable, *args: Any) -> list[Kernel]:
    """The kernels of a call of a function of batches, with the work of teams of each size."""
    found = []
    for kernel in untimed(function, *args):
        ways = kernel.ways
        assert ways is not None
        written = {t: w for t in TEAMS if (w := ways.written(t)) is not None}
        if not written:
            print(f"    {kernel.name}: its memory has no place on the chip", flush=True)
        rule = ways.rule if ways.rule in written else 1
        found.append(kernel._replace(work={t: w.work for t, w in written.items()}, chosen=rule))
    return found


def untimed(function: Callable, *args: Any) -> Iterator[Kernel]:
    """The kernels of a call, of which nothing is written before it is asked for.

    XLA leaves out what nobody takes, such as the value beside a derivative.
    """
    for call in calls(dead_code_eliminated(jax.make_jaxpr(function)(*args)).jaxpr):
        flags, batched = shared(call["sizes"], call["mapped"]), bool(call["sizes"])
        ways = _gpu_kernels.Writings(call["program"], flags, batched, _ptx.CHIP_BYTES)
        yield Kernel({}, 1, batched, call["program"].name, call["sizes"], ways)


def microseconds(kernels: list[Kernel], batch: int, fitted: Constants,
                 team: int | None = None) -> float:  # fmt: skip
    """Of all kernels, with teams of this size or with those that are chosen."""
    return 1e6 * sum(k.seconds(batch, team or k.chosen, fitted) for k in kernels)


# --- the programs -------------------------------------------------------------------------


def dynamics(name: str, label: str) -> tuple[Callable, tuple]:
    """A function of ``ptx`` of batches, and its arguments, of which one is the model."""
    m, (function, names) = load(name, "float32"), FUNCTIONS[label]
    s = states(m, 2)
    given = tuple(jnp.asarray(getattr(s, n)) for n in names.split())
    return over_batch(partial(function), len(given)), (m, *given)


def as_grid(name: str, label: str) -> tuple[Callable, tuple]:
    """A function of the comparison with GRiD, and its arguments; the robot is a constant."""
    m = load(name, "float32")
    s = states(m, 2)
    functions = {
        "ID": (lambda q, v, a: rbd.inverse_dynamics(m, q, v, a), s.a),
        "FD": (lambda q, v, tau: rbd.forward_dynamics(m, q, v, tau), s.tau),
        "FD derivatives": (
            lambda q, v, tau: rbd.forward_dynamics_derivatives(m, q, v, tau)[:2], s.tau,
        ),
    }  # fmt: skip
    function, last = functions[label]
    return jax.vmap(rbd.lanes(function)), (s.q, s.v, last)


def _on_ground(options) -> dict[tuple[str, str], list[Kernel]]:
    """The steps of robots on the ground and their vjps, of those that are here."""
    if options.tiny:
        return {}
    if not options.packages or not importlib.util.find_spec("mujoco"):
        print("  robots on the ground skipped: they need MuJoCo and --packages")
        return {}
    found = {}
    for robot, xml in scenes(options).items():
        if robot in _warp.ROBOTS:
            ground = Ground(xml, 2)
            given = ground.arguments("float32")
            for name, make in ON_GROUND.items():
                print(f"  {robot}, {name}", flush=True)
                found[robot, name] = kernels_of(jax.vmap(make(ground, "float32")), *given)
    return found


# --- the fit ------------------------------------------------------------------------------


def predicted(row: Row, fitted: Constants, calls: dict[str, float]) -> float:
    """µs of a row."""
    return microseconds(row.kernels, row.batch, fitted, row.team) + calls[row.timed]


def fit(rows: list[Row], names: tuple[str, ...], fitted: Constants = START) -> tuple:
    """The constants of these names, and what a call takes, from the logarithms of the times."""
    timed = sorted({row.timed for row in rows} - {"kernel"})
    start = [*(getattr(fitted, n) for n in names), *(CALLED[t] for t in timed)]

    def made(logarithms) -> tuple[Constants, dict[str, float]]:
        x = [float(x) for x in np.exp(logarithms)]
        constants = fitted._replace(**dict(zip(names, x[: len(names)], strict=True)))
        return constants, {"kernel": 0.0} | dict(zip(timed, x[len(names) :], strict=True))

    def off(logarithms):
        return [np.log(predicted(row, *made(logarithms)) / row.measured) for row in rows]

    return made(least_squares(off, np.log(start), loss="soft_l1", f_scale=0.2).x)


def held_out(rows: list[Row], names: tuple[str, ...], fitted: Constants, by: str) -> list[float]:
    """What is predicted for each row when its robot, or function, was not a part of the fit."""
    known: dict[str, tuple] = {}
    for own in {getattr(row, by) for row in rows}:
        others = [row for row in rows if getattr(row, by) != own]
        if {r.timed for r in others} == {r.timed for r in rows}:
            known[own] = fit(others, names, fitted)
    nothing = float("nan")
    return [predicted(r, *known[key]) if (key := getattr(r, by)) in known else nothing
            for r in rows]  # fmt: skip


def errors(rows: list[Row], times: list[float]) -> tuple[float, float]:
    """The median and the largest factor between measured and predicted times."""
    pairs = zip(rows, times, strict=True)
    factors = [max(t / r.measured, r.measured / t) for r, t in pairs if t == t]
    if not factors:
        return float("nan"), float("nan")
    return float(np.median(factors)), max(factors)


def _compared(report: Report, table: Table, about: Table, rows: list[Row], names: tuple[str, ...],
              fitted: Constants = START) -> Constants:  # fmt: skip
    """Fill the table of measured and predicted times; returns the constants."""
    if not rows:
        return fitted
    constants, calls = fit(rows, names, fitted)
    inside = [predicted(r, constants, calls) for r in rows]
    outside, other = (held_out(rows, names, fitted, by) for by in ("robot", "function"))
    for row, own, without in zip(rows, inside, outside, strict=True):
        large = max(row.kernels, key=lambda k: k.work[row.team or k.chosen].sample.issued)
        work = large.work[row.team or large.chosen]
        gain = {"gain": max(k.gain(row.batch, constants) for k in row.kernels)}
        gain = gain if row.team is None else {}
        table.add(robot=row.robot, function=row.function, batch=row.batch, timed=row.timed,
                  threads=work.team, instructions=round(work.sample.issued),
                  meetings=round(work.sample.meetings), scratch=work.scratch_bytes,
                  resident=work.resident, time=row.measured, predicted=own,
                  ratio=own / row.measured, without=without,
                  **gain)  # fmt: skip
    cells: dict[str, Any] = {"rows": table.title.partition(":")[0], "number": len(rows)}
    cells |= {n: x for n, x in constants._asdict().items() if n in names}
    cells |= {f"call, {n}": x for n, x in calls.items() if n != "kernel"}
    fits = {"": inside, ", without the robot": outside, ", without the function": other}
    for label, times in fits.items():
        found = errors(rows, times)
        cells |= {f"median{label}": found[0], f"worst{label}": found[1]}
    about.add(**cells)
    report.write()
    return constants


# --- all tables ---------------------------------------------------------------------------


def _measured() -> dict[str, list[dict]]:
    """The stored rows of the table ``gpu``."""
    stored = json.loads((RESULTS / "gpu.json").read_text())
    return {t["title"]: [r for r in t["rows"] if not r.get("note")] for t in stored["tables"]}


def _team_rows(stored: dict) -> Iterator[dict]:
    """What was timed with teams."""
    for r in stored["Against GRiD"]:
        if time := r.get("rbd_jax, kernel"):
            yield {"robot": r["robot"], "function": r["function"], "batch": r["batch"],
                   "timed": "kernel", "measured": time, "team": None}  # fmt: skip
    for r in stored[_warp.TITLE]:
        for name in ON_GROUND:
            if r.get(name):
                time = r[name] * r["batch"] / 1e3
                yield {"robot": r["robot"], "function": name, "batch": r["batch"],
                       "timed": "in a row", "measured": time, "team": None}  # fmt: skip


def _thread_rows(stored: dict) -> Iterator[dict]:
    """What was timed with one thread."""
    for r in (*stored[WAYS], *stored[BY_SIZE]):
        yield {"robot": r["robot"], "function": r["function"], "batch": r["batch"],
               "timed": "waited for", "measured": r["lanes"], "team": 1}  # fmt: skip


def _counted(rows: Iterable[dict], now: dict[tuple[str, str], list[Kernel]]) -> list[Row]:
    """Measured rows with the counts of the programs that were measured.

    A row that was measured since then gets those of now, which are stored with it.
    """
    known = json.loads(COUNTS.read_text()) if COUNTS.exists() else []
    by_key = {_key(r): r for r in known}
    found = []
    for row in rows:
        old = by_key.get(_key(row))
        if old is None or not np.isclose(old["measured"], row["measured"], rtol=1e-3):
            kernels = now.get((row["robot"], row["function"]))
            if kernels is None:
                continue
            by_key[_key(row)] = row | {"kernels": [_as_numbers(k, row["team"]) for k in kernels]}
        found.append(_as_row(by_key[_key(row)]))
    if list(by_key.values()) != known:
        COUNTS.write_text(json.dumps(list(by_key.values())) + "\n")
    return found


def _key(row: dict) -> tuple:
    return row["robot"], row["function"], row["batch"], row["timed"], row["team"]


def _as_numbers(k: Kernel, team: int | None) -> dict:
    works = {1: k.alone()} if team == 1 else k.work
    work = {t: [w.scratch_bytes, w.moved_bytes, [*w.shared], [*w.sample]] for t, w in works.items()}
    return {"chosen": team or k.chosen, "batched": k.batched, "work": work}


def _as_row(row: dict) -> Row:
    kernels = []
    for k in row["kernels"]:
        work = {int(t): Work(int(t), scratch, moved, Counts(*first), Counts(*second))
                for t, (scratch, moved, first, second) in k["work"].items()}  # fmt: skip
        kernels.append(Kernel(work, k["chosen"], k["batched"]))
    return Row(row["robot"], row["function"], row["batch"], row["timed"], row["measured"], kernels,
               row["team"])  # fmt: skip


def taken(kernels: list[Kernel], batch: int, fitted: Constants) -> tuple[float, list]:
    """µs of the kernels that the library takes, and these."""
    ways = [(k, k.taken(batch)) for k in kernels]
    times = (seconds(w.work, batch if k.batched else 1, fitted) for k, w in ways)
    return 1e6 * sum(times), [w for _, w in ways]


def _predict(table: Table, key: tuple[str, str], kernels: list[Kernel], fitted: Constants,
             batch: int, xla: float | None) -> None:  # fmt: skip
    times = {str(t): microseconds(kernels, batch, fitted, t) for t in TEAMS}
    alone = sum(seconds(k.alone(), batch if k.batched else 1, fitted) for k in kernels)
    own, ways = taken(kernels, batch, fitted)
    large = max(ways, key=lambda w: w.made.scratch_bytes)
    cells = {n: x if x == x else None for n, x in times.items()}
    cells |= {"alone": 1e6 * alone, "scratch": large.made.scratch_bytes}
    cells |= {"resident": large.work.resident, "chosen": own}
    cells |= {"its threads": ", ".join(str(w.team) for w in ways)}
    table.add(robot=key[0], function=key[1], batch=batch, **cells, **{"XLA, measured": xla})


def main(options) -> None:
    """Count all programs, fit the constants, predict, and compare with what is to be reached.

    ``--parts targets --keep`` compares the stored predictions; ``--parts policy --keep`` predicts
    the rollouts with a policy alone.
    """
    report = Report("gpu_model", options, ABOUT)
    tables = {title: report.table(title, notes) for title, notes in NOTES.items()}
    warnings.simplefilter("ignore", rbd.RobotDescriptionWarning)
    stored = _measured()
    parts = options.parts or ["predictions", "policy"]
    if "predictions" in parts:
        with as_on_a_gpu():
            _predictions(report, tables, stored, options)
    if "policy" in parts and importlib.util.find_spec("mujoco"):
        with as_on_a_gpu():
            _policy.predict(tables[POLICY], options, FITTED, kernels_of, taken)
    measured = dict(_defaults(stored))
    for row in tables[PREDICTED].rows:
        row["ours, measured"] = measured.get((row["robot"], row["function"], row["batch"]))
    found = {(r["robot"], r["function"], r["batch"]): r["chosen"] for r in tables[PREDICTED].rows}
    tables[TARGETS].rows.clear()
    found |= {(r["robot"], r["function"], r["batch"]): r["predicted"] for r in tables[POLICY].rows}
    _targets.compare(tables[TARGETS], stored, found)
    report.write()


def _predictions(report: Report, tables: dict[str, Table], stored: dict, options) -> None:
    asked = options.robots or (["ur5", "go2"] if options.tiny else [*ROBOTS, *GRID_ROBOTS])
    names = available([n for n in asked if n in (*ROBOTS, *GRID_ROBOTS)])
    labels = ("inverse_dynamics", "forward_dynamics") if options.tiny else LABELS
    made = {(n, x): dynamics(n, x) for n in names if n in ROBOTS for x in labels}
    made |= {(n, x): as_grid(n, x) for n in names if n in GRID_ROBOTS for x in _grid.FUNCTIONS}
    now = {key: kernels_of(function, *given) for key, (function, given) in made.items()}
    now |= _on_ground(options)
    about = tables[CONSTANTS]
    rows = _counted(_team_rows(stored), now)
    fitted = _compared(report, tables[TEAM_ROWS], about, rows, ("waiting", "sharing"))
    rows = _counted(_thread_rows(stored), now)
    fitted = _compared(report, tables[THREAD_ROWS], about, rows, ("far",), fitted)
    print(f"  fitted: {fitted}; in the library: {FITTED}", flush=True)
    xla = {(r["robot"], r["function"], r["batch"]): r["XLA"]
           for r in (*stored[WAYS], *stored[BY_SIZE])}  # fmt: skip
    for key, kernels in now.items():
        for batch in _batches(key):
            _predict(tables[PREDICTED], key, kernels, fitted, batch, xla.get((*key, batch)))
        report.write()
    _solvers.predict(tables[SOLVERS], options, fitted, kernels_of, taken)


def _batches(key: tuple[str, str]) -> tuple[int, ...]:
    """For how many robots a function is predicted."""
    robot, function = key
    if function in ON_GROUND:
        return BATCH, 2 * BATCH
    if robot in GRID_ROBOTS:
        return 256, BATCH
    return (BATCH, LARGE) if robot in LARGE_ROBOTS else (BATCH,)


def _defaults(stored: dict) -> Iterator[tuple[tuple[str, str, int], float]]:
    """What was measured of what the library took."""
    for r in (*stored[WAYS], *stored[BY_SIZE]):
        yield (r["robot"], r["function"], r["batch"]), r["default"]
    for r in _team_rows(stored):
        yield (r["robot"], r["function"], r["batch"]), r["measured"]
