"""Results as JSON, Markdown and plots, and the same tables on the terminal."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._timing import environment, load_average

RESULTS = Path(__file__).parent / "results"
DATE = "measured"  # the cell of a row with the date of its run
EARLIER = (
    "Rows that this run did not measure are from earlier runs. These are their dates and commits, "
    "and what was different:"
)


@dataclass
class Table:
    """Rows of named cells under a title, and what to know when reading them.

    ``kept`` are rows of an earlier run; the first new row drops those that are equal to it in the
    cells of ``subject``. Rows know the date of their run, in the JSON.
    """

    title: str
    notes: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    date: str = ""
    subject: tuple[str, ...] = ("robot", "dtype", "calls")

    def add(self, **cells: Any) -> None:
        """Append a row; print it at once, so that a long run shows where it is."""
        old = [r for r in self.kept if all(r.get(k) == cells.get(k) for k in self.subject)]
        self.kept = [r for r in self.kept if r not in old]
        self.rows = [*(r for r in self.rows if r not in old), cells | {DATE: self.date}]
        print("  " + "  ".join(f"{k} {_text(v)}" for k, v in cells.items()), flush=True)

    @property
    def columns(self) -> list[str]:
        """All column names, in order of appearance."""
        return list(dict.fromkeys(k for row in self.rows for k in row if k != DATE))

    def markdown(self) -> str:
        """The table in Markdown."""
        columns = self.columns
        lines = [f"### {self.title}", ""]
        if self.notes:
            lines += [self.notes, ""]
        lines += [_line(c.replace("_", " ") for c in columns), _line("---" for _ in columns)]
        lines += [_line(_text(row.get(c)) for c in columns) for row in self.rows]
        return "\n".join(lines) + "\n"


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _text(x: Any) -> str:
    if x is None:
        return "–"
    if isinstance(x, float):
        if not math.isfinite(x):
            return str(x)
        if x != 0 and (abs(x) < 1e-3 or abs(x) >= 1e6):
            return f"{x:.1e}"
        return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"
    return str(x)


def origins(runs: list[dict[str, Any]]) -> list[str]:
    """Lines on the runs after the first, from which rows were kept: when, and what was different.

    Runs with the same differences share a line. The robots are not told, because rows name theirs.
    """
    alike: dict[str, list[str]] = {}
    for run in runs[1:]:
        e = run["environment"]
        when = f"{e['date']} ({e['commit']})"
        alike.setdefault(_differences(run, runs[0]), []).append(when)
    lines = [f"- {how}: {', '.join(sorted(when))}" for how, when in alike.items()]
    return [EARLIER, "", *lines, ""] * bool(lines)


def _differences(run: dict[str, Any], first: dict[str, Any]) -> str:
    """What machine, versions and settings a run had other than the first."""
    e, known = run["environment"], first["environment"]
    found = [f"{e[k]} cores" if k == "cores" else e[k] for k in ("processor", "cores", "device")
             if e[k] != known[k]]  # fmt: skip
    for old, new in ((run["settings"], first["settings"]), (e["versions"], known["versions"])):
        keys = [k for k in {**old, **new} if k != "robots" and old.get(k) != new.get(k)]
        found += [f"{k} {old[k]}" if k in old else f"no {k}" for k in keys]
    return ", ".join(found) or "the same machine, versions and settings"


class Report:
    """All tables of one benchmark; ``write`` stores what there is so far."""

    def __init__(self, name: str, options: Any, about: str):
        self.name, self.about = name, about
        self.folder = Path(options.results) if options.results else RESULTS
        self.environment = environment()
        keep = ("seconds", "batch", "dtypes", "robots", "cores", "clock", "tiny")
        known = {k: getattr(options, k, None) for k in keep}
        self.settings = {k: x for k, x in known.items() if x is not None}
        self.tables: list[Table] = []
        self.plots: list[str] = []
        old = self.folder / f"{name}.json"
        self.kept = json.loads(old.read_text()) if options.keep and old.exists() else {}
        print(f"{name}: {self._head(self.environment)}", flush=True)

    def table(self, title: str, notes: str = "") -> Table:
        """Start a table."""
        print(title, flush=True)
        same = [t for t in self.kept.get("tables", []) if t["title"] == title]
        rows = sum((t["rows"] for t in same), [])
        notes = notes or next((t["notes"] for t in same), "")
        self.tables.append(Table(title, notes, rows, rows, self.environment["date"]))
        return self.tables[-1]

    def plot_path(self, suffix: str = "") -> Path:
        """Where to save a plot; it is then shown in the Markdown."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}{suffix}.png"
        self.plots.append(path.name)
        return path

    @staticmethod
    def _head(e: dict) -> str:
        versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items())
        return (
            f"{e['date']}, {e['processor']}, {e['cores']} cores, {e['device']}; {versions}; "
            f"commit {e['commit']}; load average at start {e['load average at start']}"
        )

    def write(self) -> None:
        """Write NAME.json and NAME.md."""
        self.environment["load average at end"] = load_average()
        self.folder.mkdir(parents=True, exist_ok=True)
        earlier = self.kept.get("earlier", [])
        if self.kept:
            earlier = [*earlier, {k: self.kept[k] for k in ("environment", "settings")}]
        dates = {row.get(DATE) for t in self.tables for row in t.rows}
        earlier = [run for run in earlier if None in dates or run["environment"]["date"] in dates]
        names = "title", "notes", "rows", "columns"
        tables = [{n: getattr(t, n) for n in names} for t in self.tables]
        content = {
            "name": self.name,
            "environment": self.environment,
            "settings": self.settings,
            "earlier": earlier,
            "tables": tables,
        }
        text = json.dumps(content, indent=1, allow_nan=True) + "\n"
        (self.folder / f"{self.name}.json").write_text(text)
        runs = [{"environment": self.environment, "settings": self.settings}, *earlier]
        parts = [f"# {self.name}", "", self.about, ""]
        settings = ", ".join(f"{k} {v}" for k, v in self.settings.items())
        head = f"{self._head(self.environment)}, at end {self.environment['load average at end']}"
        parts += [f"{head}. Settings: {settings}.", "", *origins(runs)]
        parts += [t.markdown() for t in self.tables if t.rows]
        parts += [f"![{p}]({p})\n" for p in self.plots]
        (self.folder / f"{self.name}.md").write_text("\n".join(parts))
        print(f"wrote {self.folder / self.name}.md", flush=True)
