"""The report of an identification: tables in Markdown and one PNG with plots."""

import re
from base64 import b64encode
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..identify import linear_parameters, parameter_names
from ..model import Model
from ._plots import BLUE, INK, ORANGE, TEAL, new_figure
from ._show import machine


class ReportData(NamedTuple):
    """Everything that the report shows."""

    robot: str
    data: str
    nominal: Model
    fit: Any
    base: Any
    closed: Any
    """The unconstrained estimate of the base parameters; None if the data do not determine all."""
    terms: tuple[str, ...]
    excited: int
    samples: int
    test: Any
    before: np.ndarray
    """Torque error of the nominal robot on held-out data, (nv,)."""
    after: np.ndarray
    """Torque error of the fitted robot on held-out data, (nv,)."""
    torques: np.ndarray
    """Torques that the fitted robot predicts on held-out data."""
    physical: np.ndarray
    """Whether the inertia of each body is physically consistent, (nb,)."""
    quantities: Any
    """What was fitted, in units of people, with standard deviations."""
    raw: bool
    """Whether the closed estimate is one from positions alone, with correlated errors."""


def _dof_names(model: Model) -> list[str]:
    names = []
    for joint in model.space.joint_names:
        s = model.v_slice(joint)
        n = s.stop - s.start
        names += [joint] if n == 1 else [f"{joint}[{k}]" for k in range(n)]
    return names


def _base_values(f: ReportData) -> tuple[np.ndarray, np.ndarray]:
    """Base parameters of the nominal and of the fitted robot."""
    nominal, fitted = (f.base.B @ x for x in _values(f))
    return nominal, fitted


def _values(f: ReportData) -> tuple[np.ndarray, np.ndarray]:
    names = parameter_names(f.nominal, f.terms)
    places = [names.index(n) for n in f.base.names]
    nominal, fitted = (np.asarray(linear_parameters(m, f.terms)) for m in (f.nominal, f.fit.model))
    return nominal[places], fitted[places]


def write(f: ReportData, path: Path) -> tuple[Path, ...]:
    """Write the report, and return the paths of further files: the picture, beside Markdown.

    A page ``*.html`` holds its picture and opens in a browser without any other file.
    """
    picture = path.with_suffix(".png")
    if path.suffix == ".html":
        memory = BytesIO()
        _draw(f, memory)
        source = "data:image/png;base64," + b64encode(memory.getvalue()).decode()
        path.write_text(_page(_lines(f, source)), encoding="utf-8")
        return ()
    _draw(f, picture)
    path.write_text("\n".join(_lines(f, picture.name)) + "\n", encoding="utf-8")
    return (picture,)


def _page(lines: list[str]) -> str:
    """The few forms of Markdown that the report has, as a page of HTML."""
    out, table = [], False
    for line in lines:
        if line.startswith("|"):
            if set(line) <= set("|-"):
                continue
            cell = "td" if table else "th"
            row = "".join(f"<{cell}>{_text(x.strip())}</{cell}>" for x in line.split("|")[1:-1])
            out.append(f"{'' if table else '<table>'}<tr>{row}</tr>")
            table = True
            continue
        if table:
            out.append("</table>")
            table = False
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            out.append(f"<h{level}>{_text(line[level + 1 :])}</h{level}>")
        elif line.startswith("!["):
            out.append(f'<img alt="plots" src="{line[line.index("(") + 1 : -1]}">')
        elif line.startswith("- "):
            out.append(f"<p>• {_text(line[2:])}</p>")
        elif line:
            out.append(f"<p>{_text(line)}</p>")
    end = "</table>" if table else ""
    title = _text(lines[0].lstrip("# "))
    return f"{_HEAD}<title>{title}</title>\n" + "\n".join(out) + end + "\n"


def _text(line: str) -> str:
    line = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(line))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", line)


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><style>
body {font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em}
img {max-width: 100%} table {border-collapse: collapse; margin: 1em 0}
th, td {padding: .2em .8em; border-bottom: 1px solid #d9dee8; text-align: left}
</style>
"""


def _lines(f: ReportData, picture: str) -> list[str]:
    """The report in Markdown."""
    lines = [
        f"# Identification of {f.nominal.topology.name}",
        "",
        f"Robot `{f.robot}`, data `{f.data}`: {f.samples} samples for the fit, {f.test.shape[0]} "
        f"held out. Learned: {', '.join(f.terms)}. {machine()}.",
        "",
        f"- The fit {'converged' if bool(f.fit.converged) else '**did not converge**'} in "
        f"{int(f.fit.steps)} steps.",
        f"- {f.base.count} base parameters by structure, {f.excited} determined by the data.",
        f"- Inertias: {'all' if f.physical.all() else '**not all**'} physically consistent.",
        "",
        f"![plots]({picture})",
        "",
        "## Torque error on held-out data (rms; N m, N)",
        "",
        "| joint | nominal | fitted | noise of the fit |",
        "|---|---|---|---|",
    ]
    for name, *x in zip(_dof_names(f.nominal), f.before, f.after, f.fit.sigma, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{float(y):.4g}" for y in x) + " |")
    q = f.quantities
    lines += ["", "## Values with 95 % intervals", "", "| value | | ± | unit |", "|---" * 4 + "|"]
    for name, unit, x, d in zip(
        q.names, q.units, np.asarray(q.values), np.asarray(q.deviation), strict=True
    ):
        lines.append(f"| {name} | {x:.4g} | {1.96 * d:.2g} | {unit} |")
    if f.raw:
        late, spread = float(f.closed.delay), float(f.closed.delay_deviation)
        lines += [
            "",
            f"- The torques are late by {1e3 * late:.3g} ± {1.96e3 * spread:.2g} ms.",
            f"- {f.base.count} combinations were estimated from positions and torques; at most "
            f"{float(f.closed.noise):.1%} of a regressor's square is noise.",
        ]
    lines += [
        "",
        "Intervals hold for noise, quantization and the delay. They do not contain errors of the "
        "model: gears that bend, friction that depends on load, wrong lengths or axes, or a wrong "
        "torque constant.",
    ]
    lines += ["", "## Base parameters (SI)", ""]
    nominal, fitted = _base_values(f)
    columns = [nominal, fitted]
    head = "| combination | nominal | fitted, physical |"
    if f.closed is not None:
        head += " unconstrained | ± 1.96 σ |"
        columns += [np.asarray(f.closed.value), 1.96 * np.asarray(f.closed.deviation)]
    lines += [head, "|---" * (len(columns) + 1) + "|"]
    for words, *x in zip(f.base.combinations(), *columns, strict=True):
        lines.append(f"| {words} | " + " | ".join(f"{float(y):.4g}" for y in x) + " |")
    lines += [
        "",
        "## Parameters",
        "",
        "| parameter | nominal | fitted | verdict |",
        "|---" * 4 + "|",
    ]
    for name, a, b, verdict in zip(f.base.names, *_values(f), f.base.verdicts(), strict=True):
        lines.append(f"| {name} | {a:.4g} | {b:.4g} | {verdict} |")
    return lines


def _draw(f: ReportData, path: Path | BytesIO) -> None:
    plt, figure, (torques, bars, base) = new_figure(3)
    joint = int(np.argmax(f.before))
    measured = np.asarray(f.test.tau)[:, joint]
    shown = slice(0, min(400, len(measured)))
    torques.plot(measured[shown], color=INK, lw=0.8, label="measured")
    torques.plot(f.torques[shown, joint], color=ORANGE, lw=1.2, label="fitted")
    names = _dof_names(f.nominal)
    torques.set(title=f"held out: {names[joint]}", xlabel="sample", ylabel="N m, N")
    torques.legend(frameon=False, fontsize=8)
    at = np.arange(len(names))
    bars.barh(at - 0.2, f.before, 0.4, color=INK, label="nominal")
    bars.barh(at + 0.2, f.after, 0.4, color=ORANGE, label="fitted")
    bars.set_yticks(at, names, fontsize=6)
    bars.invert_yaxis()
    bars.set(title="torque error, held out (rms)", xlabel="N m, N", xscale="log")
    bars.legend(frameon=False, fontsize=8)
    nominal, fitted = _base_values(f)
    base.axhline(0, color=INK, lw=0.7)
    if f.closed is not None:
        scale = np.asarray(f.closed.deviation)
        free = np.asarray(f.closed.value)
        base.fill_between(np.arange(len(scale)), -1.96, 1.96, color=TEAL, alpha=0.25, lw=0,
                          label="95 % interval")  # fmt: skip
        base.plot((fitted - free) / scale, "o", ms=3, color=ORANGE, label="fitted, physical")
        base.plot((nominal - free) / scale, "o", ms=3, color=BLUE, label="nominal")
        base.set_yscale("symlog", linthresh=3)
        base.set(
            title="base parameters minus the unconstrained estimate", ylabel="standard deviations"
        )
        base.legend(frameon=False, fontsize=8)
    else:
        base.plot(nominal, "o", ms=3, color=BLUE, label="nominal")
        base.plot(fitted, "o", ms=3, color=ORANGE, label="fitted")
        base.set_yscale("symlog", linthresh=1e-2)
        base.set(title="base parameters", ylabel="SI")
        base.legend(frameon=False, fontsize=8)
    base.set_xlabel("number")
    figure.savefig(path, dpi=120)
    plt.close(figure)
