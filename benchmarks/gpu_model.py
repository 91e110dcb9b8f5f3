"""A model of the time on a GPU beside the stored times, and what it predicts; no GPU is needed."""

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import rbd_jax as rbd
from rbd_jax.algorithms.formulations import formulation
from rbd_jax.lanes import Unsupported
from rbd_jax.lanes._report import calls
from rbd_jax.lanes.frontend._read_program import read_program
from rbd_jax.lanes.gpu import _gpu_kernels, _ptx
from rbd_jax.lanes.gpu._time_model import FITTED, Constants, Work, seconds, work_of
from rbd_jax.lanes.xla._operands import shared

from . import _grid, _warp
from ._ground import Ground, scenes
from ._report import RESULTS, Report, Table
from ._robots import available, load, over_batch, states
from .gpu import BY_SIZE, LABELS, WAYS
from .ptx import FUNCTIONS

ABOUT = (
    "Times of kernels by the model of `rbd_jax/lanes/gpu/_time_model.py`, which counts the "
    "instructions of a program and knows how many robots an H200 holds at a time. No GPU was used: "
    "the measured times are those of the table `gpu`. µs of a batch, float32. The programs are "
    "those of this commit, the measured ones are older. The model assumes that a loop with an "
    "unknown end has two rounds, and five in the slowest robot."
)
TEAMS = 8, 16, 32
BATCH = 4096
CALLED = {"kernel": 0.0, "in a row": 30.0, "waited for": 90.0}
"""What was timed -> where the fit of its constant begins: µs of a call beside its kernels."""
START = Constants(6.0, 2.0, 50.0)
ROBOTS = ["ur5", "hyq", "talos", "arm"]
GRID_ROBOTS = ["g1", "go2"]
ON_GROUND = {"step": Ground.step, "vjp": Ground.vjp}
"""Column of the table against MuJoCo Warp -> the function."""
CONSTANTS, TEAM_ROWS, THREAD_ROWS, PREDICTED = (
    "Constants and errors",
    "A team a robot: measured and predicted",
    "One thread a robot: measured and predicted",
    "Predictions",
)
NOTES = {
    CONSTANTS: "Waiting, sharing: an instruction takes so many cycles, and so many more for each "
    "warp of its scheduler. Far: cycles that an element of a thread's own memory adds where the "
    "second cache has no room for it. Call: µs of a call beside its kernels. Errors: the larger of "
    "both times over the other, median and worst; also where the constants were fitted without "
    "the robot, or the function, of the row. The rows of one thread take waiting and sharing from "
    "the teams.",
    TEAM_ROWS: "Time: measured. Timed: the kernel alone, by NVIDIA's profiler, or calls in a row, "
    "for which the model adds the constant of a call. Threads: of a team; instructions and "
    "meetings: of a thread; scratch: bytes of a robot; resident: robots that a multiprocessor "
    "holds; all are of the kernel with the most instructions. The URDFs of G1 and Go2 are those of "
    "example-robot-data, which have the same joints as the ones that were measured. Without: "
    "predicted by constants that were fitted without the robot. Gain: how many times as fast "
    "another of 8, 16 and 32 threads should be, of the kernel where it is the most.",
    THREAD_ROWS: "Calls that were waited for, in the form of the algorithms for one thread.",
    PREDICTED: "Nobody has measured these times with each of these teams; they are predictions of "
    "kernels alone. A number heads a column of teams of so many threads; 1: one thread, in the "
    "form for teams; 1, bodies: one thread, in its own form. Rule: the time with the teams of the "
    "rule of thumb (`_gpu_kernels.TEAMS`), and their threads, for each kernel. Best: threads of "
    "the fastest of 8, 16 and 32 by the model, and the time by the rule over its time. XLA: a "
    "call that was waited for, measured before.",
}


class Kernel(NamedTuple):
    """One kernel of a function: its work for each size of a team, and the size that is chosen."""

    work: dict[int, Work]
    chosen: int
    batched: bool

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


def kernels_of(function: Callable, *args: Any, teams: Iterable[int] = TEAMS) -> list[Kernel]:
    """The kernels of a call of a function of batches, in the form of the formulation of now."""
    found = []
    for call in calls(jax.make_jaxpr(function)(*args).jaxpr):
        closed, flags = call["program"].closed, list(shared(call["sizes"], call["mapped"]))
        work = {}
        for team in teams:
            block = read_program(closed, flags)
            ends = [v for v in (*block.inputs, *block.outputs) if not v.uniform]
            try:
                made = _ptx.functions(block, team)
                _ptx.samples_of_block(made.scratch_bytes, team)  # whether it fits on the chip
            except Unsupported as problem:
                print(f"    {call['program'].name}, {team} threads: {problem}", flush=True)
                continue
            work[team] = work_of(made, sum(v.size * v.dtype.itemsize for v in ends))
        chosen = _gpu_kernels.team_of(read_program(closed, flags))
        if 1 in work and chosen not in work:
            chosen = 1
        found.append(Kernel(work, chosen, bool(call["sizes"])))
    return found


def microseconds(kernels: list[Kernel], batch: int, fitted: Constants,
                 team: int | None = None) -> float:  # fmt: skip
    """Of all kernels, with teams of this size or with those that are chosen."""
    return 1e6 * sum(k.seconds(batch, team or k.chosen, fitted) for k in kernels)


# --- the programs -------------------------------------------------------------------------


def _dynamics(name: str, label: str, teams: Iterable[int]) -> list[Kernel]:
    """A function of ``ptx``; the model is an argument."""
    m, (function, names) = load(name, "float32"), FUNCTIONS[label]
    s = states(m, 2)
    given = tuple(jnp.asarray(getattr(s, n)) for n in names.split())
    return kernels_of(over_batch(partial(function), len(given)), m, *given, teams=teams)


def _as_grid(name: str, label: str) -> list[Kernel]:
    """A function of the comparison with GRiD; the robot is a constant."""
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
    return kernels_of(jax.vmap(rbd.lanes(function)), s.q, s.v, last)


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


def _team_rows(stored: dict, grid: dict, ground: dict) -> Iterator[Row]:
    for r in stored["Against GRiD"]:
        if (kernels := grid.get((r["robot"], r["function"]))) and r.get("rbd_jax, kernel"):
            time = r["rbd_jax, kernel"]
            yield Row(r["robot"], r["function"], r["batch"], "kernel", time, kernels)
    for r in stored[_warp.TITLE]:
        for name in ON_GROUND:
            if (kernels := ground.get((r["robot"], name))) and r.get(name):
                time = r[name] * r["batch"] / 1e3
                yield Row(r["robot"], name, r["batch"], "in a row", time, kernels)


def _thread_rows(stored: dict, bodies: dict) -> Iterator[Row]:
    for r in (*stored[WAYS], *stored[BY_SIZE]):
        if kernels := bodies.get((r["robot"], r["function"])):
            place = r["robot"], r["function"], r["batch"]
            yield Row(*place, "waited for", r["lanes"], kernels, 1)


def _predict(table: Table, key: tuple[str, str], kernels: list[Kernel], fitted: Constants,
             bodies: list[Kernel] | None, xla: float | None) -> None:  # fmt: skip
    times = {t: microseconds(kernels, BATCH, fitted, t) for t in TEAMS}
    there = {t: x for t, x in times.items() if x == x}
    rule = microseconds(kernels, BATCH, fitted)
    best = min(there, key=lambda t: there[t]) if there else None
    one = 1 in kernels[0].work
    alone = {"1": microseconds(kernels, BATCH, fitted, 1) if one else None}
    alone["1, bodies"] = microseconds(bodies, BATCH, fitted, 1) if bodies else None
    cells = {str(t): there.get(t) for t in TEAMS} | alone
    cells |= {"rule": rule, "rule's threads": ", ".join(str(k.chosen) for k in kernels)}
    cells |= {"best": best, "rule over best": rule / there[best] if best else None}
    table.add(robot=key[0], function=key[1], batch=BATCH, **cells, **{"XLA, measured": xla})


def main(options) -> None:
    """Count all programs, fit the constants, and predict."""
    report = Report("gpu_model", options, ABOUT)
    tables = {title: report.table(title, notes) for title, notes in NOTES.items()}
    warnings.simplefilter("ignore", rbd.RobotDescriptionWarning)
    asked = options.robots or (["ur5", "go2"] if options.tiny else [*ROBOTS, *GRID_ROBOTS])
    names = available([n for n in asked if n in (*ROBOTS, *GRID_ROBOTS)])
    labels = ("inverse_dynamics", "forward_dynamics") if options.tiny else LABELS
    keys = [(n, label) for n in names if n in ROBOTS for label in labels]
    with formulation("lanes"):
        bodies = {key: _dynamics(*key, teams=(1,)) for key in keys}
    with formulation("teams"):
        teams = {key: _dynamics(*key, teams=(1, *TEAMS)) for key in keys}
        grid = {(n, x): _as_grid(n, x) for n in names if n in GRID_ROBOTS for x in _grid.FUNCTIONS}
        ground = _on_ground(options)
    stored, about = _measured(), tables[CONSTANTS]
    rows = list(_team_rows(stored, grid, ground))
    fitted = _compared(report, tables[TEAM_ROWS], about, rows, ("waiting", "sharing"))
    rows = list(_thread_rows(stored, bodies))
    fitted = _compared(report, tables[THREAD_ROWS], about, rows, ("far",), fitted)
    print(f"  fitted: {fitted}; in the library: {FITTED}", flush=True)
    xla = {(r["robot"], r["function"]): r["XLA"] for r in stored[WAYS] if r["batch"] == BATCH}
    for key, kernels in (teams | grid | ground).items():
        _predict(tables[PREDICTED], key, kernels, fitted, bodies.get(key), xla.get(key))
    report.write()
