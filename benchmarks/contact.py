"""A step of a robot that stands on the ground against MuJoCo's C, alternating, on one core."""

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
    "guess, and its vjp with respect to the state and the controls. Run it with `--cores 1`."
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


def main(options) -> None:
    """A quadruped of capsules that stands on four feet."""
    import mujoco
    from mujoco import rollout

    n = options.batch or (4 if options.tiny else 1024)
    report = Report("contact", options, ABOUT)
    table = report.table("One step on the ground")
    m = mujoco.MjModel.from_xml_string(QUADRUPED)
    qpos, qvel, controls, warm, touching = states(m, n)
    start = np.concatenate([np.zeros((n, 1)), qpos, qvel], axis=1)
    data = mujoco.MjData(m)

    def theirs():
        return rollout.rollout(m, data, start, controls[:, None], initial_warmstart=warm)[0]

    mujoco_c = Program(f"MuJoCo {mujoco.__version__}", theirs, n)
    for dtype in options.dtypes:
        scene = rbd.contact.scene_of(m, dtype)
        layout = scene.layout
        q = jax.vmap(layout.q_from)(jnp.array(qpos, dtype))
        v, guess = (jax.vmap(layout.v_from)(q, jnp.array(x, dtype)) for x in (qvel, warm))
        u = jnp.array(controls, dtype)

        def one(q, v, u, guess, scene=scene):
            return rbd.contact.step(scene, q, v, u, guess=guess)

        def back(q, v, u, guess, one=one):
            (q1, v1), pull = jax.vjp(lambda q, v, u: one(q, v, u, guess)[:2], q, v, u)
            return pull((q1, v1))

        step = program("step", jax.vmap(one), q, v, u, guess, per=n)
        vjp = program("step, vjp", jax.vmap(back), q, v, u, guess, per=n)
        r = step.run()
        ours = jax.vmap(layout.q_to)(r.q), jax.vmap(layout.v_to)(r.q, r.v)
        error = np.abs(np.concatenate(ours, axis=1) - theirs()[:, 0, 1:]).max()
        mujoco_c.times.clear()
        race(step, vjp, mujoco_c, seconds=options.seconds)
        for p in (mujoco_c, step, vjp):
            table.add(robot="quadruped", dtype=dtype, program=p.name, nv=m.nv, batch=n,
                      contacts=float(touching.mean()), us_a_sample=p.median,
                      times_MuJoCo=p.median / mujoco_c.median, compile_s=p.compile_s,
                      solver_steps=None if p is not step else float(r.steps.mean()),
                      difference=None if p is not step else float(error))  # fmt: skip
        report.write()
