"""Trajectory optimization against Crocoddyl, and two ways to run a Riccati sweep."""

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import rbd_jax as rbd
from rbd_jax import optimize as opt
from rbd_jax.optimize.problems._local_models import Dynamics, Quadratic

from . import legged
from ._report import Report, Table
from ._robots import FILES, available, load
from ._timing import Program, program, race

ABOUT = (
    "Tasks of `rbd_jax.tasks` on real robots, without friction and damping, with torque "
    "limits. In reach, the goal is given by joint angles. Crocoddyl runs `SolverBoxFDDP` (C++, "
    "one thread) in a process of its own. It solves the same problem: the same URDF, "
    "semi-implicit Euler steps, costs, bounds and first guess. rbd_jax runs `jax.jit` of "
    "`rbd_jax.optimize.multiple_shooting`, for one start and for a batch of starts: the robot "
    "stands still, and in reach the torques hold it. Tasks on legs are those of `legged`. The "
    "solvers take turns, one core each. Times are processor times, the least of several runs. The "
    "time of an iteration is the time of a whole solve over its iterations. In a "
    "batch it is the time over the iterations of the slowest sample and over the size of the "
    "batch. The ratio is to Crocoddyl's iteration. The difference is the relative difference of "
    "the optimal cost from ours. If it is more than 1e-6, the benchmark fails."
)
RICCATI = (
    "Backward and forward pass through a random linear-quadratic problem with n states and m "
    "controls, step by step (`backward`, `forward`) and as associative scans."
)
TASKS = {
    "reach": (rbd.tasks.reach, ("ur5", "panda"), 60),
}
ON_LEGS = {"trot": "hyq", "squat": "talos"}
LIMITS = {"max_steps": 200, "tol": 1e-12}


def task_of(name: str, robot: str, steps: int):
    """A task on a robot without what Pinocchio's forward dynamics does not know."""
    build = TASKS[name][0]
    model = load(robot)
    bare = lambda m: (m.damping, m.armature)  # noqa: E731
    model = eqx.tree_at(bare, model, (0 * model.damping, 0 * model.armature))
    task = build(model, steps=steps)
    plant = dataclasses.replace(task.problem.plant, integrator="semi_implicit_euler")
    problem = dataclasses.replace(task.problem, plant=plant)
    task = task._replace(problem=problem)
    move = 0.7 * jnp.sin(1.0 + 2.0 * jnp.arange(model.nv, dtype=model.dtype))
    ones, goal = jnp.ones(model.nv), rbd.integrate(model, task.q0, move)
    final = opt.StateCost(goal, 30 * ones, 10 * ones)
    return task._replace(problem=eqx.tree_at(lambda p: p.final, task.problem, final))


def spec_of(task, robot: str, repeats: int) -> dict:
    """The task for the other process."""
    problem, q0, _, u = task
    file, free = FILES[robot]
    parts = {k: {n: getattr(c, n) for n in c.__dataclass_fields__ if getattr(c, n) is not None}
             for k, c in (("stage", problem.stage), ("final", problem.final))}  # fmt: skip
    low, high = problem.bounds()
    spec = {
        "urdf": str(rbd.example_robot(file)), "free": free, "gravity": problem.model.gravity,
        "joints": problem.model.joint_names[free:], "dt": problem.dt, "steps": problem.steps,
        "q0": q0, "u": u, "lower": low, "upper": high, "tol": 1e-9, "max_iterations": 200,
        "repeats": repeats, **parts,
    }  # fmt: skip
    plain = lambda x: np.asarray(x).tolist() if eqx.is_array(x) else x  # noqa: E731
    return jax.tree.map(plain, spec)


def python_of(options) -> str | None:
    """The Python that has Crocoddyl, if any."""
    given = dict(x.split("=", 1) for x in options.peer_python or []).get("crocoddyl")
    usual = Path(options.peer_envs).absolute() / "crocoddyl" / "bin" / "python"
    return given or (str(usual) if usual.exists() else None)


def crocoddyl(python: str, spec: dict, script: str = "_crocoddyl.py") -> dict:
    """What Crocoddyl finds."""
    # isolated: a file of this folder is called pinocchio too
    command = [python, "-I", Path(__file__).parent / script]
    one_core = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, input=json.dumps(spec), capture_output=True, text=True, env=one_core
    )
    if done.returncode:
        raise RuntimeError(f"Crocoddyl's process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


class Solvers(NamedTuple):
    """Our solver for one start and for a batch of them, compiled, and what it found."""

    one: Program
    many: Program
    cost: float
    u: Array
    iterations: tuple[int, int]
    """Of one start, and of the slowest start of the batch."""
    converged: int
    """Starts of the batch that converged."""


def solvers(name: str, task, solve, starts, batch: int) -> Solvers:
    """``solve(task, q0) -> Solution``, compiled for the task's own start and for a batch."""

    def run(q0, task):
        s = solve(task, q0)
        return s.cost, s.steps, s.result == opt.RESULTS.successful, s.u

    one = program(name, run, task.q0, task)
    many = program(f"{name}, batch {batch}", jax.vmap(run, (0, None)), starts, task, per=batch)
    cost, n, good, u = one.run()
    if not good:
        raise AssertionError(f"{name} does not converge in {int(n)} iterations")
    _, ns, goods, _ = many.run()
    return Solvers(one, many, float(cost), u, (int(n), int(ns.max())), int(goods.sum()))


def compare(table: Table, row: dict, found: Solvers, spec: dict, script: str, options) -> None:
    """The rows of one task: our solver and Crocoddyl's, which take turns."""
    python, rounds = python_of(options), 1 if options.tiny else 3
    theirs, pace = [], None
    for _ in range(rounds):
        if python is not None:
            theirs.append(crocoddyl(python, spec, script))
        race(
            found.one,
            found.many,
            seconds=options.seconds / rounds,
            rounds=2,
            clock=time.process_time,
        )
    if theirs:
        best = min(theirs, key=lambda x: x["ms_a_solve"])
        ms, n = best["ms_a_solve"], best["iterations"]
        pace, off = ms / n, best["cost"] / found.cost - 1
        table.add(**row, solver=f"Crocoddyl {best['version']}", iterations=n, ms_a_solve=ms,
                  ms_an_iteration=pace, cost=best["cost"], difference=off)  # fmt: skip
        if abs(off) > 1e-6:
            raise AssertionError(f"{row}: Crocoddyl finds {best['cost']}, here {found.cost}")
    for p, k in zip((found.one, found.many), found.iterations, strict=True):
        ms, alone = 1e-3 * p.best, p is found.one
        ratio = None if pace is None else ms / k / pace
        table.add(**row, solver=p.name, iterations=k, ms_a_solve=ms, ms_an_iteration=ms / k,
                  ratio=ratio, cost=found.cost if alone else None, compile_s=p.compile_s,
                  converged=None if alone else found.converged)  # fmt: skip


def free_motion(table: Table, name: str, robot: str, steps: int, batch: int, options) -> None:
    """Multiple shooting on a task without contacts."""
    task = task_of(name, robot, steps)
    m = task.problem.model

    def solve(task, q0):
        # an arm is held where it starts: from other torques it falls, and the first cost explodes
        u = jnp.broadcast_to(rbd.gravity_torque(m, q0)[None], task.u.shape)
        still = rbd.tasks.standing_guess(task._replace(q0=q0))
        return opt.multiple_shooting(
            task.problem, q0, task.v0, u, q=still["q"], v=still["v"], throw=False, **LIMITS
        )

    noise = 0.02 * jax.random.normal(jax.random.key(0), (batch, m.nv), m.dtype)
    starts = jax.vmap(lambda d: rbd.integrate(m, task.q0, d))(noise)
    row = {"task": name, "robot": robot, "nv": m.nv, "steps": steps}
    spec = spec_of(task, robot, 2 if options.tiny else 5)
    found = solvers("multiple shooting", task, solve, starts, batch)
    compare(table, row, found, spec, "_crocoddyl.py", options)


def linear_quadratic(n: int, m: int, steps: int) -> tuple[Dynamics, Quadratic, Quadratic]:
    """A random problem: slightly coupled integrators, definite costs."""
    keys = iter(jax.random.split(jax.random.key(0), 8))
    normal = lambda *shape: jax.random.normal(next(keys), shape)  # noqa: E731
    A = jnp.eye(n) + 0.1 * normal(steps, n, n) / np.sqrt(n)
    f = Dynamics(A, 0.1 * normal(steps, n, m), 0.01 * normal(steps, n))
    eye = lambda k: jnp.broadcast_to(jnp.eye(k), (steps, k, k))  # noqa: E731
    l = Quadratic(normal(steps, n), normal(steps, m), eye(n), jnp.zeros((steps, m, n)), eye(m))
    none = jnp.zeros((0,)), jnp.eye(n), jnp.zeros((0, n)), jnp.zeros((0, 0))
    return f, l, Quadratic(normal(n), *none)


def riccati(table: Table, n: int, m: int, steps: int, batch: int, seconds: float) -> None:
    """Both sweeps, compared."""
    f, l, end = linear_quadratic(n, m, steps)

    def sequential(scale):
        gains = opt.riccati_backward(f, l._replace(x=scale * l.x), end, jnp.zeros(()))
        return opt.lqr_rollout(f, gains)

    def associative(scale):
        return opt.parallel_forward(f, opt.parallel_backward(f, l._replace(x=scale * l.x), end))

    scales = jnp.linspace(0.5, 1.0, batch)
    both = [program(g.__name__, jax.vmap(g), scales, per=batch) for g in (sequential, associative)]
    (x, u), (y, w) = (p.run() for p in both)
    difference = max(float(jnp.abs(a - b).max() / jnp.abs(a).max()) for a, b in ((x, y), (u, w)))
    race(*both, seconds=seconds)
    a, b = (p.median for p in both)
    table.add(n=n, m=m, steps=steps, batch=batch, sequential_µs=a, associative_µs=b,
              speed_up=a / b, difference=difference)  # fmt: skip


def main(options) -> None:
    """Reach, trot and squat; then the sweeps over the length of the horizon."""
    report = Report("optimize", options, ABOUT)
    if python_of(options) is None:
        print("  Crocoddyl skipped: give its Python, --peer-python crocoddyl=PYTHON")
    table = report.table("Multiple shooting against Crocoddyl")
    batch = options.batch or (2 if options.tiny else 64)
    for name, (_, robots, steps) in TASKS.items():
        chosen = [r for r in robots if options.robots is None or r in options.robots]
        for robot in available(chosen[:1] if options.tiny else chosen):
            free_motion(table, name, robot, 10 if options.tiny else steps, batch, options)
            report.write()
            jax.clear_caches()
    for name, robot in () if options.tiny else ON_LEGS.items():
        if options.robots is None or robot in options.robots:
            legged.on_legs(table, name, robot, batch, options)
            report.write()
            jax.clear_caches()
    if options.robots is not None:
        return
    table = report.table("The Riccati sweep", RICCATI)
    for n, m in ((4, 1), (14, 7)):
        for steps in (8,) if options.tiny else (32, 128, 512, 1024):
            for b in (1,) if options.tiny else (1, 64):
                riccati(table, n, m, steps, b, 0.3 * options.seconds)
        report.write()
