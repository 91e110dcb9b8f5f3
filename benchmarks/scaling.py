"""Time against the length of a chain, and the slopes fitted to it."""

from collections.abc import Iterable

import numpy as np

import rbd_jax as rbd

from ._plots import Lines, draw
from ._report import Report, Table
from ._robots import load, over_batch, states
from ._timing import program, race

ABOUT = (
    "Serial chains of N revolute joints: time per evaluation (median, µs) in a batch. The slope "
    "is a least-squares fit of log time over log N. The first slope is over all N. The second is "
    "over N ≥ 32, where constant costs no longer hide the work."
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


def column(table: Table, name: str) -> list:
    """One column of a table, None where a row has no such cell."""
    return [row.get(name) for row in table.rows]


def fit(report: Report, title: str, table: Table, names: Iterable[str] = FUNCTIONS) -> None:
    """A table of the slopes of some columns over the column N."""
    slopes, n = report.table(title), column(table, "N")
    for name in names:
        t = column(table, name)
        slopes.add(function=name, slope=slope(n, t), slope_from_32=slope(n, t, 32))


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
    fit(report, f"Slopes, {dtype}", table)
    labels = {}
    for name in FUNCTIONS:
        fitted = slope(column(table, "N"), column(table, name), 32)
        labels[name if fitted is None else f"{name} ({fitted:.2f})"] = column(table, name)
    title = f"Serial chains, {dtype}, batch {batch} (slope for N ≥ 32)"
    y = "time per evaluation [µs]"
    panel = Lines(title, "joints N", y, column(table, "N"), labels, powers=(1, 2))
    draw(report, [panel], f"_{dtype}")


def main(options) -> None:
    """N from 2 to 500."""
    report = Report("scaling", options, ABOUT)
    batch = options.batch or (2 if options.tiny else 16)
    for dtype in options.dtypes:
        lengths = (2, 4, 8) if options.tiny else LENGTHS
        measure(report, dtype, batch, options.seconds, lengths)
    report.write()
