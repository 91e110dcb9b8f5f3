"""A step of a robot that stands on the ground against MuJoCo's C, alternating, on one core."""

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd

from ._report import Report
from ._timing import Program, program, race

ABOUT = (
    "One step of many robots that stand on the ground, from states of MuJoCo's own motions, each "
    "in contact. MuJoCo: `mujoco.rollout` with one thread, one step from each state, warm start "
    "included, with the file's tolerances. Here: `jax.vmap` of `rbd.contact.step` with the same "
    "guess, and its vjp with respect to the state and the controls. MJX, where there is an "
    "environment for it: `jax.vmap(mjx.step)` for the same states in a process of its own. Robots "
    "of packages need `--packages`. Run it with `--cores 1`."
)
LEG = """<body name="{0}" pos="{1} {2} 0"><joint name="{0}x" axis="1 0 0" range="-45 45"/>
<geom type="capsule" fromto="0 0 0 0 {3} 0" size=".03" mass=".5"/><body pos="0 {3} 0">
<joint name="{0}y" axis="0 1 0" range="-90 90"/>
<geom type="capsule" fromto="0 0 0 0 0 -.2" size=".025" mass=".7"/><body pos="0 0 -.2">
<joint name="{0}z" axis="0 1 0" range="-150 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -.2" size=".015" mass=".2"/>
<geom name="{0}foot" size=".02" pos="0 0 -.2" mass=".05" contype="1"/></body></body></body>"""
LEGS = (("fl", 0.2, 0.05, 0.08), ("fr", 0.2, -0.05, -0.08),
        ("rl", -0.2, 0.05, 0.08), ("rr", -0.2, -0.05, -0.08))  # fmt: skip
DRIVES = "".join(f'<position joint="{leg[0]}{x}"/>' for leg in LEGS for x in "xyz")
QUADRUPED = f"""<mujoco><option timestep=".002" cone="pyramidal"/>
<default><joint damping="1" armature=".01" frictionloss=".2"/>
<geom contype="0" conaffinity="0" condim="3"/>
<position kp="60" kv="1"/></default><worldbody><geom type="plane" size="5 5 1" conaffinity="1"/>
<body name="trunk" pos="0 0 .36"><freejoint/><geom type="box" size=".25 .1 .05" mass="6"/>
{"".join(LEG.format(*leg) for leg in LEGS)}</body></worldbody><actuator>{DRIVES}</actuator>
<keyframe><key qpos="0 0 .33 1 0 0 0 {"0 .7 -1.4 " * 4}" ctrl="{"0 .7 -1.4 " * 4}"/></keyframe>
</mujoco>"""


def states(m, n: int):
    """States, controls and warm starts of n motions that began near the first keyframe."""
    import mujoco

    rng, rows = np.random.default_rng(0), []
    for _ in range(n):
        d = mujoco.MjData(m)
        mujoco.mj_resetDataKeyframe(m, d, 0)
        mujoco.mj_integratePos(m, d.qpos, 0.02 * rng.normal(size=m.nv), 1.0)
        d.ctrl[:] += 0.1 * rng.normal(size=m.nu)
        for _ in range(100 + int(rng.integers(50))):
            mujoco.mj_step(m, d)
        warm = d.qacc_warmstart.copy()
        rows.append((d.qpos.copy(), d.qvel.copy(), d.ctrl.copy(), warm, d.ncon))
    return [np.array(x) for x in zip(*rows, strict=True)]


GO1 = "playground/mujoco_playground/_src/locomotion/go1/xmls/"
FILES = {
    "go1": GO1 + "scene_mjx_feetonly_flat_terrain.xml",
    "go1, all shapes": GO1 + "scene_mjx_flat_terrain.xml",
    "humanoid": "mujoco_mjx/mujoco/mjx/test_data/humanoid/humanoid.xml",
}
"""Below the folder of unpacked packages."""


def scenes(options) -> dict[str, str]:
    """The XML of each robot, without meshes, with MuJoCo's usual number of iterations."""
    import mujoco

    from rbd_jax.io.mjcf import mjcf_spec

    found = {"quadruped": QUADRUPED}
    for name, path in FILES.items():
        if options.packages:
            for bare in (False, True):  # without meshes and materials only if they are absent
                whole = Path(options.packages) / path
                spec = mjcf_spec(whole, True) if bare else mujoco.MjSpec.from_file(str(whole))
                spec.option.iterations, spec.option.ls_iterations = 100, 50
                with contextlib.suppress(ValueError):
                    spec.compile()
                    found[name] = spec.to_xml()
                    break
    wanted = options.robots or list(found)
    return {k: v for k, v in found.items() if k in wanted}


def mjx(options, xml: str, rows: dict, dtype: str) -> dict:
    """The time of MJX's step for the same states, in an environment of its own."""
    given = dict(x.split("=", 1) for x in options.peer_python or ())
    python = given.get("mjx", str(Path(options.peer_envs) / "mjx/bin/python"))
    if not Path(python).exists():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scene.xml").write_text(xml)
        np.savez(Path(folder) / "states.npz", **rows)
        script = Path(__file__).parent / "_peers" / "mjx_step.py"
        command = [python, str(script), folder, dtype, str(options.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


def main(options) -> None:
    """Each robot and precision: MuJoCo, MJX, our step and its vjp."""
    report = Report("contact", options, ABOUT)
    table = report.table("One step on the ground")
    for name, xml in scenes(options).items():
        for dtype in options.dtypes:
            compare(table, name, xml, dtype, options)
            report.write()


def compare(table, name: str, xml: str, dtype: str, options) -> None:
    """One robot in one precision."""
    import mujoco
    from mujoco import rollout

    n = options.batch or (4 if options.tiny else 1024)
    m = mujoco.MjModel.from_xml_string(xml)
    qpos, qvel, controls, warm, touching = states(m, n)
    start = np.concatenate([np.zeros((n, 1)), qpos, qvel], axis=1)
    data = mujoco.MjData(m)

    def theirs():
        return rollout.rollout(m, data, start, controls[:, None], initial_warmstart=warm)[0]

    scene = rbd.contact.scene_of(m, dtype)
    layout = scene.layout
    q = jax.vmap(layout.q_from)(jnp.array(qpos, dtype))
    v, guess = (jax.vmap(layout.v_from)(q, jnp.array(x, dtype)) for x in (qvel, warm))
    u = jnp.array(controls, dtype)

    def one(q, v, u, guess):
        return rbd.contact.step(scene, q, v, u, guess=guess)

    def back(q, v, u, guess):
        (q1, v1), pull = jax.vjp(lambda q, v, u: one(q, v, u, guess)[:2], q, v, u)
        return pull((q1, v1))

    step = program("step", jax.vmap(one), q, v, u, guess, per=n)
    vjp = program("step, vjp", jax.vmap(back), q, v, u, guess, per=n)
    mujoco_c = Program(f"MuJoCo {mujoco.__version__}", theirs, n)
    r = step.run()
    ours = jax.vmap(layout.q_to)(r.q), jax.vmap(layout.v_to)(r.q, r.v)
    error = np.abs(np.concatenate(ours, axis=1) - theirs()[:, 0, 1:]).max()
    race(step, vjp, mujoco_c, seconds=options.seconds)
    row = dict(robot=name, dtype=dtype, nv=m.nv, pairs=len(scene.contacts.pairs.shapes), batch=n)
    for p in (mujoco_c, step, vjp):
        table.add(**row, program=p.name, contacts=float(touching.mean()), us_a_sample=p.median,
                  times_MuJoCo=p.median / mujoco_c.median, compile_s=p.compile_s,
                  solver_steps=None if p is not step else float(r.steps.mean()),
                  difference=None if p is not step else float(error))  # fmt: skip
    rows = {"qpos": qpos, "qvel": qvel, "ctrl": controls, "warm": warm}
    peer = mjx(options, xml, rows, dtype)
    if peer:
        us = peer["us"] / n
        table.add(**row, program=f"MJX {peer['version']}", us_a_sample=us,
                  times_MuJoCo=us / mujoco_c.median, compile_s=peer["compile_s"])  # fmt: skip
