"""Robots that stand on the ground: states of MuJoCo's motions, our step, and MJX's."""

import contextlib
import copy
import json
import re
import subprocess
import tempfile
from collections.abc import Callable
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
    """States, controls and warm starts of n motions that began near the first keyframe, or where
    the file places the robot."""
    import mujoco

    rng, rows = np.random.default_rng(0), []
    for _ in range(n):
        d = mujoco.MjData(m)
        if m.nkey:
            mujoco.mj_resetDataKeyframe(m, d, 0)
        mujoco.mj_integratePos(m, d.qpos, 0.02 * rng.normal(size=m.nv), 1.0)
        d.ctrl[:] += 0.1 * rng.normal(size=m.nu)
        for _ in range(100 + int(rng.integers(50))):
            mujoco.mj_step(m, d)
        warm = d.qacc_warmstart.copy()
        rows.append((d.qpos.copy(), d.qvel.copy(), d.ctrl.copy(), warm, d.ncon))
    return [np.array(x) for x in zip(*rows, strict=True)]


WALKERS = "playground/mujoco_playground/_src/locomotion/"
FILES = {
    "go1": WALKERS + "go1/xmls/scene_mjx_feetonly_flat_terrain.xml",
    "go1, all shapes": WALKERS + "go1/xmls/scene_mjx_flat_terrain.xml",
    "g1": WALKERS + "g1/xmls/scene_mjx_feetonly_flat_terrain.xml",
    "humanoid": "mujoco_mjx/mujoco/mjx/test_data/humanoid/humanoid.xml",
}
"""Below the folder of unpacked packages."""
CROWDS = {
    "shadow hand with a block": "gymnasium_robotics/gymnasium_robotics/envs/assets/hand/"
    "manipulate_block.xml",
    "humanoid of dm_control": "playground/mujoco_playground/_src/dm_control_suite/xmls/"
    "humanoid.xml",
}
"""Robots of which many shapes may touch each other, there too."""
DIFFERENT = 1024
"""The states of a larger batch repeat."""


def _text(spec) -> str:
    """The XML without sensors, which our step does not have, with MuJoCo's usual iterations."""
    spec.option.iterations, spec.option.ls_iterations = 100, 50
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    spec.compile()
    text = spec.to_xml()
    return text if spec.materials else re.sub(r' material="[^"]*"', "", text)  # of defaults


def scenes(options) -> dict[str, str]:
    """The XML of each robot, without meshes if their files are absent."""
    import mujoco

    from rbd_jax.io.mjcf import mjcf_spec

    found = {"quadruped": QUADRUPED}
    folders = options.packages or []
    folders = [folders] if isinstance(folders, str) else folders
    for name, path in FILES.items():
        for whole in (x for folder in folders if (x := Path(folder) / path).exists()):
            for bare in (False, True):  # without meshes and materials only if they are absent
                spec = mjcf_spec(whole, True) if bare else mujoco.MjSpec.from_file(str(whole))
                with contextlib.suppress(ValueError):
                    found[name] = _text(spec)
                    break
    wanted = options.robots or list(found)
    return {k: v for k, v in found.items() if k in wanted}


def crowds(options) -> dict:
    """The models of robots of which many shapes may touch each other."""
    from rbd_jax.io.mjcf import compile_mjcf

    folders = options.packages or []
    folders = [folders] if isinstance(folders, str) else folders
    found = {
        name: compile_mjcf(str(whole), False)
        for name, path in CROWDS.items()
        for whole in (Path(folder) / path for folder in folders)
        if whole.exists() and name in (options.robots or CROWDS)
    }
    for m in found.values():
        m.opt.iterations, m.opt.ls_iterations = 100, 50
    return found


def python_of_mjx(options) -> str:
    """The Python of MJX's environment, which need not be there."""
    given = dict(x.split("=", 1) for x in options.peer_python or ())
    return given.get("mjx", str(Path(options.peer_envs) / "mjx/bin/python"))


class Ground:
    """Many states of one robot on the ground, and what computes a step from them."""

    def __init__(self, robot, n: int):
        """``robot`` is an XML, or a model of MuJoCo, which MJX does not get."""
        import mujoco

        self.xml = robot if isinstance(robot, str) else ""
        self.m = mujoco.MjModel.from_xml_string(robot) if self.xml else robot
        rows = states(self.m, min(n, DIFFERENT))
        repeated = (np.resize(x, (n, *x.shape[1:])) for x in rows)
        self.qpos, self.qvel, self.controls, self.warm, self.contacts = repeated

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

    def by_mujoco(
        self, n: int, steps: int = 1, policy: Callable | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """``qpos`` and ``qvel`` of the first n states after some steps, rounded to float32 before.

        This is MuJoCo's C in float64, with a solver that goes on until nothing changes. The policy
        ``(qpos, qvel) -> controls`` is asked before each step; without it the controls stay.
        """
        import mujoco

        m, found = copy.copy(self.m), []
        m.opt.tolerance = 0.0
        for d in self._data(n, np.float32):
            for _ in range(steps):
                if policy is not None:
                    d.ctrl[:] = policy(d.qpos, d.qvel)
                mujoco.mj_step(m, d)
            found.append((d.qpos.copy(), d.qvel.copy()))
        qpos, qvel = (np.array(x) for x in zip(*found, strict=True))
        return qpos, qvel

    def most(self, n: int, steps: int) -> tuple[int, int]:
        """The most constraint rows, and contacts, in some steps from each of the first n states."""
        import mujoco

        rows = contacts = 0
        for d in self._data(n, np.float64):
            for _ in range(steps):
                mujoco.mj_step(self.m, d)
                rows, contacts = max(rows, d.nefc), max(contacts, d.ncon)
        return rows, contacts

    def _data(self, n: int, dtype):
        """MuJoCo's data of the first n states."""
        import mujoco

        names = "qpos", "qvel", "ctrl", "qacc_warmstart"
        for row in zip(self.qpos[:n], self.qvel[:n], self.controls[:n], self.warm[:n], strict=True):
            d = mujoco.MjData(self.m)
            for name, x in zip(names, row, strict=True):
                getattr(d, name)[:] = x.astype(dtype)
            yield d

    def save(self, folder: str) -> None:
        """Write the scene and the states for another process."""
        rows = {"qpos": self.qpos, "qvel": self.qvel, "ctrl": self.controls, "warm": self.warm}
        (Path(folder) / "scene.xml").write_text(self.xml)
        np.savez(Path(folder) / "states.npz", **rows)

    def mjx(
        self, python: str, dtype: str, seconds: float, warp: tuple[int, int] | None = None
    ) -> dict:
        """The time of MJX's step for the same states, in an environment of its own.

        ``warp`` is for MuJoCo Warp inside of MJX: the room for contacts of all worlds, and for
        constraint rows of each. What fails leaves the last line of its error as a note.
        """
        if not Path(python).exists():
            return {}
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            script = Path(__file__).parent / "_peers" / "mjx_step.py"
            command = [python, str(script), folder, dtype, str(seconds), *map(str, warp or ())]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        return {"note": (done.stderr.strip().splitlines() or ["it failed"])[-1][:200]}
