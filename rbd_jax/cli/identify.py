"""``rbd-jax identify``: a robot's parameters from recorded motion and torques."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from . import _robots
from ._show import console, machine, table

_SILENCE = 5.0  # Without a terminal, a line of progress is printed after so many seconds (s).


class Loss(StrEnum):
    """The loss of the errors."""

    squares = "squares"
    huber = "huber"
    cauchy = "cauchy"


def identify(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    data: Annotated[
        Path, typer.Argument(help="File with q, tau and, if recorded, t, v, a: .npz or .csv.")
    ],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    learn: Annotated[
        str, typer.Option(help="What to learn: some of inertia,armature,damping,friction.")
    ] = "inertia,damping,friction",
    prior: Annotated[
        float, typer.Option(help="Weight of the distance from the nominal inertias.", min=0)
    ] = 1e-3,
    loss: Annotated[
        Loss, typer.Option(help="Loss of the errors; huber and cauchy are for data with outliers.")
    ] = (Loss.squares),
    held_out: Annotated[
        float,
        typer.Option(
            help="Fraction of the data, at its end, that is kept for validation.", min=0.01, max=0.9
        ),
    ] = 0.25,
    window: Annotated[
        int,
        typer.Option(
            help="Length of the smoothing filter in samples, if v or a are missing.", min=5
        ),
    ] = 21,
    width: Annotated[
        float, typer.Option(help="Smoothing width of dry friction (rad/s, m/s).")
    ] = 1e-2,
    output: Annotated[
        Path | None,
        typer.Option(help="File for the fitted robot, *.urdf, or for its parameters, *.npz."),
    ] = None,
    report: Annotated[
        Path, typer.Option(help="File for the report in Markdown. Its plot is saved beside it.")
    ] = (Path("identify.md")),
    max_steps: Annotated[
        int, typer.Option(help="Limit of the solver's steps, in all rounds together.", min=1)
    ] = 500,
) -> None:
    """Fit a robot to recorded data, and write the fitted robot and a report with plots.

    Inertias stay physically consistent. The exit code is 1 if the fit does not converge.
    """
    jax.config.update("jax_enable_x64", True)
    from .. import identify as ident
    from ..model.outcome import RESULTS
    from ._report import ReportData, write

    loaded = _robots.load(robot, floating_base, jnp.float64)
    model, out = loaded.model, console()
    if output is None:
        output = Path("identified.npz" if loaded.path is None else "identified.urdf")
    if output.suffix not in (".urdf", ".npz") or (output.suffix == ".urdf" and not loaded.path):
        _robots.fail(f"cannot write {output}: choose *.npz, or *.urdf for a robot from a URDF")
    _robots.writable(output, report)
    terms = tuple(t for t in ident.TERMS if t in learn.split(","))
    if not terms or set(learn.split(",")) - set(ident.TERMS):
        _robots.fail(f"--learn {learn!r}: name some of {','.join(ident.TERMS)}")
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    try:
        records = _read(model, data, window)
        train, test = records.samples().split(1 - held_out)
    except (ValueError, OSError) as error:
        _robots.fail(str(error))
    start = _start(model, terms)
    parameters = ident.Parameters(start, *(ident.select(start, t) for t in terms))
    with out.status("compiling the fit …") as status:
        options: dict[str, Any] = {
            "prior": prior, "loss": loss.value, "width": width, "max_steps": max_steps,
            "throw": False, "progress": _progress(out, status),
        }  # fmt: skip
        fit = jax.jit(lambda d: ident.fit_torques(parameters, d, **options))(train)
        jax.block_until_ready(fit.z)
        status.update("compiling and evaluating the errors …")
        base = ident.base_parameters(model, terms)
        Y, tau = jax.jit(lambda d: ident.regression(start, d, terms, width))(train)
        excited = ident.numerical_base_parameters(np.asarray(Y), base.names, 1e-7)
        closed = None
        if excited.count == base.count and Y.shape[0] * model.nv > base.count:
            closed = ident.least_squares(base, Y, tau)
        errors = jax.jit(lambda m, d: ident.torque_error(m, d, width))
        found = ReportData(
            robot, str(data), model, fit, base, closed, terms, excited.count, train.shape[0], test,
            np.asarray(errors(model, test)), np.asarray(errors(fit.model, test)),
            np.asarray(jax.jit(lambda m: ident.predicted_torques(m, test, width))(fit.model)),
            np.asarray(ident.consistent(fit.model)),
        )  # fmt: skip
    if loaded.path is not None and output.suffix == ".urdf":
        from ..io import export_urdf

        export_urdf(fit.model, loaded.path, output)
    else:
        names = ("inertia", "armature", "damping", "friction")
        arrays: dict[str, Any] = {n: np.asarray(getattr(fit.model, n)) for n in names}
        np.savez_compressed(output, body_names=np.array(model.body_names), **arrays)
    picture = write(found, report)
    rows = [
        ("samples", f"{train.shape[0]} for the fit, {test.shape[0]} for validation"),
        ("converged", f"{'yes' if bool(fit.converged) else 'no'}, {int(fit.steps)} steps"),
        ("base parameters", f"{base.count} by structure, {excited.count} determined by the data"),
        ("inertias", "all physical" if found.physical.all() else "NOT all physical"),
        ("torque error, nominal", f"{_norm(found.before):.4g} (held out, rms)"),
        ("torque error, fitted", f"{_norm(found.after):.4g}"),
    ]
    out.print(table(f"{model.topology.name}: {', '.join(terms)}", ("", ""), rows, 2))
    for path in (output, report, picture):
        out.print(f"[green]✔[/] {path}", highlight=False)
    out.print(machine(), style="dim", highlight=False)
    if not bool(fit.converged):
        message = RESULTS[fit.result]
        _robots.fail(f"not converged. {message} Also try --max-steps, --prior or more data.", 1)


def _progress(out, status):
    """Show the step and the cost of the fit: in the status line, or else on a line at times."""
    last = time.monotonic()

    def progress(step, cost) -> None:
        nonlocal last
        text = f"fitting: step {int(step)} of this round, cost {float(cost):.6g}"
        status.update(text)
        if not out.is_terminal and time.monotonic() - last > _SILENCE:
            last = time.monotonic()
            out.print(text, style="dim", highlight=False)

    return progress


def _norm(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


def _read(model, path: Path, window: int):
    """The data. If v or a are missing, q is smoothed and differentiated."""
    from .. import identify as ident

    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"{path}: data must be .npz or .csv")
    data = ident.load_npz(model, path) if path.suffix == ".npz" else ident.load_csv(model, path)
    if data.tau is None:
        raise ValueError(f"{path}: contains no torques 'tau'")
    if data.v is not None and data.a is not None:
        return data
    if data.t is None:
        raise ValueError(
            f"{path}: contains no velocities or accelerations, and no times 't' to compute them"
        )
    lead = data.shape[:-1]
    one = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), data)
    cuts = [jax.tree.map(lambda x, k=k: x[k], one) for k in range(len(one.q))]
    parts = [
        ident.filter_and_differentiate(model, d.t, d.q, d.tau, f_ext=d.f_ext, window=window)
        for d in cuts
    ]
    return jax.tree.map(lambda *x: jnp.stack(x), *parts)


def _start(model, terms: tuple[str, ...]):
    """A robot that every chart contains: physical inertias, and learned terms that are positive."""
    import equinox as eqx

    from .. import identify as ident

    if "inertia" in terms:
        massless = jnp.all(model.inertia == 0, axis=1)
        repaired = ident.made_consistent(model).inertia
        inertia = jnp.where(massless[:, None], model.inertia, repaired)
        model = eqx.tree_at(lambda m: m.inertia, model, inertia)
    driven = np.array(model.topology.kinds)[model.topology.dof_bodies] != "free"
    for term in set(terms) & {"armature", "damping", "friction"}:
        value = getattr(model, term)
        value = jnp.where((value > 0) | ~jnp.asarray(driven), value, 1e-2)
        model = eqx.tree_at(lambda m, t=term: getattr(m, t), model, value)
    return model
