"""Legged motion with a given schedule of contacts: multiple shooting against Crocoddyl."""

import json
import subprocess
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt

from ._report import Report
from ._robots import FILES, load
from ._timing import program, race
from .optimize import python_of

ABOUT = (
    "Legged tasks of `rbd_jax.optimize.tasks`, without joint friction and damping. Crocoddyl: "
    "`SolverBoxFDDP` (C++, one thread) in a process of its own, on the same problem: same URDF, "
    "contacts, impacts, semi-implicit Euler, costs, bounds, and the same first guess (the robot "
    "stands, torques balance gravity). Here: `jax.jit` of `rbd_jax.optimize.multiple_shooting`. "
    "Difference: relative difference of the costs at the two optima; more than 1e-6 is an error."
)
TASKS = {"trot": "hyq", "walk": "hyq", "jump": "hyq", "squat": "talos"}


def task_of(name: str, robot: str):
    """A legged task on a robot without what Pinocchio's dynamics does not know."""
    model = load(robot)
    bare = lambda m: (m.damping, m.armature)  # noqa: E731
    model = eqx.tree_at(bare, model, (0 * model.damping, 0 * model.armature))
    return getattr(opt.tasks, name)(model)


def spec_of(task, robot: str, repeats: int) -> dict:
    """The task for the other process."""
    problem, q0, _, u = task
    file, free = FILES[robot]
    state, swing, center, friction = problem.stage.costs
    parts = {k: {n: getattr(c, n) for n in c.__dataclass_fields__ if getattr(c, n) is not None}
             for k, c in (("stage", state), ("final", problem.final))}  # fmt: skip
    low, high = problem.bounds()
    contacts, k = problem.contacts, np.arange(problem.steps + 1)
    rows = lambda table: table.rows[np.minimum(k, len(table.rows) - 1)]  # noqa: E731
    spec = {
        "urdf": str(rbd.example_robot(file)), "gravity": problem.model.gravity,
        "joints": problem.model.joint_names[free:], "dt": problem.dt, "steps": problem.steps,
        "q0": q0, "u": u, "lower": low, "upper": high, "tol": 1e-9, "max_iterations": 200,
        "repeats": repeats, "feet": contacts.names, "points": contacts.pairs[0].point,
        "gain": contacts.velocity_gain[0], "active": problem.active,
        "com": rows(center.targets), "com_weight": center.weight,
        "foot_targets": rows(swing.targets), "foot_weights": rows(swing.weights),
        "friction": friction.friction, "friction_weight": friction.weight, **parts,
    }  # fmt: skip
    plain = lambda x: np.asarray(x).tolist() if eqx.is_array(x) else x  # noqa: E731
    return jax.tree.map(plain, spec)


def crocoddyl(python: str, spec: dict) -> dict:
    """What Crocoddyl finds."""
    command = [python, "-I", Path(__file__).parent / "_crocoddyl_legged.py"]
    done = subprocess.run(command, input=json.dumps(spec), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Crocoddyl's process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(options) -> None:
    """Each task, solved by both."""
    report = Report("legged", options, ABOUT)
    table = report.table("Multiple shooting against Crocoddyl")
    for name, robot in list(TASKS.items())[: 1 if options.tiny else None]:
        if options.robots is not None and robot not in options.robots:
            continue
        task = task_of(name, robot)

        def solve(u, task=task):
            t = task._replace(u=u)
            s = opt.multiple_shooting(
                *t, **opt.tasks.standing_guess(t), throw=False, max_steps=200, tol=1e-10
            )
            return s.cost, s.steps, s.result == opt.RESULTS.successful, s.u

        one = program("multiple shooting", solve, task.u)
        cost, n, good, u = one.run()
        if not good:
            raise AssertionError(f"{name}, {robot}: does not converge in {int(n)} steps")
        race(one, seconds=options.seconds)
        row = {"task": name, "robot": robot, "nv": task.problem.model.nv,
               "steps": task.problem.steps}  # fmt: skip
        ms, python = 1e-3 * one.median, python_of(options)
        table.add(**row, solver=one.name, iterations=int(n), ms_a_solve=ms, cost=float(cost),
                  ms_an_iteration=ms / int(n), compile_s=one.compile_s)  # fmt: skip
        if python is not None:
            spec = spec_of(task, robot, 2 if options.tiny else 10)
            found = crocoddyl(python, spec | {"check": np.asarray(u).tolist()})
            ms, off = found["ms_a_solve"], found["cost"] / float(cost) - 1
            table.add(**row, solver=f"Crocoddyl {found['version']}",
                      iterations=found["iterations"], ms_a_solve=ms,
                      ms_an_iteration=ms / found["iterations"], cost=found["cost"],
                      difference=off)  # fmt: skip
            if abs(off) > 1e-6:
                raise AssertionError(f"{name}, {robot}: Crocoddyl finds {found}, here {cost}")
        report.write()
        jax.clear_caches()
