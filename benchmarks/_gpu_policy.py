"""Rollouts of robots on the ground with a policy, and their gradients, beside MJX's rollouts."""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import rbd_jax as rbd

from ._ground import Ground, scenes
from ._peers.policy import DT, STEPS, controls_of
from ._report import Report, Table
from ._timing import program, race
from ._warp import relative_error
from ._ways import SAMPLES, Task, side_by_side, together

TITLE = "Rollouts with a policy, against MJX"
HIDDEN, BATCH = 32, 4096
MODES = "full", "checkpoint", "adjoint"
ABOUT = (
    f"{STEPS} steps of {1e3 * DT:.0f} ms from states of MuJoCo's own motions. The controls are the "
    f"keyframe's, to which a network of two hidden layers of {HIDDEN} that sees the configuration "
    "and the velocity adds up to 0.1. Times are those of a call that is waited for, ms a batch. "
    "Gradient: of the mean over the robots of the squares of the last velocity, with respect to "
    "the weights of the network, in three modes of what is stored; times, the least of them, over "
    "the rollout. MJX has float32 and its own tolerance; its rollout is a scan in `jit`. Error: "
    "the largest difference of 64 last states from MuJoCo's C in float64 with a converged solver, "
    "over the largest entry of the configuration or the velocity. Ahead: MJX's time over ours."
)


class Policy(eqx.Module):
    """A policy of ``rollout`` that sees MuJoCo's coordinates."""

    network: dict[str, Array]
    theirs: Callable = eqx.field(static=True)
    """``(q, v) -> (qpos, qvel)``."""

    def __call__(self, t, q, v):
        """The controls."""
        return controls_of(jnp, self.network, *self.theirs(q, v))


def network_of(m) -> dict[str, np.ndarray]:
    """The weights, and the controls of the first keyframe."""
    rng, sizes = np.random.default_rng(0), (m.nq + m.nv, HIDDEN, HIDDEN, m.nu)
    weights = {f"W{k}": rng.normal(size=(n, sizes[k])) / np.sqrt(sizes[k])
               for k, n in enumerate(sizes[1:])}  # fmt: skip
    return weights | {"hold": np.array(m.key_ctrl[0])}


class Walkers:
    """Robots on the ground with their policy."""

    def __init__(self, xml: str, n: int, dtype: str):
        import mujoco

        spec = mujoco.MjSpec.from_string(xml)
        spec.option.timestep = DT
        spec.compile()
        self.ground = Ground(spec.to_xml(), n)
        self.scene, self.network = self.ground.scene(dtype), network_of(self.ground.m)
        self.given = self.ground.arguments(dtype)[:2]
        self.weights = {k: jnp.array(x, dtype) for k, x in self.network.items()}

    def _theirs(self, q, v):
        layout = self.ground.layout
        return layout.q_to(q), layout.v_to(q, v)

    def rollout(self, weights, q, v, **options):
        """The last state of one robot."""
        policy = Policy(weights, self._theirs)
        path = rbd.rollout(self.scene, q, v, policy, DT, steps=STEPS, **options)
        return path.q[-1], path.v[-1]

    def functions(self) -> dict[str, Callable]:
        """The rollout of all robots, and its gradient in each mode."""

        def gradient(mode: str) -> Callable:
            def cost(weights, q, v):
                return jnp.sum(self.rollout(weights, q, v, gradient=mode)[1] ** 2)

            each = jax.vmap(rbd.lanes(jax.grad(cost)), in_axes=(None, 0, 0))
            return lambda *given: jax.tree.map(lambda x: jnp.mean(x, 0), each(*given))

        last = rbd.lanes(partial(self.rollout, stride=STEPS))
        found: dict[str, Callable] = {"rollout": jax.vmap(last, in_axes=(None, 0, 0))}
        return found | {mode: gradient(mode) for mode in MODES}

    def wanted(self) -> tuple:
        """The first states after all steps, by MuJoCo's C."""
        policy = partial(controls_of, np, self.network)
        return self.ground.by_mujoco(min(SAMPLES, len(self.ground.qpos)), STEPS, policy)

    def error(self, q, v, wanted: tuple) -> float:
        """Of the first states after all steps."""
        n = len(wanted[0])
        with jax.default_device(jax.devices("cpu")[0]):
            q, v = (jnp.asarray(np.asarray(x[:n]), jnp.float64) for x in (q, v))
            return relative_error(tuple(map(np.asarray, jax.vmap(self._theirs)(q, v))), wanted)


def prepared(task: Task) -> Callable[[float, float], Iterator[dict]]:
    """Compile the rollout and its gradients; what is returned measures, and yields one row."""
    assert task.xml is not None
    walkers = Walkers(task.xml, task.batch, task.dtype)
    functions = walkers.functions()
    given = walkers.weights, *walkers.given
    made = side_by_side(lambda k: program(k, functions[k], *given), functions)
    wanted = walkers.wanted()

    def rows(seconds: float, _: float) -> Iterator[dict]:
        cells: dict = {"robot": task.robot, "dtype": task.dtype, "batch": task.batch}
        notes = []
        for name, own in zip(functions, made, strict=True):
            try:
                if isinstance(own, Exception):
                    raise own
                race(own, seconds=seconds)
                cells |= {name: own.median / 1e3, f"{name}_compile_s": own.compile_s}
                if name == "rollout":
                    cells["error"] = walkers.error(*own.run(), wanted)
                elif not all(bool(jnp.isfinite(x).all()) for x in own.run().values()):
                    notes.append(f"{name}: the gradient is not finite")
            except Exception as problem:  # a kernel that fails says so in its row
                notes.append(f"{name}: {(str(problem).splitlines() or [''])[0][:200]}")
        yield cells | {"note": "; ".join(notes) or None}

    return rows


def compare(report: Report, table: Table, options, python: str | None, end: float) -> None:
    """A row for Go1, or for the robot that is asked for, if it has none yet."""
    robots = scenes(options)
    names = [n for n in options.robots or ["go1"] if n in robots] or ["quadruped"]
    batch = options.batch or (8 if options.tiny else BATCH)
    tasks = [Task(TITLE, n, "float32", batch, (), robots[n]) for n in names if n in robots]
    there = {(r["robot"], r["batch"]) for r in table.rows if r.get("rollout")}
    tasks = [t for t in tasks if options.again or (t.robot, t.batch) not in there]
    for _, ours in together(tasks, options.seconds, 0.0, prepared):
        (xml,) = (t.xml for t in tasks if t.robot == ours["robot"])
        theirs = {}
        if python and time.monotonic() < end:
            theirs = _mjx(xml, ours["batch"], python, options.seconds)
        table.add(**_row(ours, theirs))
        report.write()


def _row(ours: dict, theirs: dict) -> dict:
    """Columns in the order in which they are read."""
    found = ours | {"mjx": None, "ahead": None, "times": None} | theirs
    if found.get("rollout"):
        least = [x for mode in MODES if (x := found.get(mode))]
        found["times"] = min(least) / found["rollout"] if least else None
        found["ahead"] = found["mjx"] / found["rollout"] if found["mjx"] else None
    notes = [x["note"] for x in (ours, theirs) if x.get("note")]
    order = ("robot", "dtype", "batch", "rollout", "mjx", "ahead", *MODES, "times", "error",
             "mjx_error", "rollout_compile_s", *(f"{m}_compile_s" for m in MODES),
             "mjx_compile_s")  # fmt: skip
    return {k: found.get(k) for k in order} | {"note": "; ".join(notes) or None}


def _mjx(xml: str, batch: int, python: str, seconds: float) -> dict:
    """The same rollout of MJX, in an environment of its own."""
    walkers = Walkers(xml, batch, "float64")
    with tempfile.TemporaryDirectory() as folder:
        walkers.ground.save(folder)
        np.savez(Path(folder) / "policy.npz", **walkers.network)
        command = [python, "-m", "benchmarks._peers.mjx_policy", folder, str(seconds)]
        here = Path(__file__).parents[1]
        done = subprocess.run(command, capture_output=True, text=True, cwd=here)
    if done.returncode:
        return {"note": f"MJX: {(done.stderr.strip().splitlines() or [''])[-1][:200]}"}
    said = json.loads(done.stdout.splitlines()[-1])
    state = tuple(np.array(said[k]) for k in ("qpos", "qvel"))
    wanted = walkers.wanted()
    return {"mjx": said["ms"], "mjx_compile_s": said["compile_s"],
            "mjx_error": relative_error(state, wanted)}  # fmt: skip


def predict(table: Table, options, fitted, kernels_of: Callable, taken: Callable) -> None:
    """One row for each kernel of the rollout, and of the gradient that stores states alone."""
    robot, robots = "quadruped" if options.tiny else "go1", scenes(options)
    if robot not in robots:
        print(f"  policy skipped: {robot} is not here (--packages)")
        return
    walkers = Walkers(robots[robot], 2, "float32")
    given = walkers.weights, *walkers.given
    functions = walkers.functions()
    for name in ("rollout",) if options.tiny else ("rollout", "adjoint"):
        kernels = kernels_of(functions[name], *given)
        microseconds, ways = taken(kernels, BATCH, fitted)
        large = max(ways, key=lambda w: w.made.scratch_bytes)
        table.add(robot=robot, function=name, batch=BATCH, kernels=len(kernels),
                  threads=", ".join(str(w.team) for w in ways),
                  instructions=round(large.work.sample.issued),
                  scratch=large.made.scratch_bytes, resident=large.work.resident,
                  predicted=microseconds / 1e3)  # fmt: skip
