"""Dynamics under constraints in lanes: against the unconstrained, and against Pinocchio."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd

from ._pinocchio import loop
from ._report import Report
from ._robots import FILES, available, load, states
from ._timing import program, race, ratio
from .pinocchio import _convert, _theirs

ABOUT = (
    "Time per evaluation (median, µs) of a quadruped on four feet, in one `jax.jit(jax.vmap(f))` "
    "over the batch. `over free` is the time over the time of the same function without "
    "constraints. Pinocchio: `constraintDynamics` and `computeConstraintDynamicsDerivatives`, "
    "called one by one on one thread in float64. If the ratio is below 1, rbd_jax is faster. Run "
    "this benchmark on one core."
)
FEET = {"hyq": ("lf_foot", "rf_foot", "lh_foot", "rh_foot")}


def _set(model, name: str):
    points = (rbd.constraints.point(model, foot) for foot in FEET[name])
    return rbd.constraints.join(*points)


def _calls(theirs, name: str, derivatives: bool):
    """Pinocchio's function of (model, data, q, v, tau)."""
    import pinocchio as pin

    models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for foot in FEET[name]:
        frame = theirs.frames[theirs.getFrameId(foot)]
        kind, axes = pin.ContactType.CONTACT_3D, pin.LOCAL_WORLD_ALIGNED
        args = kind, theirs, frame.parentJoint, frame.placement, axes
        models.append(pin.RigidConstraintModel(*args))
    for m in models:
        datas.append(m.createData())
    settings = pin.ProximalSettings(1e-12, 0.0, 1)
    started = []

    def call(model, data, q, v, tau):
        if not started:
            pin.initConstraintDynamics(model, data, models, datas)
            started.append(True)
        pin.constraintDynamics(model, data, q, v, tau, models, datas, settings)
        if derivatives:
            pin.computeConstraintDynamicsDerivatives(model, data, models, datas)

    return call


def main(options) -> None:
    """HyQ."""
    report = Report("constraints", options, ABOUT)
    batch = options.batch or (16 if options.tiny else 1024)
    table = report.table(f"Four feet, batch {batch}")
    for name in available(options.robots or ["hyq"]):
        if name not in FEET:
            continue
        double, theirs = load(name, "float64"), _theirs(name)
        layout = rbd.convert.pinocchio(double, theirs)
        exact = states(double, batch)
        rows = _convert(layout, type(exact)(*(x[: min(batch, 256)] for x in exact)))
        arguments = list(zip(rows["q"], rows["v"], rows["tau"], strict=True))
        for dtype in options.dtypes:
            m = load(name, dtype)
            m = eqx.tree_at(lambda m: m.damping, m, jnp.zeros_like(m.damping))
            s, c = states(m, batch), _set(m, name)
            pairs = (
                ("dynamics", rbd.forward_dynamics, rbd.constrained_dynamics),
                (
                    "derivatives",
                    rbd.forward_dynamics_derivatives,
                    rbd.constrained_dynamics_derivatives,
                ),
            )
            for label, free, tied in pairs:
                over = jax.vmap(free, (None, 0, 0, 0))
                under = jax.vmap(tied, (None, 0, 0, 0, None))
                a = program("free", over, m, s.q, s.v, s.tau, per=batch)
                b = program("tied", under, m, s.q, s.v, s.tau, c, per=batch)
                rival = loop(_calls(theirs, name, label == "derivatives"), theirs, arguments)
                race(a, b, rival, seconds=options.seconds)
                table.add(
                    robot=name,
                    file=FILES[name][0],
                    function=label,
                    dtype=dtype,
                    free=a.median,
                    tied=b.median,
                    over_free=ratio(b, a),
                    pinocchio=rival.median,
                    over_pinocchio=ratio(b, rival),
                    compile_s=b.compile_s,
                    finite=bool(np.isfinite(np.asarray(jax.tree.leaves(b.run())[0])).all()),
                )
    report.write()
