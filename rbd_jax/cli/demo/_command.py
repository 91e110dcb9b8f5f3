"""``rbd-jax demo``: simulate, differentiate, check, time and draw a batch of robots."""

from pathlib import Path
from typing import Annotated

import jax
import typer

from .. import _robots
from .._show import check_table, console, machine, table


def demo(
    robot: Annotated[str | None, typer.Option(help=_robots.HELP + " Talos by default.")] = None,
    batch: Annotated[
        int, typer.Option(help="Number of robots that are simulated at once.", min=1)
    ] = 512,
    steps: Annotated[int, typer.Option(help="Number of time steps of 5 ms.", min=10)] = 200,
    output: Annotated[Path, typer.Option(help="Path of the picture, a PNG.")] = Path(
        "rbd-jax-demo.png"
    ),
    float32: Annotated[
        bool, typer.Option("--float32/--float64", help="Precision of the batch and the timings.")
    ] = False,
    iterations: Annotated[
        int, typer.Option(help="Number of gradient steps on the torques.", min=0)
    ] = 12,
) -> None:
    """Simulate 512 variations of a robot, differentiate and check the motion, and save a picture.

    A robot with a floating base is thrown into the air; an arm swings. The exit code is 1 if a
    check fails. At the end, quadrupeds land on the ground. Checks and gradients are always
    computed in float64.
    """
    jax.config.update("jax_enable_x64", True)
    from ._stages import Stages

    out = console()
    loaded, name = _choose(robot)
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    model = loaded.model
    if model.nv == 0:
        _robots.fail(f"{name} has no moving joints, so there is nothing to simulate")
    _robots.writable(output)
    out.print(
        f"[bold]{name}[/]: {model.nb} bodies, {model.nv} degrees of freedom. {machine()}",
        highlight=False,
    )
    stages = Stages(loaded, batch, steps, "float32" if float32 else "float64", iterations)
    for number, (text, stage) in enumerate(stages.all(), 1):
        with out.status(f"{text} …"):
            line = stage()
        out.print(f"[green]✔[/] [bold]{number}[/] {text}: {line}", highlight=False)
    columns = ("function", "evaluations/s", "µs per evaluation", "compile time (s)")
    out.print(table(f"Throughput, batch {batch}, {stages.dtype}", columns, stages.throughput))
    out.print(check_table("Checks", stages.checks))
    with out.status("drawing …"):
        stages.draw(output, name)
    out.print(f"[green]✔[/] picture: [bold]{output}[/]", highlight=False)
    failed = [c.name for c in stages.checks if not c.ok]
    if failed:
        _robots.fail(f"{len(failed)} of {len(stages.checks)} checks failed: {'; '.join(failed)}", 1)


def _choose(robot: str | None) -> tuple[_robots.Robot, str]:
    """The chosen robot and its name. The default is Talos, then HyQ, then the sample quadruped."""
    names = [robot] if robot else [n for n in ("talos", "hyq") if _robots.is_example(n)]
    name = names[0] if names else "sample:quadruped"
    if not _robots.can_float(name):
        return _robots.load(name), name
    loaded = _robots.load(name, floating_base=True)
    limbs = loaded.model.topology.parents.count(0)
    return (loaded if limbs > 1 else _robots.load(name)), name  # an arm stays on its fixed base
