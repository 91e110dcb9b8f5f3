"""Plots of the tables: curves over a size and bars over robots, both on logarithmic axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ._report import Report

Values = Sequence[float | None]


@dataclass
class Lines:
    """Curves over ``x``; a missing value leaves a gap. ``powers`` draws xᵏ through the first."""

    title: str
    xlabel: str
    ylabel: str
    x: Sequence[float]
    series: Mapping[str, Values]
    powers: tuple[int, ...] = ()
    level: float | None = None

    def draw(self, axes) -> None:
        """Draw on the given axes."""
        x = np.asarray(self.x, float)
        for i, (name, y) in enumerate(self.series.items()):
            y = np.array([np.nan if v is None else v for v in y], float)
            if np.isfinite(y).any():
                style = ("-", "--", "-.")[i // 10 % 3]
                axes.plot(x, y, style, marker="o", ms=3, lw=1.2, label=name)
        start = next((v for v in next(iter(self.series.values()), []) if v), None)
        for power in self.powers if start else ():
            axes.plot(x, start * (x / x[0]) ** power, "k:", lw=0.8)
            axes.annotate(f"$N^{power}$", (x[-1], start * (x[-1] / x[0]) ** power), fontsize=8)
        axes.set_xscale("log")


@dataclass
class Bars:
    """A group of bars for each of ``groups``, one bar a series."""

    title: str
    ylabel: str
    groups: Sequence[str]
    series: Mapping[str, Values]
    level: float | None = None
    xlabel: str = ""

    def draw(self, axes) -> None:
        """Draw on the given axes."""
        width = 0.8 / max(1, len(self.series))
        for i, (name, y) in enumerate(self.series.items()):
            at = np.arange(len(self.groups)) + (i - (len(self.series) - 1) / 2) * width
            axes.bar(at, [np.nan if v is None else v for v in y], 0.9 * width, label=name)
        turned = 20 if max(map(len, self.groups), default=0) > 9 else 0
        axes.set_xticks(range(len(self.groups)), self.groups, rotation=turned, fontsize=8)


def draw(report: Report, panels: Sequence[Lines | Bars], suffix: str = "") -> None:
    """Save the panels side by side, at most three in a row, as one plot of the report."""
    try:
        import matplotlib
    except ImportError:
        print("  plot skipped: matplotlib is missing (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = (5.2 * columns, 4.0 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        panel.draw(axes)
        if panel.level is not None:
            axes.axhline(panel.level, color="k", lw=0.8, ls=":")
        axes.set_yscale("log")
        axes.set_xlabel(panel.xlabel)
        axes.set_ylabel(panel.ylabel)
        axes.set_title(panel.title, fontsize=10)
        axes.grid(True, which="both", lw=0.25)
        if axes.get_legend_handles_labels()[0]:
            under = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 3}
            axes.legend(fontsize=7, **under)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    e = report.environment
    machine = f"{e['processor']}, {e['cores']} cores, {e['device']}"
    figure.suptitle(f"{machine}; {e['date']}; commit {e['commit']}", fontsize=8)
    figure.savefig(report.plot_path(suffix), dpi=130)
    plt.close(figure)
