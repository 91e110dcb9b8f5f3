"""Regression guard: a cheap part of ``quick`` against the committed results, ratios only."""

import json
from pathlib import Path

from . import quick
from ._report import RESULTS, Report

ABOUT = "Not written: the guard only compares."
PARTS = ("pinocchio", "derivatives", "explicit")
LESS, MORE = ("ratio", "ratio_of_minima", "over_explicit"), ("speed_up", "speed_up_of_minima")
KINDS = ("ratio", "ratio_of_minima"), ("speed_up", "speed_up_of_minima"), ("over_explicit",)
NAMES = ("robot", "function", "dtype", "mode")


def _ratios(tables: list[dict]) -> dict[tuple, dict[str, float]]:
    """Row, by its table's title and its names -> its ratios, all such that less is better."""
    found = {}
    for table in tables:
        for row in table["rows"]:
            key = (table["title"], *(row[k] for k in NAMES if k in row))
            less = {k: row[k] for k in LESS if row.get(k)}
            found[key] = less | {k: 1 / row[k] for k in MORE if row.get(k)}
    return {k: x for k, x in found.items() if x}


def worse(new: dict[str, float], old: dict[str, float]) -> float:
    """How many times worse a row is, by the ratio that got worst.

    Of medians and minima the one that got less worse counts: noise rarely hits both.
    """
    times = [[new[k] / old[k] for k in kind if k in new and k in old] for kind in KINDS]
    return max((min(x) for x in times if x), default=1.0)


def _measure(options, names) -> dict[tuple, dict[str, float]]:
    report = Report("guard", options, ABOUT)
    for name in names:
        quick.parts(report, options)[name]()
    return _ratios([vars(t) for t in report.tables])


def main(options) -> None:
    """Measure, measure what seems slower once more, print, and exit with 1 if it stays so."""
    path = Path(options.results or RESULTS) / "quick.json"
    try:
        committed = json.loads(path.read_text())
    except FileNotFoundError:
        raise SystemExit(f"guard: no {path}; run python -m benchmarks quick") from None
    old = _ratios(committed["tables"])
    for name in ("batch", "tiny", "robots"):  # the same comparisons as in the committed run
        if committed["settings"].get(name) is not None:
            setattr(options, name, committed["settings"][name])
    options.dtypes = committed["settings"]["dtypes"]
    options.seconds = committed["settings"]["seconds"]
    options.robots = options.robots or ["hyq"]
    new = _measure(options, PARTS)
    slower = {k for k, x in new.items() if k in old and worse(x, old[k]) > options.margin}
    if slower:
        print(f"once more: {len(slower)} rows seem slower", flush=True)
        again = _measure(options, PARTS)
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
