"""``rbd-jax train``: learn a policy, with progress, checkpoints and resumption."""

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
from ._show import console, live_line, machine, table


class Task(StrEnum):
    """The tasks that can be learned."""

    cart_pole = "cart-pole"
    quadruped = "quadruped"
    go1 = "go1"


def train(
    task: Annotated[Task, typer.Argument(help="go1 needs the package mjlab, or --model.")],
    updates: Annotated[int, typer.Option(help="Updates of the policy.", min=1)] = 400,
    robots: Annotated[int, typer.Option(help="Robots that are simulated at once.", min=2)] = 64,
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
        typer.Option(help="For go1: mjlab's go1.xml; by default that of the installed mjlab."),
    ] = None,
    film: Annotated[
        Path | None, typer.Option(help="Film of the walk in MuJoCo, an HTML page.")
    ] = None,
) -> None:
    """Learn a policy from the exact gradients of simulations. Needs the extras learn and mjcf.

    A robot that walks is judged in MuJoCo at the end: how well it follows commanded velocities.
    """
    missing = [x for x in ("optax", "mujoco") if importlib.util.find_spec(x) is None]
    if missing:
        _robots.fail(f'{", ".join(missing)} not installed; run: pip install "rbd-jax[learn]"')
    from .. import learn

    name = task.value.replace("-", "_")
    if model is not None and task != Task.go1:
        _robots.fail(f"task {task.value!r} has its own robot; leave --model out")
    given = {} if model is None else {"path": model}
    path = output or Path(f"{name}.npz")
    _robots.writable(path)
    _robots.writable(film)
    try:
        env = getattr(learn, name)(jnp.float32, **given)
    except (ImportError, RobotDescriptionError) as error:
        _robots.fail(str(error))
    settings = learn.Settings(robots=robots, horizon=horizon, updates=updates)
    out = console()
    with live_line(out, f"{task.value}: compiling …") as show:

        def progress(number: int, now: learn.Progress, seconds: float) -> None:
            show(f"{task.value}: update {number} of {updates}, {seconds:.0f} s, "
                 f"reward {float(now.reward):.3f}, failures {float(now.failures):.4f}")  # fmt: skip

        try:
            learned = learn.shac(env, jax.random.key(seed), settings, progress=progress,
                                 checkpoint=path, resume=resume)  # fmt: skip
        except (ValueError, RuntimeError) as error:
            _robots.fail(str(error))
    reward = learned.history.reward
    rows = [
        ("updates", f"{learned.steps} in {learned.seconds[-1]:.1f} s"),
        ("reward of a control step", f"{reward[0]:.3f} → {reward[-1]:.3f}"),
    ]
    out.print(table(f"{task.value}, shac", ("", ""), rows, 2))
    out.print(f"[green]✔[/] {path}", highlight=False)
    if isinstance(env, learn.Walker):
        mjcf = getattr(learn, f"{name}_mjcf")(**given)
        _judge(learn, env, learned.policy, mjcf, film)
    out.print(machine(), style="dim", highlight=False)


def _judge(learn, env, policy, mjcf: str, film: Path | None) -> None:
    """A table of walks in MuJoCo, and a film of one of them."""
    out, rows = console(), []
    for speed in (0.3, 0.6, 1.0):
        walk = learn.walk_in_mujoco(env, policy, mjcf, (speed, 0.0, 0.0))
        mean = walk.velocity[len(walk.t) // 10 :, 0].mean()
        told = "fell" if walk.fell else f"{walk.error():.3f}"
        rows.append((f"{speed:.1f}", f"{mean:.3f}", f"{walk.t[-1]:.1f}", told))
    titles = ("command (m/s)", "mean speed (m/s)", "time (s)", "rms error (m/s)")
    out.print(table("Walks in MuJoCo", titles, rows))
    if film is None:
        return
    if importlib.util.find_spec("viser") is None:
        _robots.fail('a film needs the viewer; run: pip install "rbd-jax[view]"')
    from .. import view

    walk = learn.walk_in_mujoco(env, policy, mjcf, (0.6, 0.0, 0.0))
    q = np.asarray(jax.vmap(env.scene.layout.q_from)(jnp.asarray(walk.qpos)))
    viewer = view(env.scene.model, {"t": walk.t, "q": q})
    viewer.as_html(film)
    viewer.stop()
    out.print(f"[green]✔[/] {film}", highlight=False)
