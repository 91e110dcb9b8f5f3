"""The explicit derivatives, IDSVA and FDSVA, against the baselines of Singh, Table II."""

from functools import partial

import rbd_jax as rbd

from . import baselines
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import Program, program, race

ABOUT = (
    "Time per evaluation (median, µs) of ∂ID/∂(q, v) and ∂FD/∂(q, v) in the tangent space. IDSVA "
    "and FDSVA also return M and M⁻¹. The baselines are defined in benchmarks/baselines.py, and "
    "every float64 row checks them against IDSVA and FDSVA. The difference is the largest one "
    "over the largest entry. All methods of a row take turns. The speed-up is the time of the "
    "fastest baseline over the time in the first column."
)
INVERSE = {
    "IDSVA": rbd.inverse_dynamics_derivatives,
    "RNEACR (Kim, Table 5)": baselines.rneacr_kim,
    "RNEACR (autodiff)": baselines.rneacr,
}
FORWARD = {
    "FDSVA, DMM": rbd.forward_dynamics_derivatives,
    "FDSVA, AZA": partial(rbd.forward_dynamics_derivatives, method="aza"),
    "FDCR": baselines.fdcr,
    "ABACR": baselines.abacr,
}
ROBOTS = ["arm", "hyq", "chain35", "talos", "chain50", "chain100"]


def contest(
    model: rbd.Model, batch: int, seconds: float, methods: dict, last: str, rivals=()
) -> tuple[list[Program], float | None]:
    """All methods for one robot, after a race, and the largest difference (float64 only).

    Rivals are made by ``rival(states)`` and join the race, not the check.
    """
    s = states(model, batch)
    inputs = s.q, s.v, getattr(s, last)
    made = [program(n, over_batch(f, 3), model, *inputs, per=batch) for n, f in methods.items()]
    others = [rival(s) for rival in rivals]
    race(*made, *others, seconds=seconds)
    difference = None
    if model.dtype == "float64" and len(made) > 1:
        results = [p.run() for p in made]
        rest = zip(made[1:], results[1:], strict=True)
        difference = max(baselines.check(p.name, results[0], x) for p, x in rest)
    return made + others, difference


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float, methods: dict, last):
    """One row: all methods for one robot and dtype."""
    model = load(name, dtype)
    made, difference = contest(model, batch, seconds, methods, last)
    cells = {p.name: p.median for p in made}
    theirs = min(x for k, x in cells.items() if "SVA" not in k)
    speed_up = theirs / made[0].median
    row = {"robot": name, "nv": model.nv, "dtype": dtype} | cells
    table.add(**row, speed_up=speed_up, difference=difference)


def main(options) -> None:
    """Arms, legged robots and chains."""
    report = Report("explicit", options, ABOUT)
    batch = options.batch or (4 if options.tiny else 128)
    names = available(options.robots or (["arm"] if options.tiny else ROBOTS))
    for title, methods, last in (
        ("Derivatives of inverse dynamics", INVERSE, "a"),
        ("Derivatives of forward dynamics", FORWARD, "tau"),
    ):
        table = report.table(f"{title}, batch {batch}")
        for name in names:
            for dtype in options.dtypes:
                compare(table, name, dtype, batch, options.seconds, methods, last)
                report.write()
