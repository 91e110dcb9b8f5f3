"""Our step of robots on the ground against MuJoCo Warp's: same scenes, states and precision."""

import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd

from ._ground import Ground, scenes
from ._peers.side import Failed, Side
from ._report import Report, Table
from ._ways import SAMPLES, Task, side_by_side, together

TITLE = "On the ground, against MuJoCo Warp"
ABOUT = (
    "The times are ns for each world and step. They are those of calls in a row, so that the calls "
    "of JAX and the launches of CUDA count only where the GPU waits for them. Step: from states of "
    "MuJoCo's own motions, 1024 different ones. Ours returns the new state, the acceleration and "
    "the number of Newton steps, by the library's own choice of XLA or lanes; `call` is one call "
    "that is waited for (µs a batch). Warp's is a captured graph that is replayed, where what it "
    "takes to copy the states back is subtracted. vjp: with respect to the state and the controls. "
    'MJX, Warp: a step of MJX with `impl="warp"`, called from JAX in a row; its error too. '
    "Rollout: 100 steps one after another with constant controls, ours in one call. Both have "
    "float32, Newton's method and at most 100 iterations. Warp's tolerance is the smallest that it "
    "accepts in float32, 1e-6; ours goes on until the gradient is zero up to rounding. Rows and "
    "iterations: means over the worlds. Errors: the largest difference of 64 new states from "
    "MuJoCo's C in float64 with a converged solver, over the largest entry of the configuration "
    "or the velocity. Ahead: Warp's time over ours. A note names Warp's buffers that overflowed."
)
ROBOTS = "humanoid", "go1", "g1"
BATCHES = 1024, 4096, 8192, 32768
SUBJECT = "robot", "dtype", "batch"
STEPS, ROUNDS = 100, 5
IN_A_ROW_S, LONG_S = 0.05, 0.5
"""The least time of calls in a row, and that of a call which is timed once."""
LOOKED_AT = 256
"""So many motions tell how large Warp's buffers have to be, with a quarter more rows."""
KEYS = "qpos", "qvel"


def python_of_warp(options) -> str | None:
    """The Python of MuJoCo Warp; says what to install if there is none."""
    given = dict(x.split("=", 1) for x in options.peer_python or ())
    own = Path(options.peer_envs).absolute() / "warp" / "bin" / "python"
    if "warp" in given or own.exists():
        return given.get("warp", str(own))
    if importlib.util.find_spec("mujoco_warp"):
        return sys.executable
    print(f"  warp skipped: pip install mujoco-warp, here or in {own.parent}")
    return None


def compare(report: Report, table: Table, options, mjx: str | None = None) -> None:
    """All robots and batches that have no row yet, ours first; each row is written at once.

    ``mjx`` is the Python of MJX, for MuJoCo Warp inside of it.
    """
    python = python_of_warp(options)
    robots = {k: x for k, x in scenes(options).items() if k in ROBOTS} if python else {}
    if python and not robots:
        print("  warp skipped: no robot of a package here (--packages)")
    batches = (options.batch,) if options.batch else (8,) if options.tiny else BATCHES
    every = [Task(TITLE, k, "float32", n, (), x) for k, x in robots.items() for n in batches]
    tasks = [t for t in every if options.again or not _is_there(table, t)]
    if len(tasks) < len(every):
        print(f"  {len(every) - len(tasks)} rows of an earlier run stay (--again measures them)")
    if not tasks:
        return
    theirs = Theirs(python, tasks, options.patience)
    try:
        for _, ours in together(tasks, options.seconds, 0.0, prepared, theirs.prepare):
            both = theirs.measured(ours["robot"], ours["batch"])
            if mjx and jax.default_backend() == "gpu":  # it runs nowhere else
                both |= theirs.through_mjx(mjx, ours["robot"], ours["batch"])
            table.add(**_row(ours, both))
            report.write()
    finally:
        theirs.close()


def _is_there(table: Table, task: Task) -> bool:
    """Whether both were measured."""
    same = (r for r in table.rows if all(r[k] == getattr(task, k) for k in SUBJECT))
    return any(r.get("step") and r.get("warp_step") for r in same)


def _row(ours: dict, theirs: dict) -> dict:
    """Columns in the order in which they are read."""
    found = ours | theirs
    for name in ("step", "rollout"):
        both = found.get(name), found.get(f"warp_{name}")
        found[f"{name}_ahead"] = both[1] / both[0] if all(both) else None
    if found.get("vjp") and found.get("step"):
        found["vjp_over_step"] = found["vjp"] / found["step"]
    notes = [x[k] for x in (ours, theirs) for k in ("note", "mjx_note") if x.get(k)]
    order = (*SUBJECT, "step", "warp_step", "step_ahead", "rollout", "warp_rollout",
             "rollout_ahead", "vjp", "vjp_over_step", "call", "rows", "iterations",
             "warp_iterations", "error", "warp_error", "compile_s", "warp_compile_s",
             "mjx_warp", "mjx_warp_error", "mjx_warp_compile_s")  # fmt: skip
    return {k: found.get(k) for k in order} | {"note": "; ".join(notes) or None}


def relative_error(found: tuple, wanted: tuple) -> float:
    """The largest difference, over the largest entry of the configuration or the velocity."""
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0][:200]}"


class Ours:
    """The functions of one robot and batch, and how they are timed."""

    def __init__(self, ground: Ground, dtype: str):
        self.ground, self.scene = ground, ground.scene(dtype)
        self.given, self.vjp = ground.arguments(dtype), ground.vjp(dtype)

    def step(self, q, v, u, guess):
        """The new state, the acceleration, and the number of Newton steps."""
        found = rbd.contact.scene_step(self.scene, q, v, u, warmstart=guess)
        return found.q, found.v, found.a, found.steps

    def rollout(self, q, v, u, guess):
        """The state after ``STEPS`` steps, each of which starts at the acceleration before."""
        constants = rbd.contact.constants(self.scene)

        def one(state, _):
            q, v, a = state
            found = rbd.contact.scene_step(self.scene, q, v, u, warmstart=a, constants=constants)
            return (found.q, found.v, found.a), None

        return jax.lax.scan(one, (q, v, guess), length=STEPS)[0]

    @cached_property
    def wanted(self) -> tuple:
        """The first states after a step, by MuJoCo's C."""
        return self.ground.by_mujoco(min(SAMPLES, len(self.ground.qpos)))

    def error(self, q, v) -> float:
        """Of the first states after a step."""
        n, layout = len(self.wanted[0]), self.ground.layout
        with jax.default_device(jax.devices("cpu")[0]):
            q, v = (jnp.asarray(np.asarray(x[:n]), jnp.float64) for x in (q, v))
            found = jax.vmap(layout.q_to)(q), jax.vmap(layout.v_to)(q, v)
        return relative_error(tuple(map(np.asarray, found)), self.wanted)


def _compiled(function: Callable, arguments: tuple) -> tuple[Callable, float]:
    """The program, and how long it took to compile."""
    start = time.perf_counter()
    made = jax.jit(jax.vmap(function)).lower(*arguments).compile()
    return lambda: made(*arguments), time.perf_counter() - start


def _in_a_row(run: Callable[[], Any], times: int) -> float:
    """Seconds of each of some calls, which are not waited for one by one."""
    start = time.perf_counter()
    for _ in range(times):
        found = run()
    jax.block_until_ready(found)
    return (time.perf_counter() - start) / times


def _median(run: Callable[[], Any], in_a_row: bool = True) -> float:
    """Seconds of a call, the median of ``ROUNDS`` rows of calls."""
    jax.block_until_ready(run())
    once = _in_a_row(run, 1)
    if once > LONG_S:
        return once
    times = min(1000, max(1, round(IN_A_ROW_S / once))) if in_a_row else 1
    return statistics.median(_in_a_row(run, times) for _ in range(ROUNDS))


def prepared(task: Task) -> Callable[[float, float], Iterator[dict]]:
    """Compile ours for one robot and batch; what is returned measures and yields one row."""
    ours = Ours(Ground(task.xml, task.batch), task.dtype)
    names = "step", "vjp", "rollout"
    made = side_by_side(lambda n: _compiled(getattr(ours, n), ours.given), names)
    made = dict(zip(names, made, strict=True))
    problems = [f"{n}: {_said(x)}" for n, x in made.items() if isinstance(x, Exception)]
    runs = {n: x for n, x in made.items() if not isinstance(x, Exception)}
    if "step" in runs:
        _ = ours.wanted

    def rows(*_) -> Iterator[dict]:
        cells: dict = {k: getattr(task, k) for k in SUBJECT}
        for name, (run, _) in runs.items():
            try:
                each = 1e9 / task.batch / (STEPS if name == "rollout" else 1)
                cells[name] = _median(run) * each
                if name == "step":
                    q, v, _, steps = run()
                    cells |= {"iterations": float(steps.mean()), "error": ours.error(q, v)}
                    cells["call"] = _median(run, in_a_row=False) * 1e6
            except Exception as problem:  # a kernel that fails says so in its row
                problems.append(f"{name}: {_said(problem)}")
        cells["compile_s"] = max((x[1] for x in runs.values()), default=None)
        yield cells | {"note": "; ".join(problems) or None}

    return rows


class Theirs:
    """MuJoCo Warp, in one process for each robot, which are prepared at the same time."""

    def __init__(self, python: str, tasks: list[Task], patience: float):
        self.tasks, self.patience = tasks, patience
        self.sides = {t.robot: Side("warp", python, "float32", program="warp_step") for t in tasks}
        self.loaded: dict[str, dict] = {}
        self.wanted: dict[str, tuple] = {}
        self.sizes: dict[str, tuple[int, int]] = {}
        """Of each robot: the room for contacts and for constraint rows of a world."""

    def prepare(self) -> None:
        """Compile all kernels; the first call does it and waits for all robots."""
        if self.loaded:
            return
        xmls = {t.robot: t.xml for t in self.tasks}
        with tempfile.TemporaryDirectory() as folder:
            for robot, xml in xmls.items():
                place = Path(folder) / robot
                place.mkdir()
                self._ask_to_load(robot, xml, str(place))
            for robot in xmls:
                try:
                    self.loaded[robot] = self.sides[robot].receive(self.patience)
                except Failed as problem:
                    self.loaded[robot] = {"note": f"Warp: {problem}"}
                print(f"  Warp, {robot}: {self.loaded[robot]}", flush=True)

    def _ask_to_load(self, robot: str, xml: str, folder: str) -> None:
        batches = [t.batch for t in self.tasks if t.robot == robot]
        ground = Ground(xml, max(batches))
        ground.save(folder)
        self.wanted[robot] = ground.by_mujoco(min(SAMPLES, *batches))
        rows, contacts = ground.most(LOOKED_AT, STEPS)
        sizes = {"njmax": 8 * -(-5 * rows // 32), "nconmax": 8 * -(-3 * contacts // 16)}
        self.sizes[robot] = sizes["nconmax"], sizes["njmax"]
        print(f"  Warp, {robot}: {sizes}", flush=True)
        self.sides[robot].send("load", folder=folder, batches=batches, **sizes)

    def measured(self, robot: str, batch: int) -> dict:
        """The cells of its row."""
        loaded, wanted = self.loaded[robot], self.wanted[robot]
        if "compile_s" not in loaded:
            return loaded
        try:
            found = self.sides[robot].ask("measure", self.patience, batch=batch,
                                          samples=len(wanted[0]))  # fmt: skip
        except Failed as problem:
            return {"note": f"Warp: {problem}"}
        notes = [f"Warp's overflow: {', '.join(found['overflow'])}"] if found["overflow"] else []
        if found["not_finite"]:
            notes += [f"Warp: {found['not_finite']} worlds are not finite"]
        state = tuple(np.array(found[k]) for k in KEYS)
        times = {f"warp_{k}": 1e9 * found[k] / batch for k in ("step", "rollout")}
        return times | {
            "rows": found["rows"],
            "warp_iterations": found["iterations"],
            "warp_error": relative_error(state, wanted),
            "warp_compile_s": loaded["compile_s"],
            "note": "; ".join(notes) or None,
        }

    def through_mjx(self, python: str, robot: str, batch: int) -> dict:
        """The cells of MuJoCo Warp inside of MJX, called from JAX."""
        (xml,) = (t.xml for t in self.tasks if (t.robot, t.batch) == (robot, batch))
        contacts, rows = self.sizes.get(robot, (0, 0))
        found = Ground(xml, batch).mjx(python, "float32", 0.3, (contacts * batch, rows))
        if "in_a_row" not in found:
            return {"mjx_note": f"MJX, Warp: {found.get('note', 'not there')}"}
        state, wanted = tuple(np.array(found[k]) for k in KEYS), self.wanted[robot]
        n = min(len(state[0]), len(wanted[0]))
        error = relative_error(tuple(x[:n] for x in state), tuple(x[:n] for x in wanted))
        return {"mjx_warp": 1e3 * found["in_a_row"] / batch, "mjx_warp_error": error,
                "mjx_warp_compile_s": found["compile_s"]}  # fmt: skip

    def close(self) -> None:
        """End all processes."""
        for side in self.sides.values():
            side.close()
