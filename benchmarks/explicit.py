"""The explicit derivatives, IDSVA and FDSVA, against the baselines of Singh, Table II."""

from functools import partial

import rbd_jax as rbd

from . import baselines
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import program, race

ABOUT = (
    "Time per evaluation (median, µs) of ∂ID/∂(q, v) and ∂FD/∂(q, v) in the tangent space. IDSVA "
    "and FDSVA also return M and M⁻¹. The baselines are defined in benchmarks/baselines.py and are "
    "checked against IDSVA and FDSVA in every float64 row; difference is the largest one over the "
    "largest entry. All methods of a row take turns; in brackets, the time over the first method's."
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


def compare(table: Table, name: str, dtype: str, batch: int, seconds: float, methods: dict, last):
    """One row: all methods for one robot and dtype."""
    model = load(name, dtype)
    s = states(model, batch)
    inputs = s.q, s.v, getattr(s, last)
    made = [program(n, over_batch(f, 3), model, *inputs, per=batch) for n, f in methods.items()]
    race(*made, seconds=seconds)
    cells = {p.name: f"{p.median:.3g} ({p.median / made[0].median:.2f})" for p in made}
    difference = None
    if dtype == "float64":
        results = [p.run() for p in made]
        rest = zip(made[1:], results[1:], strict=True)
        difference = max(baselines.check(p.name, results[0], x) for p, x in rest)
    table.add(robot=name, nv=model.nv, dtype=dtype, **cells, difference=difference)


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
