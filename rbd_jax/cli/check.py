"""``rbd-jax check``: check the identities of rigid-body dynamics on a robot."""

from typing import Annotated

import jax
import typer

from . import _mujoco, _robots
from ._show import Check, check_table, console, machine


def check(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    states: Annotated[int, typer.Option(help="Number of random states.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the random states.")] = 0,
) -> None:
    """Check the identities of rigid-body dynamics on a robot at random states, in float64.

    If Pinocchio is installed, its results on the same URDF are compared too. A robot in MJCF, a
    file named .xml, is compared with MuJoCo: one step from random states near its first keyframe.
    The exit code is 1 if a check fails.
    """
    jax.config.update("jax_enable_x64", True)
    if _mujoco.is_mjcf(robot):
        _check_scene(robot, floating_base, states, seed)
        return
    from ._identities import identities
    from ._pinocchio import agreement

    loaded = _robots.load(robot, floating_base)
    model, out = loaded.model, console()
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", highlight=False)
    if model.nv == 0:
        out.print(
            f"{model.topology.name} has no moving joints, so there is nothing to check",
            highlight=False,
        )
        return
    with out.status("compiling and evaluating the identities …"):
        checks = identities(model, states, seed)
    with out.status("comparing with Pinocchio …"):
        checks += agreement(loaded, floating_base, states, seed)
    title = f"{model.topology.name}: {model.nb} bodies, nv {model.nv}, {states} random states"
    _verdict(title, checks)


def _verdict(title: str, checks: list[Check]) -> None:
    out = console()
    out.print(check_table(title, checks))
    out.print(machine(), style="dim", highlight=False)
    failed = [c.name for c in checks if not c.ok]
    if failed:
        _robots.fail(f"{len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}", 1)


def _check_scene(robot: str, floating_base: bool, states: int, seed: int) -> None:
    if floating_base:
        _robots.fail("an MJCF file says itself which bodies are free: leave out --floating-base")
    out = console()
    scene, compiled, said = _mujoco.load(robot)
    for text in said:
        out.print(f"[yellow]warning:[/] {text}", highlight=False)
    with out.status("comparing with MuJoCo …"):
        checks = _mujoco.agreement(scene, compiled, states, seed)
    pairs = len(scene.contacts.pairs.shapes)
    _verdict(
        f"{robot}: nv {scene.model.nv}, {scene.nu} actuators, {pairs} pairs that may touch, "
        f"{states} random states",
        checks,
    )
