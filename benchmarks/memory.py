"""Peak memory and time of the gradient of a rollout, with the rules and without."""

import jax
import jax.numpy as jnp

import rbd_jax as rbd

from ._plots import Bars, draw
from ._report import Report, Table
from ._robots import available, load, states
from ._timing import program, race

ABOUT = (
    "Gradient of a sum of squares of all states of a rollout with respect to its controls, with "
    "semi-implicit Euler and dt 1 ms. Rule: `rbd.rollout` in each of its gradient modes. "
    "Autodiff: the same scan over `rbd.aba`, plain or with `jax.checkpoint` around the step. "
    "Temporary memory is the memory that XLA reserves (`memory_analysis().temp_size_in_bytes`). "
    "Bytes a step: how much it grows from half the steps to all steps, for one sample. Floor: q, "
    "v and one row of torques."
)


def _checkpointed(model, acceleration, t, q, v, dt):
    def step(t, q, v):
        return rbd.simulate.semi_implicit_euler(model, acceleration, t, q, v, dt)

    return jax.checkpoint(step)(t, q, v)


def _plain_rollout(model, q0, v0, controls, dt, integrator):
    """The scan of ``rbd.rollout`` with the raw algorithm."""

    def advance(state, tau):
        def acceleration(_, q, v):
            return rbd.aba(model, q, v, tau)

        new = integrator(model, acceleration, jnp.zeros_like(dt), *state, dt)
        return new, new

    _, (q, v) = jax.lax.scan(advance, (q0, v0), controls)
    return q, v


def _ruled_rollout(model, q0, v0, controls, dt, options):
    path = rbd.rollout(model, q0, v0, controls, dt, **options)
    return path.q, path.v


def _gradient(rollout, how):
    def of(model, q0, v0, controls):
        dt = jnp.asarray(1e-3, q0.dtype)

        def cost(controls):
            q, v = rollout(model, q0, v0, controls, dt, how)
            return jnp.sum(q[1:] ** 2) + 1e-2 * jnp.sum(v[1:] ** 2)

        return jax.grad(cost)(controls)

    return jax.vmap(of, in_axes=(None, 0, 0, 0))


VARIANTS = {
    "rule": (_ruled_rollout, {}),
    "rule, checkpoint every 25": (
        _ruled_rollout,
        {"gradient": "checkpoint", "checkpoint_every": 25},
    ),
    "rule, checkpoint, 2 levels": (_ruled_rollout, {"gradient": "checkpoint"}),
    "rule, checkpoint, 3 levels": (
        _ruled_rollout,
        {"gradient": "checkpoint", "checkpoint_levels": 3},
    ),
    "rule, adjoint": (_ruled_rollout, {"gradient": "adjoint"}),
    "autodiff": (_plain_rollout, rbd.simulate.semi_implicit_euler),
    "autodiff, checkpointed": (_plain_rollout, _checkpointed),
}


def compare(
    table: Table,
    name: str,
    dtype: str,
    batch: int,
    steps: int,
    seconds: float,
    variants: tuple[str, ...] = tuple(VARIANTS),
) -> None:
    """All variants for one robot and dtype."""
    model = load(name, dtype)
    s = states(model, batch)

    def inputs(steps):
        tau = jax.random.normal(jax.random.key(3), (batch, steps, model.nv))
        return model, s.q, s.v, tau.astype(model.dtype)

    full, growth = [], []
    for label in variants:
        f = _gradient(*VARIANTS[label])
        half = program(label, f, *inputs(steps // 2))
        full.append(program(label, f, *inputs(steps), per=batch * steps))
        more = full[-1].temp_bytes - half.temp_bytes
        growth.append(more / (steps - steps // 2) / batch)
    race(*full, seconds=seconds)
    floor = (model.nq + 2 * model.nv) * model.dtype.itemsize
    for p, bytes_a_step in zip(full, growth, strict=True):
        table.add(
            robot=name,
            nv=model.nv,
            dtype=dtype,
            batch=batch,
            gradient=p.name,
            temporary_MB=p.temp_bytes / 1e6,
            bytes_a_step=bytes_a_step,
            over_floor=bytes_a_step / floor,
            µs_a_step=p.median,
            compile_s=p.compile_s,
        )


def plot(report: Report, table: Table) -> None:
    """Bars of memory and of time, a group for each robot, dtype and batch."""
    key = lambda r: f"{r['robot']} {r['dtype'][-2:]}, {r['batch']}"  # noqa: E731
    groups = list(dict.fromkeys(map(key, table.rows)))
    panels = []
    for column, label in (("bytes_a_step", "bytes a step and sample"), ("µs_a_step", "µs a step")):
        value = {(r["gradient"], key(r)): r[column] for r in table.rows}
        names = dict.fromkeys(k[0] for k in value)
        series = {name: [value.get((name, g)) for g in groups] for name in names}
        panels.append(Bars("Gradient of a rollout", label, groups, series))
    draw(report, panels)


def main(options) -> None:
    """500 steps of Talos and of the quadruped."""
    report = Report("memory", options, ABOUT)
    steps = 20 if options.tiny else 500
    table = report.table(f"Gradient of a rollout of {steps} steps")
    names = options.robots or (["arm"] if options.tiny else ["talos", "quadruped"])
    for name in available(names):
        for dtype in options.dtypes:
            for batch in [options.batch] if options.batch else (1, 16):
                compare(table, name, dtype, batch, steps, options.seconds)
                report.write()
    plot(report, table)
    report.write()
