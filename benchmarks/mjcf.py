"""MJCF files out of packages: which load, and how far they are from MuJoCo."""

import copy
import hashlib
import re
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax.algorithms.passive import without_springs
from rbd_jax.contact.mjcf.geom_pairs import geom_pairs
from rbd_jax.contact.passive import drag, gravity_compensation
from rbd_jax.contact.solver.rows import classical_offset
from rbd_jax.io.mjcf import compile_mjcf, mjcf_spec, mujoco

from ._report import Report, Table

ABOUT = (
    "Every MJCF file in a folder of unpacked packages (`--packages`), in float64. Errors are the "
    "largest difference from MuJoCo over the largest entry, or over one where all entries are "
    "smaller. A file whose meshes are not in its package loads without its mesh geoms. A file "
    "that needs `drop=` loads without the features that are named. MuJoCo still has them, so that "
    "their forces are differences."
)
FREE = (
    "At random configurations and velocities, with random controls: mass matrix, bias forces, "
    "passive forces, actuator forces, and accelerations without any constraint."
)
PUSHED = (
    "MuJoCo with a converged Newton solver, from the moment at which contacts or limits begin to "
    "push. One step: the largest error of one step from each state of MuJoCo's motion. All steps: "
    "after as many of our own steps. Itself: the same differences between MuJoCo and MuJoCo from a "
    "configuration moved by 1e-12; where these are as large, rounding decides, and nobody can come "
    "closer. Two faces may coincide so exactly that one more contact point depends on the last "
    "digit (the fingers of fr3_pick), and small errors of forces may become large ones of "
    "accelerations (sensor/model: spheres deep in each other, and three hinges that come near "
    "gimbal lock). Unstable: MuJoCo's own motion grows with this integrator until MuJoCo warns and "
    "begins again at the start; only the steps before are compared. Euler's method takes strong "
    "damping of small inertias explicitly there: of the servos of leap_cube, and all damping of "
    "apollo, whose file disables eulerdamp; both files ask for implicitfast. Robots whose file has "
    "no floor stand on a plane here. The second row of a robot has the other cone and another "
    "integrator."
)
ONE, ALL = 1e-8, 1e-5
"""The differences that are claimed: of one step, of 100 steps."""
MOVED = 1e-12
"""By how much MuJoCo's configuration is moved to compare MuJoCo with itself (m, rad)."""
GROUND = ("go1.xml", "g1.xml", "yam.xml")
"""Robots that their packages put on a floor."""
DRONES = "crazyflow/drones"
"""Robots that their package gives a free joint."""
UNKNOWN = "shapes touch that are not known to each other"
STATES = 4
STEPS = 100
LARGEST = 60
"""Degrees of freedom of the largest scene that is simulated."""


def files(folder: Path) -> list[Path]:
    """All MJCF files, without parts that are meant to be included."""
    found = [p for p in sorted(folder.rglob("*.xml")) if "<mujoco" in p.read_text(errors="replace")]
    return [p for p in found if "<worldbody" in p.read_text() or "<include" in p.read_text()]


def compiled(path: Path, floor: bool = False) -> tuple[Any, str]:
    """``(MjModel or None, what to know)``, without mesh geoms where meshes are absent.

    Missing files are named without their folders.
    """
    for drop in (False, True):
        try:
            m = compile_mjcf(path, drop)
        except rbd.RobotDescriptionError as error:
            said = str(error).split("MuJoCo refuses ")[-1].split(": ", 1)[-1]
            continue
        if floor and path.name in GROUND:
            m = _on_floor(path)
        if DRONES in path.as_posix():
            m = _flying(path)
        return m, "meshes absent" if drop else ""
    said = " ".join(said.split("Element")[0].split())
    return None, re.sub(r"'[^']*/", "'", said)[:110]


def _on_floor(path: Path):
    spec = mjcf_spec(path)
    spec.worldbody.add_geom(type=mujoco().mjtGeom.mjGEOM_PLANE, size=[5, 5, 1])
    return spec.compile()


def _flying(path: Path):
    spec = mjcf_spec(path, True)
    spec.worldbody.first_body().add_freejoint()
    return spec.compile()


def scene_of(m, mj) -> tuple[Any, list[str], list[str]]:
    """The scene, the features that had to be dropped, and pairs of shapes that are not known."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scene = rbd.contact.scene_of(m, "float64", drop="all")
    said = [str(w.message).split("left out: ")[-1] for w in caught if "left out" in str(w.message)]
    features = [x.split(":")[0] for x in said[0].split("; ")] if said else []
    return scene, features, geom_pairs(m, mj)[1]


def relative(ours, theirs) -> float:
    """Largest difference over the largest entry, at least one."""
    theirs = np.asarray(theirs)
    error = np.abs(np.asarray(ours) - theirs).max(initial=0)
    return float(np.nan_to_num(error, nan=np.inf) / max(1, np.abs(theirs).max(initial=0)))


def controls_of(scene, m, d):
    """MuJoCo's controls of the actuators that the scene has."""
    names = [m.actuator(i).name or f"actuator#{i}" for i in range(m.nu)]
    return jnp.array([d.ctrl[names.index(n)] for n in scene.actuators.names])


def activations_of(scene, m, d):
    """MuJoCo's activations of the actuators that the scene has; None without any."""
    if not scene.na:
        return None
    names = [m.actuator(i).name or f"actuator#{i}" for i in range(m.nu)]
    own = [scene.actuators.names[i] for i in scene.actuators.activation.actuators]
    return jnp.array([d.act[m.actuator_actadr[names.index(n)]] for n in own])


def unconstrained(scene, m, mj) -> dict[str, float]:
    """The errors without contact, limits, dry friction and equalities."""
    flags = m.opt.disableflags
    m.opt.disableflags = flags | int(mj.mjtDisableBit.mjDSBL_CONSTRAINT)
    model, layout = scene.model, scene.layout
    bare = eqx.tree_at(lambda x: x.damping, without_springs(model), jnp.zeros_like(model.damping))

    tendons, fixed = scene.tendons, rbd.contact.constants(scene)
    actuators = scene.actuators.damped(fixed.damping)

    @jax.jit
    def ours(q, v, controls, act):
        offset = classical_offset(model, v)
        heavy = model.armature * offset
        bias = rbd.inverse_dynamics(bare, q, v, -offset) + heavy
        full = rbd.inverse_dynamics(model, q, v, -offset) + heavy
        passive = bias - full + gravity_compensation(model, scene.gravcomp, q)
        if scene.fluid is not None:
            passive = passive + drag(model, scene.fluid, q, v)
        there = None if tendons is None else tendons.at(model, q)
        driven = rbd.contact.Driven(act, scene.dt, there, fixed.acc0)
        drive, M = actuators.torque(model, q, v, controls, driven), rbd.mass_matrix(model, q)
        if tendons is not None and there is not None and fixed.tendons is not None:
            passive = passive + there.pull(tendons.passive(there, v, fixed.tendons.rest))
            M = M + tendons.mass(there)
            drift = tendons.drift(model, q, v) - there.speed(offset)
            bias = bias + there.pull(tendons.inertia * drift)
            a = jnp.linalg.solve(M, drive + passive - bias)
        else:
            a = rbd.forward_dynamics(model, q, v, drive + passive - (bias - full) - heavy) + offset
        M = layout.mass_matrix_to(q, M)
        rest = [layout.tau_to(q, x) for x in (bias, passive, drive)]
        return M, *rest, layout.v_to(q, a)

    rng, worst = np.random.default_rng(0), np.zeros(5)
    for _ in range(STATES):
        d = mj.MjData(m)
        mj.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
        d.qvel[:], d.ctrl[:] = rng.normal(size=m.nv), rng.normal(size=m.nu)
        d.act[:] = rng.uniform(size=m.na)
        mj.mj_forward(m, d)
        q = layout.q_from(jnp.array(d.qpos))
        v = layout.v_from(q, jnp.array(d.qvel))
        full = np.zeros((m.nv, m.nv))
        mj.mj_fullM(m, d, full)
        theirs = full, d.qfrc_bias, d.qfrc_passive, d.qfrc_actuator, d.qacc
        found = ours(q, v, controls_of(scene, m, d), activations_of(scene, m, d))
        worst = np.maximum(worst, [relative(x, y) for x, y in zip(found, theirs, strict=True)])
    m.opt.disableflags = flags
    names = "mass_matrix", "bias", "passive", "actuators", "acceleration"
    return dict(zip(names, map(float, worst), strict=True))


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


def pushed(m, mj, scene) -> dict[str, Any]:
    """The errors of steps under contacts, limits, dry friction and equalities."""
    m.opt.tolerance, m.opt.iterations, m.opt.ls_iterations = 0, 100, 200
    m.opt.ls_tolerance, m.opt.solver = 1e-10, int(mj.mjtSolver.mjSOL_NEWTON)
    known = {frozenset(n) for n in _pairs(scene)}
    names = [m.geom(i).name or f"geom#{i}" for i in range(m.ngeom)]
    d, layout, rng = begun(m, mj), scene.layout, np.random.default_rng(1)
    u = jnp.tile(controls_of(scene, m, d), (2, 1))

    @jax.jit
    def advance(q, v, act, guess):
        one = lambda q, v, act, u, g: rbd.contact.scene_step(  # noqa: E731
            scene, q, v, u, warmstart=g, act=act
        )
        r = jax.vmap(one)(q, v, act, u, guess)
        return r, jax.vmap(layout.q_to)(r.q), jax.vmap(layout.v_to)(r.q, r.v)

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
    found = dict.fromkeys(("one_step", "itself,_one_step", "all_steps", "itself,_all_steps"), 0.0)
    contacts = rows = steps = 0
    said = ""
    for _ in range(STEPS):
        both = jax.tree.map(lambda *x: jnp.stack(x), own, state())
        r, q, v = advance(*both, guess)
        near = moved()
        for x in (d, near, path):
            mj.mj_step(m, x)
        if any(x.warning.number[bad].any() for x in (d, near, path)):
            said = f"unstable after {steps} steps"
            break
        met = [frozenset(names[g] for g in c.geom) for c in d.contact if c.exclude == 0]
        if any(pair not in known for pair in met):
            return {"notes": UNKNOWN}
        error = max(relative(q[1], d.qpos), relative(v[1], d.qvel))
        if error > max(ONE, found["one_step"]) and near.ncon != d.ncon:
            said = f"MuJoCo finds {d.ncon} contacts, {near.ncon} if moved"
        itself = max(relative(near.qpos, d.qpos), relative(near.qvel, d.qvel))
        found["one_step"] = max(found["one_step"], error)
        found["itself,_one_step"] = max(found["itself,_one_step"], itself)
        found["all_steps"] = relative(q[0], d.qpos)
        found["itself,_all_steps"] = relative(path.qpos, d.qpos)
        own, guess = (r.q[0], r.v[0], None if r.act is None else r.act[0]), r.a
        contacts, rows, steps = max(contacts, len(met)), max(rows, d.nefc), steps + 1
    found = {"contacts": contacts, "rows": rows, "steps": steps} | found
    if not agrees(found):
        said = f"not MuJoCo's motion {said}".strip()
    elif not said and not agrees(found | {"itself,_one_step": 0.0, "itself,_all_steps": 0.0}):
        said = "rounding, as in MuJoCo itself"
    return found | {"notes": said or None}


def agrees(found: dict[str, Any]) -> bool:
    """Whether the errors are those that are claimed, or not larger than MuJoCo's from itself."""
    kinds = zip(("one_step", "all_steps"), (ONE, ALL), strict=True)
    return all(found[k] < max(claimed, 2 * found[f"itself,_{k}"]) for k, claimed in kinds)


def _pairs(scene):
    shapes = scene.contacts.shapes.names
    return [(shapes[i], shapes[j]) for i, j in scene.contacts.pairs.shapes]


def other_options(m, mj) -> None:
    """The other cone and another integrator."""
    m.opt.cone = 1 - int(m.opt.cone)
    euler, fast = (int(getattr(mj.mjtIntegrator, f"mjINT_{k}")) for k in ("EULER", "IMPLICITFAST"))
    m.opt.integrator = fast if int(m.opt.integrator) == euler else euler


def main(options) -> None:
    """Both tables, package by package."""
    mj = mujoco()
    folder = Path(options.packages or ".")
    report = Report("mjcf", options, ABOUT)
    free = report.table("Without contact")
    free.notes = FREE
    with_contact = report.table("With contact")
    with_contact.notes = PUSHED
    seen, count = set(), 0
    for path in files(folder):
        name = title(path, folder)
        if options.robots and not any(x in (name, name.split("/")[0]) for x in options.robots):
            continue
        m, said = compiled(path)
        if m is None or m.nv == 0:
            free.add(robot=name, loads="no" if m is None else "no joints", notes=said or None)
            continue
        once = hashlib.sha256(m.qpos0.tobytes() + m.body_mass.tobytes() + m.geom_pos.tobytes())
        once.update(m.actuator_gear.tobytes() + bytes([int(m.opt.cone), int(m.opt.integrator)]))
        if once.digest() in seen:
            free.add(robot=name, nv=m.nv, loads="yes", notes="the robot of a file above")
            continue
        seen.add(once.digest())
        scene, dropped, _ = scene_of(m, mj)
        loads = "yes" if not dropped else "with drop=: " + ", ".join(dropped)
        errors = unconstrained(scene, m, mj)
        free.add(robot=name, nv=m.nv, nu=m.nu, loads=loads, **errors, notes=said or None)
        count += 1
        if m.nv <= LARGEST and not set(dropped) - {"collision of these shapes"}:
            _simulate(with_contact, name, path, mj)
        report.write()
        jax.clear_caches()
        if options.tiny and count >= 2:
            break
    report.write()


def _simulate(table: Table, name: str, path: Path, mj) -> None:
    for other in (False, True):
        m, _ = compiled(path, floor=True)
        if other:
            other_options(m, mj)
        scene, _, _ = scene_of(m, mj)
        found = pushed(m, mj, scene)
        if found.get("rows") == 0:
            return
        cone = ("pyramidal", "elliptic")[int(m.opt.cone)]
        table.add(robot=name, cone=cone, integrator=scene.integrator, nv=m.nv, **found)
        if found["notes"] == UNKNOWN:
            return


def title(path: Path, folder: Path) -> str:
    """The path of a file in the folder without parts that say nothing."""
    parts = path.relative_to(folder).parts
    skipped = ("mujoco", "mjx", "xmls", "xml", "_src", "test_data", "mujoco_playground", "assets")
    kept = [p for k, p in enumerate(parts) if p not in skipped and (k == 0 or p not in parts[:k])]
    return "/".join(kept).removesuffix(".xml")
