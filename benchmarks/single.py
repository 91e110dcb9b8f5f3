"""One call for one state, as a control loop makes it: what the runtime's settings are worth."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ._peers.side import LOOPS
from ._report import Report
from ._robots import available

SETTINGS = {  # column -> what is set
    "as it is": (),
    "in line": ("in line",),
    "one core": ("in line", "core"),
    "without lanes": ("in line", "core", "xla"),
}
ABOUT = (
    "Time of one call for one state (median, µs), with `jax.block_until_ready`. The robot is a "
    "constant of the program; as an argument, its fifteen arrays cost 6 µs. As it is: JAX hands "
    "every program to another thread and waits for it. In line: "
    "`jax.config.update('jax_cpu_enable_async_dispatch', False)`. One core: in addition, the "
    "process has one core (`taskset -c 0`). Without lanes: in addition, XLA compiles the "
    "functions (`RBD_JAX_LANES=0`), and a loop over bodies of up to 64 kB is compiled into one "
    f"function instead of being interpreted operation by operation (`XLA_FLAGS={LOOPS}`). Each "
    "setting runs in a process of its own, one after the other. Pinocchio is called from "
    "Python, in float64."
)


def _pinocchio(name: str, seconds: float) -> dict[str, float]:
    """Median µs of Pinocchio's functions for one state; nothing if it is not installed."""
    try:
        import pinocchio  # noqa: F401
    except ImportError:
        return {}
    from rbd_jax.io import convert

    from . import pinocchio as against
    from ._pinocchio import loop
    from ._robots import States, load, states
    from ._timing import race

    theirs, model = against._theirs(name), load(name)
    s = states(model, 1)
    rows = against._convert(convert.pinocchio(model, theirs), States(*s))
    found = {}
    for label, (_, last) in against.FUNCTIONS.items():
        if "raw" not in label:
            state = (rows["q"][0], rows["v"][0], rows[last][0])
            p = loop(against._calls(label), theirs, [state])
            race(p, seconds=seconds)
            found[label] = p.median
    return found


def _here(name: str, dtype: str, seconds: float) -> dict[str, float]:
    """Median µs a call in this process, by function."""
    import jax

    import rbd_jax as rbd

    from ._robots import load, states
    from ._timing import program, race

    model = load(name, dtype)
    q, v, a, tau = (x[0] for x in states(model, 1))

    def gradient(q, v, tau):
        return jax.vjp(lambda *x: rbd.forward_dynamics(model, *x), q, v, tau)[1](v)

    cases = {
        "ID": (lambda q, v, a: rbd.inverse_dynamics(model, q, v, a), a),
        "FD": (lambda q, v, tau: rbd.forward_dynamics(model, q, v, tau), tau),
        "step": (lambda q, v, tau: rbd.step(model, q, v, tau, 1e-3), tau),
        "FD vjp": (gradient, tau),
        "ID derivatives": (lambda q, v, a: rbd.inverse_dynamics_derivatives(model, q, v, a), a),
        "FD derivatives": (lambda q, v, u: rbd.forward_dynamics_derivatives(model, q, v, u), tau),
    }
    programs = [program(k, f, q, v, last) for k, (f, last) in cases.items()]
    race(*programs, seconds=seconds)
    return {p.name: p.median for p in programs}


def _elsewhere(name: str, dtype: str, seconds: float, setting: str) -> dict[str, float]:
    """The same in a process with the setting."""
    plain = {"RBD_JAX_LANES": "0", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {LOOPS}"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.single", name, dtype, str(seconds), setting],
        env=os.environ | (plain if "xla" in SETTINGS[setting] else {}),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"single: {name}, {setting}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(options) -> None:
    """UR5, HyQ and Talos."""
    report = Report("single", options, ABOUT)
    table = report.table("One call, one state (µs)")
    names = options.robots or (["ur5"] if options.tiny else ["ur5", "hyq", "talos"])
    for name in available(names):
        theirs = _pinocchio(name, options.seconds / 4)
        for dtype in options.dtypes:
            times = {k: _elsewhere(name, dtype, options.seconds / 2, k) for k in SETTINGS}
            for label in times["as it is"]:
                cells = {k.replace(" ", "_"): t[label] for k, t in times.items()}
                pinocchio = theirs.get(label)
                table.add(robot=name, dtype=dtype, function=label, **cells, pinocchio=pinocchio)
            report.write()


if __name__ == "__main__":
    robot, precision, time_each, column = sys.argv[1:]
    if "core" in SETTINGS[column]:  # before JAX is imported: XLA sizes its thread pool by it
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", "in line" not in SETTINGS[column])
    print(json.dumps(_here(robot, precision, float(time_each))))
