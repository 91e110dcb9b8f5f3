"""``rbd-jax train``: learn a policy, with progress, checkpoints and resumption."""

import importlib
import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import typer

from ..model import RobotDescriptionError
from . import _robots
from ._show import console, film_of, filmable, live_line, machine, table

STARTS = 64
"""States from which a stander stands up, and directions from which it is pushed."""
SPEEDS = (0.3, 0.5, 0.8)
"""Commanded velocities of a walker in MuJoCo (m/s); the film shows the last one."""


class Task(StrEnum):
    """The tasks that can be learned."""

    cart_pole = "cart-pole"
    quadruped = "quadruped"
    go1 = "go1"
    g1 = "g1"
    stander = "stander"


def train(
    task: Annotated[
        str,
        typer.Argument(
            help="cart-pole, quadruped, go1, g1 (a humanoid) or stander; go1 and g1 need the "
            "package mjlab, or --model. " + _robots.OWN.format("an environment")
        ),
    ],
    updates: Annotated[
        int | None,
        typer.Option(
            help="Updates of the policy; by default 1500 for stander, 600 for g1, else 400.", min=1
        ),
    ] = None,
    robots: Annotated[
        int | None,
        typer.Option(
            help="Robots that are simulated at once; by default 128 for stander, else 64.", min=2
        ),
    ] = None,
    horizon: Annotated[
        int, typer.Option(help="Control steps through which gradients go.", min=2)
    ] = 24,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    output: Annotated[
        Path | None, typer.Option(help="Checkpoint, a .npz file; by default TASK.npz.")
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on from the checkpoint if there is one.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="For go1 and g1: mjlab's file; by default that of the installed mjlab."),
    ] = None,
    film: Annotated[
        Path | None, typer.Option(help="Film of the robot in MuJoCo, an HTML page.")
    ] = None,
) -> None:
    """Learn a policy from the exact gradients of simulations. Needs the extras learn and mjcf.

    Robots are judged in MuJoCo at the end: how well one that walks follows commanded velocities;
    how often the stander stands up and withstands pushes.
    """
    missing = [x for x in ("optax", "mujoco") if importlib.util.find_spec(x) is None]
    if missing:
        _robots.fail(f'{", ".join(missing)} not installed; run: pip install "rbd-jax[learn]"')
    from .. import learn, tasks

    own = _robots.own(task, learn.Environment, "an environment of rbd_jax.learn")
    if own is None and task not in list(Task):
        _robots.fail(f"no task {task!r}; the tasks are: {', '.join(Task)}")
    name = task.replace("-", "_") if own is None else task.rpartition(":")[2]
    if model is not None and task not in (Task.go1, Task.g1):
        _robots.fail(f"task {task!r} has its own robot; leave --model out")
    given = {} if model is None else {"path": model}
    path = output or Path(f"{name}.npz")
    _robots.writable(path)
    filmable(film)
    try:
        make = "cart_pole_environment" if task == Task.cart_pole else name
        env = own or getattr(tasks, make)(jnp.float32, **given)
    except (ImportError, RobotDescriptionError) as error:
        _robots.fail(str(error))
    if film is not None and not isinstance(env, tasks.Walker | tasks.Stander):
        _robots.fail(f"{task!r} has no film: only robots that walk or stand have one; "
                     "leave --film out")  # fmt: skip
    special: dict[str, learn.Settings] = {"stander": tasks.STAND_UP, "g1": tasks.G1_WALK}
    usual = special.get(task, learn.Settings(updates=400))
    updates, robots = updates or usual.updates, robots or usual.robots
    settings = usual._replace(robots=robots, horizon=horizon, updates=updates)
    judging = {}
    if isinstance(env, tasks.Stander):  # the last policy is not always the best
        judging = {"judge": tasks.stand_judge(env, tasks.stand_up(dtype=jnp.float32)), "every": 50}
    out = console()
    with live_line(out, f"{task}: compiling …") as show:

        def progress(number: int, now: learn.Progress, seconds: float) -> None:
            show(f"{task}: update {number} of {updates}, {seconds:.0f} s, "
                 f"reward {float(now.reward):.3f}, failures {float(now.failures):.4f}")  # fmt: skip

        try:
            learned = learn.shac(env, jax.random.key(seed), settings, progress=progress,
                                 checkpoint=path, resume=resume, **judging)  # fmt: skip
        except (ValueError, RuntimeError) as error:
            _robots.fail(str(error))
    reward, score = learned.history.reward, float(learned.learner.score)
    rows = [
        ("updates", f"{learned.steps} in {learned.seconds[-1]:.1f} s"),
        ("reward of a control step", f"{reward[0]:.3f} → {reward[-1]:.3f}"),
    ]
    if judging:
        rows.append(("robots that stand, best policy", f"{100 * score:.1f} %"))
    out.print(table(f"{task}, shac", ("", ""), rows, 2))
    out.print(f"[green]✔[/] {path}", highlight=False)
    if isinstance(env, tasks.Walker):
        mjcf = getattr(tasks, f"{name}_mjcf")(**given)
        motion = _walks(tasks, env, learned.policy, mjcf)
        film_of(env.scene.model, *motion, film)
    elif isinstance(env, tasks.Stander):
        film_of(env.scene.model, *_stands(tasks, env, learned.policy), film)
    out.print(machine(), style="dim", highlight=False)


def _walks(tasks, env, policy, mjcf: str) -> tuple[np.ndarray, np.ndarray]:
    """Print a table of walks in MuJoCo, and return times and configurations of one of them."""
    rows = []
    for speed in SPEEDS:
        walk = tasks.walk_in_mujoco(env, policy, mjcf, (speed, 0.0, 0.0))
        mean = walk.velocity[len(walk.t) // 10 :, 0].mean()
        told = "fell" if walk.fell else f"{walk.error():.3f}"
        rows.append((f"{speed:.1f}", f"{mean:.3f}", f"{walk.t[-1]:.1f}", told))
    titles = ("command (m/s)", "mean speed (m/s)", "time (s)", "rms error (m/s)")
    console().print(table("Walks in MuJoCo", titles, rows))
    return walk.t, np.asarray(jax.vmap(env.scene.layout.q_from)(jnp.asarray(walk.qpos)))


def _stands(tasks, env, policy) -> tuple[np.ndarray, np.ndarray]:
    """Print how a stander performs in MuJoCo, and return times and configurations of one robot."""
    model = importlib.import_module("mujoco").MjModel.from_xml_string(tasks.stander_mjcf(env))
    unseen = tasks.stander(jnp.float32, fallen=STARTS, seed=0)
    angle = 2 * np.pi * np.arange(STARTS) / STARTS
    way = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    at_rest = np.zeros(env.scene.model.nv)

    def stood(whole) -> str:
        return f"{sum(x.stood for x in whole)} of {STARTS}"

    starts = zip(np.asarray(unseen.fallen_q), np.asarray(unseen.fallen_v), strict=True)
    risen = [tasks.stand_in_mujoco(env, policy, model, q, v) for q, v in starts]
    rows = [("stands up from the ground", stood(risen))]
    for impulse in (30, 40, 50, 60):
        pushed = [
            tasks.stand_in_mujoco(env, policy, model, env.start, at_rest, impulse=impulse * x)
            for x in way
        ]
        rows.append((f"stands 2 s after {impulse} N s at the trunk", stood(pushed)))
    console().print(table("Standing in MuJoCo", ("", "successful"), rows))
    return risen[0].t, risen[0].q
