"""Every mode of differentiation of the ruled functions against plain autodiff, side by side."""

from functools import partial

import equinox as eqx
import jax

import rbd_jax as rbd

from ._plots import Bars, draw
from ._report import Report, Table
from ._robots import available, directions, load, over_batch, states
from ._timing import program, race, ratio

ABOUT = (
    "Time per evaluation (median, µs). Derivatives are with respect to (q, v, a) or (q, v, τ). "
    "Rule: `rbd.inverse_dynamics`, `rbd.forward_dynamics`. Autodiff: the same mode of "
    "`rbd.rnea`, `rbd.aba`. Explicit: `rbd.inverse_dynamics_derivatives`, "
    "`rbd.forward_dynamics_derivatives`. `vjp inertia` also differentiates with respect to all "
    "inertial parameters. The speed-up is the time of autodiff over the time of the rule, once "
    "with medians and once with the shortest times. The column over explicit is the time of the "
    "rule over the time of the explicit function. The programs of a row take turns."
)
FUNCTIONS = {
    "ID": (rbd.inverse_dynamics, rbd.rnea, rbd.inverse_dynamics_derivatives, "a"),
    "FD": (rbd.forward_dynamics, rbd.aba, rbd.forward_dynamics_derivatives, "tau"),
}
ROBOTS = ["arm", "quadruped", "chain35", "talos", "chain50", "chain100"]
GRADIENTS, JACOBIANS = ("jvp", "vjp", "vjp inertia"), ("jacfwd", "jacrev")


def _jvp(f):
    return lambda m, q, v, u, dq, dv, du: jax.jvp(partial(f, m), (q, v, u), (dq, dv, du))


def _vjp(f):
    def both(m, q, v, u, ct):
        y, pull = jax.vjp(partial(f, m), q, v, u)
        return y, pull(ct)

    return both


def _vjp_inertia(f):
    def both(m, q, v, u, ct):
        def of(inertia, q, v, u):
            return f(eqx.tree_at(lambda m: m.inertia, m, inertia), q, v, u)

        y, pull = jax.vjp(of, m.inertia, q, v, u)
        return y, pull(ct)

    return both


def _jacobian(transform):
    return lambda f: lambda m, q, v, u: transform(partial(f, m), (0, 1, 2))(q, v, u)


MODES = {  # mode -> (transformation, how many arguments after the model)
    "jvp": (_jvp, 6),
    "vjp": (_vjp, 4),
    "vjp inertia": (_vjp_inertia, 4),
    "jacfwd": (_jacobian(jax.jacfwd), 3),
    "jacrev": (_jacobian(jax.jacrev), 3),
}


def compare(table: Table, name: str, dtype: str, batches: tuple[int, int], seconds: float, modes):
    """Fill the table with one robot and dtype."""
    model = load(name, dtype)
    for label, (ruled, raw, explicit, last) in FUNCTIONS.items():
        for mode in modes:
            batch = batches[mode in JACOBIANS]
            s, d = states(model, batch), directions(model, batch)
            inputs = s.q, s.v, getattr(s, last)
            extra = {"jvp": (d.q, d.v, d.a)}.get(mode, (d.tau,) if "vjp" in mode else ())
            transform, n = MODES[mode]

            def make(what, f, n, *arguments):
                return program(what, over_batch(f, n), model, *arguments, per=len(arguments[0]))

            rule = make("rule", transform(ruled), n, *inputs, *extra)
            plain = make("autodiff", transform(raw), n, *inputs, *extra)
            full = make("explicit", explicit, 3, *inputs) if mode in JACOBIANS else None
            race(*[p for p in (rule, plain, full) if p], seconds=seconds)
            table.add(
                robot=name,
                nv=model.nv,
                function=label,
                dtype=dtype,
                mode=mode,
                rule=rule.median,
                autodiff=plain.median,
                speed_up=ratio(plain, rule),
                speed_up_of_minima=plain.best / rule.best,
                explicit=full and full.median,
                over_explicit=full and ratio(rule, full),
                compile_s=rule.compile_s,
                compile_autodiff_s=plain.compile_s,
            )


def plot(report: Report, table: Table) -> None:
    """Bars of the speed-ups, one panel a function."""
    panels = []
    for label, dtype in dict.fromkeys((r["function"], r["dtype"]) for r in table.rows):
        rows = [r for r in table.rows if (r["function"], r["dtype"]) == (label, dtype)]
        values = {(r["robot"], r["mode"]): r["speed_up"] for r in rows}
        robots, modes = (list(dict.fromkeys(k[i] for k in values)) for i in (0, 1))
        series = {m: [values.get((r, m)) for r in robots] for m in modes}
        title = f"{label}: autodiff over the rule, {dtype}"
        panels.append(Bars(title, "speed-up", robots, series, level=1))
    draw(report, panels)


def main(options) -> None:
    """From 7 to 100 degrees of freedom, both dtypes."""
    report = Report("derivatives", options, ABOUT)
    gradient = options.batch or (8 if options.tiny else 512)
    batches = gradient, max(1, gradient // 4)
    title = f"Modes of differentiation, batch {batches[0]}, Jacobians {batches[1]}"
    table = report.table(title)
    names = options.robots or (["arm"] if options.tiny else ROBOTS)
    for name in available(names):
        for dtype in options.dtypes:
            compare(table, name, dtype, batches, options.seconds, GRADIENTS + JACOBIANS)
            report.write()
    plot(report, table)
    report.write()
