"""``rbd-jax rollout``: simulate a batch of motions of a robot, and save and draw them."""

import warnings
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import typer

import rbd_jax as rbd

from ..simulate import Plant, advice, resolve_integrator
from . import _mujoco, _robots
from ._show import console, machine, progress_bar

# Limp robots whirl at the command line, where nothing holds them.
DEFAULT = "implicit_coriolis"


class Controls(StrEnum):
    """What drives the joints."""

    none = "none"
    damp = "damp"
    hold = "hold"


def rollout(
    robot: Annotated[str, typer.Argument(help=f"{_robots.HELP} {_robots.OWN.format('a plant')}")],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    batch: Annotated[
        int, typer.Option(help="Number of motions that are simulated at once.", min=1)
    ] = 16,
    steps: Annotated[int, typer.Option(help="Number of time steps.", min=1)] = 1000,
    dt: Annotated[
        float | None, typer.Option(help="Time step (s): 0.002, or that of the MJCF.", min=1e-9)
    ] = None,
    stride: Annotated[int, typer.Option(help="Save every N-th state.", min=1)] = 10,
    integrator: Annotated[
        str, typer.Option(help="Name of the integrator: implicit_coriolis, rk4, …")
    ] = DEFAULT,
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
    """Simulate a batch of random motions of a robot and save them as NumPy arrays.

    A robot in MJCF, a file named .xml, moves with its actuators, contacts and integrator; the
    controls are those of the first keyframe or zero. It starts near that keyframe. The controls of
    a plant of your own are zero.
    """
    jax.config.update("jax_enable_x64", not float32)
    output, picture = _robots.results(output, picture)
    if steps % stride:
        _robots.fail(f"the stride {stride} does not divide the {steps} steps")
    if _mujoco.is_mjcf(robot):
        own = integrator == DEFAULT and controls is Controls.none
        if floating_base or not own:
            _robots.fail("an MJCF file has its own base, integrator and actuators: leave out "
                         "--floating-base, --integrator and --controls")  # fmt: skip
        dtype = jnp.float32 if float32 else jnp.float64
        _scene(robot, dtype, batch, steps, dt, stride, speed, seed, output, picture)
        return
    dt = 2e-3 if dt is None else dt
    if (plant := _robots.own(robot, Plant, "a plant of rbd_jax.simulate")) is not None:
        if floating_base or integrator != DEFAULT or controls is not Controls.none:
            _robots.fail("a plant has its own base, integrator and controls: leave out "
                         "--floating-base, --integrator and --controls")  # fmt: skip
        _plant(plant, batch, steps, dt, stride, speed, seed, output, picture)
        return
    loaded = _robots.load(robot, floating_base, jnp.float32 if float32 else jnp.float64)
    model, out = loaded.model, console()
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            state = _simulate(model, batch, steps, dt, stride, integrator, controls, speed, seed)
        except ValueError as error:
            _robots.fail(str(error))
    said = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    for text in said:
        out.print(f"[yellow]warning:[/] {text}", highlight=False)
    q, v, tau = state
    bad = ~np.isfinite(v).all(axis=(1, 2))
    k = int(bad.argmax())
    what = advice(model, q[k], v[k], dt, integrator) if bad.any() else ""
    _save(model, q, v, {"tau": tau}, dt * stride, output, picture, what)


def _save(model, q, v, inputs, dt: float, output: Path, picture: Path | None, advice: str) -> None:
    """Save the arrays and the plot, and print where they are and what to do if some are bad."""
    out, t = console(), dt * np.arange(q.shape[1])
    names = np.array(model.space.joint_names)
    np.savez_compressed(output, t=t, q=q, v=v, **inputs, joint_names=names)
    bad = int((~np.isfinite(q).all(axis=(1, 2))).sum())
    told = ", ".join(f"{k} {x.shape}" for k, x in {"q": q, "v": v, **inputs}.items())
    out.print(f"[green]✔[/] {output}: {told}", highlight=False)
    if bad:
        text = f"{bad} of {len(q)} motions are not finite; {advice}"
        out.print(f"[yellow]warning:[/] {text}", highlight=False)
    if picture is not None:
        from ._plots import motions

        motions(model, t, q, v, picture)
        out.print(f"[green]✔[/] {picture}", highlight=False)
    out.print(machine(), style="dim", highlight=False)


def _scene(robot, dtype, batch, steps, dt, stride, speed, seed, output, picture) -> None:
    """Simulate a batch of motions of a scene, and save and draw them."""
    scene, compiled, said = _mujoco.load(robot, dtype)
    for text in said:
        console().print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    h = float(scene.dt) if dt is None else dt
    layout = scene.layout
    assert layout is not None  # a scene out of a file has one
    first = next(iter(scene.keyframes.values()), None)
    u = jnp.zeros(scene.nu, dtype) if first is None else first.controls
    plant = rbd.simulate.ScenePlant(scene, act=None if first is None else first.act)  # pyright: ignore[reportCallIssue]
    states = _mujoco.starts(import_module("mujoco"), compiled, batch, seed)
    qpos = jnp.array([s[0] for s in states], dtype)
    v = speed * jax.random.normal(jax.random.key(seed), (batch, scene.model.nv), dtype)

    @jax.jit
    @jax.vmap
    def run(qpos, v):
        controls = jnp.broadcast_to(u, (steps, scene.nu))
        q = layout.q_from(qpos)
        return rbd.rollout(plant, q, v, controls, h, stride=stride)

    with console().status("simulating …"):
        path = jax.block_until_ready(run(qpos, v))
    inputs = {"controls": np.asarray(u)}
    q, v = np.asarray(path.q), np.asarray(path.v)
    _save(scene.model, q, v, inputs, h * stride, output, picture, "try a smaller --dt")


def _plant(plant, batch, steps, dt, stride, speed, seed, output, picture) -> None:
    """Simulate a batch of motions of a plant without controls, and save and draw them."""
    model = plant.model
    keys = jax.random.split(jax.random.key(seed), 2 * batch)
    q = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys[:batch])
    v = speed * jax.vmap(lambda k: jax.random.normal(k, (model.nv,), model.dtype))(keys[batch:])
    u = jnp.zeros((steps, plant.nu), model.dtype)

    @jax.jit
    @jax.vmap
    def run(q, v):
        return rbd.rollout(plant, q, v, u, dt, stride=stride)

    with console().status("simulating …"):
        path = jax.block_until_ready(run(q, v))
    q, v = np.asarray(path.q), np.asarray(path.v)
    _save(model, q, v, {}, dt * stride, output, picture, "try a smaller --dt")


def _simulate(model, batch, steps, dt, stride, integrator, controls, speed, seed):
    """Simulate in pieces, to show the progress. One compiled program runs all pieces."""
    keys = jax.random.split(jax.random.key(seed), 2 * batch)
    q = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys[:batch])
    v = speed * jax.vmap(lambda k: jax.random.normal(k, (model.nv,), model.dtype))(keys[batch:])
    M = jax.vmap(lambda q: jnp.diagonal(rbd.crba(model, q)))(q)
    driven = jnp.asarray(np.array(model.space.kinds)[model.space.dof_bodies] != "free")
    # an integrator with memory would lose its memory between two pieces
    most = 1 if resolve_integrator(integrator).has_memory else 20
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
            parts.append((path.q[:, 1:], path.v[:, 1:], path.controls))
            jax.block_until_ready(q)
            advance(piece)
    qs, vs = (np.concatenate([np.asarray(p[k]) for p in parts], axis=1) for k in (0, 1))
    return qs, vs, np.concatenate([np.asarray(p[2]) for p in parts[1:]], axis=1)
