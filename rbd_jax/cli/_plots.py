"""Plots of motions and of optimized trajectories."""

from pathlib import Path

import numpy as np

from ..model import Model
from ..view.skeleton import place, project, sticks

INK, GRID, BLUE, ORANGE, TEAL = "#1b2333", "#d9dee8", "#3462c8", "#e4572e", "#1f9e89"


def new_figure(columns: int):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(4.6 * columns, 3.9), layout="constrained")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return plt, figure, axes


def _joints(model: Model) -> list[tuple[str, int]]:
    """The names of all joints with one coordinate, and its index in q."""
    slices = [(n, model.q_slice(n)) for n in model.space.joint_names]
    return [(n, s.start) for n, s in slices if s.stop - s.start == 1]


def _strobe(ax, model: Model, q: np.ndarray, count: int = 8) -> None:
    """Draw the robot as sticks at ``count`` times, from light to dark."""
    parts = sticks(model)
    shown = q[np.linspace(0, len(q) - 1, count).astype(int)]
    ends = project(place(model, parts, shown))[0]
    for k, robot in enumerate(ends):
        alpha = 0.15 + 0.85 * k / (count - 1)
        color = ORANGE if k == 0 else BLUE
        for segment, weight in zip(robot, parts.weight, strict=True):
            ax.plot(*segment.T, color=color, alpha=max(alpha, 0.4 if k == 0 else 0.0),
                    lw=1 + 3 * weight, solid_capstyle="round")  # fmt: skip
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xticks=[], yticks=[], title="motion (start in orange)")
    ax.spines[["left", "bottom"]].set_visible(False)


def motions(model: Model, t: np.ndarray, q: np.ndarray, v: np.ndarray, path: Path) -> None:
    """Plot the first motion as sticks, its joints, and the speeds of all motions."""
    plt, figure, (scene, joints, speed) = new_figure(3)
    _strobe(scene, model, q[0])
    for name, k in _joints(model)[:12]:
        joints.plot(t, q[0, :, k], lw=1.2, label=name)
    joints.set(title="joints of the first motion", xlabel="time s", ylabel="rad, m")
    if _joints(model):
        joints.legend(frameon=False, fontsize=6, ncols=2)
    speed.plot(t, np.linalg.norm(v, axis=-1).T, color=TEAL, lw=0.8, alpha=0.6)
    speed.set(title=f"speed |v| of {len(q)} motions", xlabel="time s")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def solution(problem, s, title: str, path: Path) -> None:
    """Plot the motion as sticks, the joints, the controls and the cost after each step."""
    plt, figure, (scene, joints, controls, costs) = new_figure(4)
    t, q, u = (np.asarray(x) for x in (s.t, s.q, s.u))
    model = problem.model
    _strobe(scene, model, q)
    for name, k in _joints(model)[:12]:
        joints.plot(t, q[:, k], lw=1.2, label=name)
    joints.set(title="joints", xlabel="time s", ylabel="rad, m")
    if _joints(model):
        joints.legend(frameon=False, fontsize=6, ncols=2)
    controls.step(t[:-1], u, where="post", lw=1.1)
    bounds = {float(b) for x in (problem.lower, problem.upper) if x is not None for b in x}
    for b in sorted(bounds):
        if np.isfinite(b) and abs(b) < 2 * np.abs(u).max():
            controls.axhline(b, color=INK, lw=0.7, ls=":")
    controls.set(title="controls (bounds dotted)", xlabel="time s")
    n = int(s.steps)
    cost = np.asarray(s.history.cost)[:n]
    costs.semilogy(np.arange(n), cost, color=BLUE, lw=1.5)
    costs.set(title="cost", xlabel="step of the solver")
    figure.suptitle(title, fontweight="bold", color=INK)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def reached(model: Model, q: np.ndarray, places: np.ndarray, balls: np.ndarray, path: Path) -> None:
    """Draw the first configuration and the last one from two sides, with crosses at places.

    Args:
        model: the robot. q: both configurations. path: of the picture.
        places: the targets (n, 3). balls: centers and radii of obstacles (m, 4). All in m.
    """
    plt, figure, axes = new_figure(2)
    ends = place(model, sticks(model), q)
    for ax, azimuth, title in zip(
        axes, (0.3, 1.9), ("from the front", "from the side"), strict=True
    ):
        for robot, color, alpha in zip(project(ends, azimuth)[0], (ORANGE, BLUE), (0.4, 1.0),
                                       strict=True):  # fmt: skip
            for segment in robot:
                ax.plot(*segment.T, color=color, alpha=alpha, lw=3, solid_capstyle="round")
        ax.plot(*project(places, azimuth)[0].T, "x", color=INK, ms=10, mew=2)
        for center, radius in zip(project(balls[:, :3], azimuth)[0], balls[:, 3], strict=True):
            ax.add_patch(plt.Circle(tuple(center), radius, color=TEAL, alpha=0.35, lw=0))
        ax.set_aspect("equal", adjustable="datalim")
        ax.set(xticks=[], yticks=[], title=title)
    green = ", obstacles in green" if len(balls) else ""
    words = f"start in orange, result in blue, targets as crosses{green}"
    figure.suptitle(words, color=INK)
    figure.savefig(path, dpi=120)
    plt.close(figure)
