"""The report of an identification: tables in Markdown and one PNG with plots."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..identify import linear_parameters
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
    nominal, fitted = (np.asarray(linear_parameters(m, f.terms)) for m in (f.nominal, f.fit.model))
    return nominal, fitted


def write(f: ReportData, path: Path) -> Path:
    """Write the report and its picture, and return the path of the picture."""
    picture = path.with_suffix(".png")
    _draw(f, picture)
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
        f"![plots]({picture.name})",
        "",
        "## Torque error on held-out data (rms; N m, N)",
        "",
        "| joint | nominal | fitted | noise of the fit |",
        "|---|---|---|---|",
    ]
    for name, *x in zip(_dof_names(f.nominal), f.before, f.after, f.fit.sigma, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{float(y):.4g}" for y in x) + " |")
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
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return picture


def _draw(f: ReportData, path: Path) -> None:
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
