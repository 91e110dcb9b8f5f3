"""The memory that the gradient of a rollout on the ground takes, in each gradient mode."""

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax.lanes import report as kernels_of

from ._ground import QUADRUPED
from ._report import Report
from ._timing import program

ABOUT = (
    "The gradient of the last configuration of a rollout with respect to its controls, for a "
    "quadruped of 18 degrees of freedom that stands on the ground on four feet. This benchmark "
    "does not measure time."
)
ALONE = (
    "Temporary memory is what XLA reserves for the compiled gradient "
    "(`memory_analysis().temp_size_in_bytes`). Bytes a step tell how much it grows from half the "
    "steps to all of them. Slope is the largest entry of the gradient. For one sample, lanes spend "
    "up to 64 MiB on computing the steps of a long loop side by side, also where the mode alone "
    "would compute them one after the other. A loop that would need more is not taken apart."
)
BATCH = (
    "Memory of one sample of a batch, for which loops are not taken apart. It is the scratch "
    "memory of the largest kernel over the samples that this kernel computes at a time "
    "(`rbd_jax.lanes.report`), and the arrays that pass between the kernels."
)
SAMPLES = 8
MODES = ("full", "checkpoint", "adjoint")


def main(options) -> None:
    """Both precisions, three gradient modes."""
    report = Report("contact_memory", options, ABOUT)
    lengths = (20, 40) if options.tiny else (100, 1000)
    batch, alone = report.table("A sample of a batch"), report.table("One sample alone")
    alone.notes, batch.notes = ALONE, BATCH
    for dtype in options.dtypes:
        for steps in lengths[1:]:
            for mode in MODES:
                in_batch(batch, dtype, steps, mode)
                report.write()
    for dtype in options.dtypes:
        for steps in lengths:
            for mode in MODES:
                by_itself(alone, dtype, steps, mode)
                report.write()


def gradient(dtype: str, mode: str):
    """The gradient as a function of the controls, and the controls of one step."""
    scene = rbd.load_mjcf(QUADRUPED, dtype)
    start = next(iter(scene.keyframes.values()))

    def cost(controls):
        path = rbd.rollout(scene, start.q, start.v, controls, scene.dt, gradient=mode)
        return jnp.sum(path.q[-1] ** 2)

    return jax.grad(cost), start.controls


def by_itself(table, dtype: str, steps: int, mode: str) -> None:
    """One sample, by XLA's account."""
    f, row = gradient(dtype, mode)
    half, full = (program(mode, f, jnp.tile(row, (n, 1))) for n in (steps // 2, steps))
    table.add(robot="quadruped", dtype=dtype, steps=steps, gradient=mode,
              temporary_MB=full.temp_bytes / 1e6,
              bytes_a_step=(full.temp_bytes - half.temp_bytes) / (steps - steps // 2),
              slope=float(jnp.abs(full.run()).max()))  # fmt: skip


def in_batch(table, dtype: str, steps: int, mode: str) -> None:
    """One sample of a batch, by the account of lanes and of XLA."""
    f, row = gradient(dtype, mode)
    many, controls = jax.vmap(f), jnp.tile(row, (SAMPLES, steps, 1))
    kernels = [r for r in kernels_of(many, controls) if r.samples]
    scratch = max(r.scratch_bytes / r.width for r in kernels)
    between = program(mode, many, controls).temp_bytes / SAMPLES
    table.add(robot="quadruped", dtype=dtype, steps=steps, gradient=mode,
              MB_a_sample=(scratch + between) / 1e6, in_kernels_MB=scratch / 1e6,
              between_kernels_MB=between / 1e6)  # fmt: skip
