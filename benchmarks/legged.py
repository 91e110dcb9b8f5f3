"""Legged motion with a given schedule of contacts: multiple shooting against Crocoddyl."""

import importlib.util

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt

from . import _playback, optimize
from ._report import Report, Table
from ._robots import FILES, load
from ._timing import program, race

ABOUT = (
    "Legged tasks of `rbd_jax.tasks`, without joint friction and damping. Crocoddyl "
    "runs `SolverBoxFDDP` (C++, one thread) in a process of its own. It solves the same problem: "
    "the same URDF, contacts, impacts, semi-implicit Euler steps, costs, bounds, and first guess "
    "(the robot stands, and torques balance gravity). rbd_jax runs `jax.jit` of "
    "`rbd_jax.optimize.multiple_shooting` for one start, and for a batch of starts. The solvers "
    "take turns, one core each. Times, ratio and difference are those of `optimize`. The step and "
    "the balance have smaller batches than the others, because they take long."
)
RECEDING = (
    "`rbd_jax.optimize.mpc` on the trot: in each step the horizon moves on by 20 ms, and one step "
    "of the solver starts from the shifted plan. The closed loop is one compiled scan. The first "
    "plan is that of multiple shooting, and its time is not counted."
)
HUMANOID = (
    "`rbd_jax.tasks.g1_walk`: eight swings of 0.3 m in 4.8 s, with torques at 29 joints. One step "
    "of the solver in each step of 20 ms, with a horizon of 30 steps. In the contact simulator the "
    "closed loop is one compiled scan; in MuJoCo each plan is a call from Python. Away is the "
    "distance of the trunk from its goal at the end. The pushes are 0.1 s long, on the trunk, in "
    "eight directions, in the middle of the second swing; the feet go on where they were to go."
)
TASKS = {
    "trot": "hyq", "walk": "hyq", "pace": "hyq", "jump": "hyq",
    "squat": "talos", "step": "talos", "balance": "talos",
}  # fmt: skip
PARTS = *TASKS, "playback", "mpc", "humanoid"
"""The name of a task stands for its row against Crocoddyl."""
LONG = {"step": 2, "balance": 2}
"""Tasks that take long to solve, and the size of their batch."""
MOST = 600
"""Steps of a solver at most."""


def task_of(name: str, robot: str):
    """A legged task on a robot without what Pinocchio's dynamics does not know."""
    model = load(robot)
    bare = lambda m: (m.damping, m.armature)  # noqa: E731
    model = eqx.tree_at(bare, model, (0 * model.damping, 0 * model.armature))
    return getattr(rbd.tasks, name)(model)


def spec_of(task, robot: str, repeats: int) -> dict:
    """The task for the other process."""
    problem, q0, v0, u = task
    file, free = FILES[robot]
    costs = problem.stage.costs
    (state,), (center,), (friction,) = (
        [c for c in costs if isinstance(c, kind)]
        for kind in (opt.StateCost, opt.CenterOfMass, opt.FrictionPyramid)
    )
    pressure = next((c for c in costs if isinstance(c, opt.CenterOfPressure)), None)
    parts = {k: {n: getattr(c, n) for n in c.__dataclass_fields__ if getattr(c, n) is not None}
             for k, c in (("stage", state), ("final", problem.final))}  # fmt: skip
    low, high = problem.bounds()
    contacts, k = problem.plant.constraints, np.arange(problem.steps + 1)
    rows = lambda table: table.rows[np.minimum(k, len(table.rows) - 1)]  # noqa: E731
    spec = {
        "urdf": str(rbd.example_robot(file)), "gravity": problem.model.gravity,
        "joints": problem.model.joint_names[free:], "dt": problem.dt, "steps": problem.steps,
        "q0": q0, "v0": v0, "u": u, "lower": low, "upper": high, "tol": 1e-9,
        "max_iterations": MOST, "repeats": repeats, "feet": contacts.names,
        "points": contacts.pairs[0].point,
        "gain": contacts.velocity_gain[0], "active": problem.plant.active,
        "com": rows(center.targets), "com_weight": center.weight,
        "swings": [
            {"frame": f, "targets": rows(c.targets)[:, i], "weights": rows(c.weights)[:, i]}
            for c in costs if isinstance(c, opt.FootSwing) for i, f in enumerate(c.feet)
        ],
        "levels": [
            {"frame": c.frame, "R": c.R, "weight": c.weight}
            for c in costs if isinstance(c, opt.Orientation)
        ],
        "sole": pressure and pressure.half, "sole_weight": pressure and pressure.weight,
        "friction": friction.friction, "friction_weight": friction.weight, **parts,
    }  # fmt: skip
    plain = lambda x: np.asarray(x).tolist() if eqx.is_array(x) else x  # noqa: E731
    return jax.tree.map(plain, spec)


def on_legs(table: Table, name: str, robot: str, batch: int, options) -> None:
    """Multiple shooting on a task with contacts."""
    task = task_of(name, robot)
    m = task.problem.model

    def solve(task, q0):
        t = task._replace(q0=q0)
        limits = {"throw": False, "max_steps": MOST, "tol": 1e-10}
        return opt.multiple_shooting(*t, **rbd.tasks.standing_guess(t), **limits)

    noise = 0.02 * jax.random.normal(jax.random.key(0), (batch, m.nv), m.dtype)
    starts = jax.vmap(lambda d: rbd.integrate(m, task.q0, d))(noise)
    row = {"task": name, "robot": robot, "nv": m.nv, "steps": task.problem.steps}
    found = optimize.solvers("multiple shooting", task, solve, starts, batch)
    repeats = 1 if name in LONG else 2 if options.tiny else 5
    spec = spec_of(task, robot, repeats) | {"check": np.asarray(found.u).tolist()}
    optimize.compare(table, row, found, spec, "_crocoddyl_legged.py", options)


def receding(table: Table, robot: str, options) -> None:
    """The trot in a receding horizon of 50 steps, one solver step for each state."""
    task = task_of("trot", robot)
    p, horizon = task.problem, 10 if options.tiny else 50
    problem, _, _, u = short = rbd.tasks.receding(task, horizon)
    control, steps = opt.controller(problem, max_steps=1), 4 if options.tiny else 45

    @jax.jit
    def first_plan(q0, v0):  # a simulation of torques alone would fall within the horizon
        still = rbd.tasks.standing_guess(short)
        s = opt.multiple_shooting(problem, q0, v0, u, **still, throw=False)
        return control.warmstart(s), s.result == opt.RESULTS.successful

    plan, good = first_plan(task.q0, task.v0)
    if not good:
        raise AssertionError(f"mpc of {robot}: no first plan")

    def run(q0, v0, plan):
        loop = opt.mpc(control, q0, v0, plan, steps)
        return loop.q[-1], jnp.all(loop.result == opt.RESULTS.successful)

    loop = program("mpc", run, task.q0, task.v0, plan, per=steps)
    q, good = loop.run()
    if not good:
        raise AssertionError(f"mpc of {robot}: a step found no better plan")
    race(loop, seconds=options.seconds)
    table.add(task="trot", robot=robot, nv=p.model.nv, horizon=horizon, steps=steps,
              ms_a_step=1e-3 * loop.median, hertz=1e6 / loop.median,
              forward_m=float(q[0] - task.q0[0]), compile_s=loop.compile_s)  # fmt: skip


def humanoid(table: Table, pushed: Table, options) -> None:
    """G1 walks under model predictive control, undisturbed and pushed."""
    jax.config.update("jax_enable_x64", True)
    mjcf = rbd.tasks.g1_mjcf(options.model, motors=True)
    scene = rbd.load_mjcf(mjcf)
    task = rbd.tasks.g1_walk(scene, strides=2 if options.tiny else 8)
    short = rbd.tasks.receding(task, 10 if options.tiny else 30)
    control, steps = opt.controller(short.problem, max_steps=1), task.problem.steps
    still = rbd.tasks.standing_guess(short)
    s = jax.jit(lambda task: opt.multiple_shooting(*task, **still))(short)
    plan, goal = control.warmstart(s), np.asarray(task.problem.final.q[:2])
    held = round(float(task.problem.dt / scene.dt))

    def run(q0, v0, plan):
        loop = opt.mpc(control, q0, v0, plan, steps, plant=scene, substeps=held)
        return loop.q, jnp.all(loop.result == opt.RESULTS.successful)

    def row(place, hertz, q, **more):
        tilt = np.degrees(np.arccos(rbd.tasks.uprightness(q).min()))
        table.add(place=place, nv=scene.model.nv, horizon=short.problem.steps, hertz=hertz,
                  forward_m=float(q[-1, 0] - q[0, 0]), lowest_m=float(q[:, 2].min()),
                  away_m=float(np.linalg.norm(q[-1, :2] - goal)),
                  tilt_deg=float(tilt), **more)  # fmt: skip

    loop = program("mpc", run, task.q0, task.v0, plan, per=steps)
    q, good = loop.run()
    race(loop, seconds=options.seconds)
    row("contact simulator", 1e6 / loop.median, np.asarray(q), all_plans_better=bool(good),
        compile_s=loop.compile_s)  # fmt: skip
    walk = rbd.tasks.mpc_in_mujoco(control, plan, scene, mjcf, steps)
    row("MuJoCo", walk.hertz, walk.qpos)
    for impulse in (2, 4, 6, 8):
        angles = 2 * np.pi * np.arange(2 if options.tiny else 8) / 8
        ways = 10 * impulse * np.stack([np.cos(angles), np.sin(angles)], 1)
        tries = [rbd.tasks.mpc_in_mujoco(control, plan, scene, mjcf, steps, push=x, push_at=1.1)
                 for x in ways]  # fmt: skip
        pushed.add(impulse_N_s=impulse, directions=len(ways), stood=sum(not w.fell for w in tries))


def main(options) -> None:
    """Each task, solved by both; played back; and a receding horizon."""
    report, parts = Report("legged", options, ABOUT), options.parts or PARTS
    table = report.table("Multiple shooting against Crocoddyl")
    played = report.table("Played back in the contact simulator", _playback.ABOUT)
    moving = report.table("Model predictive control", RECEDING)
    walks = report.table("A humanoid walks under model predictive control", HUMANOID)
    pushed = report.table("The same, pushed, in MuJoCo")
    batch = options.batch or (2 if options.tiny else 64)
    chosen = [x for x in TASKS.items() if options.robots is None or x[1] in options.robots]
    for name, robot in chosen[: 1 if options.tiny else None]:
        if name in parts:
            on_legs(table, name, robot, min(batch, LONG.get(name, batch)), options)
            report.write()
        if "playback" in parts and robot == "hyq":
            _playback.play_back(played, name, robot, batch)
            report.write()
        jax.clear_caches()
    if "mpc" in parts and (options.robots is None or "hyq" in options.robots):
        receding(moving, "hyq", options)
        report.write()
    there = options.model or importlib.util.find_spec("mjlab") is not None
    if "humanoid" in parts and there and (options.robots is None or "g1" in options.robots):
        humanoid(walks, pushed, options)
        report.write()
