"""Batches of optimal control and identification: their kernels, for a GPU that may not be there."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import identify, optimize as opt

from ._report import Report, Table
from ._timing import program, race

TITLE = "Optimal control and identification, beside our own CPU"
ABOUT = (
    "Batches of starts of a reach, and of recordings of a free swing, of the sample arm. Time: of "
    "a call on the device, µs. CPU: of the same call on the CPU of this machine, in a process of "
    "its own. Difference: the largest of the first 64 numbers, over the largest of them."
)
ROBOT, STEPS, BATCH, BATCHES = "arm", 30, 1024, (64, 1024, 4096)
SOLVERS = {
    "ilqr": lambda p, q, v, u: opt.ilqr(p, q, v, u, throw=False, max_steps=20),
    "multiple_shooting": lambda p, q, v, u: opt.multiple_shooting(
        p, q, v, u, throw=False, max_steps=20
    ),
    "mpc": lambda p, q, v, u: opt.mpc(opt.controller(p), q, v, u, 10),
}
"""Function -> what a batch of starts calls."""


def cases(steps: int = STEPS, batch: int = 2) -> dict[str, tuple[Callable, Any]]:
    """Functions of batches, and their arguments: starts of a reach, and recordings of a swing."""
    model = getattr(rbd.samples, ROBOT)(dtype=jnp.float32)
    task = rbd.tasks.reach(model, steps=steps, dtype=jnp.float32)
    keys = jax.random.split(jax.random.key(0), batch)
    spread = jax.vmap(lambda k: 0.1 * jax.random.normal(k, (model.nv,), jnp.float32))(keys)
    starts = jax.vmap(lambda d: rbd.integrate(model, task.q0, d))(spread)

    def solve(f: Callable) -> Callable:
        return jax.vmap(lambda q: f(task.problem, q, jnp.zeros_like(task.v0), task.u).u)

    found = {name: (solve(f), (starts,)) for name, f in SOLVERS.items()}
    found["fit_trajectories"] = jax.vmap(_fit(model)), (_swings(model, batch, 41),)
    return found


def _fit(model: rbd.Model) -> Callable:
    unknown = identify.Parameters(model, identify.select(model, "damping"))

    def fit(qs):
        still = jnp.zeros((len(qs), model.nv), qs.dtype)
        windows = identify.Dataset(None, qs, None, None, still).windows(11, 10)
        found = identify.fit_trajectories(unknown, windows, 0.01, throw=False, max_steps=10,
                                          v_sigma=None)  # fmt: skip
        return found.fit.model.damping

    return fit


def _swings(model: rbd.Model, batch: int, samples: int) -> jax.Array:
    """Recordings of configurations of a robot without torques."""
    keys = jax.random.split(jax.random.key(1), batch)
    starts = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys)
    zero = jnp.zeros((samples - 1, model.nv), jnp.float32)

    def swing(q):
        return rbd.rollout(model, q, jnp.zeros(model.nv, jnp.float32), zero, 0.01).q

    return jax.vmap(swing)(starts)


def predict(table: Table, options, fitted, kernels_of: Callable, taken: Callable) -> None:
    """One row for each kernel of each function."""
    for name, (function, given) in cases(steps=8 if options.tiny else STEPS).items():
        seen = set()
        for kernel in kernels_of(function, *given):
            each = math.prod(kernel.sizes) // 2
            way = kernel.taken(BATCH * each)
            if (key := (way.made.text, each)) in seen:
                continue
            seen.add(key)
            table.add(function=name, batch=BATCH, kernel=kernel.name, each=each, threads=way.team,
                      instructions=round(way.work.sample.issued), scratch=way.made.scratch_bytes,
                      resident=way.work.resident,
                      predicted=taken([kernel], BATCH * each, fitted)[0])  # fmt: skip


# --- on a device --------------------------------------------------------------------------


def compare(report: Report, table: Table, options, end: float) -> None:
    """Rows for the device that JAX finds, beside our own CPU."""
    there = {(r["function"], r["batch"]) for r in table.rows if r.get("time")}
    steps = 8 if options.tiny else STEPS
    for batch in BATCHES[:1] if options.tiny else BATCHES:
        for name in (*SOLVERS, "fit_trajectories"):
            if (name, batch) in there and not options.again or time.monotonic() > end:
                continue
            given = name, batch, steps, options
            here, cpu = _measured(*given, {}), _measured(*given, {"JAX_PLATFORMS": "cpu"})
            cells: dict[str, Any] = {"robot": ROBOT, "function": name, "batch": batch}
            cells |= {"device": here.get("device"), "time": here.get("us"), "CPU": cpu.get("us"),
                      "ahead": None, "compile_s": here.get("compile_s"),
                      "difference": None}  # fmt: skip
            notes = {"device": here.get("note"), "CPU": cpu.get("note")}
            if not any(notes.values()):
                a, b = (np.array(x["result"]) for x in (here, cpu))
                cells["ahead"] = cpu["us"] / here["us"]
                cells["difference"] = float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
            table.add(**cells, note="; ".join(f"{k}: {x}" for k, x in notes.items() if x) or None)
            report.write()


def _measured(name: str, batch: int, steps: int, options, changes: dict) -> dict:
    """What a process of its own says of a function, or a note why it said nothing."""
    command = [sys.executable, "-m", "benchmarks._gpu_solvers", name, str(batch), str(steps),
               str(options.seconds)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | changes,
                              timeout=options.patience)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"note": f"no answer in {options.patience:.0f} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"note": said[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def _alone(name: str, batch: int, steps: int, seconds: float) -> None:
    """Measure one function here, and print it."""
    function, given = cases(steps=steps, batch=batch)[name]
    own = program(name, function, *given)
    race(own, seconds=seconds)
    result = np.asarray(own.run(), float).ravel()[:64].tolist()
    print(json.dumps({"us": own.median, "compile_s": own.compile_s, "result": result,
                      "device": jax.devices()[0].device_kind}))  # fmt: skip


if __name__ == "__main__":
    _alone(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
