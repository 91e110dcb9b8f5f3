"""Inverse kinematics of arms: how many random targets are reached, and how fast. Against PyRoki."""

import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import control
from rbd_jax.control import RESULTS
from rbd_jax.spatial import so3

from ._report import Report
from ._timing import program, race

ARMS = {
    "panda": ("panda", ("panda_hand",)),
    "ur5": ("ur5_robot", ("tool0",)),
    "xarm7": ("xarm7", ("link7",)),
    "kinova": ("kinova", ("j2s6s200_end_effector",)),
    "g1 left": ("g1_29dof_rev_1_0", ("left_rubber_hand",)),
    "g1 right": ("g1_29dof_rev_1_0", ("right_rubber_hand",)),
    "g1 both": ("g1_29dof_rev_1_0", ("left_rubber_hand", "right_rubber_hand")),
}
"""Robots of example-robot-data, and the frames that have targets."""
NEAR = 1e-3, np.deg2rad(0.1)
PEER = Path(__file__).parent / "_peers" / "pyroki_reach.py"
ABOUT = (
    "Targets are the poses of a frame in random configurations within the limits, so that all of "
    "them can be reached. A target counts as solved if the frame is within 1 mm and 0.1°, and if "
    "no joint exceeds its limits. The first start is the middle of the limits. Times are those of "
    "a batch, divided by the number of targets; the processor time hardly depends on other work "
    "of the machine. `single` is one call for one target (median). The waist of G1 may move, for "
    "both hands together too. PyRoki solves the problem of its own example (analytic Jacobian, "
    "limits as constraints, float32) from so many starts for each target, in its own environment "
    "(`--peer-python pyroki=PYTHON`, `pip install almond-pyroki yourdfpy`)."
)


def _targets(model, frames, count: int):
    keys = jax.random.split(jax.random.key(1), count)

    @jax.jit
    def poses(model, keys):
        q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
        found = [jax.vmap(rbd.frame_placement, (None, 0, None))(model, q, f) for f in frames]
        return [jnp.stack(x, axis=1) for x in zip(*found, strict=True)]

    return poses(model, keys)


def _solved(model, frames, q, R, p) -> float:
    """The share of targets that are reached within the limits."""

    @jax.jit
    def near(q, R, p):
        good = jnp.all((q >= model.position_lower - 1e-4) & (q <= model.position_upper + 1e-4))
        for k, frame in enumerate(frames):
            R_wf, p_wf = rbd.frame_placement(model, q, frame)
            turn = so3.log(so3.matmul(so3.transpose(R[k]), R_wf))
            close = jnp.linalg.norm(p_wf - p[k]) < NEAR[0]
            good = good & close & (jnp.linalg.norm(turn) < NEAR[1])
        return good

    return float(jnp.mean(jax.vmap(near)(q, R, p)))


def _ours(name: str, dtype: str, count: int, seconds: float):
    robot, frames = ARMS[name]
    model = rbd.load_urdf(rbd.example_robot(robot), dtype=dtype)
    R, p = _targets(model, frames, count)

    def one(model, R, p):
        wanted = [control.pose(f, R[k], p[k]) for k, f in enumerate(frames)]
        return control.inverse_kinematics(model, wanted)

    batch = program("batch", jax.vmap(one, (None, 0, 0)), model, R, p, per=count)
    single = program("single", one, model, R[0], p[0])
    found = batch.run()
    race(batch, seconds=seconds, clock=time.process_time)
    race(single, seconds=0.2 * seconds)
    steps = np.asarray(found.steps)
    cells = {
        "solved %": 100 * _solved(model, frames, found.q, R, p),
        "reached to 10 µm %": 100 * float(jnp.mean(found.result == RESULTS.successful)),
        "µs a target": batch.median,
        "single µs": single.median,
        "steps mean": float(steps.mean()),
        "starts mean": float(np.mean(found.starts)),
        "compile s": batch.compile_s,
    }
    return model, frames, R, p, cells


def _theirs(python: str, name: str, model, frames, R, p, starts: int) -> dict:
    """PyRoki for the first of the targets."""
    n = len(rbd.load_urdf(rbd.example_robot(ARMS[name][0]), mimic="independent").joint_names)
    table = np.random.default_rng(0).uniform(0.02, 0.98, (starts, n))
    table[0] = 0.5
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(given, urdf=str(rbd.example_robot(ARMS[name][0])), frames=np.array(frames),
                 R=R, p=p, starts=table)  # fmt: skip
        done = subprocess.run([python, str(PEER), str(given), str(out)], capture_output=True)
        if done.returncode:
            return {"error": done.stderr.decode().strip().splitlines()[-1][:100]}
        with np.load(out) as saved:
            x = dict(saved)
    e = x["errors"]
    good = ((e[..., 0] < NEAR[0]) & (e[..., 1] < NEAR[1])).all(axis=-1)
    return {
        "PyRoki starts": starts,
        "solved %": 100 * float(good.mean()),
        "batch µs": 1e6 * float(x["batch_s"]) / len(R),
        "one by one µs": 1e6 * float(x["one_by_one_s"]) / len(R),
        "compile s": float(x["compile_s"]),
    }


def main(options) -> None:
    """Measure all arms, and PyRoki where its Python is given."""
    report = Report("reach", options, ABOUT)
    count = options.batch or (64 if options.tiny else 10_000)
    names = options.robots or (["ur5"] if options.tiny else list(ARMS))
    peers = dict(x.split("=", 1) for x in options.peer_python or ())
    ours = report.table("Targets, limits on")
    ours.subject = ("arm", "dtype")
    rival = report.table("PyRoki on the first targets")
    rival.subject = ("arm", "PyRoki starts")
    for name in names:
        for dtype in options.dtypes:
            model, frames, R, p, cells = _ours(name, dtype, count, options.seconds)
            ours.add(arm=name, dtype=dtype, targets=count, **cells)
            report.write()
        for starts in (1, 4, 16) if "pyroki" in peers else ():
            few = min(count, 50 if starts == 1 else 20)
            found = _theirs(peers["pyroki"], name, model, frames, R[:few], p[:few], starts)
            mine = cells["µs a target"]
            fastest = min(found.get(k, np.nan) for k in ("batch µs", "one by one µs"))
            rival.add(arm=name, targets=few, **found, **{"fastest over ours": fastest / mine})
            report.write()
