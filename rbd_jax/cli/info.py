"""``rbd-jax info``: the bodies, joints and totals of a robot."""

from typing import Annotated

import jax
import numpy as np
import typer

from ..model import Model
from . import _robots
from ._show import console, numbers, table


def info(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
) -> None:
    """Print tables of a robot's bodies, joints and totals, and the warnings of its description."""
    jax.config.update("jax_enable_x64", True)
    loaded = _robots.load(robot, floating_base)
    model, out = jax.tree.map(np.asarray, loaded.model), console()  # so that nothing is compiled
    out.print(
        table("Bodies", ("#", "body", "mass kg", "com m", "inertia kg m²"), _bodies(model), 2)
    )
    columns = ("#", "joint", "kind", "parent", "axis", "q", "v", "limits", "max v", "max τ")
    out.print(table("Joints", (*columns, "damping"), _joints(model), 4))
    out.print(table("Totals", ("", robot), [*_totals(model), *_steps(loaded)]))
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", highlight=False)


def _bodies(model: Model):
    for i, (name, row) in enumerate(zip(model.body_names, np.asarray(model.inertia), strict=True)):
        m, mc = row[0], row[1:4]
        com = mc / m if m else np.zeros(3)
        ixx, iyy, izz = row[4], row[6], row[9]
        central = np.array([ixx, iyy, izz]) - m * (com @ com - com**2)
        yield i, name, f"{m:.4g}", numbers(com), numbers(central)


def _joints(model: Model):
    lower, upper = np.asarray(model.position_lower), np.asarray(model.position_upper)
    topo = model.topology
    for i, name in enumerate(model.joint_names):
        at = topo.v_slice(name)
        damping = numbers(model.damping[at]) if np.any(model.damping[at]) else ""
        parent = "world" if topo.parents[i] < 0 else model.body_names[topo.parents[i]]
        axis = "" if topo.kinds[i] in ("free", "spherical", "translation") else model.axis[i]
        axis = axis if isinstance(axis, str) else numbers(axis, 2)
        begin = i, name, topo.kinds[i], parent, axis
        if name not in model.space.joint_names:
            yield *begin, "mimic", "", "", "", "", damping
            continue
        q, v = model.q_slice(name), model.v_slice(name)
        free = np.isinf(lower[q]).all() and np.isinf(upper[q]).all()
        limits = "" if free else f"{numbers(lower[q])} … {numbers(upper[q])}"
        speed, effort = (_finite(x[v]) for x in (model.velocity_limit, model.effort_limit))
        yield *begin, f"{q.start}:{q.stop}", f"{v.start}:{v.stop}", limits, speed, effort, damping


def _finite(x) -> str:
    return "" if np.isinf(np.asarray(x)).all() else numbers(x)


def _totals(model: Model):
    topo = model.topology
    yield "name", topo.name
    yield "bodies, frames", f"{model.nb}, {len(model.frame_names)}"
    yield "nq, nv", f"{model.nq}, {model.nv}"
    yield "depth of the tree", int(topo.tree.depths.max()) + 1 if model.nb else 0
    mass, center = _center_of_mass(model)
    yield "mass", f"{mass:.5g} kg"
    if mass:
        yield "center of mass, all joints at zero", f"{numbers(center)} m"
    yield "mimic joints", len(topo.mimics)


def _steps(loaded: _robots.Robot):
    """The longest explicit steps, if the reader warned of damping: they take seconds to compile."""
    if any("explicit integrators" in text for text in loaded.warnings):
        from ..simulate import stable_step

        longest = [stable_step(loaded.model, name) for name in ("semi_implicit_euler", "rk4")]
        told = " and ".join(f"{h:.2g}" for h in longest)
        yield "longest explicit steps with this damping", f"Euler and rk4: {told} s"


def _center_of_mass(model: Model) -> tuple[float, np.ndarray]:
    """Mass, and center of mass in the world with all joints at zero."""
    poses, moment = [], np.zeros(3)
    for parent, R, p, row in zip(model.topology.parents, model.placement_R, model.placement_p,
                                 model.inertia, strict=True):  # fmt: skip
        if parent >= 0:
            R, p = poses[parent][0] @ R, poses[parent][1] + poses[parent][0] @ p
        poses.append((R, p))
        moment += row[0] * p + R @ row[1:4]
    mass = float(model.inertia[:, 0].sum())
    return mass, moment / (mass or 1.0)
