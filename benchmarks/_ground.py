"""Robots that stand on the ground: states of MuJoCo's motions, our step, and MJX's."""

import contextlib
import json
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd

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


def python_of_mjx(options) -> str:
    """The Python of MJX's environment, which need not be there."""
    given = dict(x.split("=", 1) for x in options.peer_python or ())
    return given.get("mjx", str(Path(options.peer_envs) / "mjx/bin/python"))


class Ground:
    """Many states of one robot on the ground, and what computes a step from them."""

    def __init__(self, xml: str, n: int):
        import mujoco

        self.xml, self.m = xml, mujoco.MjModel.from_xml_string(xml)
        self.qpos, self.qvel, self.controls, self.warm, self.contacts = states(self.m, n)

    @cached_property
    def layout(self):
        """Between MuJoCo's coordinates and ours."""
        return self.scene("float64").layout

    def scene(self, dtype: str):
        """The robot and the ground, of this library."""
        return rbd.contact.scene_of(self.m, dtype)

    def arguments(self, dtype: str) -> tuple:
        """q, v, controls and the guess of the acceleration."""
        q = jax.vmap(self.layout.q_from)(jnp.array(self.qpos, dtype))
        v, guess = (
            jax.vmap(self.layout.v_from)(q, jnp.array(x, dtype)) for x in (self.qvel, self.warm)
        )
        return q, v, jnp.array(self.controls, dtype), guess

    def step(self, dtype: str):
        """A step of one robot."""
        scene = self.scene(dtype)

        def one(q, v, u, guess):
            return rbd.contact.scene_step(scene, q, v, u, warmstart=guess)

        return one

    def vjp(self, dtype: str):
        """The vjp of a step with respect to the state and the controls."""
        one = self.step(dtype)

        def back(q, v, u, guess):
            (q1, v1), pull = jax.vjp(lambda q, v, u: one(q, v, u, guess)[:2], q, v, u)
            return pull((q1, v1))

        return back

    def mjx(self, python: str, dtype: str, seconds: float) -> dict:
        """The time of MJX's step for the same states, in an environment of its own."""
        if not Path(python).exists():
            return {}
        rows = {"qpos": self.qpos, "qvel": self.qvel, "ctrl": self.controls, "warm": self.warm}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "scene.xml").write_text(self.xml)
            np.savez(Path(folder) / "states.npz", **rows)
            script = Path(__file__).parent / "_peers" / "mjx_step.py"
            command = [python, str(script), folder, dtype, str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
