"""Time against the length of a chain, and the slopes fitted to it."""

import numpy as np

import rbd_jax as rbd

from ._report import Report
from ._robots import load, over_batch, states
from ._timing import program, race

ABOUT = (
    "Serial chains of N revolute joints: time per evaluation (median, µs) in a batch. Slope: least "
    "squares of log time over log N; the first over all N, the second over N ≥ 32, where constant "
    "costs no longer hide the work."
)
FUNCTIONS = {
    "rnea": (rbd.rnea, "a"),
    "aba": (rbd.aba, "tau"),
    "inverse_dynamics": (rbd.inverse_dynamics, "a"),
    "forward_dynamics": (rbd.forward_dynamics, "tau"),
    "inverse_dynamics_derivatives": (rbd.inverse_dynamics_derivatives, "a"),
    "forward_dynamics_derivatives": (rbd.forward_dynamics_derivatives, "tau"),
}
LENGTHS = (2, 5, 10, 20, 35, 50, 100, 200, 350, 500)


def slope(n, t, above: int = 0) -> float | None:
    """Exponent of N fitted to the times."""
    pairs = [(a, b) for a, b in zip(n, t, strict=True) if a >= above and b]
    if len(pairs) < 2:
        return None
    x, y = np.log(np.array(pairs, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def measure(report: Report, dtype: str, batch: int, seconds: float, lengths) -> None:
    """Times and slopes of all functions in one dtype."""
    table = report.table(f"Chains, {dtype}, batch {batch}, µs")
    for n in lengths:
        model = load(f"chain{n}", dtype)
        s = states(model, batch)
        made = [
            program(name, over_batch(f, 3), model, s.q, s.v, getattr(s, last), per=batch)
            for name, (f, last) in FUNCTIONS.items()
        ]
        race(*made, seconds=seconds)
        table.add(N=n, **{p.name: p.median for p in made})
        report.write()
    slopes = report.table(f"Slopes, {dtype}")
    n = [row["N"] for row in table.rows]
    for name in FUNCTIONS:
        t = [row[name] for row in table.rows]
        slopes.add(function=name, slope=slope(n, t), slope_from_32=slope(n, t, 32))
    _plot(report, table, dtype, batch)


def _plot(report: Report, table, dtype: str, batch: int) -> None:
    try:
        import matplotlib
    except ImportError:
        print("  plot skipped: matplotlib is missing")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    n = np.array([row["N"] for row in table.rows])
    for name in FUNCTIONS:
        t = [row[name] for row in table.rows]
        fitted = slope(n, t, 32)
        label = name if fitted is None else f"{name} ({fitted:.2f})"
        axes.loglog(n, t, marker="o", ms=3.5, label=label)
    for power in (1, 2):
        start = table.rows[0]["rnea"]
        axes.loglog(n, start * (n / n[0]) ** power, "k:", lw=0.8)
        axes.annotate(f"$N^{power}$", (n[-1], start * (n[-1] / n[0]) ** power), fontsize=8)
    axes.set_xlabel("joints N")
    axes.set_ylabel("time per evaluation [µs]")
    axes.set_title(f"Serial chains, {dtype}, batch {batch} (slope for N ≥ 32)", fontsize=10)
    axes.grid(True, which="both", lw=0.3)
    axes.legend(fontsize=7)
    figure.savefig(report.plot_path(f"_{dtype}"), dpi=150)
    plt.close(figure)


def main(options) -> None:
    """N from 2 to 500."""
    report = Report("scaling", options, ABOUT)
    batch = options.batch or (2 if options.tiny else 16)
    for dtype in options.dtypes:
        lengths = (2, 4, 8) if options.tiny else LENGTHS
        measure(report, dtype, batch, options.seconds, lengths)
    report.write()
