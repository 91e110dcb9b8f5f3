"""Whole programs from the first call to the result, by phases, each in a process of its own.

``python -m benchmarks._whole JOB DTYPE PACKAGES`` prints the seconds of one job as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import rbd_jax as rbd

STEPS = 200


def _rollout(robot: str, dtype: str, packages: str):
    """The gradient of a rollout with respect to its start and its controls."""
    from ._robots import load, states

    del packages
    model = load(robot, dtype)
    q, v, *_ = (x[0] for x in states(model, 1))
    return _gradient(model, 1e-3), (q, v, jnp.zeros((STEPS, model.nv), dtype))


def _gradient(plant: Any, dt: Any) -> Callable:
    def loss(q, v, us):
        path = rbd.rollout(plant, q, v, us, dt)
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.v**2)

    return jax.grad(loss, (0, 1, 2))


def _ground(robot: str, dtype: str, packages: str):
    from ._ground import Ground, scenes

    class Options:
        pass

    options: Any = Options()
    options.packages, options.robots = packages.split(os.pathsep), [robot]
    return Ground(scenes(options)[robot], 1)


def _step(robot: str, dtype: str, packages: str):
    """A step on the ground."""
    ground = _ground(robot, dtype, packages)
    return ground.step(dtype), tuple(x[0] for x in ground.arguments(dtype))


def _steps(robot: str, dtype: str, packages: str):
    """The gradient of 20 steps on the ground."""
    ground = _ground(robot, dtype, packages)
    q, v, u, _ = (x[0] for x in ground.arguments(dtype))
    scene = ground.scene(dtype)
    return _gradient(scene, scene.dt), (q, v, jnp.broadcast_to(u, (20, *u.shape)))


def _reach(robot: str, *_):
    from .optimize import task_of

    task = task_of("reach", robot, 50)

    def solve(task, q0):
        u = jnp.broadcast_to(rbd.gravity_torque(task.problem.model, q0)[None], task.u.shape)
        still = rbd.tasks.standing_guess(task._replace(q0=q0))
        return rbd.optimize.multiple_shooting(
            task.problem, q0, task.v0, u, q=still["q"], v=still["v"], throw=False, max_steps=60
        )

    return solve, (task, task.q0)


def _legged(robot: str, *_):
    from .legged import task_of

    task = task_of({"hyq": "trot", "talos": "squat"}[robot], robot)

    def solve(task, q0):
        task = task._replace(q0=q0)
        guess = rbd.tasks.standing_guess(task)
        return rbd.optimize.multiple_shooting(*task, **guess, throw=False, max_steps=60)

    return solve, (task, task.q0)


JOBS = {
    "gradient of a rollout": _rollout,
    "step on the ground": _step,
    "gradient of 20 steps on the ground": _steps,
    "multiple shooting of a reach": _reach,
    "multiple shooting of a legged task": _legged,
}
EXAMPLES = {  # robots of each job
    "gradient of a rollout": ("talos",),
    "step on the ground": ("quadruped", "humanoid"),
    "gradient of 20 steps on the ground": ("quadruped", "humanoid"),
    "multiple shooting of a reach": ("ur5",),
    "multiple shooting of a legged task": ("hyq", "talos"),
}


def both(job: str, robot: str, dtype: str, packages: list[str] | None) -> list[dict[str, float]]:
    """The seconds of a job in a process with an empty cache, and in a second one."""
    folders = os.pathsep.join(packages or [])
    command = [sys.executable, "-m", "benchmarks._whole", job, robot, dtype, folders]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        env = os.environ | {"RBD_JAX_CACHE_DIR": folder}
        return [
            json.loads(
                subprocess.run(
                    command, env=env, check=True, stdout=subprocess.PIPE, text=True,
                    cwd=Path(__file__).parents[1],
                ).stdout.splitlines()[-1]
            )
            for _ in range(2)
        ]  # fmt: skip


def measured(job: str, robot: str, dtype: str, packages: str) -> dict[str, float]:
    """The seconds of a job in this process; the first run is part of ``compile``."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    function, args = JOBS[job](robot, dtype, packages)
    times = [(time.perf_counter(), time.process_time())]
    traced = jax.jit(function).trace(*args)
    times.append((time.perf_counter(), time.process_time()))
    lowered = traced.lower()
    times.append((time.perf_counter(), time.process_time()))
    jax.block_until_ready(lowered.compile()(*args))
    times.append((time.perf_counter(), time.process_time()))
    (trace, lower, rest), _ = (
        [b[k] - a[k] for a, b in zip(times, times[1:], strict=False)] for k in (0, 1)
    )
    found = {"trace": trace, "lower": lower, "compile": rest, "whole": times[3][0] - times[0][0]}
    return found | {"cpu": times[3][1] - times[0][1], "peak_MiB": _peak_mib()}


def _peak_mib() -> float:
    """The most memory that this process has had."""
    import resource  # not on Windows, where benchmarks are not run

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
