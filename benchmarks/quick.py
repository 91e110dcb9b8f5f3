"""The main tables in a few minutes: a glance at every target of the design."""

import time

from . import compile as compiling, derivatives, explicit, memory, pinocchio, scaling, second_order
from ._report import Report
from ._robots import available

ABOUT = (
    "A short run of the main benchmarks. The tables of the single commands explain the columns "
    "and have more rows. If a part could not begin within the limit, it is missing. Times are "
    "medians in µs per evaluation unless a column says otherwise."
)


def _pinocchio(report: Report, options, batch: int, robots: list[str]) -> None:
    try:
        import pinocchio as _  # noqa: F401
    except ImportError:
        print("pinocchio skipped: not installed (pip install pin)")
        return
    table = report.table(f"Against Pinocchio, one by one on one thread; batch {batch}")
    functions = {k: f for k, f in pinocchio.FUNCTIONS.items() if "raw" not in k}
    calls = min(batch, 256)
    for name in robots:
        dtypes = options.dtypes
        pinocchio.compare(table, name, dtypes, batch, options.seconds, calls, functions)


def _modes(report: Report, options, batch: int) -> None:
    table = report.table(f"Modes of differentiation; batch {batch}, Jacobians {batch // 8}")
    modes = ("jvp", "vjp", "jacfwd", "jacrev")
    batches = batch, max(1, batch // 8)
    name = "arm" if options.tiny else "chain50"
    derivatives.compare(table, name, "float64", batches, options.seconds, modes)


def _explicit(report: Report, options) -> None:
    n, name = (4, "arm") if options.tiny else (32, "chain35")
    for title, methods, last in (
        ("Derivatives of inverse dynamics", explicit.INVERSE, "a"),
        ("Derivatives of forward dynamics", explicit.FORWARD, "tau"),
    ):
        table = report.table(f"{title}; batch {n}")
        explicit.compare(table, name, "float64", n, options.seconds, methods, last)


def _second_order(report: Report, options) -> None:
    table = report.table("Second derivatives; batch 4")
    cases = {k: second_order.CASES[k] for k in ("ID tensors", "ID contracted", "∂M/∂q")}
    name = "arm" if options.tiny else "quadruped"
    second_order.compare(table, name, "float64", 4, options.seconds, cases)


def _memory(report: Report, options) -> None:
    steps, name = (20, "arm") if options.tiny else (100, "quadruped")
    table = report.table(f"Gradient of a rollout of {steps} steps")
    variants = ("rule", "rule, adjoint", "autodiff")
    memory.compare(table, name, "float64", 1, steps, options.seconds, variants)


def _scaling(report: Report, options) -> None:
    lengths = (2, 4, 8) if options.tiny else (10, 50, 250)
    scaling.measure(report, "float64", 4, options.seconds / 4, lengths)


def _compile(report: Report, options, robots: list[str]) -> None:
    name = robots[0] if robots else "chain50"
    wanted = ("inverse_dynamics", "forward_dynamics", "forward_dynamics_derivatives")
    table = report.table(f"First-call compile time of {name} (s)")
    functions = {k: compiling.FIRST_ORDER[k] for k in wanted}
    compiling.measure(table, name, "float64", functions)


def parts(report: Report, options) -> dict:
    """The parts by name, each a function that adds its tables to the report."""
    batch = options.batch or (16 if options.tiny else 512)
    robots = available(options.robots or (["ur5"] if options.tiny else ["talos", "hyq"]))
    return {
        "pinocchio": lambda: _pinocchio(report, options, batch, robots),
        "derivatives": lambda: _modes(report, options, batch),
        "explicit": lambda: _explicit(report, options),
        "compile": lambda: _compile(report, options, robots),
        "scaling": lambda: _scaling(report, options),
        "memory": lambda: _memory(report, options),
        "second_order": lambda: _second_order(report, options),
    }


def main(options) -> None:
    """Everything once, small; parts that the time does not suffice for are left out and named."""
    report = Report("quick", options, ABOUT)
    start, limit = time.perf_counter(), options.limit or 240
    seconds = {}
    for name, part in parts(report, options).items():
        begin = time.perf_counter()
        if begin - start > limit:
            print(f"{name} skipped: over {limit:.0f} s; run python -m benchmarks {name}")
            continue
        part()
        seconds[name] = time.perf_counter() - begin
        report.write()
    report.table("Seconds that the parts took").add(**seconds, all=sum(seconds.values()))
    report.write()
