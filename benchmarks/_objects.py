"""Objects that are pushed and turned: samples find how, derivatives through contact improve it."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

ABOUT = (
    "The tasks of `rbd_jax.tasks.OBJECTS` from 64 random starts, in float32: 30 steps in which "
    "targets of the servos are held. A start counts if the object is at its goal at the end, and "
    "still there after 0.4 s more under the last targets. `cem` has the arguments of the task, "
    "128 samples in each step of the search. `cem, ilqr` goes on from its controls by at most 20 "
    "steps with derivatives through contact. `ilqr` alone starts from servos that hold. The "
    "controls are then played back in MuJoCo, without feedback. Seconds are processor time for "
    "one start, compiling excluded."
)
REFINE = {"max_steps": 20, "throw": False}
HELD = 0.4
"""Seconds for which the last targets are held after the plan."""


def methods(task: tasks.ObjectTask, tiny: bool) -> dict:
    """From a name to ``(q, v, u, key) -> (cost, controls)``."""
    search = task.search | ({"samples": 8, "elites": 4, "max_steps": 2} if tiny else {})
    refine = REFINE | ({"max_steps": 1} if tiny else {})

    def cem(q, v, u, key):
        s = opt.cem(task.problem, q, v, u, key, **search)
        return s.cost, s.u

    def ilqr(q, v, u, key):
        s = opt.ilqr(task.problem, q, v, u, **refine)
        return s.cost, s.u

    return {"ilqr": ilqr, "cem": cem, "cem, ilqr": ilqr}


def held(task: tasks.ObjectTask) -> int:
    """Steps after the plan."""
    return round(HELD / float(task.problem.dt))


def arrived(task: tasks.ObjectTask, q, v, u) -> jax.Array:
    """Whether the object is at its goal after the controls, and after the hold."""
    p = task.problem
    controls = jnp.concatenate([u, jnp.tile(u[-1], (held(task), 1))])
    path = rbd.rollout(p.plant, q, v, controls, p.dt, substeps=p.substeps).q
    return task.arrives(path[len(u)]) & task.arrives(path[-1])


def arrived_in_mujoco(task: tasks.ObjectTask, q, u) -> bool:
    """The same in MuJoCo."""
    import mujoco

    m, p = mujoco.MjModel.from_xml_string(task.mjcf), task.problem
    d, ends = mujoco.MjData(m), []
    d.qpos[:] = np.asarray(q, float)
    for row in (*u, *[u[-1]] * held(task)):
        d.ctrl[:] = row
        for _ in range(p.substeps):
            mujoco.mj_step(m, d)
        ends.append(jnp.asarray(d.qpos.copy(), task.q0.dtype))
    return bool(task.arrives(ends[len(u) - 1]) & task.arrives(ends[-1]))


def objects(table, starts: int, tiny: bool, write) -> None:
    """Rows of both tasks by each method."""
    for name, make in tasks.OBJECTS.items():
        task = make(starts, dtype=jnp.float32)
        first = task.q0, task.v0, task.u
        keys = jax.random.split(jax.random.key(0), starts)
        play = jax.jit(jax.vmap(lambda *x, task=task: arrived(task, *x)))
        programs, compiling, found = {}, {}, {}
        for method, solve in methods(task, tiny).items():
            if solve not in programs:
                began = time.process_time()
                programs[solve] = jax.jit(jax.vmap(solve)).lower(*first, keys).compile()
                compiling[solve] = time.process_time() - began
            u = found["cem"] if method == "cem, ilqr" else task.u
            began = time.process_time()
            cost, found[method] = jax.block_until_ready(programs[solve](task.q0, task.v0, u, keys))
            seconds = (time.process_time() - began) / starts
            u = found[method]
            both = np.asarray(task.q0), np.asarray(u)
            theirs = [arrived_in_mujoco(task, *x) for x in zip(*both, strict=True)]
            cost = np.asarray(cost)
            table.add(task=name, method=method, arrived=int(play(task.q0, task.v0, u).sum()),
                      arrived_in_MuJoCo=sum(theirs), of=starts, median_cost=float(np.median(cost)),
                      seconds_a_start=seconds, compile_s=compiling[solve])  # fmt: skip
            write()
