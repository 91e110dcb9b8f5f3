"""Results as JSON, Markdown and plots, and the same tables on the terminal."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ._timing import environment, load_average

RESULTS = Path(__file__).parent / "results"


@dataclass
class Table:
    """Rows of named cells under a title, and what to know when reading them."""

    title: str
    notes: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, **cells: Any) -> None:
        """Append a row; print it at once, so that a long run shows where it is."""
        self.rows.append(cells)
        print("  " + "  ".join(f"{k} {_text(v)}" for k, v in cells.items()), flush=True)

    @property
    def columns(self) -> list[str]:
        """All column names, in order of appearance."""
        return list(dict.fromkeys(k for row in self.rows for k in row))

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


class Report:
    """All tables of one benchmark; ``write`` stores what there is so far."""

    def __init__(self, name: str, options: Any, about: str):
        self.name, self.about = name, about
        self.folder = Path(options.results) if options.results else RESULTS
        self.environment = environment()
        keep = ("seconds", "batch", "dtypes", "robots", "cores", "tiny")
        self.settings = {k: getattr(options, k) for k in keep if getattr(options, k) is not None}
        self.tables: list[Table] = []
        self.plots: list[str] = []
        print(f"{name}: {self._head()}", flush=True)

    def table(self, title: str, notes: str = "") -> Table:
        """Start a table."""
        print(title, flush=True)
        self.tables.append(Table(title, notes))
        return self.tables[-1]

    def plot_path(self, suffix: str = "") -> Path:
        """Where to save a plot; it is then shown in the Markdown."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}{suffix}.png"
        self.plots.append(path.name)
        return path

    def _head(self) -> str:
        e = self.environment
        versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items())
        return (
            f"{e['date']}, {e['processor']}, {e['cores']} cores, {e['device']}; {versions}; "
            f"commit {e['commit']}; load average at start {e['load average at start']}"
        )

    def write(self) -> None:
        """Write NAME.json and NAME.md."""
        self.environment["load average at end"] = load_average()
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = [asdict(t) | {"columns": t.columns} for t in self.tables]
        content = {
            "name": self.name,
            "environment": self.environment,
            "settings": self.settings,
            "tables": tables,
        }
        text = json.dumps(content, indent=1, allow_nan=True) + "\n"
        (self.folder / f"{self.name}.json").write_text(text)
        settings = ", ".join(f"{k} {v}" for k, v in self.settings.items())
        head = f"{self._head()}, at end {self.environment['load average at end']}"
        parts = [f"# {self.name}", "", self.about, "", f"{head}. Settings: {settings}.", ""]
        parts += [t.markdown() for t in self.tables if t.rows]
        parts += [f"![{p}]({p})\n" for p in self.plots]
        (self.folder / f"{self.name}.md").write_text("\n".join(parts))
        print(f"wrote {self.folder / self.name}.md", flush=True)
