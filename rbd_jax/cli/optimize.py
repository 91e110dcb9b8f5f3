"""``rbd-jax optimize``: solve one of the ready tasks of trajectory optimization."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from . import _robots
from ._show import console, live_line, machine, numbers, table


class Solver(StrEnum):
    """The solvers of ``rbd_jax.optimize``."""

    ilqr = "ilqr"
    ddp = "ddp"
    multiple_shooting = "multiple-shooting"
    single_shooting = "single-shooting"


def optimize(
    task: Annotated[
        str,
        typer.Argument(
            help="cart-pole, double-pendulum, reach, reorient or quadrotor; "
            "on legs: walk, trot, pace, jump, squat, step, balance or biped-walk. "
            + _robots.OWN.format("a rbd_jax.tasks.Task")
        ),
    ],
    solver: Annotated[
        Solver | None,
        typer.Option(help="The solver; ilqr by default, multiple-shooting for tasks on legs."),
    ] = None,
    robot: Annotated[
        str | None,
        typer.Option(help="Robot for reach, reorient and the tasks on legs. " + _robots.HELP),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Number of time steps of the horizon.", min=2)
    ] = None,
    max_steps: Annotated[int, typer.Option(help="Limit of steps of the solver.", min=1)] = 1000,
    tol: Annotated[
        float | None, typer.Option(help="Tolerance of the solver, relative to the cost.")
    ] = None,
    output: Annotated[Path, typer.Option(help="File for t, q, v, u, K and the history.")] = Path(
        "optimize.npz"
    ),
    picture: Annotated[
        Path | None, typer.Option(help="File for a plot, a PNG. No plot by default.")
    ] = None,
) -> None:
    """Optimize a trajectory, show the progress, and save the trajectory as NumPy arrays.

    The exit code is 1 if the solver does not converge. What it found so far is saved anyway.
    """
    jax.config.update("jax_enable_x64", True)
    from .. import optimize as solvers
    from ..tasks import HUMANOID, LEGGED, TASKS, Task, standing_guess

    output, picture = _robots.results(output, picture)
    tasks, legs = TASKS | LEGGED, task in LEGGED
    own = _robots.own(task, Task, "a task of rbd_jax.tasks")
    if own is not None:
        if robot is not None or steps is not None:
            _robots.fail(f"{task} has its own robot and steps; leave --robot and --steps out")
        tasks = {task: lambda: own}
    if task not in tasks:
        _robots.fail(f"no task {task!r}; the tasks are: {', '.join(tasks)}")
    if legs and steps is not None:
        _robots.fail(f"task {task!r} has its own number of steps; leave --steps out")
    if task in HUMANOID and robot is None:
        _robots.fail(f"task {task!r} needs a humanoid: --robot talos_reduced")
    solver = solver or (Solver.multiple_shooting if legs else Solver.ilqr)
    options: dict[str, Any] = {} if steps is None else {"steps": steps}
    if robot is not None:
        if task not in ("reach", "reorient", *LEGGED):
            _robots.fail(f"task {task!r} has its own robot; leave --robot out")
        options["model"] = _robots.load(robot, task != "reach", jnp.float64).model
    try:
        problem, q0, v0, u = start = tasks[task](**options)
    except (KeyError, ValueError) as error:
        _robots.fail(str(error))
    out = console()
    method = getattr(solvers, solver.name)
    with live_line(out, f"{task}: compiling …") as show:

        def progress(number, cost, expected, *_):
            show(f"{task}: step {int(number)}, cost {float(cost):.6g}")

        def solve(problem, q0, v0, u):
            limits: dict[str, Any] = {"max_steps": max_steps, "tol": tol}
            if legs and solver == Solver.multiple_shooting:
                limits |= standing_guess(start)
            return method(problem, q0, v0, u, throw=False, progress=progress, **limits)

        try:
            s = jax.block_until_ready(jax.jit(solve)(problem, q0, v0, u))
        except (ImportError, ValueError) as error:
            _robots.fail(str(error))
        jax.effects_barrier()
    n = int(s.steps)
    rows = {k: x for k, x in s.history._asdict().items() if x is not None}
    history = {f"history_{k}": np.asarray(x)[:n] for k, x in rows.items()}
    arrays = {k: np.asarray(getattr(s, k)) for k in ("t", "q", "v", "u", "K", "cost")}
    everything: dict[str, Any] = arrays | history
    np.savez_compressed(output, **everything)
    successful = bool(s.result == solvers.RESULTS.successful)
    rows = [
        ("robot", f"{problem.model.topology.name}, nv {problem.model.nv}"),
        (
            "controls, time steps",
            f"{problem.controls}, {problem.steps} of {float(problem.dt):.3g} s",
        ),
        ("converged", f"{'yes' if successful else 'no'}, {n} steps"),
        ("cost", f"{float(s.history.cost[0]):.6g} → {float(s.cost):.8g}"),
        ("last configuration", numbers(s.q[-1])),
        ("greatest control", numbers(jnp.max(jnp.abs(s.u), axis=0))),
    ]
    out.print(table(f"{task}, {solver.value}", ("", ""), rows, 2))
    out.print(f"[green]✔[/] {output}", highlight=False)
    if picture is not None:
        from ._plots import solution

        solution(problem, s, f"{task}, {solver.value}: {n} steps", picture)
        out.print(f"[green]✔[/] {picture}", highlight=False)
    out.print(machine(), style="dim", highlight=False)
    if not successful:
        message = solvers.RESULTS[s.result]
        _robots.fail(f"not converged. {message}", 1)
