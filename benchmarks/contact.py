"""A step of a robot that stands on the ground against MuJoCo's C, alternating, on one core."""

import jax
import numpy as np

from ._ground import Ground, crowds, python_of_mjx, scenes
from ._report import Report
from ._timing import Program, program, race

ABOUT = (
    "One step of many robots that stand on the ground, from states of MuJoCo's own motions, each "
    "in contact. MuJoCo: `mujoco.rollout` with one thread, one step from each state, warm start "
    "included, with the file's tolerances. Here: `jax.vmap` of `rbd.contact.scene_step` with the "
    "same guess, and its vjp with respect to the state and the controls. MJX, where there is an "
    "environment for it: `jax.vmap(mjx.step)` for the same states in a process of its own. Robots "
    "of packages need `--packages`. Run it with `--cores 1`."
)


def main(options) -> None:
    """Each robot and precision: MuJoCo, MJX, our step and its vjp."""
    report = Report("contact", options, ABOUT)
    table = report.table("One step on the ground")
    for name, xml in (scenes(options) | crowds(options)).items():
        for dtype in options.dtypes:
            compare(table, name, xml, dtype, options)
            report.write()


def compare(table, name: str, robot, dtype: str, options) -> None:
    """One robot in one precision."""
    import mujoco
    from mujoco import rollout

    n = options.batch or (4 if options.tiny else 1024)
    ground = Ground(robot, n)
    m = ground.m
    start = np.concatenate([np.zeros((n, 1)), ground.qpos, ground.qvel], axis=1)
    data = mujoco.MjData(m)

    def theirs():
        controls = ground.controls[:, None]
        return rollout.rollout(m, data, start, controls, initial_warmstart=ground.warm)[0]

    scene, layout, arguments = ground.scene(dtype), ground.layout, ground.arguments(dtype)
    step = program("step", jax.vmap(ground.step(dtype)), *arguments, per=n)
    vjp = program("step, vjp", jax.vmap(ground.vjp(dtype)), *arguments, per=n)
    mujoco_c = Program(f"MuJoCo {mujoco.__version__}", theirs, n)
    r = step.run()
    ours = jax.vmap(layout.q_to)(r.q), jax.vmap(layout.v_to)(r.q, r.v)
    error = np.abs(np.concatenate(ours, axis=1) - theirs()[:, 0, 1:]).max()
    race(step, vjp, mujoco_c, seconds=options.seconds)
    row = dict(robot=name, dtype=dtype, nv=m.nv, pairs=len(scene.contacts.pairs.shapes), batch=n)
    for p in (mujoco_c, step, vjp):
        table.add(**row, program=p.name, contacts=float(ground.contacts.mean()),
                  us_a_sample=p.median, times_MuJoCo=p.median / mujoco_c.median,
                  compile_s=p.compile_s,
                  solver_steps=None if p is not step else float(r.steps.mean()),
                  difference=None if p is not step else float(error))  # fmt: skip
    peer = ground.xml and ground.mjx(python_of_mjx(options), dtype, options.seconds)
    if peer and "us" in peer:
        us = peer["us"] / n
        table.add(**row, program=f"MJX {peer['version']}", us_a_sample=us,
                  times_MuJoCo=us / mujoco_c.median, compile_s=peer["compile_s"])  # fmt: skip
