"""Plots of motions over time. Needs matplotlib."""

import os
from typing import Any

import numpy as np

from ..model import Model

MOST = 12  # lines with names; more would not be told apart


def plot_motion(motion: Any, model: Model | None, path: str | os.PathLike | None):
    """Positions, velocities and controls over time, see :meth:`Trajectory.plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plot needs matplotlib: pip install "rbd-jax[demo]"') from error
    t, q, v, u = (np.asarray(x) for x in (motion.t, motion.q, motion.v, motion.controls))
    if q.ndim != 2:
        raise ValueError(
            f"plot: takes one motion, got q of shape {q.shape}; pick one of the batch with "
            f"jax.tree.map(lambda x: x[3], path)"
        )
    names: tuple[list[str], list[str]] = ([], [])
    if model is not None:
        for joint in model.space.joint_names:
            for labels, s in zip(names, (model.q_slice(joint), model.v_slice(joint)), strict=True):
                n = s.stop - s.start
                labels += [joint] if n == 1 else [f"{joint} {k}" for k in range(n)]
        if (len(names[0]), len(names[1])) != (q.shape[1], v.shape[1]):
            raise ValueError(
                f"plot: the motion has {q.shape[1]} positions and {v.shape[1]} velocities, but "
                f"robot {model.topology.name!r} has nq = {model.nq} and nv = {model.nv}"
            )
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    panels = (
        ("positions", "rad, m", t, q, names[0], "default"),
        ("velocities", "rad/s, m/s", t, v, names[1], "default"),
        ("controls", "", t[: len(u)], u, [], "steps-post"),
    )
    for ax, (title, unit, at, x, labels, style) in zip(figure.subplots(1, 3), panels, strict=True):
        lines = ax.plot(at, x, lw=1.2, drawstyle=style)
        ax.set(title=title, xlabel="time s", ylabel=unit)
        ax.spines[["top", "right"]].set_visible(False)
        if labels and len(labels) <= MOST:
            ax.legend(lines, labels, frameon=False, fontsize=7)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
