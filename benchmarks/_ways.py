"""The ways in which a GPU can run a function of the library: compiled, checked and timed in turns.

Functions compile in processes of their own at the same time, and are timed one after the other
when all have been compiled.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax.lanes import clear_caches
from rbd_jax.lanes.gpu import _gpu_kernels

from ._ground import Ground
from ._robots import load, over_batch, states
from ._timing import Program, program, race
from .ptx import FUNCTIONS

WAYS = {"XLA": "cpu", "lanes": "1", "default": None}
"""Values of RBD_JAX_LANES; by default the library chooses."""
WRONG = {"float32": 5e-2, "float64": 1e-7}
"""No rounding explains larger errors."""
SETTINGS = ("jax_enable_x64", "jax_enable_compilation_cache")
"""Of JAX, which the processes share."""
SAMPLES = 64
"""So many are computed on the CPU in float64 as well."""


def _step(ground: Ground, dtype: str) -> Callable:
    """The new state without the number of the solver's steps, which differs by rounding."""
    step = ground.step(dtype)
    return lambda *arguments: step(*arguments)[:2]


STEP = {"contact step": _step, "contact step vjp": Ground.vjp}
"""Functions of a robot on the ground."""


class Case(NamedTuple):
    """A function of a whole batch, its arguments, and its results in float64 for some samples."""

    label: str
    function: Callable
    arguments: tuple
    wanted: Callable[[], list[np.ndarray]]


class Task(NamedTuple):
    """Functions of one robot, for the table with this title."""

    title: str
    robot: str
    dtype: str
    batch: int
    labels: tuple[str, ...]
    xml: str | None = None
    """Of a robot on the ground."""


@contextmanager
def way(value: str | None):
    """Compile with this value of RBD_JAX_LANES, and then to lanes however few the samples are."""
    before, pays = os.environ.pop("RBD_JAX_LANES", None), _gpu_kernels.BYTES_BY_ROOT
    if value is not None:
        os.environ["RBD_JAX_LANES"], _gpu_kernels.BYTES_BY_ROOT = value, float("inf")
    clear_caches()
    try:
        yield
    finally:
        _gpu_kernels.BYTES_BY_ROOT = pays
        os.environ.pop("RBD_JAX_LANES", None)
        if before is not None:
            os.environ["RBD_JAX_LANES"] = before
        clear_caches()


def _on_cpu(function: Callable, *arguments) -> list[np.ndarray]:
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        found = jax.jit(function)(*jax.device_put(arguments, cpu))
    return [np.asarray(x) for x in jax.tree.leaves(found)]


def _in_double(arrays: tuple) -> list:
    """The same numbers of the first samples."""
    return [x[:SAMPLES].astype(jnp.float64) for x in arrays]


def dynamics(task: Task) -> list[Case]:
    """Functions of ``ptx``; the model is an argument."""
    m = load(task.robot, task.dtype)
    s = states(m, task.batch)

    def case(label: str) -> Case:
        f, names = FUNCTIONS[label][0], FUNCTIONS[label][1].split()
        given = tuple(getattr(s, n) for n in names)
        whole = over_batch(partial(f), len(names))

        def wanted():
            return _on_cpu(whole, load(task.robot, "float64"), *_in_double(given))

        return Case(label, whole, (m, *given), wanted)

    return [case(label) for label in task.labels]


def on_ground(task: Task) -> list[Case]:
    """A step of a robot on the ground, and its vjp, as in ``contact``."""
    ground = Ground(task.xml, task.batch)
    given = ground.arguments(task.dtype)

    def case(label: str) -> Case:
        def wanted():
            return _on_cpu(jax.vmap(STEP[label](ground, "float64")), *_in_double(given))

        return Case(label, jax.vmap(STEP[label](ground, task.dtype)), given, wanted)

    return [case(label) for label in task.labels]


def side_by_side(make: Callable, items: Iterable) -> list:
    """``make`` of each item in threads; an exception stands in place of a result."""

    def attempt(item):
        try:
            return make(item)
        except Exception as problem:  # one function alone is left out
            return problem

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(attempt, items))


def _compiled(case: Case) -> Program:
    return program(case.label, partial(case.function), *case.arguments)  # new for JAX's cache


def prepared(task: Task) -> Callable[[float, float], Iterator[dict]]:
    """Compile everything; what is returned measures, and yields the cells of each row."""
    cases = (on_ground if task.xml else dynamics)(task)
    made = {}
    for key, value in WAYS.items():
        with way(value):
            made[key] = side_by_side(_compiled, cases)
    truths = side_by_side(lambda c: c.wanted(), cases)

    def rows(seconds: float, speed: float) -> Iterator[dict]:
        for case, truth, *programs in zip(cases, truths, *made.values(), strict=True):
            cells = {"robot": task.robot, "dtype": task.dtype, "batch": task.batch}
            cells |= {"function": case.label}
            try:
                for x in (truth, *programs):
                    if isinstance(x, Exception):
                        raise x
                ways = dict(zip(WAYS, programs, strict=True))
                yield cells | _measured(case, ways, truth, task.dtype, seconds, speed)
            except Exception as problem:  # a kernel that fails says so in its row
                text = f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
                yield cells | {"note": text}

    return rows


def _measured(case: Case, ways: dict, truth: list, dtype: str, seconds: float,
              speed: float) -> dict:  # fmt: skip
    """Times, errors and compile times of all ways, the floor, and what is wrong."""
    race(*ways.values(), seconds=seconds)
    found = {key: p.median for key, p in ways.items()}
    found["speed_up"] = found["XLA"] / found["lanes"]
    results = {key: p.run() for key, p in ways.items()}
    errors = {key: _error(x, truth) for key, x in results.items()}
    found |= {f"{key}_error": x for key, x in errors.items()}
    found |= {f"{key}_compile_s": p.compile_s for key, p in ways.items()}
    floor = _bytes(case.arguments, results["XLA"]) / speed * 1e6
    wrong = ", ".join(key for key, x in errors.items() if not x < WRONG[dtype])
    return found | {"floor": floor, "fraction": floor / min(found[key] for key in WAYS),
                    "note": f"WRONG: {wrong}" if wrong else None}  # fmt: skip


def _bytes(*trees) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(trees))


def _error(found, wanted: list[np.ndarray]) -> float:
    """The largest difference, relative to each result's largest entry."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(found), wanted, strict=True):
        x = np.asarray(x[: len(y)], np.float64)
        worst = max(worst, float(np.abs(x - y).max() / (np.abs(y).max() or 1)) if y.size else 0.0)
    return worst if np.isfinite(worst) else float("inf")


Prepare = Callable[[Task], Callable[[float, float], Iterator[dict]]]
"""Compiles what a task needs; what it returns measures, given seconds and bytes a second."""


def together(
    tasks: list[Task],
    seconds: float,
    speed: float,
    prepare: Prepare = prepared,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, dict]]:
    """Titles and cells of the rows of all tasks.

    As many tasks as there are cores are prepared at once, in processes of their own. Then these are
    measured one after the other, when nothing else runs. ``meanwhile`` is called here while they
    are prepared, and nothing is measured before it ends.
    """
    at_once = os.cpu_count() or 1
    for k in range(0, len(tasks), at_once):
        chosen = tasks[k : k + at_once]
        ends = {task: _started(task, seconds, speed, prepare) for task in chosen}
        meanwhile()
        ready = [task for task, end in ends.items() if _received(end) is not None]
        for task in (t for t in chosen if t not in ready):
            print(f"  {task.robot}, {task.batch}: left out, its process ended with an error")
        for task in ready:
            ends[task].send(None)
            while (cells := _received(ends[task])) is not None:
                yield task.title, cells


def _started(task: Task, seconds: float, speed: float, prepare: Prepare):
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    options = {name: getattr(jax.config, name) for name in SETTINGS}
    given = there, task, options, seconds, speed, prepare
    spawn.Process(target=_serve, args=given, daemon=True).start()
    there.close()
    return here


def _serve(end, task: Task, options: dict, seconds: float, speed: float, prepare: Prepare) -> None:
    """In the other process."""
    for name, value in options.items():
        jax.config.update(name, value)
    rows = prepare(task)
    end.send(True)
    end.recv()
    for cells in rows(seconds, speed):
        end.send(cells)
    end.send(None)


def _received(end):
    """What the other process sends; None at its end."""
    try:
        return end.recv()
    except EOFError:
        return None
