"""``rbd-jax mpc``: a humanoid walks under model predictive control in MuJoCo."""

import importlib.util
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer

from ..model import RobotDescriptionError
from . import _robots
from ._show import console, film_of, filmable, live_line, machine, table


def mpc(
    robot: Annotated[
        str, typer.Argument(help="g1, the humanoid of the package mjlab, or of --model.")
    ] = "g1",
    strides: Annotated[int, typer.Option(help="How often a foot swings.", min=2)] = 8,
    stride: Annotated[float, typer.Option(help="Length of a swing (m).")] = 0.3,
    horizon: Annotated[int, typer.Option(help="Steps of 20 ms in a plan.", min=5)] = 30,
    push: Annotated[
        float, typer.Option(help="Force to the left on the trunk after 2 s, for 0.1 s (N).")
    ] = 0.0,
    model: Annotated[
        Path | None,
        typer.Option(help="mjlab's g1.xml; by default that of the installed mjlab."),
    ] = None,
    film: Annotated[
        Path | None, typer.Option(help="Film of the robot in MuJoCo, an HTML page.")
    ] = None,
) -> None:
    """Walk under model predictive control in MuJoCo. Needs the extra mjcf.

    The feet swing by a schedule; the controller finds torques, forces and the sway of the body. It
    plans anew from each state, every 20 ms. The exit code is 1 if the robot falls.
    """
    if importlib.util.find_spec("mujoco") is None:
        _robots.fail('mujoco is not installed; run: pip install "rbd-jax[mjcf]"')
    if robot != "g1":
        _robots.fail(f"no robot {robot!r}; there is g1")
    jax.config.update("jax_enable_x64", True)
    from .. import optimize as opt, tasks
    from ..contact import load_mjcf

    filmable(film)
    try:
        mjcf = tasks.g1_mjcf(model, motors=True)
    except (ImportError, RobotDescriptionError) as error:
        _robots.fail(str(error))
    scene = load_mjcf(mjcf)
    task = tasks.g1_walk(scene, strides=strides, stride=stride)
    short = tasks.receding(task, horizon)
    control = opt.controller(short.problem, max_steps=1)

    @jax.jit
    def first(short):
        still = tasks.standing_guess(short)
        return opt.multiple_shooting(*short, **still, throw=False)

    out = console()
    with live_line(out, f"{robot}: compiling and solving the first plan …") as show:
        s = jax.block_until_ready(first(short))
        if s.result != opt.RESULTS.successful:
            _robots.fail(f"no first plan. {opt.RESULTS[s.result]}", 1)
        show(f"{robot}: compiling the controller, walking …")
        plan, force = control.warmstart(s), (0.0, push)
        walk = tasks.mpc_in_mujoco(control, plan, scene, mjcf, task.problem.steps, push=force)
    ahead, goal = walk.qpos[-1, :3] - walk.qpos[0, :3], task.problem.final.q[:3] - task.q0[:3]
    tilt = np.degrees(np.arccos(tasks.uprightness(walk.qpos).min()))
    most = float(np.max(np.abs(walk.ctrl) / np.asarray(short.problem.bounds()[1])))
    rows = [
        ("robot", f"{scene.model.topology.name}, nv {scene.model.nv}"),
        ("first plan", f"{horizon} steps of {1e3 * float(short.problem.dt):.0f} ms, "
                       f"found in {int(s.steps)} steps of the solver"),
        ("a plan", f"{1e3 * np.median(walk.seconds):.1f} ms, {walk.hertz:.0f} Hz"),
        ("plans that the solver improved", f"{walk.improved.sum()} of {len(walk.improved)}"),
        ("time", f"{walk.t[-1]:.2f} s" + (", then it fell" if walk.fell else "")),
        ("way", f"{ahead[0]:.3f} m of {float(goal[0]):.3f} m, {ahead[1]:+.3f} m to the left"),
        ("lowest trunk, greatest tilt", f"{walk.qpos[:, 2].min():.3f} m, {tilt:.1f}°"),
        ("greatest torque over its limit", f"{most:.2f}"),
    ]  # fmt: skip
    out.print(table(f"{robot} walks in MuJoCo", ("", ""), rows, 2))
    film_of(scene.model, walk.t, walk.q, film)
    out.print(machine(), style="dim", highlight=False)
    if walk.fell:
        _robots.fail("the robot fell", 1)
