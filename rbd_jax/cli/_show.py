"""The console, the tables and the progress displays of the commands."""

import importlib.util
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .. import __version__
from ..model import Model
from ._robots import fail, writable


class Check(NamedTuple):
    """A check that passes if ``value <= limit``. With a limit of None it only informs."""

    name: str
    value: float | None
    limit: float | None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passes. It does not if the value is NaN."""
        return self.limit is None or (self.value is not None and self.value <= self.limit)


def console() -> Console:
    """A console. If the output is a file, it is wide enough for the tables."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=150)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence], left: int = 1) -> Table:
    """A rich table. The first ``left`` columns are aligned to the left, the others to the right."""
    out = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for i, column in enumerate(columns):
        out.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        out.add_row(*(str(x) for x in row))
    return out


def check_table(title: str, checks: Sequence[Check]) -> Table:
    """A table of checks with their values, limits and verdicts."""

    def row(c: Check):
        value = "" if c.value is None else f"{c.value:.2g}"
        if c.limit is None:
            return c.name, value, "", "[dim]–[/]", c.note
        verdict = "[bold green]pass[/]" if c.ok else "[bold red]FAIL[/]"
        return c.name, value, f"{c.limit:.0e}", verdict, c.note

    out = table(title, ("check", "value", "limit", "", "remark"), map(row, checks))
    out.columns[-1].justify = "left"
    return out


def numbers(x, digits: int = 3) -> str:
    """The text of a short vector, for example ``0.1 0 -2``."""
    return " ".join(f"{v:.{digits}g}" for v in np.atleast_1d(np.asarray(x)) + 0.0)


def machine() -> str:
    """The versions and the device, in one line."""
    device = jax.devices()[0]
    kind = platform.machine() if device.platform == "cpu" else device.device_kind
    return f"rbd_jax {__version__}, jax {jax.__version__}, {device.platform} ({kind})"


@contextmanager
def progress_bar(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar with the remaining time; yields the function that advances it."""
    with Progress(console=console()) as bar:
        task = bar.add_task(text, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def live_line(out: Console, text: str) -> Iterator[Callable[[str], None]]:
    """A spinner with one line of text; yields the function that changes the text."""
    with out.status(text) as status:
        yield lambda line: status.update(line)


def filmable(film: Path | None) -> None:
    """End the command if a film is wanted that cannot be written. Call it before long work."""
    writable(film)
    if film is not None and importlib.util.find_spec("viser") is None:
        fail('a film needs the viewer; run: pip install "rbd-jax[view]"')


def film_of(model: Model, t: np.ndarray, q: np.ndarray, film: Path | None) -> None:
    """Write a film of one robot, an HTML page, if it is wanted. See :func:`filmable`."""
    if film is None:
        return
    from .. import view

    viewer = view(model, {"t": t, "q": q})
    viewer.as_html(film)
    viewer.stop()
    console().print(f"[green]✔[/] {film}", highlight=False)
