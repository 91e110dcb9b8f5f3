"""``rbd-jax reach``: joint positions that bring frames of a robot to targets."""

from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from .. import contact, control
from ..control import RESULTS
from ..model import CoordinateModel, Model
from ..spatial import so3
from ..view.skeleton import sticks
from . import _robots
from ._show import console, numbers, table


def reach(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    frame: Annotated[list[str], typer.Option(help="Frame that is brought to a target; repeat.")],
    target: Annotated[
        list[str],
        typer.Option(
            help='One for each frame: "X Y Z" in m, or "X Y Z ROLL PITCH YAW" in m and °.'
        ),
    ],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    joints: Annotated[
        str, typer.Option(help="Names of the joints that may move, with commas. None: all.")
    ] = "",
    obstacle: Annotated[
        list[str] | None,
        typer.Option(help='Sphere that the links stay clear of: "X Y Z RADIUS" in m; repeat.'),
    ] = None,
    thickness: Annotated[
        float,
        typer.Option(help="Radius of the links in m, as rods between joints.", min=0),
    ] = 0.05,
    starts: Annotated[int, typer.Option(help="At most so many more starts.", min=0)] = 32,
    output: Annotated[
        Path | None, typer.Option(help="File for the start and the result, for rbd-jax view.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="File for a picture, a PNG. None by default.")
    ] = None,
) -> None:
    """Find joint positions, within the limits, at which frames of a robot are at their targets.

    With obstacles, links are rods from joint to joint that stay clear of them. The exit code is 1
    if a target is not reached; the nearest configuration is shown then.
    """
    jax.config.update("jax_enable_x64", True)
    if picture is not None and not picture.suffix:
        picture = picture.with_suffix(".png")
    _robots.writable(output, picture)
    if len(frame) != len(target):
        _robots.fail(f"{len(frame)} frames and {len(target)} targets: give one target for each")
    model, out = _robots.load(robot, floating_base).model, console()
    places = [_numbers(text) for text in target]
    balls = np.array([_ball(text) for text in obstacle or []]).reshape(-1, 4)
    targets = [_target(f, x) for f, x in zip(frame, places, strict=True)]
    q0, named = control.middle(model), joints.split(",") if joints else None
    try:
        clear = contact.clear_of(model, rods(model, thickness), balls) if len(balls) else ()
        found = control.inverse_kinematics(
            model, targets, q0, clear=clear, joints=named, starts=starts
        )
    except (KeyError, ValueError) as error:
        _robots.fail(str(error.args[0]))
    reached = bool(found.result == RESULTS.successful)
    rows = _errors(frame, found)
    out.print(table("Targets", ("frame", "position error mm", "angle error °"), rows))
    held = np.asarray(found.at_limit)
    out.print(
        table("Joints", ("joint", "position rad, m", ""), _positions(model, found.q, held), 1)
    )
    mark = "[green]✔[/] reached" if reached else "[red]✘[/] not reached"
    told = f"{int(found.starts)} starts, {int(found.steps)} steps"
    out.print(f"{mark}: {told}", highlight=False)
    if not reached:
        said = found.explain().splitlines()
        told = [said[0], *(x for x in said if "too near" in x)]
        out.print("\n".join(told), highlight=False)
    if len(balls):
        k = int(np.argmin(found.distance))
        near, apart = found.pairs[k], 1e3 * float(found.distance[k])
        out.print(f"nearest to an obstacle: {near[0]}, {apart:.3g} mm", highlight=False)
    q = np.stack([q0, found.q])
    if output is not None:
        np.savez(output, t=np.array([0.0, 1.0]), q=q)
        out.print(f"[green]✔[/] {output}", highlight=False)
    if picture is not None:
        from ._plots import reached as draw

        draw(model, q, np.array([x[:3] for x in places]), balls, picture)
        out.print(f"[green]✔[/] {picture}", highlight=False)
    if not reached:
        raise typer.Exit(1)


def _numbers(text: str) -> list[float]:
    try:
        found = [float(x) for x in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if len(found) not in (3, 6) or not np.isfinite(found).all():
        _robots.fail(
            f'target {text!r}: expected "X Y Z" or "X Y Z ROLL PITCH YAW", in m and degrees'
        )
    return found


def _ball(text: str) -> list[float]:
    try:
        found = [float(x) for x in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if len(found) != 4 or not np.isfinite(found).all() or found[3] < 0:
        _robots.fail(f'obstacle {text!r}: expected "X Y Z RADIUS" in m')
    return found


def rods(model: Model, radius: float) -> list[contact.Solid]:
    """The sticks of a robot as capsules at its bodies; those of no length are spheres."""
    robot = model.robot if isinstance(model, CoordinateModel) else model
    parts, found = sticks(robot), []
    for k, (body, ends) in enumerate(zip(parts.body, parts.ends, strict=True)):
        along, name = ends[1] - ends[0], robot.body_names[body]
        length, label = float(np.linalg.norm(along)), f"{name} ({k})"
        middle, size = ends.mean(axis=0), (radius,)
        if length < 1e-6:
            found.append(contact.Solid(name, "sphere", size, p=middle, name=label))
            continue
        across = np.linalg.svd(along[None])[2][1:]
        R = np.stack([*across, along / length], axis=1)
        R[:, 0] *= np.sign(np.linalg.det(R))
        capsule = (radius, 0.5 * length)
        found.append(contact.Solid(name, "capsule", capsule, R, middle, label))
    return found


def _target(frame: str, x: list[float]) -> control.Target:
    if len(x) == 3:
        return control.position(frame, x)
    roll, pitch, yaw = np.deg2rad(x[3:])
    axes = jnp.eye(3)
    turns = [so3.about(axes[k], jnp.asarray(a)) for k, a in enumerate((roll, pitch, yaw))]
    return control.pose(frame, turns[2] @ turns[1] @ turns[0], x[:3])


def _errors(frames: list[str], found: Any):
    for f, p, a in zip(frames, found.position_error, found.angle_error, strict=True):
        yield f, f"{1e3 * float(p):.3g}", f"{np.rad2deg(float(a)):.3g}"


def _positions(model: Model, q: Any, held: np.ndarray):
    for name in model.space.joint_names:
        limit = "at a limit" if held[model.v_slice(name)].any() else ""
        yield name, numbers(q[model.q_slice(name)], 4), limit
