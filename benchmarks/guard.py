"""Regression guard: a part of ``pinocchio`` against its committed results, ratios only."""

import json
from pathlib import Path

from . import pinocchio
from ._report import RESULTS, Report

ABOUT = "Not written: the guard only compares."
KINDS = "ratio", "ratio_of_minima"
NAMES = "robot", "function", "dtype"


def _ratios(tables: list[dict]) -> dict[tuple, dict[str, float]]:
    """Row, by its table's title and its names -> its ratios; less is better."""
    found = {}
    for table in tables:
        for row in table["rows"]:
            key = (table["title"], *(row[k] for k in NAMES if k in row))
            found[key] = {k: row[k] for k in KINDS if row.get(k)}
    return {k: x for k, x in found.items() if x}


def worse(new: dict[str, float], old: dict[str, float]) -> float:
    """How many times worse a row is.

    Of medians and minima the one that got less worse counts: noise rarely hits both.
    """
    return min((new[k] / old[k] for k in KINDS if k in new and k in old), default=1.0)


def _measure(options) -> dict[tuple, dict[str, float]]:
    report = Report("guard", options, ABOUT)
    pinocchio.measure(report, options)
    return _ratios([vars(t) for t in report.tables])


def main(options) -> None:
    """Measure, measure what seems slower once more, print, and exit with 1 if it stays so."""
    path = Path(options.results or RESULTS) / f"{pinocchio.name()}.json"
    try:
        committed = json.loads(path.read_text())
    except FileNotFoundError:
        raise SystemExit(f"guard: no {path}; run python -m benchmarks pinocchio") from None
    old = _ratios(committed["tables"])
    for name in ("batch", "tiny"):  # the same comparisons as in the committed run
        if committed["settings"].get(name) is not None:
            setattr(options, name, committed["settings"][name])
    options.dtypes = committed["settings"]["dtypes"]
    options.seconds = committed["settings"]["seconds"]
    options.robots = options.robots or ["hyq"]
    new = _measure(options)
    slower = {k for k, x in new.items() if k in old and worse(x, old[k]) > options.margin}
    if slower:
        print(f"once more: {len(slower)} rows seem slower", flush=True)
        again = _measure(options)
        slower = {k for k in slower if worse(again.get(k, new[k]), old[k]) > options.margin}
        new |= {k: again[k] for k in slower & again.keys()}
    machine = committed["environment"]
    print(f"committed: {machine['date']}, {machine['processor']}, {machine['cores']} cores, "
          f"commit {machine['commit']}")  # fmt: skip
    for key in new:
        if key not in old:
            print(f"  not in the committed results: {', '.join(key)}")
        else:
            times = worse(new[key], old[key])
            mark = "faster" if times < 1 / options.margin else "as ever"
            mark = "SLOWER" if key in slower else mark
            print(f"  {mark}: {times:.2f} times the committed ratio: {', '.join(key)}")
    compared = len(new.keys() & old.keys())
    print(f"guard: {compared} ratios compared, {len(slower)} slower by more than {options.margin}")
    if slower or not compared:
        raise SystemExit(1)
