"""Objects that are pushed and turned: samples find how, derivatives through contact improve it."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, simulate, tasks

ABOUT = (
    "The tasks of `rbd_jax.tasks.OBJECTS` from 64 random starts, in float32: 30 steps in which "
    "targets of the servos are held. A start counts if the object is at its goal at the end, and "
    "still there after 0.4 s more under the last targets. `cem` has the arguments of the task, "
    "128 samples in each step of the search. `cem, ilqr` goes on from its controls by at most 20 "
    "steps with derivatives through contact. `ilqr` alone starts from servos that hold, and takes "
    "at most 60. `ilqr, at a distance` starts there too: 20 steps with the derivatives of contacts "
    "that act at each of `task.reaches`, then 30 with those of the scene. `ilqr, randomized` takes "
    "20 steps with the mean derivatives of 32 samples around the state, 20 with a quarter of the "
    "spread, then 30. All move in the same scene. The controls are then played back in MuJoCo, "
    "without feedback. Seconds are processor time for one start, compiling excluded."
)
REFINE = {"max_steps": 20, "throw": False}
ALONE = {"max_steps": 60, "throw": False}
EXACT = {"max_steps": 30, "throw": False}
SPREAD: dict[str, Any] = {"q": 0.02, "v": 0.1, "u": 0.02}
"""Standard deviations of the samples of randomized smoothing."""
HELD = 0.4
"""Seconds for which the last targets are held after the plan."""


def methods(task: tasks.ObjectTask, tiny: bool) -> dict:
    """From a name to ``(q, v, u, key) -> (cost, controls)``."""
    search = task.search | ({"samples": 8, "elites": 4, "max_steps": 2} if tiny else {})
    refine, alone, exact = (x | ({"max_steps": 1} if tiny else {}) for x in (REFINE, ALONE, EXACT))

    def cem(q, v, u, key):
        s = opt.cem(task.problem, q, v, u, key, **search)
        return s.cost, s.u

    def ilqr(how):
        def solve(q, v, u, key):
            s = opt.ilqr(task.problem, q, v, u, **how)
            return s.cost, s.u

        return solve

    def smoothed(problem, scales):
        """Steps with the derivatives of ``problem(scale)``, scale by scale, then exact ones."""

        def solve(q, v, u, key):
            def part(u, scale):
                return opt.ilqr(problem(scale), q, v, u, **refine).u, None

            return ilqr(exact)(q, v, jax.lax.scan(part, u, jnp.asarray(scales, u.dtype))[0], key)

        return solve

    def randomized(scale):
        samples = simulate.RandomizedSmoothing(task.scene, jax.random.key(0), **SPREAD)
        samples = eqx.tree_at(lambda s: s.noise, samples, scale * samples.noise)
        return task.moving(simulate.StraightThrough(task.scene, samples))

    return {"ilqr": ilqr(alone), "cem": cem, "cem, ilqr": ilqr(refine),
            "ilqr, at a distance": smoothed(task.smoothed, task.reaches),
            "ilqr, randomized": smoothed(randomized, (1.0, 0.25))}  # fmt: skip


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


def objects(table, starts: int, tiny: bool, again: bool, write) -> None:
    """Rows of both tasks by each method; those that are kept are measured if ``again`` is set."""
    there = set() if again else {(r["task"], r["method"]) for r in table.kept}
    for name, make in tasks.OBJECTS.items():
        task = make(starts, dtype=jnp.float32)
        first = task.q0, task.v0, task.u
        keys = jax.random.split(jax.random.key(0), starts)
        play = jax.jit(jax.vmap(lambda *x, task=task: arrived(task, *x)))
        searched = task.u
        for method, solve in methods(task, tiny).items():
            needs = {(name, method)} | ({(name, "cem, ilqr")} if method == "cem" else set())
            if needs <= there:
                continue
            began = time.process_time()
            program = jax.jit(jax.vmap(solve)).lower(*first, keys).compile()
            compiling = time.process_time() - began
            u = searched if method == "cem, ilqr" else task.u
            began = time.process_time()
            cost, u = jax.block_until_ready(program(task.q0, task.v0, u, keys))
            seconds = (time.process_time() - began) / starts
            searched = u if method == "cem" else searched
            both = np.asarray(task.q0), np.asarray(u)
            theirs = [arrived_in_mujoco(task, *x) for x in zip(*both, strict=True)]
            cost = np.asarray(cost)
            table.add(task=name, method=method, arrived=int(play(task.q0, task.v0, u).sum()),
                      arrived_in_MuJoCo=sum(theirs), of=starts, median_cost=float(np.median(cost)),
                      seconds_a_start=seconds, compile_s=compiling)  # fmt: skip
            write()
