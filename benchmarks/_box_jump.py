"""A quadruped that gets onto a box: samples find how, derivatives through contact improve it."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

ABOUT = (
    "`tasks.jump_onto`, in float32: 35 steps of 0.08 s in which targets of the servos are held. "
    "`opt.cem` starts from servos that stand. `opt.ilqr` starts from its controls, and "
    "`opt.multiple_shooting` from its states and controls; both take at most 20 steps. On the box "
    "is a robot whose feet are all above the height of the box and at most 10 cm above the ground "
    "below them, with an upright trunk above its first height. Played back means: from the first "
    "state under the feedback of the solution, every 0.08 s, and then 0.4 s under the last "
    "reference, which decides who is on the box; the cost is without these 0.4 s. MuJoCo has the "
    "same robot and steps on a plane with a box, whose flank is straight. The gap is the largest "
    "difference between a state of the solution and the step from the state before (m, rad, m/s "
    "and rad/s): with a large one the cost is not that of a motion. Seconds are processor time, "
    "compiling excluded."
)
SEARCH = {"noise": 0.6, "samples": 512, "elites": 32, "max_steps": 80, "knots": 12, "keep": 0.5}
REFINE = {"max_steps": 20, "throw": False}
MORE = 5
"""Steps after the plan."""


def solvers(tiny: bool) -> dict:
    """From a name to ``(task, key, q, v, u) -> (solution, gains)``."""
    search = SEARCH | ({"samples": 8, "elites": 4, "max_steps": 2} if tiny else {})
    refine = REFINE | ({"max_steps": 1} if tiny else {})

    def cem(task, key, q, v, u):
        s = opt.cem(*task, key, **search)
        return s, jnp.zeros((*s.u.shape, 2 * len(task.v0)), s.u.dtype)

    def ilqr(task, key, q, v, u):
        s = opt.ilqr(task.problem, task.q0, task.v0, u, **refine)
        return s, s.K

    def multiple_shooting(task, key, q, v, u):
        s = opt.multiple_shooting(task.problem, task.q0, task.v0, u, q=q, v=v, **refine)
        return s, s.K

    return {f.__name__: f for f in (cem, ilqr, multiple_shooting)}


def on_the_box(task, q) -> jax.Array:
    """Whether the robot of a task is on the box, see ``ABOUT``."""
    box = task.problem.plant.scene.contacts.terrain
    feet = jnp.stack([rbd.frame_placement(task.problem.model, q, f)[1] for f in tasks.FEET])
    above = feet[:, 2] - jax.vmap(box)(feet[:, :2])
    there = jnp.all(feet[:, 2] > box.height) & jnp.all(above < 0.1)
    return there & (q[2] > task.q0[2]) & (tasks.uprightness(q) > 0.95)


def played(task, follow: opt.Feedback) -> tuple[jax.Array, jax.Array]:
    """The cost in the task's own simulation under feedback, and the state some steps later."""
    p = task.problem

    def step(state, k):
        u = follow(p.time(k), *state)
        return p.step(k, *state, u), (*state, u)

    (last, _), (q, v, u) = jax.lax.scan(step, (task.q0, task.v0), jnp.arange(p.steps + MORE))
    n = p.steps
    return p.cost(q[: n + 1], v[: n + 1], u[:n]), last


def box_in_mujoco(task):
    """MuJoCo's model of the scene: the plane, and on it the box with a straight flank."""
    import mujoco

    plane = tasks.stand_up(task.problem.model)
    spec = mujoco.MjSpec.from_string(tasks.stander_mjcf(tasks.stander(task=plane, fallen=1)))
    box = task.problem.plant.scene.contacts.terrain
    x, top, half = float(box.x), float(box.height), 1.5 * float(box.width)
    profile = (x - half, 0.0), (x + half, top), (x + 3.0, top), (x + 3.0, 0.0)
    corners = [(u, y, z) for y in (-2.0, 2.0) for u, z in profile]
    spec.add_mesh(name="box", uservert=np.ravel(corners))
    ground, same = spec.geom("ground"), ("condim", "friction", "solref", "solimp")
    spec.worldbody.add_geom(
        name="box", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="box", contype=0, conaffinity=1,
        **{k: getattr(ground, k) for k in same},
    )  # fmt: skip
    return spec.compile()


def gap(task, q, v, u) -> jax.Array:
    """The largest difference between a state and the step from the state before it."""
    p = task.problem

    def one(k, q, v, u, q_next, v_next):
        q1, v1 = p.step(k, q, v, u)
        return jnp.concatenate([rbd.difference(p.model, q_next, q1), v1 - v_next])

    rows = jnp.arange(p.steps), q[:-1], v[:-1], u, q[1:], v[1:]
    return jnp.abs(jax.vmap(one)(*rows)).max()


def in_mujoco(task, m, follow) -> np.ndarray:
    """The last configuration of a play-back in MuJoCo."""
    import mujoco

    d, p = mujoco.MjData(m), task.problem
    inner, R = round(float(p.dt) / m.opt.timestep), np.zeros(9)
    d.qpos[:] = np.asarray(task.q0, float)
    for k in range(p.steps + MORE):
        mujoco.mju_quat2Mat(R, d.qpos[3:7])
        v = np.concatenate([d.qvel[3:6], R.reshape(3, 3).T @ d.qvel[:3], d.qvel[6:]])
        q, v = (jnp.asarray(x, task.q0.dtype) for x in (d.qpos, v))
        d.ctrl[:] = np.asarray(follow(p.time(k), q, v), float)
        for _ in range(inner):
            mujoco.mj_step(m, d)
    return d.qpos.copy()


def box_jump(table, model: rbd.Model, tiny: bool, write) -> None:
    """Rows of four keys: the search, and each of the solvers that improve it."""
    task = tasks.jump_onto(model)
    m, there = box_in_mujoco(task), jax.jit(lambda q: on_the_box(task, q))
    act = jax.jit(lambda follow, t, q, v: follow(t, q, v))
    programs, none = {}, jnp.tile(task.q0, (task.problem.steps + 1, 1))
    first = jax.random.key(0), none, 0 * none[:, 1:], task.u

    def whole(solver):
        def run(task, *given):
            (s, K), p = solver(task, *given), task.problem
            motion = s.q, s.v, s.u
            follow = opt.Feedback(p.model, 0 * p.dt, p.dt, *motion, K, *p.bounds())
            return s.cost, motion, follow

        return run

    for name, solver in solvers(tiny).items():
        began = time.process_time()
        compiled = jax.jit(whole(solver)).lower(task, *first).compile()
        programs[name] = compiled, time.process_time() - began
    play, gap_of = jax.jit(played), jax.jit(lambda *x: gap(task, *x))
    for seed in range(1 if tiny else 4):
        rows = first[1:]
        for name, (run, compiling) in programs.items():
            began = time.process_time()
            cost, found, follow = jax.block_until_ready(run(task, jax.random.key(seed), *rows))
            seconds = time.process_time() - began
            rows = found if name == "cem" else rows
            again, last = play(task, follow)
            theirs = in_mujoco(task, m, lambda *x, f=follow: act(f, *x))
            theirs = bool(there(jnp.asarray(theirs, task.q0.dtype)))
            table.add(robot=model.topology.name, key=seed, method=name, cost=float(cost),
                      gap=float(gap_of(*found)), on_the_box=bool(there(found[0][-1])),
                      cost_played_back=float(again), on_the_box_then=bool(there(last)),
                      in_MuJoCo=theirs, seconds=seconds, compile_s=compiling)  # fmt: skip
            write()
