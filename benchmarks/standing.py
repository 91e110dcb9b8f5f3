"""Quadrupeds that stand up and take pushes, in a receding horizon through contact."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rbd_jax import optimize as opt
from rbd_jax.optimize import tasks

from ._report import Report
from ._robots import available, load

ABOUT = (
    "`rbd_jax.optimize.tasks.stand_up`: a quadruped with servos on soft ground, in float32. From "
    "random states of `tasks.lying` (it fell limp, from joints up to 1.2 rad and a trunk up to "
    "0.4 rad off) it has 2.4 s to stand up. From its stance it is pushed at the trunk, after "
    "0.2 s, for 0.12 s, in a random horizontal direction, and has the rest of 2.4 s to stand. "
    "Successful is who ends upright, at 85 % of its height or more, near its posture and at rest; "
    "pushed robots must not have sunk to half their height. The plant takes steps half as long as "
    "those of the controller. Servos alone hold the standing posture. Samples: `opt.mpc` with "
    "`opt.sampler`, every 40 ms over a horizon of 0.4 s. Seconds are those of the whole batch, "
    "compiling excluded."
)
METHODS = {"servos alone": 0, "16 samples": 16}
STEPS = 60


def closed_loop(task: tasks.Task, samples: int):
    """``(q, v, impulse, key) -> (q, v)`` of the states after 0, 1, … steps."""
    horizon = task.u

    def run(q, v, impulse, key):
        plant, dt = tasks.pushed(task, impulse), task.problem.dt
        goal = task.q0.at[:2].set(q[:2])
        problem = at(task.problem, goal)
        if samples:
            control = opt.sampler(problem, key, noise=0.4, samples=samples, knots=3)
            loop = opt.mpc(control, q, v, horizon, STEPS, plant=plant)
            return loop.q, loop.v

        def step(state, k):
            new = plant(k * dt, *state, horizon[0])
            return new, new

        _, (qs, vs) = jax.lax.scan(step, (q, v), jnp.arange(STEPS).astype(q.dtype))
        return jnp.concatenate([q[None], qs]), jnp.concatenate([v[None], vs])

    return jax.jit(jax.vmap(run))


def at(problem, goal):
    """The same problem with another place to stand."""
    return eqx.tree_at(lambda p: (p.stage.q, p.final.q), problem, (goal, goal))


def main(options) -> None:
    """Both tasks by each method."""
    report = Report("standing", options, ABOUT)
    table = report.table("Quadrupeds that stand up, and that are pushed")
    batch = options.batch or (4 if options.tiny else 64)
    for robot in options.robots or ["quadruped"]:
        if not available([robot]):
            continue
        task = tasks.stand_up(load(robot, "float32"))
        mass = float(np.asarray(task.problem.model.inertia)[:, 0].sum())
        keys = jax.random.split(jax.random.key(0), batch)
        fallen = jax.jit(jax.vmap(tasks.lying, (None, 0)))(task, keys)
        stance = tuple(jnp.tile(x, (batch, 1)) for x in (task.q0, task.v0))
        angle = np.random.default_rng(0).uniform(0, 2 * np.pi, batch)
        way = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
        cases = [("stand up", 0.0, fallen)]
        for impulse in (40.0,) if options.tiny else (30.0, 40.0, 50.0, 60.0):
            cases.append(("push", impulse, stance))
        for name, samples in METHODS.items():
            began = time.perf_counter()
            inputs = [*stance, jnp.asarray(0 * way, jnp.float32), keys]
            run = closed_loop(task, samples).lower(*inputs).compile()
            compiling = time.perf_counter() - began
            for what, impulse, start in cases:
                began = time.perf_counter()
                inputs = [*start, jnp.asarray(impulse * way, jnp.float32), keys]
                q, v = jax.block_until_ready(run(*inputs))
                seconds = time.perf_counter() - began
                good = np.asarray(jax.vmap(tasks.stands, (None, 0, 0))(task, q[:, -1], v[:, -1]))
                lowest = np.asarray(q[..., 2].min(axis=1) / task.q0[2])
                if what == "push":
                    good = good & (lowest > 0.5)
                table.add(robot=robot, mass_kg=mass, task=what, impulse_N_s=impulse, method=name,
                          successful=int(good.sum()), of=batch, seconds=seconds,
                          compile_s=compiling)  # fmt: skip
                report.write()
