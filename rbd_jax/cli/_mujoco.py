"""A scene in MJCF against MuJoCo itself: what ``rbd-jax check robot.xml`` prints."""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import contact
from ..algorithms.crba import crba
from ..contact import Scene
from ..io.mjcf import compile_mjcf
from ..model import RobotDescriptionError, RobotDescriptionWarning
from ..model.outcome import RESULTS
from ._show import Check


def is_mjcf(robot: str) -> bool:
    """Whether the user means an MJCF file: its name ends in ``.xml``."""
    return Path(robot).suffix.lower() == ".xml"


def load(robot: str, dtype=None) -> tuple[Scene, Any, list[str]]:
    """The scene, MuJoCo's model, and what was warned of; ends the command if it cannot be read."""
    from ._robots import fail

    path = Path(robot).expanduser()
    if not path.is_file():
        fail(f"no file {robot}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compiled = compile_mjcf(path)
            scene = contact.scene_of(compiled, dtype)
        except (RobotDescriptionError, ImportError) as error:
            fail(f"cannot load {robot}: {error}")
    said = [str(w.message) for w in caught if issubclass(w.category, RobotDescriptionWarning)]
    return scene, compiled, said


def starts(mj: Any, m: Any, n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """``qpos, qvel, ctrl`` near the first keyframe or the file's pose, the same for one seed."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        d = mj.MjData(m)
        if m.nkey:
            mj.mj_resetDataKeyframe(m, d, 0)
        mj.mj_integratePos(m, d.qpos, 0.03 * rng.normal(size=m.nv), 1.0)
        low = np.where(m.actuator_ctrllimited, m.actuator_ctrlrange[:, 0], -1)
        high = np.where(m.actuator_ctrllimited, m.actuator_ctrlrange[:, 1], 1)
        control = rng.uniform(low, high) if m.nu else np.zeros(0)
        found.append((d.qpos.copy(), 0.3 * rng.normal(size=m.nv), control))
    return found


def agreement(scene: Scene, m: Any, n: int, seed: int) -> list[Check]:
    """Mass matrix, and one step with a converged solver, at random states near the start."""
    mj = import_module("mujoco")
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 1e-14, 300, 200
    m.opt.ls_tolerance = 1e-10
    layout = scene.layout
    assert layout is not None

    @jax.jit
    def ours(qpos, qvel, controls):
        q = layout.q_from(qpos)
        act = jnp.zeros(scene.na)  # as in fresh data of MuJoCo
        r = contact.scene_step(scene, q, layout.v_from(q, qvel), controls, act=act)
        M = crba(scene.model, q)
        if scene.tendons is not None:
            M = M + scene.tendons.mass(scene.tendons.at(scene.model, q))
        M = layout.mass_matrix_to(q, M)
        solved = r.result == RESULTS.successful
        return M, layout.v_to(q, r.a), layout.q_to(r.q), layout.v_to(r.q, r.v), solved

    names = "mass matrix", "accelerations (qacc)", "qpos after a step", "qvel after a step"
    limits = 1e-10, 1e-7, 1e-8, 1e-8
    worst, touching, solved = np.zeros(4), 0, True
    for qpos, qvel, controls in starts(mj, m, n, seed):
        d = mj.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, controls
        mj.mj_forward(m, d)
        full = np.zeros((m.nv, m.nv))
        mj.mj_fullM(m, d, full)
        acceleration, near = d.qacc.copy(), d.ncon
        mj.mj_step(m, d)
        *found, converged = ours(*map(jnp.array, (qpos, qvel, controls)))
        expected = full, acceleration, d.qpos, d.qvel
        errors = [
            np.abs(np.asarray(x) - y).max(initial=0) / max(1, np.abs(y).max(initial=0))
            for x, y in zip(found, expected, strict=True)
        ]
        worst = np.maximum(worst, np.nan_to_num(errors, nan=np.inf))
        touching, solved = max(touching, near), solved and bool(converged)
    note = f"contacts at once: {touching}" if touching else "no contacts"
    checks = [
        Check(f"{name} as MuJoCo's", float(e), limit, note)
        for name, e, limit in zip(names, worst, limits, strict=True)
    ]
    return [*checks, Check("solver has converged", 0.0 if solved else 1.0, 0.5)]
