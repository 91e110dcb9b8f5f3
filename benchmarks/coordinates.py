"""Mimic joints that follow others, in lanes: against the robot with all joints independent."""

from functools import partial

import jax

import rbd_jax as rbd
from rbd_jax.model import with_mimics

from ._report import Report
from ._robots import available, load, states
from ._timing import program, race, ratio

ABOUT = (
    "Time per evaluation (median, µs) in one `jax.jit(jax.vmap(f))` over the batch, of robots "
    "whose mimic joints follow others (`driven`) and of the same robots with all joints "
    "independent (`free`), in turns. Run this benchmark on one core."
)


def _gradient(model, q, v, tau):
    return jax.vjp(partial(rbd.forward_dynamics, model), q, v, tau)[1](tau)


FUNCTIONS = {
    "inverse dynamics": rbd.inverse_dynamics,
    "mass matrix": lambda m, q, v, tau: rbd.mass_matrix(m, q),
    "forward dynamics": rbd.forward_dynamics,
    "vjp of forward dynamics": _gradient,
    "derivatives of ID": rbd.inverse_dynamics_derivatives,
    "derivatives of FD": rbd.forward_dynamics_derivatives,
}


def main(options) -> None:
    """Talos and Baxter."""
    report = Report("coordinates", options, ABOUT)
    batch = options.batch or (16 if options.tiny else 1024)
    table = report.table(f"Mimic joints, batch {batch}")
    for name in available(options.robots or ["talos", "baxter"]):
        for dtype in options.dtypes:
            free = load(name, dtype)
            driven = with_mimics(free)
            if driven is free:
                print(f"  {name} skipped: it has no mimic joints")
                continue
            for label, function in FUNCTIONS.items():
                both = []
                for m in (free, driven):
                    s = states(m, batch)
                    f = jax.vmap(function, (None, 0, 0, 0))
                    both.append(program(label, f, m, s.q, s.v, s.tau, per=batch))
                race(*both, seconds=options.seconds)
                table.add(
                    robot=name,
                    function=label,
                    dtype=dtype,
                    joints=free.nv,
                    independent=driven.nv,
                    free=both[0].median,
                    driven=both[1].median,
                    over_free=ratio(both[1], both[0]),
                    compile_s=both[1].compile_s,
                )
    report.write()
