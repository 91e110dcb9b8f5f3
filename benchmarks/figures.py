"""The figures of Singh's paper: Figs. 2–7 and Table III, measured here."""

import math
import time
from functools import partial

import jax
import numpy as np

import rbd_jax as rbd

from . import baselines
from ._contest import contest
from ._plots import Bars, Lines, draw
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race
from .scaling import column, fit

ABOUT = (
    "These tables repeat Singh, §V: time per evaluation (median, µs) of the first derivatives in "
    "a batch, for trees of N revolute joints. Serial: one chain. bf: branching factor. IDSVA and "
    "FDSVA (DMM, AZA) are the functions of the library. IDSVA body is the same algorithm in body "
    "coordinates, and RNEACR, FDCR and ABACR are those of the paper's Table II. They are defined "
    "in benchmarks/baselines.py and checked against IDSVA and FDSVA in float64; the difference "
    "is the largest one over the largest entry. Pinocchio: `computeRNEADerivatives` and "
    "`computeABADerivatives`, one state at a time on one thread, float64, in releases that "
    "contain the paper's IDSVA. –: a run would have taken over 2 s, or the method is not in that "
    "figure. The paper's machine ran one evaluation at a time on one thread, compiled by Fortran "
    "and C++ compilers, so compare shapes and ratios, not times."
)
LENGTHS = (2, 5, 10, 20, 50, 100, 200, 500)
SHAPES = {"serial": "chain{}", "bf 2": "tree{}x2", "bf 5": "tree{}x5"}
LONGEST_S = 2.0
III = "50 (gcc), 80 (clang); with AVX 450, 350"
IDSVA = {"IDSVA": rbd.inverse_dynamics_derivatives}
FDSVA = {
    "DMM": partial(rbd.forward_dynamics_derivatives, method="dmm"),
    "AZA": partial(rbd.forward_dynamics_derivatives, method="aza"),
}
BY_HAND = {  # figures 2 and 3, serial chains only
    "a": {
        "IDSVA body": baselines.idsva_body,
        "RNEACR Kim": baselines.rneacr_kim,
        "RNEACR autodiff": baselines.rneacr,
    },
    "tau": {"FDCR": baselines.fdcr, "ABACR": baselines.abacr},
}
PIN = {"a": "pin ID", "tau": "pin FD"}


def _rivals(model: rbd.Model, last: str) -> list:
    """Pinocchio's derivatives, if it is there, for the same tree."""
    try:
        import pinocchio as pin

        from ._pinocchio import loop, same_tree
    except ImportError:
        return []
    call = pin.computeRNEADerivatives if last == "a" else pin.computeABADerivatives
    theirs = same_tree(model)

    def rival(s):
        arrays = (np.asarray(x, float) for x in (s.q, s.v, getattr(s, last)))
        rows = list(zip(*arrays, strict=True))
        made = loop(call, theirs, rows)
        made.name = PIN[last]
        return made

    return [rival]


class _Patience:
    """Which methods are still worth running: the time grows at least with N²."""

    def __init__(self, batch: int, end: float):
        self.batch, self.end = batch, end
        self.last: dict[str, tuple[int, float]] = {}

    def is_over(self, what: str) -> bool:
        over = time.monotonic() > self.end
        if over:
            print(f"  {what} skipped: out of time (--limit)")
        return over

    def allows(self, name: str, n: int) -> bool:
        n0, t0 = self.last.get(name, (n, 0.0))
        return t0 * (n / n0) ** 2 * self.batch * 1e-6 < LONGEST_S

    def saw(self, n: int, cells: dict[str, float]) -> None:
        self.last |= {k: (n, t) for k, t in cells.items()}


def trees(
    report: Report, shape: str, dtype: str, seconds: float, lengths, patience: _Patience, full: bool
) -> Table:
    """One row a length; ``full``: with Pinocchio, and the baselines on serial chains.

    Otherwise DMM and AZA alone, for Table III. With ``--keep`` only lengths that are missing.
    """
    batch = patience.batch
    table = report.table(f"{shape}, {dtype}, batch {batch}, µs")
    table.kept = []  # more lengths of the same tree replace none
    for row in table.rows:
        patience.saw(row["N"], {k: t for k, t in row.items() if t is not None})
    for n in lengths:
        if n in [row["N"] for row in table.rows] or patience.is_over(f"N = {n}"):
            continue
        model = load(SHAPES[shape].format(n), dtype)
        cells, differences = {}, []
        for last, ours in (("a", IDSVA), ("tau", FDSVA)) if full else (("tau", FDSVA),):
            methods = ours | (BY_HAND[last] if full and shape == "serial" else {})
            methods = {k: f for k, f in methods.items() if patience.allows(k, n)}
            rivals = _rivals(model, last) if full else []
            made, difference = contest(model, batch, seconds, methods, last, rivals)
            cells |= {p.name: p.median for p in made}
            differences += [] if difference is None else [difference]
        patience.saw(n, cells)
        table.add(N=n, **cells, difference=max(differences, default=None))
        report.write()
    return table


def _nothing(model, q, v, a):
    """Three results of the size of matrices, and a number of each leaf of the model."""
    some = sum(x.reshape(-1)[0] for x in jax.tree.leaves(model))
    return [x[:, :, None] + y[:, None, :] + some for x, y in ((q, v), (v, a), (a, q))]


def calls(report: Report, lengths, batches, seconds: float) -> None:
    """Fig. 4, small robots: what a call costs, with the robot as an argument and as a constant."""
    table = report.table(
        "Fig. 4: derivatives of ID of short chains by the size of the batch, float64, µs",
        "Constant: the robot is a constant of the program, so that its arrays are not handed over "
        "in each call. Nothing: a program with the same arguments and as many results that hardly "
        "computes, so that its time is what JAX takes for a call.",
    )
    for n in lengths:
        model = load(f"chain{n}", "float64")
        for batch in batches:
            s = states(model, batch)
            f = over_batch(rbd.inverse_dynamics_derivatives, 3)
            x = s.q, s.v, s.a
            argument = program("argument", f, model, *x, per=batch)
            constant = program("constant", partial(f, model), *x, per=batch)
            nothing = program("nothing", _nothing, model, *x, per=batch)
            less = program("nothing, constant", partial(_nothing, None), *x, per=batch)
            rivals = [rival(s) for rival in _rivals(model, "a")]
            ours = argument, constant, nothing, less
            race(*ours, *rivals, seconds=seconds)
            cells = {p.name: p.median for p in (*ours, *rivals)}
            for p in rivals:
                cells[f"{p.name} / constant"] = p.median / constant.median
            table.add(N=n, batch=batch, **cells)
        report.write()


def sparse(report: Report, lengths, batch: int, seconds: float) -> None:
    """Fig. 4, large robots: dense results, and entries without the zeros of other branches."""
    table = report.table(
        f"Fig. 4: derivatives of ID with dense and with sparse results, float64, batch {batch}, µs",
        "Sparse: `rbd.derivatives.sparse_inverse_dynamics_derivatives`. MB: of the results of one "
        "sample.",
    )
    for shape, robot in SHAPES.items():
        for n in lengths:
            model = load(robot.format(n), "float64")
            s = states(model, batch)
            x = model, s.q, s.v, s.a
            made = {
                "dense": rbd.inverse_dynamics_derivatives,
                "sparse": rbd.derivatives.sparse_inverse_dynamics_derivatives,
            }
            made = {k: program(k, over_batch(f, 3), *x, per=batch) for k, f in made.items()}
            rivals = [rival(s) for rival in _rivals(model, "a")]
            race(*made.values(), *rivals, seconds=seconds)
            dense, few = (made[k].run() for k in ("dense", "sparse"))
            rows, columns = model.topology.coupled
            baselines.check("sparse", [x[:, rows, columns] for x in dense], few)
            cells = {p.name: p.median for p in (*made.values(), *rivals)}
            for p in rivals:
                cells[f"{p.name} / sparse"] = p.median / made["sparse"].median
            sizes = {f"MB {k}": sum(y.nbytes for y in x) / batch / 1e6
                     for k, x in (("dense", dense), ("sparse", few))}  # fmt: skip
            table.add(shape=shape, N=n, **cells, **sizes)
            report.write()


def batches(report: Report, lengths, batch: int, seconds: float, patience: _Patience) -> Table:
    """Figs. 4 and 6 in a large batch: the library's derivatives of ID and FD, and Pinocchio's."""
    table = report.table(
        f"Figs. 4 and 6 in a large batch: float64, batch {batch}, µs",
        "FDSVA: `rbd.forward_dynamics_derivatives`, which chooses between DMM and AZA itself. "
        "Pinocchio takes fewer states, one at a time, because its time for one does not depend on "
        "their number.",
    )
    table.kept = []
    measured = [(row["shape"], row["N"]) for row in table.rows]
    for shape, robot in SHAPES.items():
        for n in lengths:
            if (shape, n) in measured or patience.is_over(f"{shape}, N = {n}"):
                continue
            model, cells = load(robot.format(n), "float64"), {}
            s = states(model, batch)
            few = jax.tree.map(lambda x, n=n: x[: 256 if n < 100 else 16], s)
            for last, name, f in (
                ("a", "IDSVA", rbd.inverse_dynamics_derivatives),
                ("tau", "FDSVA", rbd.forward_dynamics_derivatives),
            ):
                x = s.q, s.v, getattr(s, last)
                ours = program(name, over_batch(f, 3), model, *x, per=batch)
                theirs = [rival(few) for rival in _rivals(model, last)]
                race(ours, *theirs, seconds=seconds)
                cells |= {p.name: p.median for p in (ours, *theirs)}
                cells |= {f"{p.name} / {name}": p.median / ours.median for p in theirs}
            table.add(shape=shape, N=n, **cells)
            table.rows.sort(key=lambda row: (list(SHAPES).index(row["shape"]), row["N"]))
            report.write()
    return table


def crossover(table: Table) -> float | None:
    """The N from which AZA is faster than DMM to the end, between two rows by interpolation."""
    rows = [(r["N"], math.log(r["AZA"] / r["DMM"])) for r in table.rows if r.get("AZA")]
    slower = [i for i, (_, y) in enumerate(rows) if y >= 0]
    if not rows or slower[-1:] == [len(rows) - 1]:
        return None
    if not slower:
        return float(rows[0][0])
    (n0, y0), (n1, y1) = rows[slower[-1]], rows[slower[-1] + 1]
    return n0 * (n1 / n0) ** (y0 / (y0 - y1))


def _ahead(rows: list[dict], fast: str, *slow: str) -> str:
    """Where ``fast`` is faster than every one of ``slow``, in words."""
    behind = [
        str(row["N"])
        for row in rows
        if row.get(fast) and row[fast] >= min(row.get(k) or math.inf for k in slow)
    ]
    return f"all but {', '.join(behind)}" if behind else "all"


def beside(report: Report, tables: dict[str, Table], large: Table) -> None:
    """What the paper states in numbers, and the same from the tables of this file."""
    table = report.table(
        "The paper's numbers and ours",
        "The paper compares with Pinocchio 2.6.0, before IDSVA was in it; Pinocchio here has it. "
        "Table II in `singh` compares with the algorithm of 2.6.0.",
    )
    table.kept, table.rows = [], []
    serial = tables["serial"]
    last = {row["N"]: row for row in serial.rows}
    if 100 in last:
        speedup = last[100]["RNEACR Kim"] / last[100]["IDSVA"]
        table.add(figure="2", what="RNEACR / IDSVA, serial, N = 100", paper="15", ours=speedup)
    fdcr = _ahead(serial.rows, "DMM", "FDCR", "ABACR")
    table.add(figure="2", what="N with FDSVA ahead of FDCR and ABACR", paper="all", ours=fdcr)
    frames = [r["IDSVA body"] / r["IDSVA"] for r in serial.rows if r.get("IDSVA body")]
    span = f"{min(frames):.2g} to {max(frames):.2g}"
    what = "body / ground frames, all N"
    table.add(figure="3", what=what, paper="1.3 to 1.9", ours=span)
    for shape, some in tables.items():
        big = [row for row in large.rows if row["shape"] == shape]
        for figure, ours, mine, theirs in (
            ("4", "IDSVA", "IDSVA", "pin ID"),
            ("6", "DMM", "FDSVA", "pin FD"),
        ):
            for batch, rows, f in ((_batch(some), some.rows, ours), (_batch(large), big, mine)):
                what = f"N with {mine} ahead of Pinocchio, {shape}, batch {batch}"
                table.add(figure=figure, what=what, paper="all", ours=_ahead(rows, f, theirs))
    for shape, some in tables.items():
        rows = [r for r in some.rows if r.get("AZA")][-3:]
        n, gain = (np.log([f(r) for r in rows]) for f in (lambda r: r["N"], _gain))
        slope = float(np.polyfit(n, gain, 1)[0]) if len(rows) == 3 else None
        what = f"slope of log(DMM / AZA) over log N, {shape}, last three N"
        table.add(figure="7", what=what, paper="1", ours=slope)
    report.write()


def _gain(row: dict) -> float:
    return row["DMM"] / row["AZA"]


def _batch(table: Table) -> str:
    return table.title.split("batch ")[1].split(",")[0]


def robots(report: Report, names: list[str], dtype: str, batch: int, seconds: float) -> Table:
    """Figure 5: fixed and floating real robots, with multi-DoF joints."""
    from . import pinocchio

    title = f"Robots (Fig. 5; no model of Atlas at hand), {dtype}, batch {batch}"
    table = report.table(title + ", against Pinocchio")
    functions = {k: f for k, f in pinocchio.FUNCTIONS.items() if "derivatives" in k}
    table.kept = []
    for name in available([n for n in names if n not in [row["robot"] for row in table.rows]]):
        pinocchio.compare(table, name, [dtype], batch, seconds, min(batch, 256), functions)
        report.write()
    return table


def _at(lengths: list[int], table: Table, name: str) -> list[float | None]:
    """A column at these N; a table may have fewer rows, if the time ran out."""
    found = dict(zip(column(table, "N"), column(table, name), strict=True))
    return [found.get(n) for n in lengths]


def _over(lengths: list[int], table: Table, slow: str, fast: str) -> list[float | None]:
    pairs = zip(_at(lengths, table, slow), _at(lengths, table, fast), strict=True)
    return [x / y if x and y else None for x, y in pairs]


def _plot(report: Report, tables: dict[str, Table], real: Table | None) -> None:
    serial = tables["serial"]
    n, y, x = column(serial, "N"), "µs per evaluation", "degrees of freedom N"
    chain_rule = [
        ("RNEACR Kim", "IDSVA"),
        ("RNEACR autodiff", "IDSVA"),
        ("FDCR", "DMM"),
        ("ABACR", "DMM"),
    ]
    ratio = {f"{a} / {b}": _over(n, serial, a, b) for a, b in chain_rule}
    inverse = {k: column(serial, k) for k in ("IDSVA", "RNEACR Kim", "RNEACR autodiff")}
    forward = {k: column(serial, k) for k in ("DMM", "AZA", "FDCR", "ABACR")}
    frames = {"body / ground": _over(n, serial, "IDSVA body", "IDSVA")}
    panels: list[Lines | Bars] = [
        Lines("Fig. 2: derivatives of ID", x, y, n, inverse, (1, 2)),
        Lines("Fig. 2: derivatives of FD", x, y, n, forward, (1, 2)),
        Lines("Fig. 2: speed-up over the chain rule", x, "ratio", n, ratio, level=1),
        Lines("Fig. 3: IDSVA in body over ground frames", x, "ratio", n, frames, level=1),
    ]
    for figure, what, ours, theirs in (
        ("Fig. 4", "ID", "IDSVA", "pin ID"),
        ("Fig. 6", "FD", "DMM", "pin FD"),
    ):
        series = {f"{ours}, {k}": _at(n, t, ours) for k, t in tables.items()}
        series |= {f"{theirs}, {k}": _at(n, t, theirs) for k, t in tables.items()}
        panels.append(Lines(f"{figure}: derivatives of {what}, Pinocchio", x, y, n, series))
        ratio = {k: _over(n, t, theirs, ours) for k, t in tables.items()}
        panels.append(Lines(f"{figure}: Pinocchio over ours", x, "ratio", n, ratio, level=1))
    ratio = {k: _over(n, t, "DMM", "AZA") for k, t in tables.items()}
    panels.append(Lines("Fig. 7: DMM over AZA", x, "ratio", n, ratio, level=1))
    if real and real.rows:
        groups = list(dict.fromkeys(r["robot"] for r in real.rows))
        value = {(r["function"], r["robot"]): 1 / r["ratio"] for r in real.rows}
        series = {
            f: [value.get((f, g)) for g in groups] for f in dict.fromkeys(k[0] for k in value)
        }
        panels.append(Bars("Fig. 5: Pinocchio over ours", "ratio", groups, series, level=1))
    draw(report, panels)


def main(options) -> None:
    """All trees in the first dtype with all methods; in the others DMM and AZA, for Table III."""
    report = Report("figures", options, ABOUT)
    batch = options.batch or (2 if options.tiny else 4)
    lengths = (2, 4) if options.tiny else LENGTHS
    seconds = min(options.seconds, 0.3)
    first, *others = options.dtypes
    end = time.monotonic() + (options.limit or 900)

    def measure(shape: str, dtype: str, full: bool) -> Table:
        patience, some = _Patience(batch, end), lengths if full else lengths[-6:]
        return trees(report, shape, dtype, seconds, some, patience, full)

    tables = {s: measure(s, first, full=True) for s in SHAPES}
    calls(report, lengths[:2], (2,) if options.tiny else (4, 64, 1024), seconds)
    sparse(report, (4,) if options.tiny else (100, 500), batch, seconds)
    many = 2 * batch if options.tiny else 1024
    large = batches(report, lengths, many, seconds, _Patience(many, end))
    real = None
    if _rivals(load("chain2"), "a"):
        names = options.robots or (["ur3"] if options.tiny else ["ur3", "baxter", "hyq", "talos"])
        real = robots(report, names, first, options.batch or (4 if options.tiny else 128), seconds)
    for shape, table in tables.items():
        names = [k for k in table.columns if k not in ("N", "difference")]
        fit(report, f"Slopes, {shape}, {first}", table, names)
    every = {(shape, first): table for shape, table in tables.items()}
    for dtype in others:
        for shape in SHAPES:
            every[shape, dtype] = measure(shape, dtype, full=False)
    crossings = report.table(
        f"Table III: N from which AZA is faster than DMM, batch {batch}",
        "–: DMM is faster up to the largest N. The paper varies compilers, this table dtypes.",
    )
    crossings.kept, crossings.rows = [], []
    for (shape, dtype), table in every.items():
        if table.rows:
            largest = table.rows[-1]["N"]
            found = crossover(table)
            crossings.add(shape=shape, dtype=dtype, largest_N=largest, crossover_N=found, paper=III)
    beside(report, tables, large)
    _plot(report, tables, real)
    report.write()
