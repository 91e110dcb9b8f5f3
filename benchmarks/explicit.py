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
    "checked against IDSVA and FDSVA before anything is timed; difference is the largest relative "
    "one. All methods of a row take turns; in brackets, the time over that of the first method."
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
    difference = baselines.check(load(name)) if dtype == "float64" else None
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
