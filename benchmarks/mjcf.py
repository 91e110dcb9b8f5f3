"""MJCF files of packages: which load, what stops the others, how far they are from MuJoCo."""

import copy
import hashlib
import math
import re
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.contact.mjcf.load import flaws
from rbd_jax.io.mjcf import compile_mjcf, mujoco, name_of

from ._report import Report

ABOUT = (
    "Every MJCF file in some folders of unpacked packages and repositories (`--packages`), in "
    "float64. Files that MuJoCo refuses, scenes in which nothing moves, and files with the model "
    "of a file above do not count. Of packages without their meshes the files that need them do "
    "not compile. Errors are the largest difference from MuJoCo over the largest entry, or over "
    "one where all entries are smaller."
)
LOADED = "Models with and without actuators, and how many of them load without `drop=`."
STOPPED = "What has to be dropped, and for how many models it is the only thing."
STEPPED = (
    "MuJoCo with a converged Newton solver and a collision search that goes on to rounding, from "
    "the moment at which contacts or limits begin to push. One step: the largest error of one step "
    "from each state of MuJoCo's motion. All steps: after as many of our own steps. Sensors: the "
    "largest error of a reading at the same states. Itself: the same differences between MuJoCo "
    "and MuJoCo from a configuration moved by 1e-12; where these are as large, rounding decides, "
    "and nobody can come closer. Unstable: MuJoCo's own motion grows with this integrator until "
    "MuJoCo warns and begins again at the start; only the steps before are compared."
)
ONE, ALL, SENSED = 1e-8, 1e-5, 1e-10
"""The differences that are claimed: of one step, of all steps, of sensors."""
MOVED = 1e-12
"""By how much MuJoCo's configuration is moved to compare MuJoCo with itself (m, rad)."""
STEPS = 50
LARGEST = 120
"""Degrees of freedom of the largest scene that is simulated."""
MOST = 4000
"""Pairs of shapes of the largest scene that is simulated."""


def files(folder: Path) -> list[Path]:
    """All MJCF files, without parts that are meant to be included."""
    found = [p for p in sorted(folder.rglob("*.xml")) if "<mujoco" in p.read_text(errors="replace")]
    return [p for p in found if "<worldbody" in p.read_text() or "<include" in p.read_text()]


def title(path: Path, folder: Path) -> str:
    """The path of a file in the folder without parts that say nothing."""
    parts = path.relative_to(folder).parts
    skipped = ("mujoco", "mjx", "xmls", "xml", "_src", "test_data", "mujoco_playground", "assets")
    kept = [p for k, p in enumerate(parts) if k == 0 or p not in (*skipped, *parts[:k])]
    return "/".join(kept).removesuffix(".xml")


def models(folders: list[Path]) -> Iterator[tuple[str, Path, Any]]:
    """``(name, path, MjModel)`` of all models that MuJoCo compiles and that move, once each."""
    seen = set()
    for folder in folders:
        for path in files(folder):
            try:
                m = compile_mjcf(path, False)
            except rbd.RobotDescriptionError:
                continue
            key = hashlib.sha256(m.qpos0.tobytes() + m.body_mass.tobytes() + m.geom_pos.tobytes())
            key.update(m.actuator_gear.tobytes() + bytes([int(m.opt.cone), int(m.opt.integrator)]))
            if m.nv and key.digest() not in seen:
                seen.add(key.digest())
                yield title(path, folder), path, m


def stopped(m, mj) -> tuple[list[str], int]:
    """The features of a model that have to be dropped, and its number of pairs of shapes."""
    found, met = flaws(m, mj)
    return list(found), len(met)


def relative(ours, theirs) -> float:
    """Largest difference over the largest entry, at least one."""
    theirs = np.asarray(theirs)
    error = np.abs(np.asarray(ours) - theirs).max(initial=0)
    return float(np.nan_to_num(error, nan=np.inf) / max(1, np.abs(theirs).max(initial=0)))


def activations_of(scene, m, d):
    """MuJoCo's activations in the order of the scene; None without any."""
    if not scene.na:
        return None
    own = [scene.actuators.names[i] for i in scene.actuators.activation.actuators]
    names = [name_of(m, "actuator", i) for i in range(m.nu)]
    return jnp.array([d.act[m.actuator_actadr[names.index(n)]] for n in own])


def begun(m, mj):
    """A motion near the first keyframe at the moment where something begins to push."""
    d = mj.MjData(m)
    rng = np.random.default_rng(0)
    if m.nkey:
        mj.mj_resetDataKeyframe(m, d, 0)
    mj.mj_integratePos(m, d.qpos, 0.03 * rng.normal(size=m.nv), 1.0)
    d.qvel[:] = 0.3 * rng.normal(size=m.nv)
    limited = np.asarray(m.actuator_ctrllimited, bool)
    low = np.where(limited, m.actuator_ctrlrange[:, 0], -1)
    high = np.where(limited, m.actuator_ctrlrange[:, 1], 1)
    d.ctrl[:] = np.clip(d.ctrl + 0.05 * rng.normal(size=m.nu) * (high - low), low, high)
    for _ in range(1500):
        mj.mj_forward(m, d)
        touching = d.ncon > 0 if any(k in m.geom_type for k in (0, 1)) else d.nefc > 0
        if touching and d.nefc > 0:
            break
        mj.mj_step(m, d)
    return d


def converged(m, mj) -> None:
    """Let MuJoCo's solvers go on to rounding."""
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 0, 100, 200
    m.opt.ls_tolerance, m.opt.solver = 1e-10, int(mj.mjtSolver.mjSOL_NEWTON)
    m.opt.ccd_tolerance, m.opt.ccd_iterations = 1e-12, 200


def pushed(m, mj, scene) -> dict[str, Any]:
    """The errors of steps and sensors under contacts, limits, dry friction and equalities."""
    converged(m, mj)
    d, layout, rng = begun(m, mj), scene.layout, np.random.default_rng(1)
    order = [name_of(m, "actuator", i) for i in range(m.nu)]
    u = jnp.array([d.ctrl[order.index(n)] for n in scene.actuators.names])
    fixed = rbd.contact.constants(scene)

    @jax.jit
    def advance(q, v, act, guess):
        def one(q, v, act, guess):
            r = rbd.contact.scene_step(scene, q, v, u, warmstart=guess, act=act, constants=fixed)
            if scene.sensors is None:
                return r, {}
            read = rbd.contact.sensors(scene, q, v, u, act=act, a=r.a, constants=fixed)
            return r, {k: x for k, x in read.items() if k in placed}

        r, read = jax.vmap(one)(q, v, act, guess)
        return r, jax.vmap(layout.q_to)(r.q), jax.vmap(layout.v_to)(r.q, r.v), read

    clock = int(mj.mjtSensor.mjSENS_CLOCK)
    placed = {
        name_of(m, "sensor", i): slice(m.sensor_adr[i], m.sensor_adr[i] + m.sensor_dim[i])
        for i in range(m.nsensor)
        if m.sensor_type[i] != clock
    }

    def state():
        q = layout.q_from(jnp.array(d.qpos))
        return q, layout.v_from(q, jnp.array(d.qvel)), activations_of(scene, m, d)

    def moved():
        other = copy.copy(d)
        mj.mj_integratePos(m, other.qpos, MOVED * rng.normal(size=m.nv), 1.0)
        return other

    bad = [int(getattr(mj.mjtWarning, f"mjWARN_BADQ{k}")) for k in ("POS", "VEL", "ACC")]
    d.warning.number[:] = 0
    own, guess, path = state(), jnp.zeros((2, m.nv)), moved()
    kinds = "one_step", "all_steps", "sensors"
    found = dict.fromkeys([y for x in kinds for y in (x, f"itself,_{x}")], 0.0)
    contacts = rows = steps = 0
    said = wrong = ""
    for _ in range(STEPS):
        both = jax.tree.map(lambda *x: jnp.stack(x), own, state())
        r, q, v, read = advance(*both, guess)
        near = moved()
        for x in (d, near, path):
            mj.mj_step(m, x)
        if any(x.warning.number[bad].any() for x in (d, near, path)):
            said = f"unstable after {steps} steps"
            break
        error = max(relative(q[1], d.qpos), relative(v[1], d.qvel))
        if error > max(ONE, found["one_step"]) and near.ncon != d.ncon:
            said = f"MuJoCo finds {d.ncon} contacts, {near.ncon} if moved"
        for name, x in read.items():
            theirs = d.sensordata[placed[name]]
            far = relative(np.ravel(x[1]), theirs)
            itself = relative(near.sensordata[placed[name]], theirs)
            found["itself,_sensors"] = max(found["itself,_sensors"], itself)
            if far > found["sensors"]:
                found["sensors"] = far
                wrong = name if far > max(SENSED, 2 * itself) else wrong
        itself = max(relative(near.qpos, d.qpos), relative(near.qvel, d.qvel))
        found["one_step"] = max(found["one_step"], error)
        found["itself,_one_step"] = max(found["itself,_one_step"], itself)
        found["all_steps"] = relative(q[0], d.qpos)
        found["itself,_all_steps"] = relative(path.qpos, d.qpos)
        own, guess = (r.q[0], r.v[0], None if r.act is None else r.act[0]), r.a
        contacts, rows, steps = max(contacts, d.ncon), max(rows, d.nefc), steps + 1
    found = {"contacts": contacts, "rows": rows, "steps": steps} | found
    if not agrees(found):
        said = f"not MuJoCo's motion {said}".strip()
    elif not said and not agrees(found | {f"itself,_{k}": 0.0 for k in kinds}):
        said = "rounding, as in MuJoCo itself"
    if not near_enough(found, "sensors", SENSED):
        said = f"{said} not MuJoCo's reading of {wrong}".strip()
    return found | {"notes": said or None}


def near_enough(found: dict[str, Any], kind: str, claimed: float) -> bool:
    """Whether an error is one that is claimed, or not larger than MuJoCo's from itself."""
    return found[kind] < max(claimed, 2 * found[f"itself,_{kind}"])


def agrees(found: dict[str, Any]) -> bool:
    """Whether the errors of steps are those that are claimed."""
    return near_enough(found, "one_step", ONE) and near_enough(found, "all_steps", ALL)


def other_options(m, mj) -> None:
    """The other cone and another integrator."""
    m.opt.cone = 1 - int(m.opt.cone)
    euler, fast = (int(getattr(mj.mjtIntegrator, f"mjINT_{k}")) for k in ("EULER", "IMPLICITFAST"))
    m.opt.integrator = fast if int(m.opt.integrator) == euler else euler


def main(options) -> None:
    """All tables; the small models come first. ``--keep`` goes on with an earlier run."""
    mj = mujoco()
    report = Report("mjcf", options, ABOUT)
    every = []
    for name, path, m in models([Path(x) for x in options.packages or ["."]]):
        if not options.robots or any(x in (name, name.split("/")[0]) for x in options.robots):
            every.append((name, path, m.nv, m.nu, *stopped(m, mj)))
    _counted(report, every)
    steps = report.table("Steps", STEPPED)
    done = [] if options.again else [x["robot"] for x in steps.kept]
    can = [x for x in every if not x[4] and x[2] <= LARGEST and x[5] <= MOST and x[0] not in done]
    can = sorted(can, key=lambda x: x[2] + x[5])[: 2 if options.tiny else None]
    end = time.monotonic() + (options.limit or math.inf)
    for name, path, nv, nu, _, pairs in can:
        if time.monotonic() > end:
            break
        found = _simulated(path, mj, int(options.patience))
        steps.add(robot=name, nv=nv, nu=nu, pairs=pairs, **found)
        report.write()
        jax.clear_caches()
    report.write()


def _counted(report: Report, every: list[tuple]) -> None:
    """The tables of how many models load, and of what stops the others."""
    loaded = report.table("Which load", LOADED)
    stops = report.table("What stops the others", STOPPED)
    loaded.subject, stops.subject = ("package",), ("feature",)
    loaded.rows, stops.rows = [], []
    packages = dict.fromkeys(x[0].split("/")[0] for x in every)
    for package in (*packages, "all"):
        own = [x for x in every if package in (x[0].split("/")[0], "all")]
        driven = [x for x in own if x[3]]
        count = lambda some: sum(not x[4] for x in some)  # noqa: E731
        loaded.add(package=package, models=len(own), load=count(own),
                   with_actuators=len(driven), of_them_load=count(driven))  # fmt: skip
    features = dict.fromkeys(f for x in every for f in x[4])
    for feature in sorted(features, key=lambda f: -sum(f in x[4] for x in every)):
        some = [x[4] for x in every if feature in x[4]]
        stops.add(feature=feature, models=len(some), alone=sum(len(x) == 1 for x in some))
    report.write()


def _simulated(path: Path, mj, patience: int) -> dict[str, Any]:
    """The errors of a file, or what came between."""

    def late(*_):
        raise TimeoutError(f"not finished in {patience} s")

    before = signal.signal(signal.SIGALRM, late)
    # again every 5 s, because Python prints and forgets what is raised in a callback
    signal.setitimer(signal.ITIMER_REAL, patience, 5)
    try:
        m = compile_mjcf(path, False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = rbd.contact.scene_of(m, "float64")
        return {"integrator": scene.integrator, **pushed(m, mj, scene)}
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return {"notes": re.sub(r"'[^']*/", "'", said)[:110]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
