"""``rbd-jax rollout``: simulate a batch of motions of a robot, and save and draw them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import typer

import rbd_jax as rbd

from ..simulate import resolve_integrator
from . import _robots
from ._show import console, machine, progress_bar


class Controls(StrEnum):
    """What drives the joints."""

    none = "none"
    damp = "damp"
    hold = "hold"


def rollout(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    batch: Annotated[
        int, typer.Option(help="Number of motions that are simulated at once.", min=1)
    ] = 16,
    steps: Annotated[int, typer.Option(help="Number of time steps.", min=1)] = 1000,
    dt: Annotated[float, typer.Option(help="Time step (s).", min=1e-9)] = 2e-3,
    stride: Annotated[int, typer.Option(help="Save every N-th state.", min=1)] = 10,
    integrator: Annotated[
        str, typer.Option(help="Name of the integrator: semi_implicit_euler, rk4, …")
    ] = "semi_implicit_euler",
    controls: Annotated[
        Controls,
        typer.Option(
            help="Torques: none; damp: slow the joints down; hold: keep the first posture."
        ),
    ] = Controls.none,
    speed: Annotated[
        float, typer.Option(help="Standard deviation of the initial velocities.", min=0)
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the random initial states.")] = 0,
    float32: Annotated[
        bool, typer.Option("--float32/--float64", help="Precision of the simulation.")
    ] = False,
    output: Annotated[Path, typer.Option(help="File for t, q, v and tau.")] = Path("rollout.npz"),
    picture: Annotated[
        Path | None, typer.Option(help="File for a plot, a PNG. No plot by default.")
    ] = None,
) -> None:
    """Simulate a batch of random motions of a robot and save them as NumPy arrays."""
    jax.config.update("jax_enable_x64", not float32)
    output, picture = _robots.results(output, picture)
    if steps % stride:
        _robots.fail(f"the stride {stride} does not divide the {steps} steps")
    loaded = _robots.load(robot, floating_base, jnp.float32 if float32 else jnp.float64)
    model, out = loaded.model, console()
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    try:
        q, v, tau = _simulate(model, batch, steps, dt, stride, integrator, controls, speed, seed)
    except ValueError as error:
        _robots.fail(str(error))
    t = dt * stride * np.arange(q.shape[1])
    names = np.array(model.joint_names)
    np.savez_compressed(output, t=t, q=q, v=v, tau=tau, joint_names=names)
    bad = int((~np.isfinite(q).all(axis=(1, 2))).sum())
    out.print(f"[green]✔[/] {output}: q {q.shape}, v {v.shape}, tau {tau.shape}", highlight=False)
    if bad:
        out.print(
            f"[yellow]warning:[/] {bad} of {batch} motions are not finite; try a smaller --dt"
        )
    if picture is not None:
        from ._plots import motions

        motions(model, t, q, v, picture)
        out.print(f"[green]✔[/] {picture}", highlight=False)
    out.print(machine(), style="dim", highlight=False)


def _simulate(model, batch, steps, dt, stride, integrator, controls, speed, seed):
    """Simulate in pieces, to show the progress. One compiled program runs all pieces."""
    keys = jax.random.split(jax.random.key(seed), 2 * batch)
    q = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys[:batch])
    v = speed * jax.vmap(lambda k: jax.random.normal(k, (model.nv,), model.dtype))(keys[batch:])
    M = jax.vmap(lambda q: jnp.diagonal(rbd.crba(model, q)))(q)
    driven = jnp.asarray(np.array(model.topology.kinds)[model.topology.dof_bodies] != "free")
    # an integrator with memory would lose its memory between two pieces
    most = 1 if hasattr(resolve_integrator(integrator), "advance") else 20
    pieces = next(n for n in range(min(most, steps // stride), 0, -1) if steps // stride % n == 0)
    piece = steps // pieces

    @jax.jit
    @jax.vmap
    def run(q, v, q0, M):
        def policy(t, q, v):
            tau = jnp.zeros_like(v)
            if controls is not Controls.none:
                tau = tau - 2.0 * M * v
            if controls is Controls.hold:
                tau = tau + 25.0 * M * rbd.difference(model, q, q0)
            return jnp.where(driven, tau, 0)

        options = {"steps": piece, "stride": stride, "integrator": integrator}
        return rbd.rollout(model, q, v, policy, dt, **options)

    start, parts = q, [(q[:, None], v[:, None], None)]
    with progress_bar("simulating", steps) as advance:
        for _ in range(pieces):
            path = run(q, v, start, M)
            q, v = path.q[:, -1], path.v[:, -1]
            parts.append((path.q[:, 1:], path.v[:, 1:], path.tau))
            jax.block_until_ready(q)
            advance(piece)
    qs, vs = (np.concatenate([np.asarray(p[k]) for p in parts], axis=1) for k in (0, 1))
    return qs, vs, np.concatenate([np.asarray(p[2]) for p in parts[1:]], axis=1)
