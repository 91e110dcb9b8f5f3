"""The picture of the demo: the motion, the batch, the conserved quantities and the gradients."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...model import Model
from ...view.skeleton import place, project, sticks
from .._plots import BLUE, GRID, INK, ORANGE, TEAL


class PictureData(NamedTuple):
    """Everything the picture shows, as NumPy arrays."""

    model: Model
    title: str
    facts: str
    t: np.ndarray
    before: np.ndarray
    """q of the motion before the gradient steps, (T+1, nq)."""
    after: np.ndarray
    """q of the motion after the gradient steps, (T+1, nq)."""
    costs: list[float]
    paths: np.ndarray
    """Path of one point of each robot of the batch, (B, T+1, 3)."""
    fan: np.ndarray
    """One curve for each robot of the batch, (B, T+1)."""
    fan_label: str
    fan_lines: tuple[np.ndarray, np.ndarray]
    drifts: dict[str, np.ndarray]
    """Relative errors of the conserved quantities, (B, K) each."""
    drift_t: np.ndarray
    """Times of the relative errors, (K,)."""
    du: np.ndarray
    """Gradient with respect to the torques, (T, nv)."""
    dmass: np.ndarray
    """Change of the cost if the mass of a body grows by 1 %, (nb,)."""
    heights: np.ndarray
    """Heights of the trunks of quadrupeds that land, (B, T+1)."""
    heights_t: np.ndarray


def save(data: PictureData, path: Path) -> None:
    """Draw the picture and save it as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: dict[Any, Any] = {
        "font.size": 10, "axes.edgecolor": "#8a93a6", "axes.labelcolor": INK, "text.color": INK,
        "xtick.color": "#59627a", "ytick.color": "#59627a", "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 11, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "figure.facecolor": "white",
    }  # fmt: skip
    with plt.rc_context(style):
        figure = plt.figure(figsize=(16, 10.4), dpi=120)
        rows = figure.add_gridspec(2, 1, height_ratios=(1.75, 1), hspace=0.1,
                                   left=0.045, right=0.985, top=0.915, bottom=0.065)  # fmt: skip
        columns = rows[1].subgridspec(1, 6, wspace=0.28, width_ratios=(1, 1, 1.2, 0.24, 0.9, 1))
        _scene(figure.add_subplot(rows[0]), data)
        panels = (_fan, _drift, _torques, _masses, _landings)
        for k, draw in enumerate(panels):
            draw(figure.add_subplot(columns[k if k < 3 else k + 1]), data)
        figure.text(0.03, 0.966, data.title, fontsize=19, fontweight="bold")
        figure.text(0.03, 0.939, data.facts, fontsize=11, color="#59627a")
        figure.savefig(path)
        plt.close(figure)


def _scene(ax, data: PictureData) -> None:
    parts = sticks(data.model)
    n = len(data.t)
    phases = np.linspace(0, n - 1, 8).astype(int)
    spread = np.ptp(data.before[:, 0]) if data.model.topology.kinds[0] == "free" else 0.0
    bodies = place(data.model, parts, data.before[phases])
    landed = place(data.model, parts, data.after[-1:])[0]
    height = np.ptp(bodies[0, ..., 2]) + 0.2
    pull = np.zeros((len(phases), 3))
    width = 0.6 * height * len(phases)
    if spread < width:  # spread the poses out like a stroboscope on a moving film
        pull[:, 0] = np.linspace(0, 1, len(phases)) * (width - spread)
    ground = min(bodies[..., 2].min(), landed[..., 2].min())
    stretch = np.interp(np.arange(n), phases, pull[:, 0])
    _ground(ax, bodies + pull[:, None, None], ground)
    paths = data.paths.copy()
    paths[..., 0] += stretch
    _curves(ax, project(paths)[0], BLUE, 0.07, 0.8)
    widest = 17.0
    colors = _ramp(len(phases))
    for k in range(len(phases)):
        shadow = bodies[k] + pull[k]
        shadow[..., 2] = ground
        _sticks(ax, parts, shadow, "#aab2c2", 0.18, 0.6 * widest)
    for k in range(len(phases)):
        _sticks(ax, parts, bodies[k] + pull[k], colors[k], 1.0, widest)
    _sticks(ax, parts, landed + pull[-1], ORANGE, 1.0, 0.8 * widest)
    for k in range(len(phases)):
        x = project(bodies[k].mean((0, 1)) * [1, 1, 0] + [0, 0, ground] + pull[k])[0]
        ax.annotate(f"{data.t[phases[k]]:.2f} s", x, (0, -22), textcoords="offset points",
                    ha="center", fontsize=9, color="#59627a")  # fmt: skip
    end = project(landed + pull[-1])[0].reshape(-1, 2)
    ax.annotate(f"after {len(data.costs) - 1} gradient\nsteps on the torques",
                (end[:, 0].max(), end[:, 1].max()), (14, 2), textcoords="offset points",
                color=ORANGE, fontsize=10, fontweight="bold", va="center")  # fmt: skip
    ax.set_aspect("equal")
    ax.margins(0.02)
    ax.axis("off")


def _ramp(n: int):
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("flight", ["#8fb4f2", BLUE, "#14213d"])(
        np.linspace(0, 1, n)
    )


def _ground(ax, points: np.ndarray, z: float) -> None:
    low = np.floor(points[..., 0].min() - 0.3)
    high = np.ceil(points[..., 0].max() + 0.3)
    across = np.linspace(-1.0, 1.0, 5)
    lines = [[(low, y, z), (high, y, z)] for y in across]
    lines += [[(x, -1.0, z), (x, 1.0, z)] for x in np.arange(low, high + 0.1, 0.5)]
    _curves(ax, project(np.array(lines))[0], GRID, 1.0, 0.8)


def _sticks(ax, parts, points: np.ndarray, color, alpha: float, widest: float) -> None:
    """Draw sticks from far to near, each with a white rim. Far sticks are paler."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    flat, depth = project(points)
    order = np.argsort(-depth.mean(-1))
    far = np.clip((depth.mean(-1) - depth.mean()) / 0.5 + 0.2, 0.0, 0.6)[:, None]
    tints = (1 - far) * np.array(to_rgb(color)) + far
    widths = widest * np.clip(parts.weight, 0.16, 1.0)
    ends, sizes, colors = [], [], []
    for k in order:
        rims = ((widths[k] + 1.6, np.ones(3)),) if alpha == 1 else ()
        for size, tint in (*rims, (widths[k], tints[k])):
            ends.append(flat[k])
            sizes.append(size)
            colors.append(tint)
    ax.add_collection(
        LineCollection(
            ends, linewidths=sizes, colors=colors, alpha=alpha, capstyle="round", zorder=3
        )  # fmt: skip
    )


def _curves(ax, lines: np.ndarray, color, alpha: float, width: float) -> None:
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(list(lines), colors=[color], alpha=alpha, linewidths=width))


def _fan(ax, s: PictureData) -> None:
    lines = np.stack([np.broadcast_to(s.t, s.fan.shape), s.fan], axis=-1)
    _curves(ax, lines, BLUE, max(0.04, min(0.5, 20 / len(lines))), 0.8)
    ax.plot(s.t, s.fan_lines[0], color=INK, lw=1.8, label="before")
    ax.plot(s.t, s.fan_lines[1], color=ORANGE, lw=1.8, label="optimized")
    ax.set(title=f"{len(s.fan)} robots with different masses", xlabel="time s", ylabel=s.fan_label)
    ax.autoscale_view()
    ax.legend(frameon=False, loc="upper left")


def _drift(ax, s: PictureData) -> None:
    for (name, x), color in zip(s.drifts.items(), (BLUE, TEAL, ORANGE), strict=False):
        x = np.maximum(np.abs(x), 1e-17)
        low, middle, high = np.quantile(x, (0.05, 0.5, 0.95), axis=0)
        ax.fill_between(s.drift_t, low, high, color=color, alpha=0.18, lw=0)
        ax.semilogy(s.drift_t, middle, color=color, lw=1.6, label=name)
    ax.set(title="conserved quantities", xlabel="time s", ylabel="relative error, 5–95 %")
    ax.legend(frameon=False, loc="lower right", fontsize=9)


def _torques(ax, s: PictureData) -> None:
    moved = np.flatnonzero(np.abs(s.du).max(0) > 0)
    g = s.du[:, moved].T if len(moved) else s.du.T
    top = np.quantile(np.abs(g), 0.995) or 1.0
    image = ax.imshow(g / top, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, origin="lower",
                      extent=(0, s.t[-1], -0.5, len(g) - 0.5), interpolation="nearest")  # fmt: skip
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=35, ticks=[-1, 0, 1])
    bar.outline.set_visible(False)
    ax.set(title=f"∂ cost / ∂ torque: {g.size:,} numbers", xlabel="time s", ylabel="motor")


def _masses(ax, s: PictureData) -> None:
    top = np.argsort(-np.abs(s.dmass))[:10][::-1]
    ax.barh(range(len(top)), s.dmass[top], color=[ORANGE if x > 0 else BLUE for x in s.dmass[top]])
    ax.set_yticks(range(len(top)), [s.model.body_names[i] for i in top], fontsize=8)
    ax.axvline(0, color="#8a93a6", lw=0.8)
    ax.set(title="∂ cost / ∂ mass of a body", xlabel="change of the cost for 1 % more mass")
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _landings(ax, s: PictureData) -> None:
    lines = np.stack([np.broadcast_to(s.heights_t, s.heights.shape), s.heights], axis=-1)
    _curves(ax, lines, TEAL, max(0.04, min(0.5, 20 / len(lines))), 0.8)
    ax.plot(s.heights_t, s.heights.mean(0), color=INK, lw=1.8, label="mean")
    ax.set(title=f"{len(lines)} quadrupeds land", xlabel="time s", ylabel="height of the trunk m")
    ax.set_ylim(0, 1.1 * s.heights.max())
    ax.legend(frameon=False, loc="lower right")
