"""Dynamics and first derivatives of real robots against Pinocchio, called one state at a time."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.io import convert
from rbd_jax.lanes import enabled

from ._limit import flops, peak
from ._pinocchio import call_overhead, loop
from ._plots import Bars, draw
from ._report import Report, Table
from ._robots import FILES, States, available, load, over_batch, states
from ._timing import program, race, ratio

ABOUT = (
    "Time per evaluation (median, µs). rbd_jax runs one `jax.jit(jax.vmap(f))` over the batch, "
    "and the model is an argument. It runs on all cores, or on one core with `--cores 1`, which "
    "writes `pinocchio_one_core`. The C++ functions of Pinocchio are called from Python for "
    "different states, one by one, on one thread, in float64. The call from Python is part of "
    "the time, and the overhead column bounds it: it is `pin.rnea` of a one-joint robot. If the "
    "ratio is below 1, rbd_jax is faster. The error is the median over the states of |rbd_jax − "
    "Pinocchio| / |Pinocchio|; for derivatives it is the error of M or its inverse. Both get the "
    "same states, rounded to float32. The limit is the number of floating-point operations of the "
    "compiled code (`_limit.py`) over the peak of the cores, which is measured in the same run "
    "with products and sums that stay in registers. The last column is the part of the peak that "
    "rbd_jax reaches."
)
FUNCTIONS = {  # label -> (function, last argument)
    "ID": (rbd.inverse_dynamics, "a"),
    "FD": (rbd.forward_dynamics, "tau"),
    "ID derivatives": (rbd.inverse_dynamics_derivatives, "a"),
    "FD derivatives": (rbd.forward_dynamics_derivatives, "tau"),
}


def _theirs(name: str):
    import pinocchio as pin

    file, floating = FILES[name]
    root = (pin.JointModelFreeFlyer(),) if floating else ()
    return pin.buildModelFromUrdf(str(rbd.example_robot(file)), *root)


def _calls(label: str):
    import pinocchio as pin

    return {
        "ID": pin.rnea,
        "FD": pin.aba,
        "ID derivatives": pin.computeRNEADerivatives,
        "FD derivatives": pin.computeABADerivatives,
    }[label]


def _convert(layout, s: States) -> dict[str, list]:
    def one(q, v, a, tau):
        a, tau = layout.a_to(q, v, a), layout.tau_to(q, tau)
        return layout.q_to(q), layout.v_to(q, v), a, tau

    q, v, a, tau = (np.asarray(x) for x in jax.jit(jax.vmap(one))(*s))
    return {"q": list(q), "v": list(v), "a": list(a), "tau": list(tau)}


def _error(layout, s: States, label: str, ours, call, model, rows) -> float:
    """Median relative difference of values; of derivatives, of M or its inverse alone."""
    data, found = model.createData(), []
    for i, row in enumerate(rows[:64]):
        theirs = call(model, data, *row)
        q, v = s.q[i], s.v[i]
        if "derivatives" in label:
            x = layout.mass_matrix_to(q, jnp.asarray(ours[2][i], jnp.float64))
            theirs = np.array(theirs[2])
            theirs = np.triu(theirs) + np.triu(theirs, 1).T
        elif label.startswith("ID"):
            x = layout.tau_to(q, jnp.asarray(ours[i], jnp.float64))
        else:
            x = layout.a_to(q, v, jnp.asarray(ours[i], jnp.float64))
        found.append(np.linalg.norm(x - theirs) / np.linalg.norm(theirs))
    return float(np.median(found))


def compare(
    table: Table,
    name: str,
    dtypes: list[str],
    batch: int,
    seconds: float,
    calls: int,
    functions: dict = FUNCTIONS,
) -> None:
    """Fill the table with one robot, all dtypes against Pinocchio in one race a function."""
    theirs = _theirs(name)
    overhead = call_overhead()
    peaks = {dtype: peak(dtype) for dtype in dtypes} if enabled("cpu") else {}
    models = {}
    for dtype in dtypes:
        m = load(name, dtype)  # Pinocchio's dynamics have no damping
        models[dtype] = eqx.tree_at(lambda m: m.damping, m, jnp.zeros_like(m.damping))
    double = load(name, "float64")
    layout = convert.pinocchio(double, theirs)
    exact = states(double, batch)
    rows = _convert(layout, States(*(x[:calls] for x in exact)))
    for label, (function, last) in functions.items():
        arguments = list(zip(rows["q"], rows["v"], rows[last], strict=True))
        call = _calls(label)
        rival = loop(call, theirs, arguments)
        ours = {}
        batched = over_batch(function, 3)
        operations = {}
        for dtype, m in models.items():
            s = states(m, batch)
            inputs = s.q, s.v, getattr(s, last)
            operations[dtype] = flops(batched, m, *inputs) if enabled("cpu") else None
            ours[dtype] = program(dtype, batched, m, *inputs, per=batch)
        race(rival, *ours.values(), seconds=seconds)
        for dtype, p in ours.items():
            error = _error(layout, exact, label, p.run(), call, theirs, arguments)
            count = operations[dtype]
            limit = count and 1e6 * count / (peaks[dtype] * len(os.sched_getaffinity(0)))
            table.add(
                robot=name,
                nv=double.nv,
                function=label,
                dtype=dtype,
                rbd_jax=p.median,
                pinocchio=rival.median,
                ratio=ratio(p, rival),
                ratio_of_minima=p.best / rival.best,
                error=error,
                compile_s=p.compile_s,
                pin_overhead=overhead,
                flops=count,
                limit=limit,
                of_peak=limit and limit / p.median,
            )


def plot(report: Report, table: Table) -> None:
    """Bars of the ratios, one panel a dtype."""
    panels = []
    for dtype in dict.fromkeys(r["dtype"] for r in table.rows):
        rows = [r for r in table.rows if r["dtype"] == dtype]
        ratios = {(r["robot"], r["function"]): r["ratio"] for r in rows}
        robots, functions = (list(dict.fromkeys(k[i] for k in ratios)) for i in (0, 1))
        series = {f: [ratios.get((r, f)) for r in robots] for f in functions}
        panels.append(Bars(f"Time over Pinocchio's, {dtype}", "ratio", robots, series, level=1))
    draw(report, panels)


def main(options) -> None:
    """Talos, HyQ, UR5 and Panda."""
    try:
        import pinocchio  # noqa: F401
    except ImportError:
        print("pinocchio skipped: not installed (pip install pin)")
        return
    report = Report(name(), options, ABOUT)
    table = measure(report, options)
    plot(report, table)
    report.write()


def name() -> str:
    """The name of the table for so many cores."""
    return "pinocchio" if len(os.sched_getaffinity(0)) > 1 else "pinocchio_one_core"


def measure(report: Report, options) -> Table:
    """All robots and functions."""
    cores = len(os.sched_getaffinity(0))
    batch = options.batch or (16 if options.tiny else 1024)
    table = report.table(f"Against Pinocchio, batch {batch}, cores: {cores}")
    robots = options.robots or (["ur5"] if options.tiny else ["talos", "hyq", "ur5", "panda"])
    for robot in available(robots):
        compare(table, robot, options.dtypes, batch, options.seconds, min(batch, 256))
    return table
