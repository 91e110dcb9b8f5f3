"""``rbd-jax identify``: a robot's parameters from recorded motion and torques."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
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


class TimeUnit(StrEnum):
    """The unit of times in a file."""

    seconds = "seconds"
    milliseconds = "milliseconds"
    microseconds = "microseconds"
    nanoseconds = "nanoseconds"


_NOISY = 0.1  # A greater share of noise in a regressor is told.


def identify(
    robot: Annotated[str, typer.Argument(help=_robots.HELP)],
    data: Annotated[
        Path, typer.Argument(help="File with q, tau and, if recorded, t, v, a: .npz or .csv.")
    ],
    floating_base: Annotated[bool, typer.Option(help="Free joint at the root link.")] = False,
    learn: Annotated[
        str | None,
        typer.Option(
            help="What to learn: some of inertia,armature,damping,friction. "
            "[default: inertia,damping,friction, or inertia for a payload]",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(help="Of the inertias, learn only what this link carries, and weigh it."),
    ] = None,
    link: Annotated[
        list[str] | None, typer.Option(help="Learn only this link and its joint; may be repeated.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="Name of a column as THEIRS=OURS, as in enc1=q:elbow; may be repeated."),
    ] = None,
    degrees: Annotated[
        bool, typer.Option(help="Positions and velocities of the file are in degrees.")
    ] = False,
    time_unit: Annotated[
        TimeUnit, typer.Option(help="Unit of the times in the file.")
    ] = TimeUnit.seconds,
    units_are_right: Annotated[
        bool, typer.Option("--units-are-right", help="Do not stop at implausible numbers.")
    ] = False,
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
            help="Length of the smoothing filter in samples, if v or a are missing.", min=11
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
        Path,
        typer.Option(
            help="File for the report: *.md with a plot beside it, or *.html, which is one file."
        ),
    ] = (Path("identify.md")),
    max_steps: Annotated[
        int, typer.Option(help="Limit of the solver's steps, in all rounds together.", min=1)
    ] = 500,
) -> None:
    """Fit a robot to recorded data, and write the fitted robot and a report with plots.

    Inertias stay physically consistent. Without v and a in the data, positions alone give the
    motion, and intervals count correlated errors. The exit code is 1 if the fit does not converge.
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
    terms = _terms(learn, payload)
    for text in loaded.warnings:
        out.print(f"[yellow]warning:[/] {text}", style="dim", highlight=False)
    try:
        names = dict(_pair(text) for text in columns) if columns else None
        record = _units(_read(model, data, names), degrees, time_unit)
        if (said := ident.implausible(model, record)) and not units_are_right:
            _robots.fail(f"{data}: {'; '.join(said)} (--degrees, --time-unit, --units-are-right)")
        record = _even(model, record, out)
        start, parameters = _unknown(model, terms, payload, link)
        moving = record.v is not None and record.a is not None
        whole = record if moving else _filtered(model, data, record, window)
        train, test = whole.samples().split(1 - held_out)
    except (ValueError, KeyError, OSError) as error:
        _robots.fail(str(error.args[0] if isinstance(error, KeyError) else error))
    raw = not moving and loss is Loss.squares
    with _status(out, "compiling the fit …") as status:
        options: dict[str, Any] = {
            "prior": prior, "loss": loss.value, "width": width, "max_steps": max_steps,
            "throw": False, "progress": _progress(out, status),
        }  # fmt: skip
        base = ident.selected_base(parameters)
        excited, closed, heard = base.count, None, None
        if raw:
            cut = round((1 - held_out) * record.shape[-1])
            axis = len(record.shape) - 1
            part = jax.tree.map(lambda x: x[(slice(None),) * axis + (slice(0, cut),)], record)
            try:
                dt = _step(record)
                heard = closed = jax.jit(lambda d: ident.estimate_from_record(
                    parameters, d, base, dt=dt, window=window, width=width
                ))(part)  # fmt: skip
            except ValueError as error:
                _robots.fail(str(error))
            fit = jax.jit(lambda e: ident.fit_estimate(
                parameters, base, e, prior=prior, max_steps=max_steps, throw=False
            ))(heard)  # fmt: skip
        else:
            fit = jax.jit(lambda d: ident.fit_torques(parameters, d, **options))(train)
        jax.block_until_ready(fit.z)
        status("compiling and evaluating the errors …")
        if not raw:
            Y, tau = jax.jit(lambda d: ident.regression(start, d, terms, width))(train)
            every = ident.parameter_names(start, terms)
            places = [every.index(n) for n in base.names]
            chosen = np.asarray(Y)[..., places]
            excited = ident.numerical_base_parameters(chosen, base.names, 1e-7).count
            if excited == base.count and Y.shape[0] * model.nv > base.count:
                known = ident.linear_parameters(start, terms).at[np.array(places)].set(0)
                left = tau - jnp.einsum("nvp,p->nv", Y, known)
                closed = ident.least_squares(base, jnp.asarray(chosen), left)
        errors = jax.jit(lambda m, d: ident.torque_error(m, d, width))
        found = ReportData(
            robot, str(data), model, fit, base, closed, terms, excited, train.shape[0], test,
            np.asarray(errors(model, test)), np.asarray(errors(fit.model, test)),
            np.asarray(jax.jit(lambda m: ident.predicted_torques(m, test, width))(fit.model)),
            np.asarray(ident.consistent(fit.model)),
            ident.quantities(parameters, fit, payload), raw,
        )  # fmt: skip
    if loaded.path is not None and output.suffix == ".urdf":
        from ..io import export_urdf

        export_urdf(fit.model, loaded.path, output)
    else:
        leaves = ("inertia", "armature", "damping", "friction")
        arrays: dict[str, Any] = {n: np.asarray(getattr(fit.model, n)) for n in leaves}
        np.savez_compressed(output, body_names=np.array(model.body_names), **arrays)
    written = write(found, report)
    rows = [
        ("samples", f"{train.shape[0]} for the fit, {test.shape[0]} for validation"),
        ("converged", f"{'yes' if bool(fit.converged) else 'no'}, {int(fit.steps)} steps"),
        ("base parameters", f"{base.count} by structure, {excited} determined by the data"),
        ("inertias", "all physical" if found.physical.all() else "NOT all physical"),
        ("torque error, nominal", f"{_norm(found.before):.4g} (held out, rms)"),
        ("torque error, fitted", f"{_norm(found.after):.4g}"),
    ]
    if heard is not None:
        late, spread = float(heard.delay), float(heard.delay_deviation)
        rows.append(("torques are late by", f"{1e3 * late:.3g} ± {1.96e3 * spread:.2g} ms"))
    out.print(table(f"{model.topology.name}: {', '.join(terms)}", ("", ""), rows, 2))
    q = found.quantities
    shown = [(n, f"{x:.4g}", f"{1.96 * d:.2g}", unit) for n, unit, x, d in zip(
        q.names, q.units, np.asarray(q.values), np.asarray(q.deviation), strict=True
    )]  # fmt: skip
    out.print(table("values with 95 % intervals", ("", "value", "±", ""), shown[:40], 1))
    if heard is not None and float(heard.noise) > _NOISY:
        out.print(f"[yellow]warning:[/] {float(heard.noise):.0%} of a regressor is noise: the "
                  f"filter is short, try --window {2 * window + 1}", highlight=False)  # fmt: skip
    for path in (output, report, *written):
        out.print(f"[green]✔[/] {path}", highlight=False)
    out.print(machine(), style="dim", highlight=False)
    if not bool(fit.converged):
        message = RESULTS[fit.result]
        _robots.fail(f"not converged. {message} Also try --max-steps, --prior or more data.", 1)


def _terms(learn: str | None, payload: str | None) -> tuple[str, ...]:
    from .. import identify as ident

    wanted = learn or ("inertia" if payload else "inertia,damping,friction")
    terms = tuple(t for t in ident.TERMS if t in wanted.split(","))
    if not terms or set(wanted.split(",")) - set(ident.TERMS):
        _robots.fail(f"--learn {learn!r}: name some of {','.join(ident.TERMS)}")
    if payload and "inertia" not in terms:
        _robots.fail("--payload: the inertia of its link must be among what --learn names")
    return terms


def _unknown(model, terms: tuple[str, ...], payload: str | None, links: list[str] | None):
    """The robot to start from, and what is unknown of it."""
    from .. import identify as ident

    for name in (*([payload] if payload else []), *(links or ())):
        if name not in model.body_names:
            raise ValueError(f"no link {name!r}; there are: {', '.join(model.body_names)}")
    bodies = [payload] if payload else links
    start = _start(model, terms, bodies)
    blocks = (ident.select(start, t, bodies if t == "inertia" else links or None) for t in terms)
    return start, ident.Parameters(start, *blocks)


def _pair(text: str) -> tuple[str, str]:
    theirs, sign, ours = text.rpartition("=")
    if not sign or not theirs or not ours:
        raise ValueError(f"--columns {text!r}: expected THEIRS=OURS, as in enc1=q:elbow")
    return theirs.strip(), ours.strip()


def _units(record, degrees: bool, unit: "TimeUnit"):
    """The record in seconds and radians."""
    import equinox as eqx

    if record.t is not None and unit is not TimeUnit.seconds:
        scale = {"milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}[unit.value]
        record = eqx.tree_at(lambda d: d.t, record, scale * (record.t - record.t[..., :1]))
    if not degrees:
        return record
    turned = [k for k in ("q", "v", "a") if getattr(record, k) is not None]
    where = lambda d: [getattr(d, k) for k in turned]  # noqa: E731
    return eqx.tree_at(where, record, [jnp.deg2rad(x) for x in where(record)])


def _even(model, record, out):
    """The record at even times; says so if it had to be resampled."""
    from .. import identify as ident

    if record.t is None or len(record.shape) != 1 or (part := ident.uneven(record)) < 0.01:
        return record
    even = ident.resampled(model, record)
    out.print(f"the times are uneven, by up to {part:.2g} of a step: resampled to "
              f"{_step(even):.4g} s", highlight=False)  # fmt: skip
    return even


def _step(record) -> float:
    t = np.asarray(record.t)
    return float((t[..., -1] - t[..., 0]).mean() / (t.shape[-1] - 1))


@contextmanager
def _status(out, text: str) -> Iterator[Any]:
    """A line that tells what is being done; without a terminal, each text is a line."""
    with out.status(text) as status:
        if not out.is_terminal:
            out.print(text, style="dim", highlight=False)

        def change(text: str) -> None:
            status.update(text)
            if not out.is_terminal:
                out.print(text, style="dim", highlight=False)

        change.update = status.update  # type: ignore[attr-defined]
        yield change


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


def _read(model, path: Path, columns=None):
    """The data as the file has them."""
    from .. import identify as ident

    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"{path}: data must be .npz or .csv")
    if path.suffix == ".npz":
        if columns:
            raise ValueError(f"{path}: --columns is for .csv; rename the arrays of an .npz")
        data = ident.load_npz(model, path)
    else:
        data = ident.load_csv(model, path, columns)
    if data.tau is None:
        raise ValueError(f"{path}: contains no torques 'tau'")
    return data


def _filtered(model, path: Path, data, window: int):
    """The data with v and a from smoothed positions."""
    from .. import identify as ident

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


def _start(model, terms: tuple[str, ...], bodies: list[str] | None = None):
    """A robot that every chart contains: physical inertias, and learned terms that are positive."""
    import equinox as eqx

    from .. import identify as ident

    if "inertia" in terms:
        fixed = jnp.all(model.inertia == 0, axis=1)
        if bodies is not None:
            fixed = fixed | ~jnp.asarray([name in bodies for name in model.body_names])
        repaired = ident.made_consistent(model).inertia
        inertia = jnp.where(fixed[:, None], model.inertia, repaired)
        model = eqx.tree_at(lambda m: m.inertia, model, inertia)
    driven = np.array(model.topology.kinds)[model.topology.dof_bodies] != "free"
    for term in set(terms) & {"armature", "damping", "friction"}:
        value = getattr(model, term)
        value = jnp.where((value > 0) | ~jnp.asarray(driven), value, 1e-2)
        model = eqx.tree_at(lambda m, t=term: getattr(m, t), model, value)
    return model
